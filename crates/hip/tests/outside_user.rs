//! Your crate with HIP turned on, in a folder of its own: no ROCm, no cargo configuration, one line in Cargo.toml.
#![allow(clippy::unwrap_used)] // Also in the tests' helpers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

const PROGRAM: &str = r#"
use gpustream::{Device, ErrorKind};

fn main() {
    match Device::open("hip") {
        Ok(device) => println!("found {device}"),
        Err(error) => match error.kind() {
            ErrorKind::DriverMissing | ErrorKind::DriverUnusable | ErrorKind::NoDevice => {
                println!("{:?}: {error}", error.kind());
            }
            other => panic!("{other:?}: {error}"),
        },
    }
    // Without a GPU the same program runs on the CPU, but not if you named a library and it is missing.
    match Device::best() {
        Ok(device) => println!("best {device}"),
        Err(error) => println!("none {:?}: {error}", error.kind()),
    }
}
"#;

/// A user's crate outside the workspace, because it must not inherit the workspace's configuration and features.
struct UserCrate(PathBuf);

impl UserCrate {
    fn new() -> Self {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let folder = env::temp_dir().join(format!("gpustream-hip-user-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).unwrap();
        let manifest = format!(
            "[package]\nname = \"hip-user\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
             [dependencies.gpustream]\npath = '{}'\ndefault-features = false\nfeatures = [\"cpu\", \"hip\"]\n",
            workspace.join("crates/gpustream").display()
        );
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        fs::write(folder.join("src/main.rs"), PROGRAM).unwrap();
        // We use the versions that are already here, so nothing is downloaded.
        fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        Self(folder)
    }

    fn cargo(&self, args: &[&str], variables: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO"))
            .args(args)
            .arg("--offline")
            .current_dir(&self.0)
            .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("hip-user"))
            // These make the build cheaper.
            .envs([("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "none")])
            // We unset these, because they could help hip-runtime-sys's build script.
            .env_remove("ROCM_PATH")
            .env_remove("HIP_PATH")
            .env_remove("GPUSTREAM_DEVICE")
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }
}

impl Drop for UserCrate {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn turning_hip_on_needs_nothing_else() {
    let user = UserCrate::new();
    // The crate whose build script wants ROCm is not even compiled.
    let tree = user.cargo(&["tree", "--prefix", "none"], &[]);
    assert!(tree.status.success(), "{}", text(&tree.stderr));
    let tree = text(&tree.stdout);
    assert!(tree.contains("gpustream-hip") && !tree.contains("hip-runtime-sys"), "{tree}");

    // The program runs with this machine's libraries, and with none.
    let output = user.cargo(&["run", "--quiet"], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("best ") || stdout.contains("none DriverUnusable"), "{stdout}");
    let output = user.cargo(&["run", "--quiet"], &[("GPUSTREAM_HIP_LIBRARY", "/nowhere/libamdhip64.so")]);
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(stdout.starts_with("DriverUnusable: ") && stdout.contains("/nowhere/libamdhip64.so"), "{stdout}");
    assert!(
        stdout.contains("\nnone DriverUnusable: ") && stdout.contains("cpu: has the device cpu:0"),
        "{stdout}"
    );
}
