//! Tells you which of your lines silently serialise operations, once per line, if `GPUSTREAM_LINT` is 1.

use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::OnceLock;

use gpustream_hal::notice::{self, Level, Notice};

use crate::sync::{Mutex, lock};
use crate::trace::{self, InstantKind};

/// Returns true if `GPUSTREAM_LINT` is 1. We read the variable once.
pub fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| std::env::var_os("GPUSTREAM_LINT").is_some_and(|value| value == "1"))
}

/// If the lint is on, tells standard error and your listeners that the caller's line serialises, and why. `why` is a whole
/// clause.
#[track_caller]
#[inline]
pub fn serialises(why: &str) {
    serialises_at(why, Location::caller());
}

/// Like [`serialises`], for the line at `location`.
#[inline]
pub fn serialises_at(why: &str, location: &'static Location<'static>) {
    if is_on() {
        report(why, location);
    }
}

#[cold]
fn report(why: &str, location: &'static Location<'static>) {
    static SEEN: Mutex<BTreeSet<(String, u32, String)>> = Mutex::new(BTreeSet::new());
    if trace::is_on() {
        trace::instant("lint", Some(location), InstantKind::Lint(why.to_owned()));
    }
    let is_new = lock(&SEEN).insert((location.file().to_owned(), location.line(), why.to_owned()));
    if is_new {
        eprintln!("gpustream: {}:{}: {why}", location.file(), location.line());
        // We tell listeners later, because streams may be locked here.
        notice::later(Level::Warn, || Notice::Serialises { location, why: why.to_owned() });
    }
}
