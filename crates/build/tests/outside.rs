//! A user's crate in a folder of its own: three lines of build script, and every kind of launcher is used.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const BUILD_RS: &str = "fn main() {
    gpustream_build::Kernels::new().file(\"kernels.cu\").build().unwrap_or_else(|e| e.exit());
}
";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Writes the crate below cargo's folder for tests; its builds are kept from one test run to the next.
fn user_crate(name: &str, kernels: &str, main: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(dir.join("src")).unwrap();
    let crates = workspace().join("crates");
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies.gpustream]\npath = '{}'\ndefault-features = false\nfeatures = [\"cpu\"]\n\n\
         [build-dependencies.gpustream-build]\npath = '{}'\n\n[workspace]\n",
        crates.join("gpustream").display(),
        crates.join("build").display()
    );
    // The versions that are here already: nothing is downloaded.
    fs::copy(workspace().join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    for (path, text) in
        [("Cargo.toml", &*manifest), ("build.rs", BUILD_RS), ("kernels.cu", kernels), ("src/main.rs", main)]
    {
        // An unchanged file keeps its time, so that nothing is built again for nothing.
        if fs::read_to_string(dir.join(path)).is_ok_and(|old| old == text) {
            continue;
        }
        fs::write(dir.join(path), text).unwrap();
    }
    dir
}

fn cargo(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(args)
        .arg("--offline")
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside-target"))
        .env("GPUSTREAM_BACKENDS", "cpu")
        .env_remove("GPUSTREAM_DEVICE");
    command
}

/// Runs the user's program, and asserts that it writes this.
fn runs(dir: &Path, said: &str) {
    let output = cargo(dir, &["run", "--quiet"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{stderr}");
}

/// Asserts that cargo fails, and returns what it writes.
fn fails(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_users_crate_builds_and_runs_its_kernels() {
    let dir = user_crate("outside", include_str!("outside/kernels.cu"), include_str!("outside/program.rs"));
    runs(&dir, "all launchers work\n");

    // The message that the user sees when a kernel is wrong.
    let wrong = "extern \"C\" __global__ void k(float& x) {}\n";
    let dir = user_crate("outside", wrong, include_str!("outside/program.rs"));
    for _ in 0..2 {
        let stderr = fails(&mut cargo(&dir, &["check"]));
        assert!(stderr.contains("kernels.cu:1:30: error: `x` is a reference"), "{stderr}");
        for noise in ["panicked", "cargo:rerun", "--- stdout"] {
            assert!(!stderr.contains(noise), "{noise} in {stderr}");
        }
    }

    // Cargo looks at the mended file, although nobody told it of the file.
    let dir = user_crate("outside", include_str!("outside/kernels.cu"), include_str!("outside/program.rs"));
    runs(&dir, "all launchers work\n");
}

/// Variables that the search for a compiler looks at, or the compiler itself.
#[test]
fn a_changed_variable_is_a_reason_to_build_again() {
    const KERNELS: &str = "#ifndef VALUE\n#define VALUE 0\n#endif\n#if __has_include(<added_value.h>)\n\
        #include <added_value.h>\n#else\n#define ADDED 0\n#endif\n\
        /// requires: n <= len(x)\n/// covers: n\n\
        extern \"C\" __global__ void value(int* x, size_t n) { x[0] = VALUE + ADDED; }\n";
    const PROGRAM: &str = "mod kernels { gpustream::include_kernels!(\"kernels\"); }\n\
        fn main() -> gpustream::Result<()> {\n    let device = gpustream::Device::open(\"cpu\")?;\n    \
        let (s, k) = (device.stream()?, kernels::Kernels::load(&device)?);\n    let mut x = s.zeros(1)?;\n    \
        k.value(&s, &mut x, 1)?;\n    println!(\"{}\", s.download(&x)?[0]);\n    Ok(())\n}\n";
    let dir = user_crate("variables", KERNELS, PROGRAM);
    fs::create_dir_all(dir.join("added")).unwrap();
    fs::write(dir.join("added/added_value.h"), "#define ADDED 100\n").unwrap();
    let prints = |variables: &[(&str, &str)]| {
        let output = cargo(&dir, &["run", "--quiet"]).envs(variables.iter().copied()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let target = format!("CXXFLAGS_{}-unknown-linux-gnu", env::consts::ARCH);
    let target = &*target;
    assert_eq!(prints(&[]), "0");
    assert_eq!(prints(&[(target, "-DVALUE=1")]), "1");
    assert_eq!(prints(&[(target, "-DVALUE=2")]), "2");
    assert_eq!(prints(&[("HOST_CXXFLAGS", "-DVALUE=3")]), "3");
    assert_eq!(prints(&[("CPATH", dir.join("added").to_str().unwrap())]), "100");
    assert_eq!(prints(&[]), "0");
}

#[test]
fn a_crate_that_forbids_unsafe_has_kernels_too() {
    let dir = user_crate(
        "forbidding",
        include_str!("outside/arithmetic.cu"),
        include_str!("outside/forbidding.rs"),
    );
    runs(&dir, "no unsafe here\n");

    let misspelt = include_str!("outside/forbidding.rs")
        .replace("include_kernels!(\"kernels\")", "include_kernels!(\"kernel\")");
    let dir = user_crate("forbidding", include_str!("outside/arithmetic.cu"), &misspelt);
    let stderr = fails(&mut cargo(&dir, &["check"]));
    for part in ["include_kernels!(\"kernel\")", "There are \"kernels\".", "main.rs:9:5"] {
        assert!(stderr.contains(part), "no {part} in {stderr}");
    }
    assert!(!stderr.contains("couldn't read"), "{stderr}");
}

#[test]
fn generic_launchers_serve_generic_code_and_name_what_there_is() {
    let (kernels, program) = (include_str!("outside/generic.cu"), include_str!("outside/generic.rs"));
    let dir = user_crate("generic", kernels, program);
    runs(&dir, "all instances work\n");

    let wrong = [
        (
            "k.axpy(&s, 1_u8, &s.zeros(1)?, &mut s.zeros(1)?, 1)?;",
            &["`axpy` was not compiled for `u8`", "there are `axpy<float>`, `axpy<int>`"][..],
        ),
        (
            "k.axpy(&s, 1.0_f32, &s.zeros(1)?, &mut s.zeros::<i32>(1)?, 1)?;",
            &["`Buffer<i32>` is no memory that a device can write as elements of type `f32`"],
        ),
        (
            "k.widen(&s, &s.zeros::<f32>(1)?, &mut s.zeros::<f32>(1)?, 1)?;",
            &["`Buffer<f32>` is no memory that a device can write as elements of type `f64`"],
        ),
        (
            "k.widen(&s, &s.zeros::<u8>(1)?, &mut s.zeros::<f32>(1)?, 1)?;",
            &[
                "`widen` was not compiled for these",
                "there are `widen<float, double>`, `widen<int, int64_t>`",
            ],
        ),
        (
            "k.add::<4>(&s, &mut s.zeros(1)?, 1)?;",
            &["`add` was not compiled for these", "`add<2>`, `add<-3>`"],
        ),
    ];
    for (line, expected) in wrong {
        let program = program.replace("// Here.", line);
        let dir = user_crate("generic", kernels, &program);
        let stderr = fails(&mut cargo(&dir, &["check"]));
        assert_eq!(stderr.matches("error[").count(), 1, "{line}: {stderr}");
        for part in expected {
            assert!(stderr.contains(part), "{line}: no {part} in {stderr}");
        }
    }
}

#[test]
fn a_program_that_is_no_compiler_is_called_so() {
    let dir = user_crate("compilerless", include_str!("outside/arithmetic.cu"), "fn main() {}\n");
    let stderr = fails(cargo(&dir, &["check"]).env("CXX", "/bin/true"));
    for part in ["/bin/true", "asked for the macros of C++", "it said nothing", "g++ 11"] {
        assert!(stderr.contains(part), "no `{part}` in {stderr}");
    }
    assert!(!stderr.contains("MSVC"), "{stderr}");
}
