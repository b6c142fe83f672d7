//! Host closures in stream order: the values that a driver gets with its callback.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};

use gpustream_hal::{Error, ErrorKind};
use smallvec::SmallVec;

use crate::failures::Failures;
use crate::sync::{Mutex, lock};
use crate::trace::{self, InstantKind};
use crate::track::Clock;
use crate::{process, reentrancy};

/// A closure on its way through the driver.
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

    /// Takes back a call that the driver was given.
    ///
    /// # Safety
    /// `data` came from [`into_raw`](Self::into_raw) and is not used again.
    pub unsafe fn from_raw(data: *mut c_void) -> Self {
        // SAFETY: by this function's contract.
        *unsafe { Box::from_raw(data.cast()) }
    }
}

/// A closure that a graph runs at each launch.
///
/// A node of the graph has the address of this value. A driver may look into the node only when a run reaches the node
/// (HIP does), so the node is never given another address while runs are pending. Instead the closure of a run is
/// chosen here, by the number of the run. The runs of one executable follow each other.
pub struct RepeatedCall {
    runs: Mutex<Runs>,
    /// The call of the same node in the recorded graph, where that is another call: parents copy the recorded graph.
    recorded: Option<Arc<Self>>,
}

struct Runs {
    /// The closures in the order of their runs, each with the number of its first run. The first one is that of the run
    /// that begins next, or of an earlier run.
    closures: VecDeque<(u64, Arc<dyn Fn() + Send + Sync>)>,
    launched: u64,
    begun: u64,
    /// The streams that report panics: those of runs that have not begun, each with the number of the first such run.
    streams: VecDeque<(u64, Arc<Failures>)>,
}

impl RepeatedCall {
    pub fn new(closure: impl Fn() + Send + Sync + 'static) -> Self {
        Self::of(Arc::new(closure), None)
    }

    fn of(closure: Arc<dyn Fn() + Send + Sync>, recorded: Option<Arc<Self>>) -> Self {
        let closures = VecDeque::from([(0, closure)]);
        Self {
            runs: Mutex::new(Runs { closures, launched: 0, begun: 0, streams: VecDeque::new() }),
            recorded,
        }
    }

    /// Creates the call for the executable's own node. A closure that is put into that node later changes neither the
    /// recorded graph nor its parents.
    pub fn for_executable(self: &Arc<Self>) -> Option<Self> {
        let newest = lock(&self.runs).closures.back().map(|(_, closure)| closure.clone())?;
        Some(Self::of(newest, Some(self.clone())))
    }

    /// Returns the call that the recorded graph has.
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

    /// Takes back the count of a launch that the driver refused.
    pub fn not_launched(&self) {
        lock(&self.runs).launched -= 1;
    }

    /// Returns whether a run has been launched that has not called the closure yet.
    pub fn is_pending(&self) -> bool {
        let runs = lock(&self.runs);
        runs.begun < runs.launched
    }

    /// Gives the closure of `other` to the runs launched from now on.
    pub(crate) fn replace(&self, other: &Self) {
        let newest = lock(&other.runs).closures.back().map(|(_, closure)| closure.clone());
        let Some(closure) = newest else { return };
        let mut runs = lock(&self.runs);
        let first = runs.launched;
        // The last closure has had no run.
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
    /// Takes out the closures whose runs have all begun.
    fn pass(&mut self) -> SmallVec<[Arc<dyn Fn() + Send + Sync>; 1]> {
        let mut passed = SmallVec::new();
        while self.closures.get(1).is_some_and(|(from, _)| *from <= self.begun) {
            passed.extend(self.closures.pop_front().map(|(_, closure)| closure));
        }
        passed
    }
}

/// Runs the closure of a graph's node; the driver calls this. A panic is reported by the stream that the graph was
/// launched on.
///
/// # Safety
/// `data` points to a [`RepeatedCall`] that is alive.
pub unsafe extern "C" fn run_repeated(data: *mut c_void) {
    // SAFETY: by this function's contract.
    let call = unsafe { &*data.cast_const().cast::<RepeatedCall>() };
    let mut runs = lock(&call.runs);
    let passed = runs.pass();
    while runs.streams.get(1).is_some_and(|(from, _)| *from <= runs.begun) {
        runs.streams.pop_front();
    }
    runs.begun += 1;
    let closure = runs.closures.front().map(|(_, closure)| closure.clone());
    let failures = runs.streams.front().map(|(_, failures)| failures.clone());
    drop(runs);
    let run = move || {
        // Dropped inside the closure's bounds: the values that these closures own may panic, or call the library.
        drop(passed);
        if let Some(closure) = closure {
            closure();
        }
    };
    run_inside(run, failures.as_deref(), Clock::default());
}

/// Runs a [`HostCall`]; the driver calls this.
///
/// # Safety
/// `data` came from [`HostCall::into_raw`] and is not used again.
pub unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: by this function's contract; the driver calls once, with the pointer it was given.
    let HostCall { closure, failures, past } = unsafe { HostCall::from_raw(data) };
    run_inside(closure, Some(&failures), past);
}

/// Runs your closure at a place where the driver must not be called and nothing may unwind.
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
