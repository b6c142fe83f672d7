//! Arrows between modules go one way: in the crates below no top-level module imports one that imports it, directly or
//! through others.
//!
//! A module's files are `NAME.rs` and everything under `NAME/`. Its imports are the paths from the crate's root in
//! them, `crate::NAME` or as many `super` as lead there; a name that `lib.rs` re-exports counts as its module's. Code
//! under `#[cfg(test)]`, files called `tests` and comments do not count.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The folders in `crates` that are held to it, with the modules that count as one. Users combine the handles of `gpustream`
/// freely, so the handles know each other.
const CRATES: [(&str, &str); 4] = [
    ("build", ""),
    ("cpu", ""),
    (
        "gpustream",
        "buffer copy device event flag graph graph_builder launch managed module notify pinned pipeline stream \
         strided view volatile",
    ),
    ("hal", ""),
];

#[test]
fn no_module_imports_its_importer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut failures = String::new();
    for (name, handles) in CRATES {
        let mut files = Vec::new();
        read(&root.join(name).join("src"), "", &mut files);
        assert!(files.len() > 3, "crates/{name}/src has {} files", files.len());
        if let Some(cycle) = shortest_cycle(&as_one(imports(&files), handles)) {
            writeln!(failures, "crates/{name}: {cycle}").unwrap();
        }
    }
    assert!(
        failures.is_empty(),
        "modules import each other in a circle; move what both need into the lower one, or pass it:\n{failures}"
    );
}

#[test]
fn a_cycle_is_named_and_what_only_looks_like_one_is_not() {
    let graph = |files: &[(&str, &str)]| {
        let owned = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
        imports(&files.iter().map(owned).collect::<Vec<_>>())
    };
    let through_another = graph(&[
        ("lib.rs", "mod a; mod b; mod c; pub use b::Beta;"),
        ("a.rs", "use crate::{Beta, std};"),
        ("b/mod.rs", "mod deep;"),
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

/// The modules that each module imports, with a file that does.
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
    let root = code(root);
    let mut exported = BTreeMap::new();
    for (at, _) in root.match_indices("use ") {
        for path in paths(&root[at + "use ".len()..]) {
            let path = path.strip_prefix("self::").or(path.strip_prefix("crate::")).unwrap_or(&path);
            let Some((module, name)) = path.split_once("::").filter(|(module, _)| modules.contains(*module))
            else {
                continue;
            };
            let name = name.rsplit([':', ' ']).next().unwrap_or(name);
            exported.insert(name.to_owned(), module.to_owned());
        }
    }
    let mut imports = Imports::new();
    for (path, text) in files {
        let module = module_of(path);
        if path == "lib.rs" || module.iter().any(|name| name == "tests") {
            continue;
        }
        let text = code(text);
        let to_root = "super::".repeat(module.len());
        let roots = ["crate::", to_root.as_str()];
        let starts = roots.iter().flat_map(|root| text.match_indices(root).map(|(at, _)| at + root.len()));
        for path_in_crate in starts.flat_map(|start| paths(&text[start..])) {
            let name = path_in_crate.split("::").next().unwrap_or_default().trim();
            let target = exported.get(name).map_or(name, String::as_str);
            if target != module[0] && modules.contains(target) {
                let targets = imports.entry(module[0].clone()).or_default();
                targets.entry(target.to_owned()).or_insert_with(|| path.clone());
            }
        }
    }
    imports
}

/// Makes some modules one, called `handles`.
fn as_one(imports: Imports, handles: &str) -> Imports {
    let name_of = |module: String| {
        if handles.split(' ').any(|handle| handle == module) { "handles".to_owned() } else { module }
    };
    let mut merged = Imports::new();
    for (module, targets) in imports {
        let module = name_of(module);
        for (target, file) in targets {
            let target = name_of(target);
            if target != module {
                merged.entry(module.clone()).or_default().entry(target).or_insert(file);
            }
        }
    }
    merged
}

/// Returns the module that a file is, from the top-level one down: `queue/registry.rs` is `queue`, `registry`.
fn module_of(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').map(str::to_owned).collect()
}

/// Returns the paths that begin where `text` does: one, or all of a group in braces.
fn paths(text: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let end = text.find(|c| !is_path(c)).unwrap_or(text.len());
    let (prefix, rest) = text.split_at(end);
    let Some(group) = rest.strip_prefix('{') else {
        let renamed = rest.strip_prefix(" as ").and_then(|rest| paths(rest).pop());
        return vec![renamed.map_or_else(|| prefix.to_owned(), |name| format!("{prefix} {name}"))];
    };
    let (mut all, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let item = group[start..at].trim();
                all.extend(paths(item).into_iter().map(|path| format!("{prefix}{path}")));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    all
}

/// Returns a source without its comments, literals and items under `#[cfg(test)]`.
fn code(text: &str) -> String {
    let mut out = String::new();
    write_code(text.parse().unwrap(), &mut out);
    out
}

fn write_code(tokens: TokenStream, out: &mut String) {
    let mut is_test = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.to_string() == "[cfg (test)]" => is_test = true,
            TokenTree::Group(group) if is_test => is_test = group.delimiter() != Delimiter::Brace,
            TokenTree::Punct(end) if is_test => is_test = end.as_char() != ';',
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ('{', '}'),
                    _ => (' ', ' '),
                };
                out.push(open);
                write_code(group.stream(), out);
                out.push(close);
            }
            TokenTree::Punct(punct) => out.push(punct.as_char()),
            TokenTree::Ident(name) if !is_test => {
                let apart = if out.ends_with(|c: char| c.is_alphanumeric() || c == '_') { " " } else { "" };
                *out += &format!("{apart}{name}");
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => out.push(' '),
        }
    }
}

/// Returns a cycle of the fewest modules, each with the file that imports the next one.
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
