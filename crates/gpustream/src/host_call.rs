//! Host closures in stream order, and what may not happen inside them.
//!
//! A driver runs them on a thread of its own and does not want to be called there: it may refuse, or wait for the very
//! closure that called. So nothing here does: what would call the driver is an error inside a closure, and what is
//! dropped there is handed to another thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Weak};
use std::thread;

use gpustream_hal::{Error, ErrorKind, Result};

use crate::stream_core::StreamCore;
use crate::sync::{Mutex, lock};
use crate::track::{Clock, Point};

thread_local! {
    /// Whether this thread is running a host closure on the driver's behalf.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// What that closure was ordered after when it was submitted.
    static PAST: RefCell<Clock> = RefCell::default();
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

/// Runs `work`, which calls the driver: now, or on another thread if this one is inside a host closure.
pub(crate) fn outside(work: impl FnOnce() + Send + 'static) {
    if !is_inside() {
        return work();
    }
    let mut left = lock(&LEFT);
    left.work.push_back(Box::new(work));
    if !left.has_thread {
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
        let _ = panic::catch_unwind(AssertUnwindSafe(work)).map_err(mem::forget);
    }
}

/// A closure on its way through the driver.
pub(crate) struct HostCall {
    closure: Box<dyn FnOnce() + Send>,
    stream: Arc<StreamCore>,
    past: Clock,
}

impl HostCall {
    /// For the end of `stream` as it is now.
    pub(crate) fn new(closure: impl FnOnce() + Send + 'static, stream: &Arc<StreamCore>) -> Self {
        let state = lock(&stream.state);
        let mut past = state.clock.clone();
        past.advance(Point { stream: stream.id, number: state.number() });
        drop(state);
        Self { closure: Box::new(closure), stream: stream.clone(), past }
    }

    pub(crate) fn into_raw(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// # Safety
    /// `data` came from [`into_raw`](Self::into_raw) and is used no more.
    pub(crate) unsafe fn from_raw(data: *mut c_void) -> Self {
        // SAFETY: by this function's contract.
        *unsafe { Box::from_raw(data.cast()) }
    }
}

/// A closure that a graph runs each time it is launched.
pub(crate) struct RepeatedCall {
    closure: Box<dyn Fn() + Send + Sync>,
    /// Where it was launched last: who reports a panic.
    stream: Mutex<Weak<StreamCore>>,
}

impl RepeatedCall {
    pub(crate) fn new(closure: impl Fn() + Send + Sync + 'static) -> Self {
        Self { closure: Box::new(closure), stream: Mutex::default() }
    }

    pub(crate) fn launched_on(&self, stream: &Arc<StreamCore>) {
        *lock(&self.stream) = Arc::downgrade(stream);
    }
}

/// What the driver calls for a graph's node. Panics are reported by the stream that the graph was launched on.
///
/// # Safety
/// `data` points to a [`RepeatedCall`] that is alive.
pub(crate) unsafe extern "C" fn run_repeated(data: *mut c_void) {
    // SAFETY: by this function's contract.
    let call = unsafe { &*data.cast_const().cast::<RepeatedCall>() };
    let stream = lock(&call.stream).upgrade();
    run_inside(&call.closure, stream, Clock::default());
}

/// What the driver calls.
///
/// # Safety
/// As for [`HostCall::from_raw`].
pub(crate) unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the driver calls once with what it was given.
    let HostCall { closure, stream, past } = unsafe { HostCall::from_raw(data) };
    run_inside(closure, Some(stream), past);
}

/// Runs a user's closure where the driver may not be called and nothing may unwind.
fn run_inside(closure: impl FnOnce(), stream: Option<Arc<StreamCore>>, past: Clock) {
    INSIDE.set(true);
    PAST.set(past);
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(closure)) {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "(no message)".to_owned());
        if let Some(stream) = &stream {
            *lock(&stream.panicked) = Some(text);
        }
        // A payload may itself panic when dropped, and nothing may unwind from here.
        mem::forget(payload);
    }
    // While still inside: it may be the last handle.
    drop(stream);
    INSIDE.set(false);
}
