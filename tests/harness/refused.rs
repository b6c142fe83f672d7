//! Errors that a test expects.

use gpustream::{ErrorKind, Result};

/// Asserts an error's kind, and that its message says each of `texts`.
///
/// # Panics
/// Where it is another one, or none.
#[track_caller]
pub fn refused<T>(result: Result<T>, kind: ErrorKind, texts: &[&str]) {
    let Err(error) = result else { panic!("this should have been refused as {kind:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    for text in texts {
        assert!(message.contains(text), "`{message}` does not say `{text}`");
    }
}
