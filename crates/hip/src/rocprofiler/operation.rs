//! Which operation each thread submits, and how much it submits for it.
//!
//! Whenever a thread submits a kernel or a copy, the library asks on that thread for a number. We cannot use its other
//! way, a stack of numbers for each thread, because it gives the main thread's number to every thread without one. Each
//! question means that a record must come. So by counting the questions we can also tell when an operation's records
//! are complete.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::Mutex;

use gpustream_hal::lock::lock;

use super::api::rocprofiler_context_id_t;

/// How many counts can wait for us. If an operation's count is missing, its records come at the end of the trace.
const MOST: usize = 1 << 18;

thread_local! {
    /// The operation's number (0 outside all operations), and its questions. It has no destructor, because we read it until the
    /// thread's very end.
    static CURRENT: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// The submitted operations, with the number of their records.
static SUBMITTED: Mutex<Vec<(u64, u32)>> = Mutex::new(Vec::new());

/// Begins an operation on this thread.
#[inline]
pub(crate) fn enter(operation: u64) {
    CURRENT.set((operation, 0));
}

/// Ends this thread's operation.
#[inline]
pub(crate) fn leave() {
    let (operation, records) = CURRENT.replace((0, 0));
    if records > 0 {
        let mut submitted = lock(&SUBMITTED);
        if submitted.len() < MOST && submitted.try_reserve(1).is_ok() {
            submitted.push((operation, records));
        }
    }
}

/// Returns the operations that ended since the last call, with the number of their records.
pub(crate) fn take() -> Vec<(u64, u32)> {
    mem::take(&mut *lock(&SUBMITTED))
}

/// Tells the library which operation a submission belongs to (`rocprofiler_external_correlation_id_request_cb_t`).
///
/// # Safety
/// `answer` points to a variable.
pub(crate) unsafe extern "C" fn asked(
    _thread: u64,
    _context: rocprofiler_context_id_t,
    _kind: u32,
    _operation: u32,
    _call: u64,
    answer: *mut u64,
    _data: *mut c_void,
) -> c_int {
    let (operation, records) = CURRENT.get();
    if operation != 0 {
        CURRENT.set((operation, records.saturating_add(1)));
    }
    // SAFETY: by this function's contract.
    unsafe { answer.write(operation) };
    0
}
