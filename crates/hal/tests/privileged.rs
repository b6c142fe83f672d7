//! If a program has rights that its caller lacks, it must ignore the variables that decide which code runs. Otherwise the
//! caller could use these rights by setting a variable.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failure here fails the test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use gpustream_hal::environment::{is_privileged, trusted};

const VARIABLE: &str = "PRIVILEGED_TEST_VARIABLE";

/// Says what the process sees. The test below runs it in a child, because alone it proves nothing.
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

    // This program belongs to another user and runs with that user's rights, even if we call it. Only root can make such a
    // program.
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
        // We are not root, or this file system or container does not support setuid.
        other => println!("skipped: there are no setuid programs here ({other:?})"),
    }
}
