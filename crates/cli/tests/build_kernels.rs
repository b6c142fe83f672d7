//! `gpustream build-kernels`, run as you would run it.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

const KERNEL: &str = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] = 1.0f; }\n";

/// Runs the task on one kernel file, with an environment that does not name the caller's compilers.
fn build_kernels(dir: &Path, text: &str, args: &[&str], env: &[(&str, &str)]) -> Output {
    let file = dir.join("k.cu");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpustream"));
    command.args(["build-kernels", "--out"]).arg(dir.join("out")).args(args).arg(file);
    for name in [
        "GPUSTREAM_BACKENDS",
        "GPUSTREAM_CPU_LEVELS",
        "NVCC",
        "CUDA_HOME",
        "CUDA_PATH",
        "HIPCC",
        "ROCM_PATH",
        "HIP_PATH",
    ] {
        command.env_remove(name);
    }
    command.envs(env.iter().copied()).output().unwrap()
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_table_has_a_row_per_kernel_and_level() {
    let dir = tempfile::tempdir().unwrap();
    let output = build_kernels(dir.path(), KERNEL, &[], &[]);
    let (stdout, stderr) = text(&output);
    assert!(output.status.success(), "{stderr}");
    let rows: Vec<_> = stdout.lines().take_while(|line| !line.is_empty()).collect();
    assert!(rows[0].starts_with("kernel  backend"), "{stdout}");
    let levels = if cfg!(target_arch = "aarch64") { 1 } else { 3 };
    assert_eq!(rows.len(), 1 + levels, "{stdout}");
    assert!(
        rows[1..].iter().all(|row| row.starts_with("k ") && row.contains(" cpu ") && row.ends_with(" s"))
    );
    assert_eq!(stderr, "", "no progress bar off a terminal");
}

#[test]
fn json_is_one_array() {
    let dir = tempfile::tempdir().unwrap();
    let output = build_kernels(dir.path(), KERNEL, &["--json"], &[]);
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = &rows[0];
    assert_eq!((&row["kernel"], &row["backend"]), (&"k".into(), &"cpu".into()));
    assert!(row["compile_seconds"].as_f64().unwrap() > 0.0 && row["image_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_missing_compiler_is_an_error_that_says_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    for (backend, variable, how) in [
        ("cpu", "CXX", "apt-get install g++"),
        ("cuda", "NVCC", "scripts/setup.sh cuda"),
        ("cuda", "CUDA_HOME", "scripts/setup.sh cuda"),
        ("hip", "HIPCC", "scripts/setup.sh hip"),
        ("hip", "ROCM_PATH", "scripts/setup.sh hip"),
    ] {
        let nowhere = "/nonexistent/compiler";
        let output = build_kernels(dir.path(), KERNEL, &["--backend", backend], &[(variable, nowhere)]);
        let (_, stderr) = text(&output);
        assert_eq!(output.status.code(), Some(1), "{variable}: {stderr}");
        assert!(stderr.contains(nowhere) && stderr.contains(how), "{variable}: {stderr}");
    }
}

#[test]
fn a_parameter_that_cannot_be_bound_is_shown_at_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let text_with_error = "extern \"C\" __global__ void k(float& x) {}\n";
    let output = build_kernels(dir.path(), text_with_error, &[], &[]);
    let (_, stderr) = text(&output);
    assert_eq!(output.status.code(), Some(1));
    let expected = "k.cu:1:30: error: `x` is a reference, which the host cannot pass\n    1 | extern \"C\" __global__ \
                    void k(float& x) {}\n      |                              ^^^^^^^^\n      = help: write `float* x`";
    assert!(stderr.contains(expected), "{stderr}");
}

#[test]
fn targets_must_belong_to_a_backend_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let output = build_kernels(dir.path(), KERNEL, &["--arch", "sm_90"], &[]);
    let (_, stderr) = text(&output);
    assert!(!output.status.success() && stderr.contains("add it to --backend"), "{stderr}");
    let output = build_kernels(dir.path(), KERNEL, &["--backend", "metal"], &[]);
    let (_, stderr) = text(&output);
    assert!(!output.status.success() && stderr.contains("no backend `metal`"), "{stderr}");
}

#[test]
fn a_rocm_installation_comes_before_a_plain_clang() {
    const LIBS: &str = "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode";
    let test = "a_rocm_installation_comes_before_a_plain_clang";
    let dir = tempfile::tempdir().unwrap();
    if Command::new("clang-19").arg("--version").output().is_err() || !Path::new(LIBS).exists() {
        eprintln!("SKIPPED {test}: no clang-19 with AMD device libraries to stand in for ROCm's");
        return;
    }
    // hipcc is a script around a Clang that finds its own libraries.
    let rocm = dir.path().join("rocm");
    let hipcc = rocm.join("bin/hipcc");
    std::fs::create_dir_all(rocm.join("bin")).unwrap();
    let script = format!(
        "#!/bin/sh\nfor arg; do shift; [ \"$arg\" = --genco ] && touch {0}/genco && continue; set -- \"$@\" \"$arg\"; done\nexec \
         clang-19 -D__HIP_PLATFORM_AMD__ --offload-device-only --rocm-device-lib-path={LIBS} \"$@\"\n",
        rocm.display()
    );
    std::fs::write(&hipcc, script).unwrap();
    let status = Command::new("chmod").arg("+x").arg(&hipcc).status().unwrap();
    assert!(status.success());
    let rocm_path = rocm.to_str().unwrap();
    let args = ["--backend", "hip", "--arch", "gfx1030"];
    let output = build_kernels(dir.path(), KERNEL, &args, &[("ROCM_PATH", rocm_path)]);
    let (stdout, stderr) = text(&output);
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("gfx1030") && rocm.join("genco").exists(), "{stdout}{stderr}");

    // The installation lacks this target's library. A plain Clang could compile for the target, but we do not use it.
    let args = ["--backend", "hip", "--arch", "gfx1201"];
    let output = build_kernels(dir.path(), KERNEL, &args, &[("ROCM_PATH", rocm_path)]);
    let (_, stderr) = text(&output);
    assert!(!output.status.success() && stderr.contains("gfx1201") && stderr.contains(rocm_path), "{stderr}");
}

#[test]
fn what_is_asked_for_is_built_whatever_the_environment_says() {
    let dir = tempfile::tempdir().unwrap();
    let (level, other) =
        if cfg!(target_arch = "aarch64") { ("aarch64", "sm_80") } else { ("x86-64-v2", "x86-64-v3") };
    let env = [("GPUSTREAM_BACKENDS", "none"), ("GPUSTREAM_CPU_LEVELS", other)];
    let (stdout, stderr) =
        text(&build_kernels(dir.path(), KERNEL, &["--backend", "cpu", "--arch", level], &env));
    assert!(stdout.contains(level) && !stdout.contains(other), "{stdout}{stderr}");
    let (stdout, stderr) = text(&build_kernels(dir.path(), KERNEL, &[], &env));
    assert!(!stdout.contains(" cpu "), "nothing was asked for: {stdout}{stderr}");
}
