//! There is one list of environment variables, and it names every variable that the crates read.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

const LIST: &str = include_str!("../src/environment.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the names in a text that begin with `GPUSTREAM_` and follow `mark`.
fn names<'t>(text: &'t str, mark: &str) -> impl Iterator<Item = &'t str> {
    let begin = format!("{mark}GPUSTREAM_");
    let starts: Vec<_> = text.match_indices(&begin).map(|(at, _)| at + mark.len()).collect();
    starts.into_iter().map(move |start| {
        let name = &text[start..];
        &name[..name.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(name.len())]
    })
}

#[test]
fn the_readme_has_the_same_list() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.contains(LIST),
        "README.md and crates/gpustream/src/environment.md differ; copy the latter's text"
    );
}

#[test]
fn every_variable_that_is_read_is_listed_and_no_other() {
    // Only the library's tests read this one.
    const SHIM: &str = "GPUSTREAM_HIP_SHIM_NVRTC";
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    // In the sources, each variable's name is a separate string.
    let read: BTreeSet<_> =
        texts.iter().flat_map(|text| names(text, "\"")).filter(|name| *name != SHIM).collect();
    let listed: BTreeSet<_> = names(LIST, "`").collect();
    assert!(read.len() > 15, "{read:?}");
    assert_eq!(read, listed);
}
