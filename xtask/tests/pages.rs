//! Checks what no compiler checks in the pages: tables are whole, and the list of guides has all of them.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the Markdown pages below the folder, without those of dependencies and builds.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                pages(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// Returns the lines at which a table begins without a heading. That is what an empty line inside of a table leaves.
fn broken_tables(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |at: usize| lines.get(at).is_some_and(|line| line.starts_with('|'));
    let is_ruler = |at: usize| {
        is_row(at) && lines[at].contains('-') && lines[at].chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
    };
    let begins = |at: &usize| is_row(*at) && (*at == 0 || !is_row(*at - 1));
    (0..lines.len()).filter(begins).filter(|at| !is_ruler(at + 1)).map(|at| at + 1).collect()
}

#[test]
fn tables_are_whole() {
    let whole = "| a | b |\n|---|:-:|\n| 1 | 2 |\n\ntext\n";
    assert!(broken_tables(whole).is_empty());
    assert_eq!(broken_tables(&whole.replace("text", "| 3 | 4 |")), [5]);
    let mut found = Vec::new();
    pages(&root(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    let broken: Vec<_> = found
        .iter()
        .flat_map(|page| {
            let lines = broken_tables(&fs::read_to_string(page).unwrap());
            lines.into_iter().map(move |line| format!("{}:{line}", page.display()))
        })
        .collect();
    assert!(broken.is_empty(), "a table needs its heading, and no empty line inside: {broken:#?}");
}

#[test]
fn list_of_guides_has_all_of_them() {
    let folder = root().join("crates/gpustream/src");
    let [list, guides] = ["lib.rs", "guide.rs"].map(|file| fs::read_to_string(folder.join(file)).unwrap());
    for page in fs::read_dir(folder.join("guide")).unwrap() {
        let name = page.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(list.contains(&format!("(guide::{name})")), "lib.rs lists no guide `{name}`");
        assert!(guides.contains(&format!("pub mod {name} {{}}")), "guide.rs has no module `{name}`");
    }
}
