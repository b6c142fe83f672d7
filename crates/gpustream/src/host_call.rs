//! Host closures in stream order, and what may not happen inside them.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use crate::stream_core::StreamCore;
use crate::sync::lock;

thread_local! {
    /// Whether this thread is running a host closure on the driver's behalf.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a host closure.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs `work`, which calls the driver, now, or on a thread of its own if this one is inside a host closure: there
/// the driver may not be called, and a closure that drops the last handle of something would do just that.
pub(crate) fn outside(work: impl FnOnce() + Send + 'static) {
    if is_inside() {
        // Without a thread to do it, what was to be freed stays with the process.
        let _ = thread::Builder::new().name("gpustream-drop".into()).spawn(work);
    } else {
        work();
    }
}

/// A closure on its way through the driver.
pub(crate) struct HostCall {
    closure: Box<dyn FnOnce() + Send>,
    stream: Arc<StreamCore>,
}

impl HostCall {
    pub(crate) fn new(closure: impl FnOnce() + Send + 'static, stream: &Arc<StreamCore>) -> Self {
        Self { closure: Box::new(closure), stream: stream.clone() }
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
    run_inside(&call.closure, stream.as_deref());
}

/// What the driver calls.
///
/// # Safety
/// As for [`HostCall::from_raw`].
pub(crate) unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the driver calls once with what it was given.
    let HostCall { closure, stream } = unsafe { HostCall::from_raw(data) };
    run_inside(closure, Some(&stream));
    // The device's table holds the stream too, so this does not destroy it.
    drop(stream);
}

/// Runs a user's closure where the driver may not be called and nothing may unwind.
fn run_inside(closure: impl FnOnce(), stream: Option<&StreamCore>) {
    INSIDE.set(true);
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(closure)) {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "(no message)".to_owned());
        if let Some(stream) = stream {
            *lock(&stream.panicked) = Some(text);
        }
        // A payload may itself panic when dropped, and nothing may unwind from here.
        mem::forget(payload);
    }
    INSIDE.set(false);
}
