//! Exchanges of every kind, between threads and between processes, and what may go wrong with them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod folder;
mod kinds;
mod processes;
mod rendezvous;
mod tcp;

use std::error::Error as _;
use std::time::Duration;

use gpustream::Error;
use gpustream_collectives::{ExchangeError, Secret};

/// The limit for what must succeed. If a test hangs, it fails after this time.
const LONG: Duration = Duration::from_secs(60);
/// The limit for what must fail because of its limit.
const SHORT: Duration = Duration::from_millis(300);

fn secret() -> Secret {
    Secret::new("the secret of the tests").unwrap()
}

/// Returns why an exchange failed. The error must say.
#[track_caller]
fn reason(error: &Error) -> &ExchangeError {
    let source = error.source().unwrap_or_else(|| panic!("another error: {error}"));
    source.downcast_ref().unwrap_or_else(|| panic!("another error: {error}"))
}
