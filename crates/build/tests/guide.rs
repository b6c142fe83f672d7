//! Checks the guide to writing kernels: its kernels must compile, its table of types must be the generator's,
//! and the files that it calls refused must be refused in those words. The kernels of the guide to matrix cores and of
//! `docs/first-hour.md` must compile too.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fixture::{build, cpu};
use gpustream_build::Error;

fn guide() -> String {
    page("crates/gpustream/src/guide/writing_kernels.md")
}

/// Returns a page of the repository.
fn page(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Returns the bindings of a file for the CPU.
fn bindings(text: &str) -> Result<String, Error> {
    let dir = tempfile::tempdir().unwrap();
    let built = build(dir.path(), text, cpu)?;
    Ok(fs::read_to_string(&built.files[0].bindings).unwrap())
}

/// Returns the fenced blocks, each with the text after the opening fence.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let fenced: Vec<_> = text.split("```").skip(1).step_by(2).collect();
    fenced.into_iter().map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn its_kernels_compile_and_what_it_says_is_refused_is() {
    let pages = guide() + &page("docs/first-hour.md") + &page("crates/gpustream/src/guide/matrix_cores.md");
    let blocks = blocks(&pages);
    let (mut compiled, mut refused) = (0, 0);
    for (at, &(kind, text)) in blocks.iter().enumerate() {
        match kind {
            "cpp" => {
                bindings(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
                compiled += 1;
            }
            "cpp,refused" => {
                let error = bindings(text).unwrap_err().to_string();
                let ("text", said) = blocks[at + 1] else { panic!("no text after\n{text}") };
                for line in said.lines() {
                    assert!(error.contains(line), "{error}\ndoes not say\n{line}");
                }
                refused += 1;
            }
            _ => {}
        }
    }
    assert!(compiled >= 5 && refused >= 1, "{compiled} {refused}");
}

#[test]
fn its_types_are_the_generators() {
    let guide = guide();
    let table = guide.split("| C++ | Rust |\n|---|---|\n").nth(1).unwrap();
    let mut text = "#include <gpustream/kernel.cuh>\n".to_owned();
    let mut expected = Vec::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<Vec<&str>> =
            row.split('|').map(|cell| cell.split('`').skip(1).step_by(2).collect()).collect();
        let [_, cpp, rust, _] = &cells[..] else { panic!("{row}") };
        for (index, name) in cpp.iter().enumerate() {
            // There is one Rust type for each of them, or one for all.
            let rust = rust.get(index).or(rust.last()).unwrap();
            let number = expected.len();
            writeln!(text, "extern \"C\" __global__ void k{number}({name} by_value) {{}}").unwrap();
            expected.push((name.to_owned(), rust.replace("half::", "__gpustream::half::")));
        }
    }
    assert!(expected.len() > 25, "{expected:?}");
    let bindings = bindings(&text).unwrap_or_else(|error| panic!("{error}"));
    for (number, (cpp, rust)) in expected.iter().enumerate() {
        let launcher = bindings.split(&format!("fn k{number}(")).nth(1).unwrap();
        let parameter = launcher.lines().find(|line| line.contains("by_value:")).unwrap().trim();
        assert_eq!(parameter, format!("by_value: {rust},"), "{cpp}");
    }
}
