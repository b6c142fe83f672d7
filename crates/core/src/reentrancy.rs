//! The inside of closures in which the library calls nothing.
//!
//! A driver runs host closures on a thread of its own and must not be called there: the driver may refuse the call, or
//! wait for the very closure that made it. The calls of another library are made with their stream locked. So inside
//! either closure every call that would reach the driver is an error, and values that are dropped there are handed to
//! another thread.

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

/// The closure of the program's that a thread is running, as far as it may not call the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunningClosure {
    None,
    /// A host closure, on a thread of the driver's.
    Host,
    /// The calls of another library's, which are made with the stream locked.
    External,
}

thread_local! {
    /// The closure that this thread is running.
    static INSIDE: Cell<RunningClosure> = const { Cell::new(RunningClosure::None) };
    /// The clock of that closure's submission, with everything that the closure comes after.
    static PAST: RefCell<Clock> = RefCell::default();
}

/// Runs `work` as a host closure that was submitted after everything in `past`.
pub(crate) fn run(past: Clock, work: impl FnOnce()) {
    PAST.set(past);
    run_in(RunningClosure::Host, work);
}

/// Runs `work` as calls of another library's.
#[inline(always)]
#[allow(clippy::inline_always, reason = "around a driver's call: see `stream::Begun`")]
pub fn run_external<T>(work: impl FnOnce() -> T) -> T {
    run_in(RunningClosure::External, work)
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "as for `run_external`")]
fn run_in<T>(closure: RunningClosure, work: impl FnOnce() -> T) -> T {
    /// The way back, also where the work panics.
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

/// Returns whether this thread is inside a closure that may not call the library.
#[inline]
pub fn is_inside() -> bool {
    INSIDE.get() != RunningClosure::None
}

/// The proof that the thread is outside of those closures: it may call the driver, and wait. Stays on the thread.
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
            "the closure of `Stream::external` runs with its stream locked, and the library cannot be called there; \
             allocate and launch before or after it",
        );
    }
    Error::new(
        ErrorKind::InHostClosure,
        "a host closure runs on a thread of the driver, which cannot be called or waited for there; have the closure \
         notify a thread of the program, and make the call on that thread",
    )
}

/// Returns whether this thread is inside a closure that comes after `point`, which is then done.
pub(crate) fn is_past(point: Point) -> bool {
    INSIDE.get() == RunningClosure::Host && PAST.with_borrow(|past| past.covers(point))
}

/// The work that host closures left to another thread.
#[derive(Default)]
struct Left {
    work: VecDeque<Box<dyn FnOnce() + Send>>,
    /// Whether a thread is doing the work.
    has_thread: bool,
}

static LEFT: Mutex<Left> = Mutex::new(Left { work: VecDeque::new(), has_thread: false });

/// Runs `work`, which calls the driver: now, or on another thread if this one is inside a host closure. Once the
/// process is ending, `work` is leaked.
pub fn outside(work: impl FnOnce() + Send + 'static) {
    if is_inside() {
        elsewhere(work);
    } else {
        process::at_driver(|| unheard(work));
    }
}

/// Runs `work`, which calls the driver, on another thread in any case. Once the process is ending, `work` is leaked.
pub(crate) fn elsewhere(work: impl FnOnce() + Send + 'static) {
    let mut left = lock(&LEFT);
    left.work.push_back(Box::new(work));
    if !left.has_thread && !process::is_ending() {
        process::register("what closures left", || {});
        // If no thread can be started, the work stays until the next closure leaves something.
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
        // The work may drop values of the user's. A panic of one such value must not keep the rest of the work from
        // being done.
        let run = || panic::catch_unwind(AssertUnwindSafe(|| unheard(work))).map_err(mem::forget);
        if process::at_driver(run).is_none() {
            // The process is ending; the rest stays where it is.
            return;
        }
    }
}
