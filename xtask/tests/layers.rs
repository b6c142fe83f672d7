//! Checks that arrows between modules go one way: in the crates below, no top-level module may import one that imports it,
//! directly or through others. Also checks that a module with a folder is `NAME.rs` next to `NAME/`, not `NAME/mod.rs`.
//!
//! A module's files are `NAME.rs` and everything under `NAME/`. Its imports are the paths in them that start at the crate's root:
//! `crate::NAME`, or as many `super` as lead there. If `lib.rs` re-exports a name, the name counts as its module's. We do not
//! count code under `#[cfg(test)]`, files called `tests` and comments.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// The folders in `crates` that we check. We do not check `gpustream`'s handles: you can combine them freely, so they must know
/// each other.
const CRATES: [&str; 12] = [
    "build",
    "cli",
    "collectives",
    "core",
    "cpu",
    "cuda",
    "dlpack",
    "hal",
    "hip",
    "math",
    "timeline",
    "timeline-view",
];

#[test]
fn no_module_imports_its_importer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut failures = String::new();
    for name in CRATES {
        let mut files = Vec::new();
        read(&root.join(name).join("src"), "", &mut files);
        assert!(files.len() > 3, "crates/{name}/src has {} files", files.len());
        if let Some(cycle) = shortest_cycle(&imports(&files)) {
            writeln!(failures, "crates/{name}: {cycle}").unwrap();
        }
    }
    assert!(
        failures.is_empty(),
        "modules import each other in a circle; move what both need into the lower one, or pass it:\n{failures}"
    );
}

#[test]
fn folder_modules_are_files_beside_their_folders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for name in CRATES.into_iter().chain(["gpustream"]) {
        let mut files = Vec::new();
        read(&root.join(name).join("src"), "", &mut files);
        let misnamed: Vec<_> =
            files.iter().map(|(path, _)| path).filter(|path| path.ends_with("/mod.rs")).collect();
        assert!(misnamed.is_empty(), "crates/{name}/src: write x.rs for x/mod.rs: {misnamed:?}");
    }
}

#[test]
fn cycle_is_named_and_its_lookalike_is_not() {
    let graph = |files: &[(&str, &str)]| {
        let owned = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
        imports(&files.iter().map(owned).collect::<Vec<_>>())
    };
    let through_another = graph(&[
        ("lib.rs", "mod a; mod b; mod c; pub use b::Beta;"),
        ("a.rs", "use crate::{Beta, std};"),
        ("b.rs", "mod deep;"),
        ("b/deep.rs", "fn f() { super::super::c::f() }"),
        ("c.rs", "fn f() -> crate::a::A { loop {} }"),
    ]);
    assert_eq!(
        shortest_cycle(&through_another).as_deref(),
        Some("a (a.rs) -> b (b/deep.rs) -> c (c.rs) -> a")
    );
    let one_way = graph(&[
        ("lib.rs", "mod a; mod b; use a::A;"),
        ("a.rs", "/// [`crate::b`]\nconst S: &str = \"crate::b // \"; /* crate::b */ const C: char = '\"';"),
        ("a/tests.rs", "use crate::b;"),
        ("b.rs", "mod inner; use self::inner::a; use crate::{a::A, b::inner};\n"),
        ("b/inner.rs", "use super::a; #[cfg(test)] mod tests { use super::*; use crate::c; }"),
        ("c.rs", "use crate::b;"),
    ]);
    assert_eq!(shortest_cycle(&one_way), None);
}

/// Which modules each module imports, with a file that does.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// Reads the sources in a folder, with their paths below `src`.
fn read(folder: &Path, prefix: &str, files: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            read(&entry.path(), &format!("{path}/"), files);
        } else if entry.path().extension().is_some_and(|extension| extension == "rs") {
            files.push((path, std::fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

/// Returns the imports between the top-level modules of a crate.
fn imports(files: &[(String, String)]) -> Imports {
    let modules: BTreeSet<_> = files.iter().map(|(path, _)| module_of(path)[0].clone()).collect();
    let root = files.iter().find(|(path, _)| path == "lib.rs").map_or("", |(_, text)| text);
    let mut exported = BTreeMap::new();
    for path in paths_in(root).iter().filter_map(|path| path.strip_prefix(&["use".to_owned()])) {
        let from = usize::from(path.first().is_some_and(|name| name == "self" || name == "crate"));
        if let [module, .., name] = &path[from..]
            && modules.contains(module)
        {
            exported.insert(name.clone(), module.clone());
        }
    }
    let mut imports = Imports::new();
    for (path, text) in files {
        let module = module_of(path);
        if path == "lib.rs" || module.iter().any(|name| name == "tests") {
            continue;
        }
        let roots = [vec!["crate".to_owned()], vec!["super".to_owned(); module.len()]];
        for names in paths_in(text) {
            let names = names.strip_prefix(&["use".to_owned()]).unwrap_or(&names);
            let Some([name, ..]) = roots.iter().find_map(|root| names.strip_prefix(&root[..])) else {
                continue;
            };
            let target = exported.get(name).unwrap_or(name);
            if *target != module[0] && modules.contains(target) {
                let targets = imports.entry(module[0].clone()).or_default();
                targets.entry(target.clone()).or_insert_with(|| path.clone());
            }
        }
    }
    imports
}

/// Returns which module a file is, from the top-level one down: `queue/registry.rs` is `queue`, `registry`.
fn module_of(path: &str) -> Vec<String> {
    path.trim_end_matches(".rs").split('/').map(str::to_owned).collect()
}

/// Returns the paths in a source, each as its names: `use a::{b, c::d as e}` is `use a b` and `use a c d e`.
fn paths_in(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    read_paths(text.parse().unwrap(), &[], &mut paths);
    paths
}

/// Adds the paths in `code`, each after `prefix`, except those under `#[cfg(test)]`.
fn read_paths(code: TokenStream, prefix: &[String], paths: &mut Vec<Vec<String>>) {
    let mut path = prefix.to_vec();
    // Whether the next name belongs to the path, whether one colon was read, and whether this is an item of the tests.
    let (mut goes_on, mut colon, mut is_test) = (true, false, false);
    for token in code {
        let was_colon = std::mem::take(&mut colon);
        match token {
            TokenTree::Group(group) if group.to_string() == "[cfg (test)]" => is_test = true,
            TokenTree::Group(group) if is_test => is_test = group.delimiter() != Delimiter::Brace,
            TokenTree::Punct(end) if is_test => is_test = end.as_char() != ';',
            _ if is_test => {}
            TokenTree::Group(group) if goes_on => read_paths(group.stream(), &path, paths),
            TokenTree::Group(group) => read_paths(group.stream(), &[], paths),
            TokenTree::Punct(punct) if punct.as_char() == ':' && punct.spacing() == Spacing::Joint => {
                colon = true;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && was_colon => goes_on = true,
            TokenTree::Ident(name) if name == "as" => goes_on = true,
            TokenTree::Ident(name) => {
                if !goes_on {
                    paths.push(std::mem::replace(&mut path, prefix.to_vec()));
                }
                goes_on = name == "use";
                path.push(name.to_string());
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {
                paths.push(std::mem::replace(&mut path, prefix.to_vec()));
                goes_on = true;
            }
        }
    }
    paths.push(path);
}

/// Returns a cycle with as few modules as possible, each with the file that imports the next one.
fn shortest_cycle(imports: &Imports) -> Option<String> {
    imports.keys().filter_map(|start| cycle_through(imports, start)).min_by_key(Vec::len).map(|cycle| {
        let arrows = cycle.iter().map(|(module, file)| format!("{module} ({file}) -> "));
        arrows.chain(cycle.first().map(|(module, _)| (*module).to_owned())).collect()
    })
}

fn cycle_through<'a>(imports: &'a Imports, start: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let mut queue = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = queue.pop_front() {
        for next in way.last().and_then(|last| imports.get(*last)).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let after = way.iter().skip(1).copied().chain([start]);
                return Some(
                    way.iter().zip(after).map(|(&m, next)| (m, imports[m][next].as_str())).collect(),
                );
            }
            if seen.insert(next.as_str()) {
                queue.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}
