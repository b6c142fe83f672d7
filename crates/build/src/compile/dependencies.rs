//! Which files a compiler read, according to the compiler.
//!
//! We also find headers by searching the text, for the parser and for run-time compilers. But that search
//! does not evaluate a macro in `#include NAME`, and it does not know the folders in `CPATH` or the system's
//! headers. The compiler does. So each compilation notes what the compiler read: cargo watches these files,
//! and [stamps](super::stamp) check them again.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Reads and deletes the rule for `make` that a compiler wrote for `-MD`. Returns the files in the rule;
/// relative ones are in `folder`. If a wrapper around the compiler drops the option, there is no rule.
pub(super) fn take_rule(rule: &Path, folder: &Path) -> Vec<PathBuf> {
    let text = fs::read(rule).unwrap_or_default();
    let _ = fs::remove_file(rule);
    let mut words = vec![Vec::new()];
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let next = bytes.peek().copied();
        let word = words.last_mut();
        match (byte, next, word) {
            (b'\\', Some(b'\n'), _) => {
                bytes.next();
                words.push(Vec::new());
            }
            (b'\\', Some(escaped @ (b' ' | b'#' | b'\\')), Some(word))
            | (b'$', Some(escaped @ b'$'), Some(word)) => {
                bytes.next();
                word.push(escaped);
            }
            // Further rules without dependencies follow, one for each header.
            (b'\n', ..) => break,
            (b' ' | b'\t' | b'\r', ..) => words.push(Vec::new()),
            (byte, _, Some(word)) => word.push(byte),
            (_, _, None) => {}
        }
    }
    let target = words.iter().position(|word| word.ends_with(b":")).map_or(0, |at| at + 1);
    let files = words[target..].iter().filter(|word| !word.is_empty());
    sorted(files.map(|word| folder.join(OsStr::from_bytes(word))))
}

/// Returns the files that the preprocessed texts (`*.ii`) in a folder come from. nvcc keeps such a text for
/// each pass. We cannot use its `-MD`: it preprocesses once more, and misses what an `#ifdef __CUDA_ARCH__`
/// includes.
pub(super) fn of_preprocessed(texts: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in texts.read_dir().into_iter().flatten().flatten() {
        if entry.path().extension().is_none_or(|extension| extension != "ii") {
            continue;
        }
        let text = fs::read(entry.path()).unwrap_or_default();
        let mut markers: Vec<&[u8]> = text.split(|&byte| byte == b'\n').filter_map(marked).collect();
        markers.sort_unstable();
        markers.dedup();
        for name in markers {
            let mut name = name.iter().copied();
            let mut path = Vec::new();
            while let Some(byte) = name.next() {
                path.extend(if byte == b'\\' { name.next() } else { Some(byte) });
            }
            files.push(folder.join(OsStr::from_bytes(&path)));
        }
    }
    // `<built-in>` and names from a `#line` are not files.
    files.retain(|file| file.is_file());
    sorted(files.into_iter())
}

/// Returns the file name in a line `# 1 "name" 3 4`.
fn marked(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"# ")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let name = rest.get(digits..)?.strip_prefix(b" \"")?;
    let end = name.iter().rposition(|&byte| byte == b'"')?;
    (digits > 0).then_some(&name[..end])
}

fn sorted(files: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    // A stamp lists one file per line.
    let mut files: Vec<_> = files.filter(|file| !file.as_os_str().as_bytes().contains(&b'\n')).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Checksums of files and folders, cached during one build because kernel files share most headers.
pub(crate) struct Sums {
    known: Mutex<HashMap<PathBuf, u64>>,
    /// The folder that the build writes to.
    out_dir: PathBuf,
}

impl Sums {
    pub(crate) fn new(out_dir: PathBuf) -> Self {
        Self { known: Mutex::default(), out_dir }
    }

    /// Returns a checksum of the files' contents.
    pub(super) fn of_files(&self, files: &[PathBuf]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for file in files {
            (file, self.of(file, |file, hasher| fs::read(file).ok().hash(hasher))).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Returns a checksum of the names of all files below these folders.
    pub(super) fn of_names<'a>(&self, folders: impl Iterator<Item = &'a PathBuf>) -> u64 {
        let mut hasher = DefaultHasher::new();
        for folder in folders {
            (folder, self.of(folder, |folder, hasher| self.hash_names(folder, hasher))).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn of(&self, path: &Path, hash: impl FnOnce(&Path, &mut DefaultHasher)) -> u64 {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&sum) = known().get(path) {
            return sum;
        }
        let mut hasher = DefaultHasher::new();
        hash(path, &mut hasher);
        let sum = hasher.finish();
        known().insert(path.to_owned(), sum);
        sum
    }

    /// Hashes the names below a folder. Skips hidden folders and cargo's target folder, which can be large
    /// and contain no headers.
    fn hash_names(&self, folder: &Path, hasher: &mut DefaultHasher) {
        let is_own = folder.canonicalize().is_ok_and(|folder| folder == self.out_dir);
        if is_own || folder.join("CACHEDIR.TAG").exists() {
            return;
        }
        let mut entries: Vec<_> = folder.read_dir().into_iter().flatten().flatten().collect();
        entries.sort_unstable_by_key(DirEntry::file_name);
        for entry in entries.iter().filter(|entry| !entry.file_name().as_bytes().starts_with(b".")) {
            entry.file_name().hash(hasher);
            // We do not follow links, because they could lead back up.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.hash_names(&entry.path(), hasher);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_make_name_files_with_any_characters() {
        let dir = tempfile::tempdir().unwrap();
        let rule = dir.path().join("k.d");
        let text = "out/k.o: k.cu \\\n  /usr/a\\ b.h /usr/c\\#d$$e.h \\\n sub/f.h\n\n/usr/a\\ b.h:\n";
        fs::write(&rule, text).unwrap();
        let files = take_rule(&rule, Path::new("/here"));
        let expected = ["/here/k.cu", "/here/sub/f.h", "/usr/a b.h", "/usr/c#d$e.h"];
        assert_eq!(files, expected.map(PathBuf::from));
        assert!(take_rule(&rule, Path::new("/here")).is_empty(), "it was taken away");
    }

    #[test]
    fn lines_of_preprocessed_texts_name_the_files_that_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a \"b\".h"), "").unwrap();
        fs::write(at("c.h"), "").unwrap();
        let absolute = at("c.h").display().to_string();
        let text = format!(
            "# 0 \"<built-in>\"\n# 1 \"a \\\"b\\\".h\" 1 3 4\nint x;\n# 7 \"made up.y\"\n# 1 \"{absolute}\" 2\n# pragma \"c\"\n"
        );
        fs::write(at("k.compute_80.cpp1.ii"), text).unwrap();
        fs::write(at("k.ptx"), "# 1 \"k.ptx\"\n").unwrap();
        assert_eq!(of_preprocessed(dir.path(), dir.path()), [at("a \"b\".h"), at("c.h")]);
    }
}
