//! Errors that a test expects.

use gpustream::{ErrorKind, Result};

/// Asserts that the result is an error of this kind whose message contains each of `texts`, and that it names a call: the user's,
/// and not one that the library made.
///
/// # Panics
/// The result is another error, or none.
#[track_caller]
pub fn refused<T>(result: Result<T>, kind: ErrorKind, texts: &[&str]) {
    let Err(error) = &result else { panic!("this should have been refused as {kind:?}") };
    let Some(operation) = error.call_site() else { panic!("`{error}` names no call") };
    let file = operation.location.file();
    assert!(
        !file.starts_with("crates/") && !file.starts_with("kernels/"),
        "`{error}` names a call of the library's"
    );
    failed(result, kind, texts);
}

/// Asserts that the result is an error of this kind whose message contains each of `texts`: one that the test itself returned from
/// a closure, so that it names no call.
///
/// # Panics
/// The result is another error, or none.
#[track_caller]
pub fn failed<T>(result: Result<T>, kind: ErrorKind, texts: &[&str]) {
    let Err(error) = result else { panic!("this should have failed as {kind:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    // Forms of `Debug`, which are ours.
    for form in ["(0x", "Some(", " { ", "Device("] {
        assert!(!message.contains(form), "`{message}` shows `{form}`");
    }
    for text in texts {
        assert!(message.contains(text), "`{message}` does not say `{text}`");
    }
}
