//! The inside of a host closure, where the library calls nothing.
//!
//! A driver runs host closures on a thread of its own and does not want to be called there: it may refuse, or wait for the
//! very closure that called. So every call that would reach the driver is an error inside a closure, and values dropped
//! there are handed to another thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use gpustream_hal::{Error, ErrorKind, Result};

use crate::process;
use crate::sync::{Mutex, lock};
use crate::track::{Clock, Point};

thread_local! {
    /// Whether this thread is running a host closure on the driver's behalf.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// What that closure was ordered after when it was submitted.
    static PAST: RefCell<Clock> = RefCell::default();
}

/// Runs `work` as a host closure, which was ordered after `past` when it was submitted.
pub(crate) fn run(past: Clock, work: impl FnOnce()) {
    INSIDE.set(true);
    PAST.set(past);
    work();
    INSIDE.set(false);
}

/// Whether this thread is inside a host closure.
#[inline]
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Refuses, inside a host closure, what would call the driver or wait.
#[inline]
pub(crate) fn check_outside() -> Result<()> {
    if is_inside() { Err(inside()) } else { Ok(()) }
}

#[cold]
fn inside() -> Error {
    Error::new(
        ErrorKind::InHostClosure,
        "a host closure runs on a thread of the driver's, which cannot be asked or waited for there: have the closure \
         tell a thread of the program, and make the call on that",
    )
}

/// Whether the closure that this thread is in comes after `point`: then that is done.
pub(crate) fn is_past(point: Point) -> bool {
    is_inside() && PAST.with_borrow(|past| past.covers(point))
}

/// What host closures left to be done, and whether a thread is at it.
#[derive(Default)]
struct Left {
    work: VecDeque<Box<dyn FnOnce() + Send>>,
    has_thread: bool,
}

static LEFT: Mutex<Left> = Mutex::new(Left { work: VecDeque::new(), has_thread: false });

/// Runs `work`, which calls the driver: now, or on another thread if this one is inside a host closure. Once the process is
/// ending it is leaked.
pub(crate) fn outside(work: impl FnOnce() + Send + 'static) {
    if is_inside() {
        elsewhere(work);
    } else {
        process::at_driver(work);
    }
}

/// As [`outside`], on another thread in any case.
pub(crate) fn elsewhere(work: impl FnOnce() + Send + 'static) {
    let mut left = lock(&LEFT);
    left.work.push_back(Box::new(work));
    if !left.has_thread && !process::is_ending() {
        process::register("what closures left", || {});
        // Without one it stays until the next closure leaves something.
        left.has_thread = thread::Builder::new().name("gpustream-drop".into()).spawn(clear_up).is_ok();
    }
}

fn clear_up() {
    loop {
        let mut left = lock(&LEFT);
        let Some(work) = left.work.pop_front() else {
            left.has_thread = false;
            return;
        };
        drop(left);
        // It may drop values of the user's. What comes behind is not to suffer if one of them panics.
        let run = || panic::catch_unwind(AssertUnwindSafe(work)).map_err(mem::forget);
        if process::at_driver(run).is_none() {
            // The process is ending; the rest stays where it is.
            return;
        }
    }
}
