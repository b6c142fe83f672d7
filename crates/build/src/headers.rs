//! Headers: the portable ones that this crate carries, and those that a kernel file includes.

pub(crate) mod vendor;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Error, Result, SourceFile, text};
use crate::names::is_word;

/// The device headers by the name they are included under, `gpustream/kernel.cuh` and so on.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/headers.rs"));

/// The headers that only host compilers read, which run-time compilers do not get.
const CPU_ONLY: &str = "gpustream/cpu/";

/// A header that a kernel file includes, directly or not.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// The name under which run-time compilers get the header. No other header has the same name.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The path of a user's header; `None` for one that this crate carries.
    pub(crate) path: Option<PathBuf>,
    /// The places in the user's files that mean this header.
    pub(crate) included: Vec<Included>,
}

/// An `#include` in a file of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Included {
    /// The file.
    pub(crate) by: PathBuf,
    /// The name between its quotes or angle brackets, with these.
    pub(crate) written: String,
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

/// The headers of a kernel file.
#[derive(Debug)]
pub(crate) struct Closure {
    /// Every header that is included and not the system's, in the order of discovery.
    pub(crate) headers: Vec<Header>,
    /// The user's folders in which we looked for a name and did not find it. If a header of that name appears there later,
    /// the name means that header.
    pub(crate) searched: BTreeSet<PathBuf>,
}

/// Finds the headers of a kernel file. Includes are found by their text, without evaluating `#if`: one header too many does
/// no harm.
///
/// A header is known by the file that an include resolves to, since each folder may have its own `common.cuh`. Run-time
/// compilers look headers up by name alone. So the second `common.cuh` gets another name, which [`renamed`] writes into the
/// includes that mean it. The kernel file's own includes choose first.
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

/// Returns the text of a user's file with the names under which run-time compilers get its headers.
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

/// Returns whether a run-time compiler for GPUs could need the header.
pub(crate) fn for_devices(header: &Header) -> bool {
    !header.name.starts_with(CPU_ONLY)
}

/// Returns the texts of our headers.
pub(crate) fn texts() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(_, text)| *text)
}

/// Where a header comes from.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Place {
    Disk(PathBuf),
    /// A header of ours, by its whole name.
    Embedded(&'static str),
    /// A vendor's header, whose contents run-time compilers have built in.
    BuiltIn(String),
}

impl Place {
    /// Returns what the place has in common with every other path to the same file.
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

    /// Returns the name for run-time compilers of a header that is written so, and that is none of `others`.
    fn name(&self, written: &str, others: &[Header]) -> String {
        // Headers of ours are embedded as they are, and include each other by their whole names.
        if let Self::Embedded(name) = self {
            return (*name).to_owned();
        }
        // Some compilers put the including header's folder before the name first. So no name ends with another.
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

/// Looks for a header as compilers do. If it is not beside the including file, where compilers look first, notes that folder
/// as [searched](Closure::searched).
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

/// Returns a header's name without its quotes or angle brackets.
fn name(written: &str) -> &str {
    written.trim_start_matches(['"', '<']).trim_end_matches(['"', '>'])
}

/// Returns the places at which a text names headers, with their quotes or angle brackets. `#include` names one, or a macro that
/// stands for one, and so does `__has_include`.
pub(crate) fn includes(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').filter_map(move |line| {
        let at = start;
        start += line.len();
        let directive = line.trim_start().strip_prefix('#')?.trim_start();
        // Offsets of texts that each name a header at their start.
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
