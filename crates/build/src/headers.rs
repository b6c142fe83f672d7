//! Headers: the portable ones that we ship, and those that a kernel file includes.

pub(crate) mod vendor;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Error, Result, SourceFile, text};
use crate::names::is_word;

/// The device headers, by the names that files include, such as `gpustream/kernel.cuh`.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/headers.rs"));

/// Headers that only host compilers read. Run-time compilers do not get them.
const CPU_ONLY: &str = "gpustream/cpu/";

/// A header that a kernel file includes, directly or through others.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// The header's name for run-time compilers. It is unique.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The path of your header; `None` for one that we ship.
    pub(crate) path: Option<PathBuf>,
    /// The includes in your files that mean this header.
    pub(crate) included: Vec<Included>,
}

/// An `#include` in one of your files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Included {
    /// The including file.
    pub(crate) by: PathBuf,
    /// The name as written, with its quotes or angle brackets.
    pub(crate) written: String,
}

/// The folder of the unpacked headers, next to the bindings.
pub(crate) const FOLDER: &str = "gpustream-include";

/// Writes the device headers below `folder`, so that compilers find them with `-I`. Leaves unchanged files
/// alone, because a compiler may be reading them.
pub(crate) fn unpack(folder: &Path) -> Result<()> {
    for (name, text) in EMBEDDED {
        write_if_changed(&folder.join(name), text.as_bytes())?;
    }
    for (path, text) in vendor::one_liners() {
        write_if_changed(&folder.join(path), text.as_bytes())?;
    }
    Ok(())
}

/// Writes a file unless it already has these contents.
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

#[derive(Debug)]
pub(crate) struct Closure {
    /// Every included header except the system's own, in the order that we found them.
    pub(crate) headers: Vec<Header>,
    /// Your folders that do not have a header that we looked for. If one of that name appears there later,
    /// the include means that one, so we must build again.
    pub(crate) searched: BTreeSet<PathBuf>,
}

/// Finds the headers of a kernel file. We search the text for includes and do not evaluate `#if`, because a
/// header too many does no harm.
///
/// Each folder may have its own `common.cuh`, so we identify a header by the file that the include resolves
/// to. Run-time compilers only look at the name. So the second `common.cuh` gets a new name, and [`renamed`]
/// writes that name into the includes that mean it. The kernel file's own includes come first, so they keep
/// their names.
pub(crate) fn closure(source: &SourceFile, include_dirs: &[PathBuf]) -> Closure {
    let mut closure = Closure { headers: Vec::new(), searched: BTreeSet::new() };
    let mut known: HashMap<Place, usize> = HashMap::new();
    let mut queue = VecDeque::from([(source.text.clone(), Place::Disk(source.path.clone()))]);
    while let Some((text, from)) = queue.pop_front() {
        for written in includes(&text).map(|at| &text[at]) {
            let Some(place) = find(written, &from, include_dirs, &mut closure.searched) else { continue };
            let identity = place.identity();
            let number = known.get(&identity).copied().unwrap_or(closure.headers.len());
            if number == closure.headers.len() {
                let Some(text) = place.text() else { continue };
                closure.headers.push(Header {
                    name: place.name(name(written), &closure.headers),
                    text: text.clone(),
                    path: if let Place::Disk(path) = &place { Some(path.clone()) } else { None },
                    included: Vec::new(),
                });
                queue.push_back((text, place));
                known.insert(identity, number);
            }
            if let Place::Disk(by) = &from {
                let included = Included { by: by.clone(), written: written.to_owned() };
                closure.headers[number].included.push(included);
            }
        }
    }
    closure
}

/// Returns the text of your file, with each include changed to the header's name for run-time compilers.
pub(crate) fn renamed(text: &str, file: &Path, headers: &[Header]) -> String {
    let mut result = String::new();
    let mut end = 0;
    for at in includes(text) {
        let written = &text[at.clone()];
        let is_this = |included: &Included| included.by == file && included.written == written;
        let header = headers.iter().find(|header| header.included.iter().any(is_this));
        if let Some(header) = header.filter(|header| header.name != name(written)) {
            result.push_str(&text[end..=at.start]);
            result.push_str(&header.name);
            end = at.end - 1;
        }
    }
    result + &text[end..]
}

/// Returns true if a run-time compiler for GPUs could need the header.
pub(crate) fn for_devices(header: &Header) -> bool {
    !header.name.starts_with(CPU_ONLY)
}

/// Returns the texts of the headers that we ship.
pub(crate) fn texts() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(_, text)| *text)
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Place {
    Disk(PathBuf),
    /// One of our headers, by its full name.
    Embedded(&'static str),
    /// A vendor's header that run-time compilers have built in.
    BuiltIn(String),
}

impl Place {
    /// Returns a value that is the same for all paths to one file.
    fn identity(&self) -> Self {
        match self {
            Self::Disk(path) => Self::Disk(path.canonicalize().unwrap_or_else(|_| path.clone())),
            place => place.clone(),
        }
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Disk(path) => Some(text(fs::read(path).ok()?)),
            Self::Embedded(name) => {
                EMBEDDED.iter().find(|(n, _)| n == name).map(|(_, text)| (*text).to_owned())
            }
            Self::BuiltIn(name) => vendor::built_in(name),
        }
    }

    /// Returns a name for run-time compilers for a header that is included as `written`. No header in
    /// `others` has it.
    fn name(&self, written: &str, others: &[Header]) -> String {
        // We embed our own headers unchanged, and they include each other by their full names.
        if let Self::Embedded(name) = self {
            return (*name).to_owned();
        }
        // Some compilers first try the name with the including header's folder in front. So no name may end
        // with another.
        let ends = |long: &str, short: &str| long.strip_suffix(short).is_some_and(|rest| rest.ends_with('/'));
        let meets = |other: &Header, name: &str| {
            other.name == name || other.path.is_some() && (ends(&other.name, name) || ends(name, &other.name))
        };
        let is_free = |name: &String| !others.iter().any(|other| meets(other, name));
        let (folders, last) = written.rsplit_once('/').unwrap_or(("", written));
        let plain = folders.is_empty() || folders.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let whole = plain.then(|| written.to_owned());
        let numbered = (others.len()..).map(|number| format!("{number}-{last}"));
        whole.into_iter().chain(numbered).find(is_free).unwrap_or_default()
    }
}

/// Looks for a header as compilers do. They start in the including file's folder. If the header is not there,
/// we note that folder as [searched](Closure::searched).
fn find(
    written: &str,
    from: &Place,
    include_dirs: &[PathBuf],
    searched: &mut BTreeSet<PathBuf>,
) -> Option<Place> {
    let name = name(written);
    let embedded =
        |name: &str| EMBEDDED.iter().find(|(n, _)| *n == name).map(|(name, _)| Place::Embedded(name));
    // A macro may stand for either form.
    let mut beside = None;
    if !written.starts_with('<') {
        match from {
            Place::Disk(file) => {
                let folder = file.parent()?;
                let path = folder.join(name);
                if written.starts_with('"') && path.is_file() {
                    return Some(Place::Disk(path));
                }
                beside = Some(folder);
            }
            Place::Embedded(file) => {
                let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
                if let Some(place) = embedded(&format!("{folder}/{name}")) {
                    return Some(place);
                }
            }
            Place::BuiltIn(_) => return None,
        }
    }
    let on_path = || include_dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    let place = on_path().map(Place::Disk).or_else(|| embedded(name)).or_else(|| {
        let known = matches!(from, Place::Disk(_)) && vendor::built_in(name).is_some();
        known.then(|| Place::BuiltIn(name.to_owned()))
    });
    if !matches!(place, Some(Place::Embedded(_) | Place::BuiltIn(_))) {
        searched.extend(beside.map(|folder| Path::new(".").join(folder)));
    }
    place
}

fn name(written: &str) -> &str {
    written.trim_start_matches(['"', '<']).trim_end_matches(['"', '>'])
}

/// Returns the ranges of header names in a text, including quotes or angle brackets. `#include` names a
/// header or a macro that stands for one, and so does `__has_include`.
pub(crate) fn includes(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').filter_map(move |line| {
        let at = start;
        start += line.len();
        let directive = line.trim_start().strip_prefix('#')?.trim_start();
        // The offsets of header names.
        let places = match directive.strip_prefix("include") {
            Some(rest) => vec![line.len() - rest.len()],
            None if directive.starts_with("if") || directive.starts_with("elif") => {
                let all = line.match_indices(HAS_INCLUDE);
                all.map(|(at, word)| at + word.len() + line[at + word.len()..].find('(').map_or(0, |n| n + 1))
                    .collect()
            }
            None => return None,
        };
        Some(places.into_iter().filter_map(move |place| {
            let rest = line[place..].trim_start();
            let first = line.len() - rest.len();
            let length = match rest.chars().next()? {
                '"' => rest[1..].find('"')? + 2,
                '<' => rest.find('>')? + 1,
                c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                _ => return None,
            };
            Some(at + first..at + first + length)
        }))
    });
    lines.flatten()
}

const HAS_INCLUDE: &str = "__has_include";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_found_with_and_without_space() {
        let text = "#include <a/b.h>\n  #  include \"c.h\" // d\n#include NAME\nint x; // #include <e.h>\n#include\n\
            #if __has_include(<f.h>) && __has_include ( \"g.h\" )\n#ifdef __has_include\n#include <unclosed\n";
        let written: Vec<_> = includes(text).map(|at| &text[at]).collect();
        assert_eq!(written, ["<a/b.h>", "\"c.h\"", "NAME", "<f.h>", "\"g.h\""]);
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
        let found = closure(&source, &[at("inc")]).headers;
        let names: Vec<_> = found.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["sub/a.cuh", "b.cuh", "c.cuh"]);
        assert_eq!(found[1].path.as_deref(), Some(at("sub/b.cuh").as_path()));
    }

    #[test]
    fn each_include_means_the_file_that_a_compiler_finds() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a")).unwrap();
        fs::create_dir_all(at("b")).unwrap();
        fs::write(
            at("a/a.cuh"),
            "#if 0\n#include \"gone.cuh\"\n#endif\n#include \"x.cuh\"\n#include \"../b/x.cuh\"\n",
        )
        .unwrap();
        fs::write(at("b/b.cuh"), "#include \"gone.cuh\"\n#include \"x.cuh\" // x.cuh\n#include <x.cuh>\n")
            .unwrap();
        for name in ["a/x.cuh", "b/x.cuh", "b/gone.cuh"] {
            fs::write(at(name), name).unwrap();
        }
        let source = SourceFile::new(at("k.cu"), "#include \"a/a.cuh\"\n#include \"b/b.cuh\"\n");
        let Closure { headers, searched } = closure(&source, &[at("a")]);
        let found: Vec<_> = headers.iter().map(|h| (&*h.name, h.path.clone().unwrap())).collect();
        let expected = [
            ("a/a.cuh", "a/a.cuh"),
            ("b/b.cuh", "b/b.cuh"),
            ("x.cuh", "a/x.cuh"),
            ("3-x.cuh", "a/../b/x.cuh"),
            ("gone.cuh", "b/gone.cuh"),
        ];
        assert_eq!(found, expected.map(|(name, path)| (name, at(path))));
        assert_eq!(searched.into_iter().collect::<Vec<_>>(), [at("a")], "it may get its gone.cuh");
        let text = renamed(&headers[1].text, &at("b/b.cuh"), &headers);
        assert_eq!(text, "#include \"gone.cuh\"\n#include \"3-x.cuh\" // x.cuh\n#include <x.cuh>\n");
        let text = renamed(&headers[0].text, &at("a/a.cuh"), &headers);
        assert!(text.contains("\"gone.cuh\"\n#endif\n#include \"x.cuh\"\n#include \"3-x.cuh\"\n"), "{text}");
    }

    #[test]
    fn hips_words_travel_to_a_run_time_compiler_that_lacks_them() {
        let text = "#include <cuda_runtime.h>\n#include <hip/hip_runtime.h>\n#include <unknown.h>\n";
        let headers = closure(&SourceFile::new("kernel.cu", text), &[]).headers;
        let [cuda, hip] = &headers[..] else { panic!("{headers:?}") };
        assert_eq!((&cuda.name[..], &cuda.text[..]), ("cuda_runtime.h", ""));
        assert_eq!(hip.name, "hip/hip_runtime.h");
        let (guard, words) = hip.text.split_once('\n').unwrap();
        assert_eq!(guard, "#ifdef __CUDACC_RTC__");
        assert!(words.contains("#define HIP_DYNAMIC_SHARED(type, name)"), "{words}");
    }
}
