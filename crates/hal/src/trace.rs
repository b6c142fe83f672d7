//! Traces: when a backend ran operations, if it can tell.

use std::ffi::CString;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use crate::lock::lock;
use crate::{Error, Result, WorkKind};

/// Returns the time in nanoseconds on the host's monotonic clock, counted from the process's first call.
pub fn now() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    now.saturating_duration_since(*BEGAN.get_or_init(|| now)).as_nanos() as u64
}

/// Returns a label for a C function: the text up to the first zero byte.
pub fn c_label(label: &str) -> CString {
    let text = label.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// A measurement that all devices of a process share. It starts with the first begin and stops with the last end.
#[derive(Debug)]
pub struct SharedMeasurement<S>(Mutex<Option<On<S>>>);

#[derive(Debug)]
struct On<S> {
    /// How many begins have no end yet. Never 0.
    begun: usize,
    started: S,
}

impl<S> Default for SharedMeasurement<S> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<S> SharedMeasurement<S> {
    /// Notes a begin. If it is the first one, calls `start` to start the measurement.
    ///
    /// # Errors
    /// The error of `start`. Then nothing has begun.
    pub fn begin(&self, start: impl FnOnce() -> Result<S>) -> Result<()> {
        let mut on = lock(&self.0);
        match &mut *on {
            Some(On { begun, .. }) => *begun += 1,
            None => *on = Some(On { begun: 1, started: start()? }),
        }
        Ok(())
    }

    /// Notes an end. If it is the last one, calls `stop` to stop the measurement. Does nothing if every begin has its end.
    pub fn end(&self, stop: impl FnOnce(S)) {
        let mut on = lock(&self.0);
        match on.take() {
            Some(On { begun: 1, started }) => stop(started),
            Some(On { begun, started }) => *on = Some(On { begun: begun - 1, started }),
            None => {}
        }
    }

    /// Returns true if the measurement is running.
    pub fn is_on(&self) -> bool {
        lock(&self.0).is_some()
    }
}

/// Who measures when operations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceClock {
    /// The backend, on the host's clock.
    Host,
    /// CUPTI's activity records (`libcupti`).
    Cupti,
    /// The records from rocprofiler-sdk (AMD), converted from their clock to the host's.
    Rocprofiler {
        /// The comparison of the two clocks may be off by this many nanoseconds.
        error: u64,
    },
}

/// When a device was busy with an operation, or with a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran<'a> {
    /// The number that you gave for this operation to [`Traces::trace_enter`].
    pub operation: u64,
    /// The kernel's name as people read it. Empty if the backend has none.
    pub label: &'a str,
    /// What kind of work the part is.
    pub work: WorkKind,
    /// The start, on the clock of [`now`].
    pub start: u64,
    /// The end.
    pub end: u64,
    /// True if you will hear no more about the operation. Always false if the backend cannot know that.
    pub last: bool,
}

/// Measures when operations run, and shows them to the vendor's profiler. If a backend cannot measure, it keeps these
/// methods as they are, and we take the times from events with timestamps instead.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub trait Traces {
    /// Begins to measure. You may call this several times, on this and other devices; call [`trace_end`](Self::trace_end) as
    /// often. The devices of a backend may share what they measured.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend cannot measure. The error says what is missing.
    fn trace_begin(&self) -> Result<TraceClock> {
        Err(Error::unsupported("measuring when operations run"))
    }

    /// Stops measuring. You can still [take](Self::trace_take) what was measured.
    fn trace_end(&self) {}

    /// Begins the operation with this number, which is not 0. Until [`trace_leave`](Self::trace_leave), everything that this
    /// thread submits to the device belongs to it. Operations do not nest.
    fn trace_enter(&self, operation: u64) {}

    /// Ends the operation that [`trace_enter`](Self::trace_enter) began.
    fn trace_leave(&self) {}

    /// Calls `each` with everything that was measured and that you have not taken yet. If the backend collects measurements
    /// in buffers, you only get those from full buffers, unless you `flush`: then the call waits until you have everything
    /// about finished operations. Returns how many measurements were lost because you did not take them in time.
    ///
    /// # Errors
    /// The failure of the measuring library. Measurements may then be lost.
    fn trace_take(&self, flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> Result<u64> {
        Ok(0)
    }

    /// Prepares the vendor's profiler (NVTX; roctx) to show the ranges of [`range_push`](Self::range_push). You may call
    /// this again.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if there is no profiler to show them. The error says what is missing.
    /// Ranges then do nothing.
    fn range_begin(&self) -> Result<()> {
        Err(Error::unsupported("showing ranges in a vendor's profiler"))
    }

    /// Begins a range on this thread, inside the ranges that the thread has begun and not ended (`nvtxRangePushA`;
    /// `roctxRangePushA`). We call this after [`range_begin`](Self::range_begin), even if that failed.
    fn range_push(&self, label: &str) {}

    /// Ends the last range that this thread began (`nvtxRangePop`; `roctxRangePop`).
    fn range_pop(&self) {}
}
