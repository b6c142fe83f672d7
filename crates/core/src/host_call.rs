//! Host closures in stream order: the value that we give a driver along with its callback.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem;
use std::num::NonZeroU32;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use gpustream_hal::{Error, ErrorKind, Result, Work};
use smallvec::SmallVec;

use crate::failures::Failures;
use crate::sync::{Mutex, lock};
use crate::trace::{self, InstantKind};
use crate::track::Clock;
use crate::{process, reentrancy};

/// A closure that the driver calls once, in stream order.
pub struct HostCall {
    closure: Box<dyn FnOnce() + Send>,
    failures: Arc<Failures>,
    past: Clock,
}

impl HostCall {
    /// Creates a call for the stream whose waits report `failures`. The closure comes after everything in `past`.
    pub fn new(closure: impl FnOnce() + Send + 'static, failures: &Arc<Failures>, past: Clock) -> Self {
        Self { closure: Box::new(closure), failures: failures.clone(), past }
    }

    pub fn into_raw(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes back a call that we gave to the driver.
    ///
    /// # Safety
    /// `data` came from [`into_raw`](Self::into_raw) and is not used again.
    pub unsafe fn from_raw(data: *mut c_void) -> Self {
        // SAFETY: by this function's contract.
        *unsafe { Box::from_raw(data.cast()) }
    }
}

/// A closure that a device calls in parts, on several threads at once.
pub struct PartsCall {
    closure: PartClosure,
    /// The parts that have not ended.
    left: AtomicU32,
    failures: Arc<Failures>,
    past: Clock,
}

/// A closure that is called once for each part, with the part's number.
pub type PartClosure = Arc<dyn Fn(u32) + Send + Sync>;

impl PartsCall {
    /// Creates a call for the stream whose waits report `failures`. The closure comes after everything in `past`.
    pub fn new(closure: PartClosure, parts: NonZeroU32, failures: &Arc<Failures>, past: Clock) -> Self {
        Self { closure, left: AtomicU32::new(parts.get()), failures: failures.clone(), past }
    }

    pub fn into_raw(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes back a call that we gave to the device.
    ///
    /// # Safety
    /// `data` came from [`into_raw`](Self::into_raw) and is not used again.
    pub unsafe fn from_raw(data: *mut c_void) -> Self {
        // SAFETY: by this function's contract.
        *unsafe { Box::from_raw(data.cast()) }
    }
}

/// Runs a part of a [`PartsCall`]. The device calls this. The part that ends last frees the call.
///
/// # Safety
/// `data` came from [`PartsCall::into_raw`], and each part is called once.
pub unsafe extern "C" fn run_part(data: *mut c_void, part: u32) {
    // SAFETY: the call is freed when its last part has ended, so not before this one.
    let call = unsafe { &*data.cast_const().cast::<PartsCall>() };
    run_inside(|| (call.closure)(part), Some(&call.failures), call.past.clone());
    // Acquire and release, so that the work of all parts comes before the end of the call.
    if call.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: no part is left, so no other thread uses the call.
        let PartsCall { closure, failures, past, .. } = unsafe { PartsCall::from_raw(data) };
        run_inside(|| drop(closure), Some(&failures), past);
    }
}

/// A closure that a graph runs in each launch.
///
/// The graph's node holds the address of this value. You may give the node another closure while earlier launches are still
/// pending, and those must call the old one. We cannot simply put another address into the node, because a driver may read
/// the node only when a run reaches it (HIP does). So the node keeps its address, and we choose the closure here, by the
/// number of the run. That works because the runs of one executable follow each other.
pub struct RepeatedCall {
    runs: Mutex<Runs>,
    /// How many parts each run has; `None` if the closure is called once.
    parts: Option<NonZeroU32>,
    /// The same node's call in the recorded graph, if that is a different one. Parents copy the recorded graph.
    recorded: Option<Arc<Self>>,
}

struct Runs {
    /// Each closure with the number of the first run that calls it, in this order. If closures are replaced, the earlier ones
    /// stay until their runs have begun.
    closures: VecDeque<(u64, PartClosure)>,
    launched: u64,
    begun: u64,
    /// The run whose parts have begun and not all ended, if the closure has parts.
    current: Option<RunInParts>,
    /// Where the runs that have not begun report panics, each with the number of the first such run.
    streams: VecDeque<(u64, Arc<Failures>)>,
}

/// One run of a closure that has parts. The runs of one executable follow each other, so there is one at a time.
struct RunInParts {
    closure: Option<PartClosure>,
    failures: Option<Arc<Failures>>,
    /// The parts that have not ended.
    left: u32,
}

impl RepeatedCall {
    pub fn new(closure: impl Fn() + Send + Sync + 'static) -> Self {
        Self::of(Arc::new(move |_| closure()), None, None)
    }

    /// Creates a call whose closure is called once for each part.
    pub fn in_parts(closure: PartClosure, parts: NonZeroU32) -> Self {
        Self::of(closure, Some(parts), None)
    }

    fn of(closure: PartClosure, parts: Option<NonZeroU32>, recorded: Option<Arc<Self>>) -> Self {
        let closures = VecDeque::from([(0, closure)]);
        let runs = Runs { closures, launched: 0, begun: 0, current: None, streams: VecDeque::new() };
        Self { runs: Mutex::new(runs), parts, recorded }
    }

    /// Returns the work for a node that makes this call. The node's graph must keep the call alive.
    pub fn work(self: &Arc<Self>) -> Work<'static> {
        let data = Arc::as_ptr(self).cast_mut().cast();
        match self.parts {
            None => Work::Host { function: run_repeated, data },
            Some(parts) => Work::HostParts { function: run_repeated_part, data, parts: parts.get() },
        }
    }

    /// Creates a call for the node of an executable. So if you set that node to another closure later, the recorded graph
    /// and its parents do not change.
    pub fn for_executable(self: &Arc<Self>) -> Option<Self> {
        let newest = lock(&self.runs).closures.back().map(|(_, closure)| closure.clone())?;
        Some(Self::of(newest, self.parts, Some(self.clone())))
    }

    /// Returns the recorded graph's call.
    pub(crate) fn recorded(self: &Arc<Self>) -> Arc<Self> {
        self.recorded.as_ref().unwrap_or(self).clone()
    }

    /// Counts a launch on the stream whose waits report `failures`.
    pub fn launched_on(&self, failures: &Arc<Failures>) {
        let mut runs = lock(&self.runs);
        if runs.streams.back().is_none_or(|(_, last)| !Arc::ptr_eq(last, failures)) {
            let first = runs.launched;
            runs.streams.push_back((first, failures.clone()));
        }
        runs.launched += 1;
    }

    /// Undoes [`launched_on`](Self::launched_on) if the driver refused the launch.
    pub fn not_launched(&self) {
        lock(&self.runs).launched -= 1;
    }

    /// Returns true if a run has been launched that has not called the closure yet.
    pub fn is_pending(&self) -> bool {
        let runs = lock(&self.runs);
        runs.begun < runs.launched
    }

    /// Uses the closure of `other` in the runs that are launched from now on.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the closures do not run in the same number of parts.
    pub(crate) fn replace(&self, other: &Self) -> Result<()> {
        if self.parts != other.parts {
            let count = |parts: Option<NonZeroU32>| parts.map_or(1, NonZeroU32::get);
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "the node's closure runs in {} parts and the new closure in {}, and an executable cannot change that. \
                     Use a closure with as many parts, or build the graph again (a closure of `host_fn_repeat` has one \
                     part)",
                    count(self.parts),
                    count(other.parts)
                ),
            ));
        }
        let newest = lock(&other.runs).closures.back().map(|(_, closure)| closure.clone());
        let Some(closure) = newest else { return Ok(()) };
        let mut runs = lock(&self.runs);
        let first = runs.launched;
        // True if the last closure has had no run.
        let unused = if runs.closures.back().is_some_and(|(from, _)| *from == first) {
            runs.closures.pop_back()
        } else {
            None
        };
        runs.closures.push_back((first, closure));
        let passed = runs.pass();
        drop(runs);
        // Dropped with no lock held, because closures own the user's values.
        drop((unused, passed));
        Ok(())
    }
}

impl Drop for RepeatedCall {
    fn drop(&mut self) {
        let runs = self.runs.get_mut().unwrap_or_else(PoisonError::into_inner);
        let closures = (mem::take(&mut runs.closures), runs.current.take());
        process::users_code(|| drop(closures));
    }
}

impl Runs {
    /// Takes out the closures that no further run will call.
    fn pass(&mut self) -> SmallVec<[PartClosure; 1]> {
        let mut passed = SmallVec::new();
        while self.closures.get(1).is_some_and(|(from, _)| *from <= self.begun) {
            passed.extend(self.closures.pop_front().map(|(_, closure)| closure));
        }
        passed
    }

    /// Begins the next run. Returns its closure, the stream's failures, and the closures that no run needs any more.
    fn begin(&mut self) -> (Option<PartClosure>, Option<Arc<Failures>>, SmallVec<[PartClosure; 1]>) {
        let passed = self.pass();
        while self.streams.get(1).is_some_and(|(from, _)| *from <= self.begun) {
            self.streams.pop_front();
        }
        self.begun += 1;
        let closure = self.closures.front().map(|(_, closure)| closure.clone());
        (closure, self.streams.front().map(|(_, failures)| failures.clone()), passed)
    }
}

/// Runs a graph node's closure. The driver calls this. If the closure panics, the stream that the graph was launched on
/// reports it.
///
/// # Safety
/// `data` points to a [`RepeatedCall`] that is alive.
pub unsafe extern "C" fn run_repeated(data: *mut c_void) {
    // SAFETY: by this function's contract.
    let call = unsafe { &*data.cast_const().cast::<RepeatedCall>() };
    let (closure, failures, passed) = lock(&call.runs).begin();
    let run = move || {
        // Dropped here, where we treat it like the closure itself: the values that these closures own may panic, or call
        // the library.
        drop(passed);
        if let Some(closure) = closure {
            closure(0);
        }
    };
    run_inside(run, failures.as_deref(), Clock::default());
}

/// Runs one part of a graph node's closure, like [`run_repeated`]. The device calls this. The first part of a run chooses
/// the closure.
///
/// # Safety
/// `data` points to a [`RepeatedCall`] that is alive. Each part of a run is called once, and runs follow each other.
unsafe extern "C" fn run_repeated_part(data: *mut c_void, part: u32) {
    // SAFETY: by this function's contract.
    let call = unsafe { &*data.cast_const().cast::<RepeatedCall>() };
    let mut runs = lock(&call.runs);
    let mut passed = SmallVec::new();
    if runs.current.is_none() {
        let (closure, failures, old) = runs.begin();
        passed = old;
        let left = call.parts.map_or(1, NonZeroU32::get);
        runs.current = Some(RunInParts { closure, failures, left });
    }
    let current = runs.current.as_ref();
    let (closure, failures) = current.map_or((None, None), |run| (run.closure.clone(), run.failures.clone()));
    drop(runs);
    let run = move || {
        drop(passed);
        if let Some(closure) = closure {
            closure(part);
        }
    };
    run_inside(run, failures.as_deref(), Clock::default());
    let mut runs = lock(&call.runs);
    let is_last = runs.current.as_mut().is_some_and(|run| {
        run.left -= 1;
        run.left == 0
    });
    let ended = if is_last { runs.current.take() } else { None };
    drop(runs);
    // If another closure has replaced this one meanwhile, this drops it.
    run_inside(move || drop(ended), failures.as_deref(), Clock::default());
}

/// Runs a [`HostCall`]. The driver calls this.
///
/// # Safety
/// `data` came from [`HostCall::into_raw`] and is not used again.
pub unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: by this function's contract. The driver calls once, with the pointer that we gave it.
    let HostCall { closure, failures, past } = unsafe { HostCall::from_raw(data) };
    run_inside(closure, Some(&failures), past);
}

/// Runs your closure in a place where it must not call the driver and nothing may unwind.
fn run_inside(closure: impl FnOnce(), failures: Option<&Failures>, past: Clock) {
    if trace::is_on() {
        trace::instant("host closure", None, InstantKind::HostClosure);
    }
    reentrancy::run(past, || {
        let Err(payload) = panic::catch_unwind(AssertUnwindSafe(closure)) else { return };
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "(no message)".to_owned());
        if let Some(failures) = failures {
            let message = format!("a host closure of this stream panicked: {text}");
            failures.keep(Error::new(ErrorKind::HostPanic, message));
        }
        // A payload may itself panic when dropped, and nothing may unwind from here.
        mem::forget(payload);
    });
}
