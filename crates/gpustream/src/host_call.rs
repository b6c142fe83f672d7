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
use std::sync::{Arc, PoisonError, Weak};
use std::thread;

use gpustream_hal::{Error, ErrorKind, Result};
use smallvec::SmallVec;

use crate::process;
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
        process::register("what closures left");
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
///
/// The driver has its address in a node. A driver may look into the node only when the run gets there (HIP does), so a
/// node is never given another address while runs are pending: which closure a run is for is decided here, by its
/// number. The runs of one executable follow each other.
pub(crate) struct RepeatedCall {
    runs: Mutex<Runs>,
    /// What the recorded graph has in this node's place, where that is another: parents copy the recorded graph.
    recorded: Option<Arc<Self>>,
}

struct Runs {
    /// Each with the number of its first run. The first is that of the run that begins next, or of an earlier one.
    closures: VecDeque<(u64, Arc<dyn Fn() + Send + Sync>)>,
    launched: u64,
    begun: u64,
    /// Where it was launched, which is who reports a panic: the streams of runs that have not begun, each with the number
    /// of its first one.
    streams: VecDeque<(u64, Weak<StreamCore>)>,
}

impl RepeatedCall {
    pub(crate) fn new(closure: impl Fn() + Send + Sync + 'static) -> Self {
        Self::of(Arc::new(closure), None)
    }

    fn of(closure: Arc<dyn Fn() + Send + Sync>, recorded: Option<Arc<Self>>) -> Self {
        let closures = VecDeque::from([(0, closure)]);
        Self {
            runs: Mutex::new(Runs { closures, launched: 0, begun: 0, streams: VecDeque::new() }),
            recorded,
        }
    }

    /// For the executable's own node: what is put into that does not concern the recorded graph, nor its parents.
    pub(crate) fn for_executable(self: &Arc<Self>) -> Option<Self> {
        let newest = lock(&self.runs).closures.back().map(|(_, closure)| closure.clone())?;
        Some(Self::of(newest, Some(self.clone())))
    }

    /// The closure that the recorded graph has.
    pub(crate) fn recorded(self: &Arc<Self>) -> Arc<Self> {
        self.recorded.as_ref().unwrap_or(self).clone()
    }

    pub(crate) fn launched_on(&self, stream: &Arc<StreamCore>) {
        let mut runs = lock(&self.runs);
        if runs.streams.back().is_none_or(|(_, last)| !std::ptr::eq(last.as_ptr(), Arc::as_ptr(stream))) {
            let first = runs.launched;
            runs.streams.push_back((first, Arc::downgrade(stream)));
        }
        runs.launched += 1;
    }

    /// The driver refused the launch.
    pub(crate) fn not_launched(&self) {
        lock(&self.runs).launched -= 1;
    }

    /// Whether a run has been launched in which it has not been called yet.
    pub(crate) fn is_pending(&self) -> bool {
        let runs = lock(&self.runs);
        runs.begun < runs.launched
    }

    /// Runs launched from now on are for the closure of `other`.
    pub(crate) fn replace(&self, other: &Self) {
        let newest = lock(&other.runs).closures.back().map(|(_, closure)| closure.clone());
        let Some(closure) = newest else { return };
        let mut runs = lock(&self.runs);
        let first = runs.launched;
        // No run is for it.
        let unused = if runs.closures.back().is_some_and(|(from, _)| *from == first) {
            runs.closures.pop_back()
        } else {
            None
        };
        runs.closures.push_back((first, closure));
        let passed = runs.pass();
        drop(runs);
        // With no lock held: closures own the user's values.
        drop((unused, passed));
    }
}

impl Drop for RepeatedCall {
    fn drop(&mut self) {
        let runs = self.runs.get_mut().unwrap_or_else(PoisonError::into_inner);
        let closures = mem::take(&mut runs.closures);
        process::users_code(|| drop(closures));
    }
}

impl Runs {
    /// Takes out the closures that the next run is too late for.
    fn pass(&mut self) -> SmallVec<[Arc<dyn Fn() + Send + Sync>; 1]> {
        let mut passed = SmallVec::new();
        while self.closures.get(1).is_some_and(|(from, _)| *from <= self.begun) {
            passed.extend(self.closures.pop_front().map(|(_, closure)| closure));
        }
        passed
    }
}

/// What the driver calls for a graph's node. Panics are reported by the stream that the graph was launched on.
///
/// # Safety
/// `data` points to a [`RepeatedCall`] that is alive.
pub(crate) unsafe extern "C" fn run_repeated(data: *mut c_void) {
    // SAFETY: by this function's contract.
    let call = unsafe { &*data.cast_const().cast::<RepeatedCall>() };
    let mut runs = lock(&call.runs);
    let passed = runs.pass();
    while runs.streams.get(1).is_some_and(|(from, _)| *from <= runs.begun) {
        runs.streams.pop_front();
    }
    runs.begun += 1;
    let closure = runs.closures.front().map(|(_, closure)| closure.clone());
    let stream = runs.streams.front().and_then(|(_, stream)| stream.upgrade());
    drop(runs);
    let run = move || {
        // Where they may do what a closure may.
        drop(passed);
        if let Some(closure) = closure {
            closure();
        }
    };
    run_inside(run, stream, Clock::default());
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
