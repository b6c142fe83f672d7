//! The user's folders in which compilers look for headers.

use std::env;
use std::path::{Path, PathBuf};

/// Variables with lists of folders, and with options.
const FOLDERS: [&str; 2] = ["CPATH", "CPLUS_INCLUDE_PATH"];
const OPTIONS: [&str; 3] = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "HIPCC_COMPILE_FLAGS_APPEND"];

/// Options that name a folder, in the same word or in the next.
const NAMING: [&str; 6] = ["-iquote", "-isystem", "-idirafter", "--include-path=", "--system-include=", "-I"];

/// Returns the folders that these options and the variables that compilers read name, as far as there are such folders.
pub(crate) fn folders<'a>(options: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
    let mut folders = named(options);
    for variable in OPTIONS {
        folders.extend(named(env::var(variable).unwrap_or_default().split_whitespace()));
    }
    for variable in FOLDERS {
        folders.extend(env::split_paths(&env::var_os(variable).unwrap_or_default()));
    }
    folders.into_iter().filter_map(|folder| std::path::absolute(folder).ok()).filter(|f| f.is_dir()).collect()
}

fn named<'a>(mut options: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    while let Some(option) = options.next() {
        let Some(folder) = folder_of(option) else { continue };
        folders.extend(if folder.is_empty() { options.next() } else { Some(folder) }.map(PathBuf::from));
    }
    folders
}

/// Returns the folder that an option names, empty if it is the next word; `None` for an option of another kind.
fn folder_of(option: &str) -> Option<&str> {
    let rest = NAMING.iter().find_map(|naming| option.strip_prefix(naming))?;
    Some(rest.trim_start_matches('='))
}

/// Returns an option with the whole path of the folder that it names: some compilers run in the output folder.
pub(crate) fn absolute(option: &str) -> String {
    let folder = folder_of(option).filter(|folder| !folder.is_empty());
    match folder.map(|folder| (folder, std::path::absolute(folder))) {
        Some((folder, Ok(path))) => format!("{}{}", &option[..option.len() - folder.len()], path.display()),
        _ => option.to_owned(),
    }
}

/// Returns whether cargo can watch a folder. It looks at everything below, so a folder around the package or the build's own
/// output would be a reason to build again each time. So would a folder in that output, which the build script writes, and one
/// that is not there.
pub(crate) fn can_watch(folder: &Path, out_dir: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = package.and_then(|package| package.canonicalize().ok());
    package.iter().map(PathBuf::as_path).chain([out_dir]).all(|inner| !inner.starts_with(&folder))
        && !folder.starts_with(out_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_folders_in_the_same_word_or_in_the_next() {
        let options = "-Ia -I b -O3 -isystem=c -isystem d -DI --include-path=e -iquotef -I";
        assert_eq!(named(options.split(' ')), ["a", "b", "c", "d", "e", "f"].map(PathBuf::from));
    }
}
