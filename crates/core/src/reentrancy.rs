//! Knows if a thread is inside a closure that must not call the library.
//!
//! A driver runs host closures on its own thread, and you must not call it there: it may refuse the call, or wait for the
//! very closure that made it. Calls of another library run while we hold their stream's lock. So inside either kind of
//! closure, every call that would reach the driver is an error, and if you drop a value there, we hand it to another thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use gpustream_hal::thread::with_signals_blocked;
use gpustream_hal::{Error, ErrorKind, Result, unheard};

use crate::process;
use crate::sync::{Mutex, lock};
use crate::track::{Clock, Point};

/// Which kind of closure a thread is running, if it is a kind that must not call the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunningClosure {
    None,
    /// A host closure, on a thread of the driver.
    Host,
    /// Calls of another library, while we hold the stream's lock.
    External,
}

thread_local! {
    /// The closure that this thread is running.
    static INSIDE: Cell<RunningClosure> = const { Cell::new(RunningClosure::None) };
    /// Everything that this closure comes after.
    static PAST: RefCell<Clock> = RefCell::default();
}

/// Runs `work` as a host closure, submitted after everything in `past`.
pub(crate) fn run(past: Clock, work: impl FnOnce()) {
    PAST.set(past);
    run_in(RunningClosure::Host, work);
}

/// Runs `work` as calls of another library.
#[inline(always)]
#[allow(clippy::inline_always, reason = "around a driver's call: see `stream::Begun`")]
pub fn run_external<T>(work: impl FnOnce() -> T) -> T {
    run_in(RunningClosure::External, work)
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "as for `run_external`")]
fn run_in<T>(closure: RunningClosure, work: impl FnOnce() -> T) -> T {
    /// Restores the state, even if the work panics.
    struct Return(RunningClosure);
    impl Drop for Return {
        #[inline]
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _return = Return(INSIDE.replace(closure));
    work()
}

/// Returns true if this thread is inside a closure that must not call the library.
#[inline]
pub fn is_inside() -> bool {
    INSIDE.get() != RunningClosure::None
}

/// Proves that the thread is outside such closures, so it may call the driver and wait. It cannot leave its thread.
#[derive(Clone, Copy)]
pub struct OutsideClosures(PhantomData<*const ()>);

/// Checks that this thread may call the driver and wait.
///
/// # Errors
/// [`ErrorKind::InHostClosure`] inside a closure.
#[inline]
pub fn check_outside() -> Result<OutsideClosures> {
    if is_inside() { Err(inside()) } else { Ok(OutsideClosures(PhantomData)) }
}

#[cold]
fn inside() -> Error {
    if INSIDE.get() == RunningClosure::External {
        return Error::new(
            ErrorKind::InHostClosure,
            "the closure of `Stream::external` runs while its stream is locked, so you cannot call the library there; \
             allocate and launch before or after it",
        );
    }
    Error::new(
        ErrorKind::InHostClosure,
        "a host closure runs on a thread of the driver, and you cannot call the driver or wait for it there; let the closure \
         notify a thread of your own, and make the call on that thread",
    )
}

/// Returns true if this thread is inside a host closure that comes after `point`. Then the point is done.
pub(crate) fn is_past(point: Point) -> bool {
    INSIDE.get() == RunningClosure::Host && PAST.with_borrow(|past| past.covers(point))
}

/// Work that host closures left for another thread.
#[derive(Default)]
struct Left {
    work: VecDeque<Box<dyn FnOnce() + Send>>,
    /// True if a thread is doing the work.
    has_thread: bool,
}

static LEFT: Mutex<Left> = Mutex::new(Left { work: VecDeque::new(), has_thread: false });

/// Runs `work`, which calls the driver: now, or on another thread if this one is inside a host closure. If the process is
/// ending, leaks `work`.
pub fn outside(work: impl FnOnce() + Send + 'static) {
    if is_inside() {
        elsewhere(work);
    } else {
        process::at_driver(|| unheard(work));
    }
}

/// Runs `work`, which calls the driver, on another thread in any case. If the process is ending, leaks `work`.
pub(crate) fn elsewhere(work: impl FnOnce() + Send + 'static) {
    let mut left = lock(&LEFT);
    left.work.push_back(Box::new(work));
    if !left.has_thread && !process::is_ending() {
        process::register("what closures left", || {});
        // If we cannot start a thread, the work stays until the next closure leaves something.
        let builder = thread::Builder::new().name("gpustream-drop".into());
        left.has_thread = with_signals_blocked(|| builder.spawn(clear_up)).is_ok();
    }
}

/// Does the work that was left, until there is none.
fn clear_up() {
    loop {
        let mut left = lock(&LEFT);
        let Some(work) = left.work.pop_front() else {
            left.has_thread = false;
            return;
        };
        drop(left);
        // The work may drop your values. If one of them panics, we must still do the rest of the work.
        let run = || panic::catch_unwind(AssertUnwindSafe(|| unheard(work))).map_err(mem::forget);
        if process::at_driver(run).is_none() {
            // The process is ending; the rest stays where it is.
            return;
        }
    }
}
