//! Exchanges of every kind, between threads and between processes, and what may go wrong with them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod folder;
mod kinds;
#[path = "../local/list.rs"]
mod list;
mod processes;
mod rendezvous;
mod tcp;

use std::error::Error as _;
use std::process::ExitCode;
use std::time::Duration;

use gpustream::Error;
use gpustream_collectives::{ExchangeError, Secret};
use libtest_mimic::{Arguments, Failed, Trial};
pub(crate) use list::tests;

/// The limit of what is to succeed. A test that hangs fails after it.
const LONG: Duration = Duration::from_secs(60);
/// The limit of what is to fail by its limit.
const SHORT: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    if processes::play_role() {
        return ExitCode::SUCCESS;
    }
    let tests = [kinds::TESTS, folder::TESTS, tcp::TESTS, processes::TESTS, rendezvous::TESTS];
    let trials = list::all(&tests).into_iter().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn secret() -> Secret {
    Secret::new("the secret of the tests").unwrap()
}

/// Returns the reason why an exchange did not work, which an error must have.
#[track_caller]
fn reason(error: &Error) -> &ExchangeError {
    let source = error.source().unwrap_or_else(|| panic!("another error: {error}"));
    source.downcast_ref().unwrap_or_else(|| panic!("another error: {error}"))
}
