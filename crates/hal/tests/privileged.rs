//! If a program has rights that its caller does not have, it ignores the variables that decide what code runs.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failure here fails the test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use gpustream_hal::environment::{is_privileged, trusted};

const VARIABLE: &str = "PRIVILEGED_TEST_VARIABLE";

/// What the child process prints. Run alone, this proves nothing.
#[test]
fn child() {
    println!("privileged: {}; value: {:?}", is_privileged(), trusted(VARIABLE));
}

fn says(program: &Path, value: &str) -> String {
    let arguments = ["--exact", "child", "--nocapture"];
    let output = Command::new(program).args(arguments).env(VARIABLE, value).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn variables_of_a_less_trusted_caller_are_ignored() {
    let program = std::env::current_exe().unwrap();
    assert!(says(&program, "/lib/x.so").contains("privileged: false; value: Some(\"/lib/x.so\")"));
    assert!(says(&program, "").contains("value: None"));

    // A setuid program that belongs to another user, and that runs with that user's rights. Only root can make one.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("privileged-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let copy = folder.join("setuid");
    fs::copy(&program, &copy).unwrap();
    let made = chown(&copy, Some(1234), None)
        .and_then(|()| fs::set_permissions(&copy, Permissions::from_mode(0o4755)));
    let said = made.is_ok().then(|| says(&copy, "/lib/x.so"));
    fs::remove_dir_all(&folder).unwrap();
    match said {
        Some(said) if said.contains("privileged: true") => assert!(said.contains("value: None"), "{said}"),
        // We are not root, or the file system or the container does not allow setuid.
        other => println!("skipped: there are no setuid programs here ({other:?})"),
    }
}
