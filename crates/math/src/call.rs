//! What the routines of all families share: errors and addresses.

use std::panic::Location;

use gpustream::{CallSite, Error, ErrorKind, Result};

/// Makes the error for arguments that do not fit together.
#[cold]
#[track_caller]
pub(crate) fn mismatch(label: &'static str, text: String) -> Error {
    refusal(ErrorKind::ArgumentMismatch, label, text)
}

/// Makes an error that names the program's call.
#[cold]
#[track_caller]
pub(crate) fn refusal(kind: ErrorKind, label: &'static str, text: String) -> Error {
    Error::new(kind, text).with_call_site(CallSite { label, location: Location::caller() })
}

/// Does a call's work. If it fails, the error names the program's call.
#[track_caller]
pub(crate) fn named<T>(label: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let location = Location::caller();
    work().map_err(|error| error.at_call_site(CallSite { label, location }))
}

/// Says what to do if a library would have to be opened while a stream is recorded.
#[cold]
pub(crate) fn not_prepared(library: &str) -> Error {
    Error::new(
        ErrorKind::Captured,
        format!(
            "{library} cannot be opened while a graph is recorded; call `gpustream_math::prepare(&device)` before the capture"
        ),
    )
}

/// An address on its way to the thread that runs a part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(pub(crate) usize);

impl Address {
    pub(crate) fn read<T>(self) -> *const T {
        self.0 as *const T
    }

    pub(crate) fn write<T>(self) -> *mut T {
        self.0 as *mut T
    }
}
