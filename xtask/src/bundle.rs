//! `cargo xtask bundle`: gathers the files that you need to run tests, examples and benchmarks on a GPU host without Rust.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use gpustream_timeline_view::text::{Bytes, Table};

use crate::cargo::{self, Executable};

/// Gather tests, examples and benchmarks with a run.sh for a GPU host without Rust
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to write; an earlier bundle there is replaced [default: bundle in cargo's target folder]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Compile kernels for these backends
    #[arg(long, value_delimiter = ',', default_value = "cpu,cuda")]
    backend: Vec<String>,
    /// Targets of CUDA kernels
    #[arg(long, value_delimiter = ',', default_value = "sm_80,sm_90")]
    arch: Vec<String>,
}

/// How many bytes a bundle can have. Bundles travel over slow links; xz makes them seven times as small.
const MOST_BYTES: u64 = 200_000_000;

const RUN: &str = include_str!("bundle/run.sh");

/// This file marks a folder as an earlier bundle, so we may replace it.
const MARKER: &str = "run.sh";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let out = match &args.out {
        Some(out) => std::path::absolute(out)?,
        None => crate::target_dir().join("bundle"),
    };
    clear(&out)?;
    let mut table = Table::new(["file", "size"]);
    let mut glibc = Vec::new();
    for (folder, executable) in executables(args)? {
        let path = out.join(folder).join(&executable.name);
        strip(&executable.path, &path)?;
        glibc.extend(glibc_versions(&path));
        table.row([format!("{folder}/{}", executable.name), Bytes(fs::metadata(&path)?.len()).to_string()]);
    }
    shim(&out.join("hip-shim"))?;
    let script = out.join(MARKER);
    fs::write(&script, RUN)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;

    let total = size(&out)?;
    table.row(["hip-shim, run.sh".to_owned(), Bytes(size(&out.join("hip-shim"))?).to_string()]);
    table.row(["together".to_owned(), Bytes(total).to_string()]);
    println!("{table}\n\n{}/run.sh [tests|examples|bench|soak|sanitize|shim] runs the bundle", out.display());
    if let Some((major, minor)) = glibc.into_iter().max() {
        println!("needs glibc {major}.{minor} or newer");
    }
    ensure!(total <= MOST_BYTES, "the bundle is larger than {}", Bytes(MOST_BYTES));
    Ok(())
}

/// Makes an empty folder; an earlier bundle there is deleted.
fn clear(out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        let empty =
            out.read_dir().with_context(|| format!("cannot read {}", out.display()))?.next().is_none();
        if !empty && !out.join(MARKER).exists() {
            bail!("{} is neither empty nor a bundle; name another folder", out.display());
        }
        fs::remove_dir_all(out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))
}

/// Builds the executables, and returns each with its folder in the bundle.
fn executables(args: &Args) -> anyhow::Result<Vec<(&'static str, Executable)>> {
    let (backends, archs) = (args.backend.join(","), args.arch.join(","));
    let build = |arguments: &[&str]| {
        let mut command = cargo::cargo();
        command.args(arguments).arg("--release");
        command.env("GPUSTREAM_BACKENDS", &backends).env("GPUSTREAM_CUDA_ARCHS", &archs);
        cargo::build(&mut command)
    };
    let ranks = ["--package=gpustream-collectives", "--test=local", "--test=nccl"];
    let suites = [&["--package=conformance", "--test=conformance", "--test=math"], &ranks[..]].concat();
    let tests = build(&[&["test", "--no-run"], &suites[..]].concat())?;
    let packages = ["--package=examples", "--package=own_kernel", "--package=bench", "--package=soak"];
    let programs = build(&[&["build", "--examples", "--bins"], &packages[..]].concat())?;
    let tests = tests.into_iter().filter(|test| test.kind == "test");
    let programs = programs.into_iter().filter(|program| program.kind != "custom-build");
    let folder = |program: &Executable| match &*program.name {
        "algorithms" | "bench" | "math" | "ranks" => "bench",
        "soak" => "tests",
        _ => "examples",
    };
    let programs = programs.map(|program| (folder(&program), program));
    Ok(tests.map(|test| ("tests", test)).chain(programs).collect())
}

/// Copies an executable without its symbols.
fn strip(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    let mut command = Command::new("strip");
    cargo::run(command.arg("--strip-all").arg("-o").arg(to).arg(from))
        .context("executables are stripped by `strip` of binutils: `apt-get install binutils`")
}

/// Builds the HIP library that forwards to CUDA's.
fn shim(out: &Path) -> anyhow::Result<()> {
    let script = crate::workspace().join("tests/fixtures/hip/shim/build.sh");
    cargo::run(Command::new(&script).arg(out).stdout(std::process::Stdio::null()))
}

/// Returns which versions of glibc symbols an executable uses. A host with an older glibc could not run it.
fn glibc_versions(path: &Path) -> Vec<(u32, u32)> {
    let output = Command::new("readelf").arg("--version-info").arg(path).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split("GLIBC_").skip(1).filter_map(version).collect()
}

/// Parses `2.34  Flags: …` as `(2, 34)`.
fn version(text: &str) -> Option<(u32, u32)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (major, minor) = text[..end].split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

/// Returns the size of all files below a folder, in bytes.
fn size(folder: &Path) -> anyhow::Result<u64> {
    let mut total = 0;
    for entry in folder.read_dir()? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        total += if kind.is_dir() { size(&path)? } else { fs::symlink_metadata(&path)?.len() };
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn glibc_versions_compare_as_numbers() {
        assert_eq!(version("2.34  Flags: none"), Some((2, 34)));
        assert_eq!(version("2.2.5"), Some((2, 2)));
        assert_eq!(version("PRIVATE"), None);
        assert!(version("2.34") > version("2.4"));
    }
}
