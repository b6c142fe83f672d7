//! Names the user's calls in errors.

use std::panic::Location;

use gpustream::{CallSite, Result};

/// Makes an error point at the user's call, instead of the `gpustream` call that we made for it.
#[inline]
#[track_caller]
pub(crate) fn in_call<T>(label: &'static str, outcome: Result<T>) -> Result<T> {
    let location = Location::caller();
    outcome.map_err(|error| error.at_call_site(CallSite { label, location }))
}
