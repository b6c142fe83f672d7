//! The threads' numbers, the line that each works for, and our thread that collects the notes.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gpustream_hal::thread::with_signals_blocked;
use gpustream_hal::trace::now;
use gpustream_timeline::{Nanos, Record, Thread};

use super::collector::{self, Finished};
use super::{is_heard, notes};
use crate::process;

/// How long we pause between two looks at the devices.
const PAUSE: Duration = Duration::from_millis(5);

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// When this thread began to fill the pinned memory for its next copy.
    static STAGING: Cell<Option<Nanos>> = const { Cell::new(None) };
    /// The line that everything on this thread is noted at, while one public call makes others.
    static CALLER: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Returns this thread's number, from 1. The first call on a thread introduces it to the listeners.
pub(super) fn current() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let known = NUMBER.get();
    if known != 0 {
        return known;
    }
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    NUMBER.set(id);
    let name = thread::current().name().map_or_else(|| format!("thread {id}"), str::to_owned);
    notes::note(Record::Thread(Thread { id, name }));
    id
}

/// Returns the line that a note belongs to, if it was made at `location`.
pub(super) fn line(location: &'static Location<'static>) -> &'static Location<'static> {
    CALLER.get().unwrap_or(location)
}

/// Notes everything that `work` does at one line.
#[cold]
pub(super) fn on_behalf<T>(location: &'static Location<'static>, work: impl FnOnce() -> T) -> T {
    /// Restores the line before, even if `work` panics.
    struct Outer(Option<&'static Location<'static>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            CALLER.set(self.0);
        }
    }
    let outer = Outer(CALLER.get());
    // If calls are nested, your program made the outermost.
    CALLER.set(Some(line(location)));
    let value = work();
    drop(outer);
    value
}

/// Notes that this thread begins to fill pinned memory.
#[cold]
pub(super) fn stage() {
    STAGING.set(Some(now()));
}

/// Returns when this thread began to fill pinned memory since its last operation, if it did.
pub(super) fn take_staging() -> Option<Nanos> {
    STAGING.take()
}

/// Sleeps for a millisecond.
pub(super) fn pause() {
    thread::sleep(Duration::from_millis(1));
}

/// Makes sure that our thread collects as long as there is a listener. If we cannot start a thread, the notes wait for the
/// end of the trace.
pub(super) fn run() {
    static RUNS: AtomicBool = AtomicBool::new(false);
    if RUNS.swap(true, Ordering::AcqRel) {
        return;
    }
    process::register("traces", || {});
    let collect = || {
        while is_heard() && process::at_driver(|| collector::collect(&Finished::default())).is_some() {
            thread::park_timeout(PAUSE);
        }
        RUNS.store(false, Ordering::Release);
        // A listener may have come after the last look, and not have started a thread because this one still seemed to run.
        if is_heard() && !process::is_ending() {
            run();
        }
    };
    let builder = thread::Builder::new().name("gpustream-trace".into());
    if with_signals_blocked(|| builder.spawn(collect)).is_err() {
        RUNS.store(false, Ordering::Release);
    }
}
