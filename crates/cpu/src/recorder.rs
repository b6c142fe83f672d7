//! What we measure on a traced device: when numbered operations ran.
//!
//! A thread announces the number of its next operation (`trace_enter`), and the queue stores the number
//! before the operation. The worker that reaches the number takes the time, and the worker that completes the
//! operation takes the time again. Graphs do the same for each node. An operation's parts are handed out
//! together, when the last reference to its number is gone, whether that belongs to the thread, the queue or
//! the worker. So operations that a lost device drops leave nothing behind.

use std::cell::Cell;
use std::mem;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpustream_hal::trace::now;
use gpustream_hal::{Ran, WorkKind};

use crate::sync::lock;

/// How many parts a device keeps, of running operations and of those that were not taken yet.
const MOST: usize = 1 << 17;

thread_local! {
    /// The operation that this thread is submitting, as a counted pointer. Null outside `trace_enter` and
    /// `trace_leave`. The variable has no destructor, because the destructors of other variables may submit,
    /// and run in any order.
    static ENTERED: Cell<*const Numbered> = const { Cell::new(ptr::null()) };
}

/// The measurements of a device.
#[derive(Default)]
pub(crate) struct Recorder {
    /// The beginnings without an end so far.
    begun: AtomicUsize,
    /// Set in a child after a fork. Any lock may stay locked forever there, so we must take none.
    left: AtomicBool,
    /// How many parts are kept, at most [`MOST`].
    kept: AtomicUsize,
    /// How many parts did not fit.
    lost: AtomicU64,
    /// The parts of finished operations, with the operations' numbers.
    done: Mutex<Vec<(u64, Vec<Activity>)>>,
}

impl Recorder {
    /// Returns true if the device is being traced. If it is not, this check is all that an operation pays.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.begun.fetch_sub(1, Ordering::Relaxed);
    }

    /// In a child after a fork, leaves the measurements to the parent.
    pub(crate) fn leave_to_parent(&self) {
        self.left.store(true, Ordering::Relaxed);
    }

    /// Until [`leave`], whatever this thread submits to the device has the number `operation`.
    pub(crate) fn enter(&'static self, operation: u64) {
        // If an earlier call panicked, it has left nothing.
        leave();
        let operation = Numbered { number: operation, recorder: self, ran: Mutex::default() };
        ENTERED.set(Arc::into_raw(Arc::new(operation)));
    }

    /// Hands out the parts of finished operations. Returns how many parts were lost.
    pub(crate) fn take(&self, each: &mut dyn FnMut(&Ran<'_>)) -> u64 {
        let done = mem::take(&mut *lock(&self.done));
        for (operation, parts) in done {
            self.kept.fetch_sub(parts.len(), Ordering::Relaxed);
            let last = parts.len() - 1;
            for (index, Activity { label, work, time }) in parts.iter().enumerate() {
                let label = label.as_deref().unwrap_or_default();
                let Range { start, end } = *time;
                each(&Ran { operation, label, work: *work, start, end, last: index == last });
            }
        }
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Reserves room for a part.
    fn has_room(&self) -> bool {
        let has_room = self.kept.fetch_add(1, Ordering::Relaxed) < MOST;
        if !has_room {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        has_room
    }
}

/// Ends what [`Recorder::enter`] began on this thread.
pub(crate) fn leave() {
    let entered = ENTERED.replace(ptr::null());
    if !entered.is_null() {
        // SAFETY: made by `Arc::into_raw` in `enter`, and no longer in the variable.
        drop(unsafe { Arc::from_raw(entered) });
    }
}

/// Something that the device ran.
struct Activity {
    label: Option<Arc<str>>,
    work: WorkKind,
    time: Range<u64>,
}

/// An operation with a number. Dropping the last reference hands out its parts.
pub(crate) struct Numbered {
    number: u64,
    recorder: &'static Recorder,
    ran: Mutex<Activities>,
}

#[derive(Default)]
struct Activities {
    list: Vec<Activity>,
    /// From the first start to the last end. `None` if nothing has run.
    whole: Option<Range<u64>>,
    /// True if some part did not fit.
    cut: bool,
}

impl Activities {
    fn cover(&mut self, time: &Range<u64>) {
        let whole = self.whole.get_or_insert_with(|| time.clone());
        *whole = whole.start.min(time.start)..whole.end.max(time.end);
    }
}

impl Numbered {
    /// Returns the operation that this thread is submitting to the device, if it has a number.
    pub(crate) fn entered(recorder: &Recorder) -> Option<Arc<Self>> {
        let entered = ENTERED.get();
        // SAFETY: the variable's own count keeps the operation alive, and nothing here gives that count up.
        let operation =
            unsafe { entered.as_ref() }.filter(|operation| ptr::eq(operation.recorder, recorder))?;
        // SAFETY: the variable's own count keeps the operation alive, and the new count belongs to the
        // reference.
        unsafe {
            Arc::increment_strong_count(operation);
            Some(Arc::from_raw(operation))
        }
    }

    /// Records that a part that began at `start` has just ended.
    #[cold]
    pub(crate) fn ran(&self, (label, work): (Option<Arc<str>>, WorkKind), start: u64) {
        let time = start..now();
        let mut ran = lock(&self.ran);
        ran.cover(&time);
        if self.recorder.has_room() {
            ran.list.push(Activity { label, work, time });
        } else {
            self.recorder.lost.fetch_add(1, Ordering::Relaxed);
            ran.cut = true;
        }
    }

    /// Records that the operation is done without taking any time itself.
    pub(crate) fn passed(&self) {
        let now = now();
        lock(&self.ran).cover(&(now..now));
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        let recorder = self.recorder;
        let Activities { mut list, whole, cut } =
            mem::take(self.ran.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !recorder.is_on() || recorder.left.load(Ordering::Relaxed) {
            recorder.kept.fetch_sub(list.len(), Ordering::Relaxed);
            return;
        }
        list.sort_by_key(|part| part.time.start);
        // There is always at least one part. If parts are missing, it covers the whole time.
        if let Some(time) = whole
            && (list.is_empty() || cut)
        {
            if recorder.has_room() {
                list.push(Activity { label: None, work: WorkKind::Other, time });
            } else if !cut {
                recorder.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !list.is_empty() {
            lock(&recorder.done).push((self.number, list));
        }
    }
}
