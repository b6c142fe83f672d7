//! Folders that may have a vendor's libraries, and that the dynamic linker may not know.
//!
//! The code in these folders runs in the process, so we only follow variables that we [trust](environment::trusted).

use std::path::{Path, PathBuf};

use crate::environment;

/// Returns the folders that these environment variables name.
#[must_use]
pub fn named_by(variables: &[&str]) -> Vec<PathBuf> {
    variables.iter().filter_map(|variable| environment::trusted(variable)).map(PathBuf::from).collect()
}

/// Returns folders in the installed packages of Python environments. `environments` are the variables that name one, and
/// `inside` are paths below `site-packages`.
#[must_use]
pub fn of_python(environments: &[&str], inside: &[&str]) -> Vec<PathBuf> {
    let pythons = named_by(environments).into_iter().flat_map(|root| entries(&root.join("lib")));
    let packages = pythons.map(|python| python.join("site-packages"));
    packages
        .flat_map(|packages| inside.iter().map(move |folder| packages.join(folder)).collect::<Vec<_>>())
        .collect()
}

/// Returns what begins with `prefix` in a folder, the last name first, as the versions of a toolkit beside each other.
#[must_use]
pub fn beginning_with(prefix: &str, folder: &Path) -> Vec<PathBuf> {
    let mut found = entries(folder);
    found.retain(|entry| entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    found.sort();
    found.reverse();
    found
}

/// Returns what is in a folder, or nothing if there is no such folder.
#[must_use]
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
