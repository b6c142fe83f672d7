//! Names of the user's calls in errors.

use std::panic::Location;

use gpustream::{CallSite, Result};

/// Names the user's call in an error of `outcome`, in place of the calls to `gpustream` that were made for it.
#[inline]
#[track_caller]
pub(crate) fn in_call<T>(label: &'static str, outcome: Result<T>) -> Result<T> {
    let location = Location::caller();
    outcome.map_err(|error| error.at_call_site(CallSite { label, location }))
}
