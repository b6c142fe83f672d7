//! Headers: the portable ones that this crate carries, and those that a kernel file includes.

pub(crate) mod vendor;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Error, Result, SourceFile, text};

/// The device headers by the name they are included under, `gpustream/kernel.cuh` and so on.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/headers.rs"));

/// The headers that only host compilers read, which run-time compilers do not get.
pub(crate) const CPU_ONLY: &str = "gpustream/cpu/";

/// A header that a kernel file includes, directly or not.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// The name as written between the quotes or angle brackets.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The path of a user's header; `None` for one that this crate carries.
    pub(crate) path: Option<PathBuf>,
}

/// Writes the device headers below `folder`, so that compilers find them with `-I`. Files that are the same
/// already are left alone: to write them would race with running compilers.
pub(crate) fn unpack(folder: &Path) -> Result<()> {
    for (name, text) in EMBEDDED {
        write_if_changed(&folder.join(name), text.as_bytes())?;
    }
    for (path, text) in vendor::one_liners() {
        write_if_changed(&folder.join(path), text.as_bytes())?;
    }
    Ok(())
}

/// Writes a file unless it has these contents already.
pub(crate) fn write_if_changed(path: &Path, contents: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, contents)
    };
    write().map_err(|e| Error::message(format!("cannot write {}: {e}", path.display())))
}

/// Returns every header that is included and not the system's, in the order of discovery. Includes are found by their
/// text, without evaluating `#if`: one header too many does no harm.
pub(crate) fn closure(source: &SourceFile, include_dirs: &[PathBuf]) -> Vec<Header> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut queue = vec![(source.text.clone(), Place::Disk(source.path.clone()))];
    while let Some((text, place)) = queue.pop() {
        for (name, quoted) in includes(&text) {
            if !seen.insert(name.to_owned()) {
                continue;
            }
            let Some((text, place)) = find(name, quoted, &place, include_dirs) else {
                if let (Place::Disk(_), Some(text)) = (&place, vendor::built_in(name)) {
                    found.push(Header { name: name.to_owned(), text, path: None });
                }
                continue;
            };
            let path = match &place {
                Place::Disk(path) => Some(path.clone()),
                Place::Embedded(_) => None,
            };
            queue.push((text.clone(), place));
            found.push(Header { name: name.to_owned(), text, path });
        }
    }
    found
}

/// Returns whether a run-time compiler for GPUs could need the header.
pub(crate) fn for_devices(header: &Header) -> bool {
    !header.name.starts_with(CPU_ONLY)
}

/// Returns the texts of our headers below a folder, such as those that a backend's compilation includes around the user's
/// file: no search from that file finds them.
pub(crate) fn texts_in(folder: &str) -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().filter(move |(name, _)| name.starts_with(folder)).map(|(_, text)| *text)
}

enum Place {
    Disk(PathBuf),
    Embedded(String),
}

fn find(name: &str, quoted: bool, from: &Place, include_dirs: &[PathBuf]) -> Option<(String, Place)> {
    let read = |path: PathBuf| fs::read(&path).ok().map(|bytes| (text(bytes), Place::Disk(path)));
    let embedded = |name: &str| {
        let (name, text) = EMBEDDED.iter().find(|(n, _)| *n == name)?;
        Some(((*text).to_owned(), Place::Embedded((*name).to_owned())))
    };
    if quoted {
        let beside = match from {
            Place::Disk(path) => read(path.parent()?.join(name)),
            Place::Embedded(path) => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                embedded(&format!("{folder}/{name}"))
            }
        };
        if beside.is_some() {
            return beside;
        }
    }
    include_dirs.iter().find_map(|dir| read(dir.join(name))).or_else(|| embedded(name))
}

/// Returns the names that a text includes, and whether in quotes.
pub(crate) fn includes(text: &str) -> impl Iterator<Item = (&str, bool)> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let (close, quoted) = match rest.chars().next()? {
            '"' => ('"', true),
            '<' => ('>', false),
            _ => return None,
        };
        let name = &rest[1..];
        Some((&name[..name.find(close)?], quoted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_found_with_and_without_space() {
        let text = "#include <a/b.h>\n  #  include \"c.h\" // d\n#include NAME\nint x; // #include <e.h>\n";
        assert_eq!(includes(text).collect::<Vec<_>>(), [("a/b.h", false), ("c.h", true)]);
    }

    #[test]
    fn closure_follows_user_headers_beside_the_includer_and_on_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("sub")).unwrap();
        fs::create_dir_all(at("inc")).unwrap();
        fs::write(at("sub/a.cuh"), "#include \"b.cuh\"\n#include <vector>\n").unwrap();
        fs::write(at("sub/b.cuh"), "#include <c.cuh>\n").unwrap();
        fs::write(at("inc/c.cuh"), "#include \"sub/a.cuh\"\n").unwrap();
        let source = SourceFile::new(at("k.cu"), "#include \"sub/a.cuh\"\n");
        let found = closure(&source, &[at("inc")]);
        let names: Vec<_> = found.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["sub/a.cuh", "b.cuh", "c.cuh"]);
        assert_eq!(found[1].path.as_deref(), Some(at("sub/b.cuh").as_path()));
    }

    #[test]
    fn hips_words_travel_to_a_run_time_compiler_that_lacks_them() {
        let text = "#include <cuda_runtime.h>\n#include <hip/hip_runtime.h>\n#include <unknown.h>\n";
        let headers = closure(&SourceFile::new("kernel.cu", text), &[]);
        let [cuda, hip] = &headers[..] else { panic!("{headers:?}") };
        assert_eq!((&cuda.name[..], &cuda.text[..]), ("cuda_runtime.h", ""));
        assert_eq!(hip.name, "hip/hip_runtime.h");
        let (guard, words) = hip.text.split_once('\n').unwrap();
        assert_eq!(guard, "#ifdef __CUDACC_RTC__");
        assert!(words.contains("#define HIP_DYNAMIC_SHARED(type, name)"), "{words}");
    }
}
