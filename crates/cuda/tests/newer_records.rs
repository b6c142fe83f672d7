//! The proof that CUPTI's records of CUDA 13 have the fields that this crate reads where those of 12 have them.
//!
//! The sources compare the places of fields with the structs of cudarc's bindings for the version that it is built with.
//! Its file has those of all others too, behind features of which a build has one. So their texts are compared: structs with
//! the same fields in the same order have them in the same places, up to the last that is read.
#![allow(clippy::unwrap_used)] // Also in the tests' helpers.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Returns the text of cudarc's bindings of CUPTI. Cargo names their place only once it has the packages of all platforms, and
/// fetches those that no build on this one has asked for.
fn bindings() -> String {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "cudarc").unwrap();
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    fs::read_to_string(manifest.with_file_name("src").join("cupti/sys/mod.rs")).unwrap()
}

/// Returns the fields of each definition of a struct, up to the field `last`. The name of the struct is left out of
/// the types that are named after it.
fn fields<'a>(bindings: &'a str, name: &str, last: &str) -> Vec<Vec<String>> {
    let begin = format!("pub struct {name} {{\n");
    let definitions = bindings.split(begin.as_str()).skip(1);
    let field = |line: &'a str| line.trim().trim_start_matches("pub ").replace(name, "");
    definitions
        .map(|text| {
            let lines = text.lines().take_while(|line| !line.starts_with('}')).map(field);
            let mut fields: Vec<_> = lines.collect();
            let end = fields.iter().position(|field| field.starts_with(&format!("{last}: "))).unwrap();
            fields.truncate(end + 1);
            fields
        })
        .collect()
}

#[test]
fn newer_records_begin_as_those_that_the_sources_are_compared_with() {
    let bindings = bindings();
    // The name without its number, the number in the sources, the newest in the bindings, and the last field that is read.
    for (record, ours, newest, last) in [
        ("CUpti_ActivityKernel", 9, 13, "name"),
        ("CUpti_ActivityMemcpy", 6, 7, "correlationId"),
        ("CUpti_ActivityMemcpyPtoP", 4, 4, "correlationId"),
        ("CUpti_ActivityMemset", 4, 5, "correlationId"),
    ] {
        let known = fields(&bindings, &format!("{record}{ours}"), last).remove(0);
        assert!(known.len() > 5, "{record}: {known:?}");
        for number in ours..=newest {
            let definitions = fields(&bindings, &format!("{record}{number}"), last);
            assert!(!definitions.is_empty(), "{record}{number}");
            for definition in definitions {
                assert_eq!(definition, known, "{record}{number}");
            }
        }
        let next = format!("{record}{}", newest + 1);
        assert!(
            fields(&bindings, &next, last).is_empty(),
            "{next} is to be compared, and its version allowed"
        );
    }
    let external = fields(&bindings, "CUpti_ActivityExternalCorrelation", "correlationId");
    assert_eq!(external.len(), 1, "one for all versions");
}
