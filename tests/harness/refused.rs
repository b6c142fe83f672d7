//! Checks of errors that a test expects.

use gpustream::{ErrorKind, Result};

/// Asserts that the result is an error of this kind, and that its message contains each of `texts`. The error must also
/// name the call that you made, and not one that the library made for you.
///
/// # Panics
/// If the result is another error, or none.
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

/// Asserts that the result is an error of this kind, and that its message contains each of `texts`. Use this if the
/// test's own closure returned the error: such an error names no call.
///
/// # Panics
/// If the result is another error, or none.
#[track_caller]
pub fn failed<T>(result: Result<T>, kind: ErrorKind, texts: &[&str]) {
    let Err(error) = result else { panic!("this should have failed as {kind:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    // `Debug` writes these, so none of them may appear in a text for users.
    for form in ["(0x", "Some(", " { ", "Device("] {
        assert!(!message.contains(form), "`{message}` shows `{form}`");
    }
    for text in texts {
        assert!(message.contains(text), "`{message}` does not say `{text}`");
    }
}
