//! Errors of this backend.

use gpustream_hal::{Error, ErrorKind};

/// Returns an error of this backend.
#[cold]
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).with_backend("cpu")
}

/// Returns the error for something that this backend cannot do.
#[cold]
pub(crate) fn unsupported(what: &str) -> Error {
    Error::unsupported(what).with_backend("cpu")
}
