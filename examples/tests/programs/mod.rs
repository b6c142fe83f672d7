//! The examples' executables.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Returns the path of an example. Cargo builds the examples before it runs the tests of this package.
pub(crate) fn path(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is missing: `cargo build --package examples --examples`", path.display());
    path
}

/// Returns a command that runs an example on the CPU.
pub(crate) fn example(name: &str) -> Command {
    let mut command = Command::new(path(name));
    command.args(["--device", "cpu"]).stdin(Stdio::null());
    command
}

/// Asserts that the program reports an error and does not panic, and that its message contains each of `texts`.
#[track_caller]
pub(crate) fn refused(command: &mut Command, texts: &[&str]) {
    let Output { status, stderr, .. } = command.output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert!(matches!(status.code(), Some(1 | 2)), "{command:?}: {status}: {message}");
    assert!(!message.contains("panicked"), "{message}");
    for text in texts {
        assert!(message.contains(text), "{command:?}: `{message}` does not say `{text}`");
    }
}
