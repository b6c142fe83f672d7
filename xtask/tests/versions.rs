//! We release the crates together, and each must name exactly its own version of the others.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::fs;
use std::path::Path;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)).unwrap()
}

#[test]
fn crates_ask_for_exactly_their_own_version_of_each_other() {
    let manifest = read("Cargo.toml");
    let ours = manifest.lines().filter(|line| line.starts_with("gpustream") && line.contains("path = "));
    let wanted = format!("version = \"={VERSION}\"");
    let (right, wrong): (Vec<_>, Vec<_>) = ours.partition(|line| line.contains(&wanted));
    assert!(right.len() >= 11 && wrong.is_empty(), "not `{wanted}`: {wrong:#?}");
}

#[test]
fn bindings_are_for_the_present_version() {
    let source = read("crates/gpustream/src/lib.rs");
    for part in [format!("(\"{VERSION}\") => {{}};"), format!("this `gpustream` has version {VERSION}:")] {
        assert!(source.contains(&part), "`__bindings_of` lacks `{part}`");
    }
}
