//! The operation that each thread submits, and how much it submits for that.
//!
//! The library asks for a number wherever a kernel or a copy is submitted, on the thread that does it. Its other way, a stack
//! of numbers for each thread, gives the number of the main thread to every thread that has none of its own. Each question is a
//! record that will come, so that the questions also tell when the records of an operation are complete.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::Mutex;

use gpustream_hal::lock::lock;

use super::api::rocprofiler_context_id_t;

/// The most counts that wait to be taken. An operation whose count is missing has its records at the end of the trace.
const MOST: usize = 1 << 18;

thread_local! {
    /// The number of the operation, 0 outside of all, and its questions. Has no destructor, since it is read until the thread's
    /// very end.
    static CURRENT: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// The operations that were submitted, with the number of their records.
static SUBMITTED: Mutex<Vec<(u64, u32)>> = Mutex::new(Vec::new());

/// Begins an operation of this thread.
#[inline]
pub(crate) fn enter(operation: u64) {
    CURRENT.set((operation, 0));
}

/// Ends the operation of this thread.
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

/// Answers which operation something is submitted for (`rocprofiler_external_correlation_id_request_cb_t`).
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
