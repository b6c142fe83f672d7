//! Proves that CUPTI's records in CUDA 13 have the fields that we read in the same places as those of 12.
//!
//! The sources compare the places of fields with cudarc's structs, but only for the version that a build chooses, because the
//! others hide behind features. So here we compare the texts. If two structs have the same fields in the same order, the fields
//! have the same places, up to the last one that we read.
#![allow(clippy::unwrap_used)] // Also in the tests' helpers.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Returns the text of the bindings that cudarc has for CUPTI. Cargo tells us the folder only once it has the packages
/// for all platforms, so it may fetch some that no build here has needed.
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

/// Returns the fields of each definition of a struct, up to the field `last`. If a type is named after the struct, we leave that
/// name out.
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
    // The name without its number, the number in the sources, the newest in the bindings, and the last field that we read.
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
