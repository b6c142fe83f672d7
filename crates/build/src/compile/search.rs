//! Finds the user's folders that compilers search for headers.

use std::env;
use std::path::{Path, PathBuf};

/// Variables that hold lists of folders, and variables that hold options.
const FOLDERS: [&str; 2] = ["CPATH", "CPLUS_INCLUDE_PATH"];
const OPTIONS: [&str; 3] = ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "HIPCC_COMPILE_FLAGS_APPEND"];

/// Options that name a folder, in the same word or the next one.
const NAMING: [&str; 6] = ["-iquote", "-isystem", "-idirafter", "--include-path=", "--system-include=", "-I"];

/// Returns the existing folders that these options name, and those that the compilers' environment variables
/// name.
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

/// Returns the folder that an option names. Empty if the folder is the next word, `None` if this is another
/// kind of option.
fn folder_of(option: &str) -> Option<&str> {
    let rest = NAMING.iter().find_map(|naming| option.strip_prefix(naming))?;
    Some(rest.trim_start_matches('='))
}

/// Makes the folder in an option absolute, because some compilers run in the output folder.
pub(crate) fn absolute(option: &str) -> String {
    let folder = folder_of(option).filter(|folder| !folder.is_empty());
    match folder.map(|folder| (folder, std::path::absolute(folder))) {
        Some((folder, Ok(path))) => format!("{}{}", &option[..option.len() - folder.len()], path.display()),
        _ => option.to_owned(),
    }
}

/// Returns true if cargo can watch a folder. Cargo looks at everything below it, so a folder that contains
/// the package or the build's output would cause a new build every time. So would a folder inside the output,
/// because the build script writes there, and one that does not exist.
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
