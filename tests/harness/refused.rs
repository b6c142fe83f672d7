//! Errors that a test expects.

use gpustream::{ErrorKind, Result};

/// Asserts that the result is an error of this kind whose message contains each of `texts`.
///
/// # Panics
/// The result is another error, or none.
#[track_caller]
pub fn refused<T>(result: Result<T>, kind: ErrorKind, texts: &[&str]) {
    let Err(error) = result else { panic!("this should have been refused as {kind:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    for text in texts {
        assert!(message.contains(text), "`{message}` does not say `{text}`");
    }
}
