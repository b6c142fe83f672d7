//! Checks what NVRTC would refuse in the kernels of the library. It is not installed where these tests run, and nvcc takes more.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// nvcc calls `constexpr` functions of the host while it compiles, but NVRTC knows no host.
#[test]
fn constexpr_functions_are_device_functions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let (mut files, mut functions, mut refused) = (vec![], 0, vec![]);
    read(&root, &mut files);
    assert!(files.len() > 40, "{} files", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            let Some((head, _)) = code.split_once('(') else { continue };
            let mut words = head.split_whitespace();
            if !words.clone().any(|word| word == "constexpr")
                || head.contains('=')
                || words.clone().any(|word| word == "if")
            {
                continue;
            }
            functions += 1;
            if !words.any(|word| word == "__device__" || word.starts_with("GS_")) {
                refused.push(format!("{}:{number}: {}", file.display(), line.trim()));
            }
        }
    }
    assert!(functions > 3, "{functions} functions");
    assert_eq!(refused, [""; 0], "write GS_INLINE in front of these");
}

fn read(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // NVRTC does not see what only the CPU includes.
            if path.file_name().is_some_and(|name| name != "cpu") {
                read(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "cu" || extension == "cuh") {
            files.push(path);
        }
    }
}
