//! Names the user's calls in errors and traces.

use std::panic::Location;

use gpustream::interop::on_behalf;
use gpustream::{CallSite, Result};

/// Runs `work` for the user's call. Errors and traces point at that call, instead of the `gpustream` calls that we make.
#[inline]
#[track_caller]
pub(crate) fn in_call<T>(label: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    on_behalf(CallSite { label, location: Location::caller() }, work)
}
