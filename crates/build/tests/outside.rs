//! A crate like yours, in its own folder: three lines of build script, and every kind of launcher in use.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs};

const BUILD_RS: &str = "fn main() {
    gpustream_build::Kernels::new().file(\"kernels.cu\").build().unwrap_or_else(|e| e.exit());
}
";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Writes the crate below cargo's folder for tests. Its build output stays there, so that later runs are
/// faster.
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
    // We use the versions that are already here, so nothing is downloaded.
    fs::copy(workspace().join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    for (path, text) in
        [("Cargo.toml", &*manifest), ("build.rs", BUILD_RS), ("kernels.cu", kernels), ("src/main.rs", main)]
    {
        write(&dir, path, text);
    }
    dir
}

/// Writes a file. If it is unchanged it keeps its time, so that cargo does not rebuild for nothing.
fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    if fs::read_to_string(&path).is_ok_and(|old| old == text) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn cargo(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(args)
        .arg("--offline")
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside-target"))
        // These make the builds cheaper, and no test looks at them.
        .envs([
            ("CARGO_INCREMENTAL", "0"),
            ("CARGO_PROFILE_DEV_DEBUG", "none"),
            ("GPUSTREAM_CPU_LEVELS", "native"),
        ])
        .env("GPUSTREAM_BACKENDS", "cpu")
        .env_remove("GPUSTREAM_DEVICE");
    command
}

/// Runs the program, and asserts that it prints this.
fn runs(dir: &Path, said: &str) {
    let output = cargo(dir, &["run", "--quiet"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), said, "{stderr}");
}

/// Asserts that cargo fails, and returns what it prints.
fn fails(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_users_crate_builds_and_runs_its_kernels() {
    let dir = user_crate("outside", include_str!("outside/kernels.cu"), include_str!("outside/program.rs"));
    runs(&dir, "all launchers work\n");

    // The message that you see if a kernel is wrong.
    let wrong = "extern \"C\" __global__ void k(float& x) {}\n";
    let dir = user_crate("outside", wrong, include_str!("outside/program.rs"));
    for _ in 0..2 {
        let stderr = fails(&mut cargo(&dir, &["check"]));
        assert!(stderr.contains("kernels.cu:1:30: error: `x` is a reference"), "{stderr}");
        for noise in ["panicked", "cargo:rerun", "--- stdout"] {
            assert!(!stderr.contains(noise), "{noise} in {stderr}");
        }
    }

    // Cargo must look at the repaired file, although the failed build never told it to.
    let dir = user_crate("outside", include_str!("outside/kernels.cu"), include_str!("outside/program.rs"));
    runs(&dir, "all launchers work\n");
}

/// With another environment, cargo rebuilds what the crates share, which would disturb a test that relies on
/// it. So these tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Changes variables that the search for a compiler reads, and the compiler itself.
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
    let _turn = TURN.lock();
    let dir = user_crate("variables", KERNELS, PROGRAM);
    write(&dir, "added/added_value.h", "#define ADDED 100\n");
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
    let path = dir.join("added");
    let cpath = [("CPATH", path.to_str().unwrap())];
    assert_eq!(prints(&cpath), "100");
    write(&dir, "added/added_value.h", "#define ADDED 200\n");
    assert_eq!(prints(&cpath), "200");
    assert_eq!(prints(&[]), "0");
}

/// Two headers may have the same name, and a search of the text may not find a header.
#[test]
fn a_changed_header_is_a_reason_to_build_again() {
    const KERNELS: &str = "#include \"a/first.cuh\"\n#include \"b/second.cuh\"\n#if 0\n#include \"gone/third.cuh\"\n#endif\n\
        #define NAME \"computed.cuh\"\n#include NAME\n#include <late.cuh>\n#include \"flagged.cuh\"\n\
        #if __has_include(\"deep/optional.cuh\")\n#include \"deep/optional.cuh\"\n#else\n#define OPTIONAL 0\n#endif\n\
        /// requires: n <= len(x)\n/// covers: n\n\
        extern \"C\" __global__ void value(int* x, size_t n) {\n\
        \x20   x[0] = FIRST * 100000 + SECOND * 10000 + COMPUTED * 1000 + LATE * 100 + FLAGGED * 10 + OPTIONAL;\n}\n";
    const PROGRAM: &str = "mod kernels { gpustream::include_kernels!(\"k\"); }\n\
        fn main() -> gpustream::Result<()> {\n    let device = gpustream::Device::open(\"cpu\")?;\n    \
        let (s, k) = (device.stream()?, kernels::Kernels::load(&device)?);\n    let mut x = s.zeros(1)?;\n    \
        k.value(&s, &mut x, 1)?;\n    println!(\"{:06}\", s.download(&x)?[0]);\n    Ok(())\n}\n";
    const BUILD: &str = "fn main() {\n    println!(\"cargo:warning=runs\");\n    gpustream_build::Kernels::new().file(\"kernels/k.cu\").include(\"one\").include(\"two\").include(\"none\")\n        \
        .flag(gpustream_build::Backend::Cpu, \"-Iflagged\").build().unwrap_or_else(|e| e.exit());\n}\n";
    let _turn = TURN.lock();
    let dir = user_crate("headers", "", PROGRAM);
    for gone in ["kernels", "one"] {
        let _ = fs::remove_dir_all(dir.join(gone));
    }
    for (path, text) in [
        ("build.rs", BUILD),
        ("kernels/k.cu", KERNELS),
        ("kernels/a/first.cuh", "#include \"common.cuh\"\n#define FIRST COMMON_OF_A\n"),
        ("kernels/a/common.cuh", "#pragma once\n#define COMMON_OF_A 1\n"),
        ("kernels/b/second.cuh", "#include \"common.cuh\"\n#define SECOND COMMON_OF_B\n"),
        ("kernels/b/common.cuh", "#pragma once\n#define COMMON_OF_B 1\n"),
        ("kernels/computed.cuh", "#define COMPUTED 1\n"),
        ("one/other.cuh", ""),
        ("two/late.cuh", "#define LATE 1\n"),
        ("flagged/flagged.cuh", "#define FLAGGED 1\n"),
    ] {
        write(&dir, path, text);
    }
    let run = || {
        let output = cargo(&dir, &["run"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        (String::from_utf8_lossy(&output.stdout).trim().to_owned(), stderr)
    };
    assert_eq!(run().0, "111110");
    let again = run().1;
    assert!(!again.contains("Compiling headers"), "built again for nothing: {again}");
    for (path, text, value) in [
        ("kernels/b/common.cuh", "#pragma once\n#define COMMON_OF_B 2\n", "121110"),
        ("kernels/a/common.cuh", "#pragma once\n#define COMMON_OF_A 2\n", "221110"),
        ("kernels/computed.cuh", "#define COMPUTED 3\n", "223110"),
        // The search looks in this folder before the one that had the header.
        ("one/late.cuh", "#define LATE 4\n", "223410"),
        ("flagged/flagged.cuh", "#define FLAGGED 5\n", "223450"),
        ("kernels/flagged.cuh", "#define FLAGGED 6\n", "223460"),
        ("kernels/deep/optional.cuh", "#define OPTIONAL 7\n", "223467"),
    ] {
        write(&dir, path, text);
        assert_eq!(run().0, value, "{path} was changed");
    }

    // A header that changes while the compiler runs, after the compiler has read it.
    write(
        &dir,
        "compiler",
        "#!/bin/sh\nc++ \"$@\" || exit\ncase \"$*\" in *' -O3 '*' -c '*) mv next.cuh kernels/computed.cuh 2>/dev/null && touch kernels/computed.cuh; esac\nexit 0\n",
    );
    fs::set_permissions(dir.join("compiler"), fs::Permissions::from_mode(0o755)).unwrap();
    write(&dir, "next.cuh", "#define COMPUTED 9\n");
    // An earlier run of this test left stamps, which must not match.
    write(&dir, "kernels/k.cu", &format!("{KERNELS}// {}\n", std::process::id()));
    let prints = |value| {
        let level = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86-64-v2" };
        let mut command = cargo(&dir, &["run", "-j1"]);
        command.env("CXX", dir.join("compiler")).env("GPUSTREAM_CPU_LEVELS", level);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), value, "{stderr}");
    };
    prints("223467");
    prints("229467");
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

/// The dependency may be renamed, and C++ names may be Rust keywords.
#[test]
fn bindings_compile_whatever_the_crate_and_its_parameters_are_called() {
    let dir = user_crate("renamed", include_str!("outside/names.cu"), include_str!("outside/names.rs"));
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap();
    let manifest =
        manifest.replace("[dependencies.gpustream]", "[dependencies.gs]\npackage = \"gpustream\"").replace(
            "[build-dependencies.gpustream-build]",
            "[build-dependencies.builder]\npackage = \"gpustream-build\"",
        );
    write(&dir, "Cargo.toml", &manifest.replace("[package]", "[package]\nbuild = \"script.rs\""));
    write(&dir, "script.rs", &BUILD_RS.replace("gpustream_build", "builder"));
    fs::remove_file(dir.join("build.rs")).unwrap();
    runs(&dir, "names are no matter\n");
    // The build script has an unusual name, but that must not cause a rebuild each time.
    let again = cargo(&dir, &["build", "-v"]).output().unwrap();
    let again = String::from_utf8_lossy(&again.stderr);
    assert!(again.contains("Fresh renamed"), "{again}");
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
            &["`Buffer<i32>` cannot be written by a device as elements of type `f32`"],
        ),
        (
            "k.widen(&s, &s.zeros::<f32>(1)?, &mut s.zeros::<f32>(1)?, 1)?;",
            &["`Buffer<f32>` cannot be written by a device as elements of type `f64`"],
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

/// `zig c++` spells levels differently and defines `NDEBUG`. Some compilers are too old for levels. So we must ask the
/// compiler.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_compiler_is_asked_how_it_writes_instruction_levels() {
    const KERNELS: &str = "#include <assert.h>\n/// requires: 1 <= len(x)\n/// covers: 1\n__global__ void fails(int* x) { assert(x[0] != 0); }\n";
    const PROGRAM: &str = "mod kernels { gpustream::include_kernels!(\"kernels\"); }\n\
        fn main() -> gpustream::Result<()> {\n    let device = gpustream::Device::open(\"cpu\")?;\n    \
        let (s, k) = (device.stream()?, kernels::Kernels::load(&device)?);\n    let mut x = s.zeros(1)?;\n    \
        k.fails(&s, &mut x)?;\n    println!(\"{}\", s.synchronize().unwrap_err());\n    Ok(())\n}\n";
    const ZIG: &str = "#!/bin/sh\nfor option do\n  shift\n  case $option in\n    -march=x86-64-*) echo \"error: unknown CPU: 'x86'\" >&2; exit 1;;\n    \
        -march=x86_64_v*) option=-march=x86-64-v${option##*v};;\n  esac\n  set -- \"$@\" \"$option\"\ndone\nexec c++ -DNDEBUG \"$@\"\n";
    const OLD: &str = "#!/bin/sh\ncase \"$*\" in *-march=*) echo \"error: bad value for '-march='\" >&2; exit 1;; esac\nexec c++ \"$@\"\n";
    let dir = user_crate("levels", KERNELS, PROGRAM);
    for (name, script) in [("zig", ZIG), ("old", OLD)] {
        write(&dir, name, script);
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let _turn = TURN.lock();
    let output = cargo(&dir, &["run"]).env("CXX", dir.join("zig")).output().unwrap();
    let (said, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("assertion `x[0] != 0` fails"), "{said}{stderr}");
    let stderr = fails(cargo(&dir, &["check"]).env("CXX", dir.join("old")));
    assert!(stderr.contains("takes neither of -march=x86-64-v2 and -march=x86_64_v2"), "{stderr}");
}

/// A compiler may run in another folder than the build script, and the build script in another one than cargo. So a relative
/// path could mean several files.
#[test]
fn relative_compilers_count_from_the_package_and_the_error_says_so() {
    let dir = user_crate("relative", include_str!("outside/arithmetic.cu"), "fn main() {}\n");
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'release 13.0, V13.0' && exit\necho this is no compiler\nexit 1\n";
    write(&dir, "tools/bin/nvcc", script);
    fs::set_permissions(dir.join("tools/bin/nvcc"), fs::Permissions::from_mode(0o755)).unwrap();
    for (backend, variable, value, parts) in [
        ("cuda", "NVCC", "tools/bin/nvcc", &["this is no compiler"][..]),
        ("cuda", "CUDA_HOME", "tools", &["this is no compiler"]),
        (
            "cuda",
            "NVCC",
            "../tools/nvcc",
            &["no ", "NVCC says `../tools/nvcc`, which counts from ", "whole path"],
        ),
        (
            "cuda",
            "CUDA_HOME",
            "cuda",
            &["cuda/bin/nvcc (CUDA_HOME says `cuda`, which counts from ", "relative:"],
        ),
        ("hip", "HIPCC", "tools/hipcc", &["HIPCC says `tools/hipcc`, which counts from "]),
        ("hip", "ROCM_PATH", "rocm", &["ROCM_PATH says `rocm`, which counts from "]),
        ("cpu", "CXX", "tools/g++", &["CXX says `tools/g++`, which counts from "]),
    ] {
        let mut command = cargo(&dir, &["check"]);
        for other in ["NVCC", "CUDA_HOME", "CUDA_PATH", "HIPCC", "ROCM_PATH", "HIP_PATH"] {
            command.env_remove(other);
        }
        let stderr = fails(command.env("GPUSTREAM_BACKENDS", backend).env(variable, value));
        for part in parts {
            assert!(stderr.contains(part), "{variable}={value}: no `{part}` in {stderr}");
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
