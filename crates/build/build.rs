//! Lists the device headers, so that they travel inside the library and reach every user's build script.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("include");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();

    let mut list = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
        list.push_str(&format!("    ({name:?}, include_str!({:?})),\n", file.display().to_string()));
    }
    list.push_str("]\n");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("headers.rs"), list)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            println!("cargo:rerun-if-changed={}", path.display());
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "cuh" || e == "h") {
            println!("cargo:rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
    Ok(())
}
