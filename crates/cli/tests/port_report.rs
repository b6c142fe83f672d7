//! `gpustream port-report`, run as you would run it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const GOOD: &str = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] = 1.0f; }\n";
const TEMPLATE: &str = "// One.\ntemplate <class T> __global__ void t(T* x) { *x = 1; }\n";
const BROKEN: &str = "extern \"C\" __global__ void b(float* x) {\n    *x = missing_name;\n}\n";

fn port_report(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpustream"));
    command.arg("port-report").arg(folder).args(args).env_remove("GPUSTREAM_BACKENDS");
    command.env("TMPDIR", folder.join("temporary")).output().unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("deep")).unwrap();
    fs::create_dir(folder.path().join("temporary")).unwrap();
    for (name, text) in [
        ("good.cu", GOOD),
        ("deep/template.hip", TEMPLATE),
        ("deep/another.cu", TEMPLATE),
        ("broken.cu", BROKEN),
        ("host.cu", "int main() {}\n"),
        ("in_header.cu", "#include \"kernels.cuh\"\n"),
        ("kernels.cuh", GOOD),
        ("notes.txt", GOOD),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn report_has_the_first_obstacle_of_each_file_and_sums() {
    let folder = folder();
    let output = port_report(folder.path(), &[]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "", "no progress bar off a terminal");
    let words = |start: &str| {
        let line = stdout.lines().find(|line| line.starts_with(start));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words("good.cu"), ["good.cu", "yes", "yes"], "{stdout}");
    assert_eq!(words("broken.cu")[..3], ["broken.cu", "yes", "no"], "{stdout}");
    assert!(stdout.contains("no   at 2:10: "), "{stdout}");
    assert_eq!(words("deep/template.hip")[1], "no", "{stdout}");
    assert!(stdout.contains("no          at 2:36: kernel `t` is a template"), "{stdout}");
    assert_eq!(words("kernel `…` is a template").last().unwrap(), "2", "{stdout}");
    assert_eq!(words("with kernels"), ["with", "kernels", "5", "100", "%"], "{stdout}");
    assert_eq!(words("bound"), ["bound", "3", "60", "%"], "{stdout}");
    let choice = words("bound once build.rs instantiates");
    assert_eq!(choice[4..], ["2", "40", "%"], "{stdout}");
    assert_eq!(words("compile for cpu"), ["compile", "for", "cpu", "2", "40", "%"], "{stdout}");
    assert!(stdout.ends_with("1 files without a kernel were left out\n"), "{stdout}");
    let left = fs::read_dir(folder.path().join("temporary")).unwrap().count();
    assert_eq!(left, 0, "no results stay behind");
}

#[test]
fn files_are_read_alone_without_a_backend() {
    let folder = folder();
    let output = port_report(folder.path(), &["--backend", "none", "--summary"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        !stdout.contains("good.cu") && stdout.contains("with kernels") && !stdout.contains("compile for"),
        "{stdout}"
    );
}

#[test]
fn folder_without_kernels_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = port_report(folder.path(), &[]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("has a kernel"), "{stderr}");
}
