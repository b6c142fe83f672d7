//! Traces: the times in which operations with a number ran.
//!
//! A thread says which number its next operation has (`trace_enter`), and the queue takes the number in front of the
//! operation. The worker that comes to the number takes the time, and the one that completes the operation takes the time
//! again; graphs do so for each node. The parts of an operation are handed out together, when the last reference to its
//! number is gone: that of the thread, that of the queue, or that of the worker. So operations that a lost device drops
//! leave nothing behind.

use std::cell::{Cell, UnsafeCell};
use std::mem;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gpustream_hal::trace::now;
use gpustream_hal::{Ran, RanWork, Result, TraceClock, Traces};

use crate::device::CpuDevice;
use crate::shared::Shared;
use crate::sync::lock;
use crate::work::Work;

/// The most parts that a device keeps: of operations that run, and of those that nobody has taken.
const MOST: usize = 1 << 17;

thread_local! {
    /// The operation that this thread submits, a counted pointer; null outside of `trace_enter` and `trace_leave`. The variable
    /// has no destructor: those of other variables may submit, and run in any order.
    static ENTERED: Cell<*const Numbered> = const { Cell::new(ptr::null()) };
}

/// What a device measured.
#[derive(Default)]
pub(crate) struct Recorder {
    /// The begins that have no end yet.
    begun: AtomicUsize,
    /// The parts that are kept, at most [`MOST`].
    kept: AtomicUsize,
    /// The parts for which there was no room.
    lost: AtomicU64,
    /// The parts of operations that are done, with the operations' numbers.
    done: Mutex<Vec<(u64, Vec<Part>)>>,
}

impl Recorder {
    /// Returns whether anybody traces the device. One that nobody traces pays for this alone, once an operation.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != 0
    }

    /// Finds room for a part.
    fn has_room(&self) -> bool {
        let has_room = self.kept.fetch_add(1, Ordering::Relaxed) < MOST;
        if !has_room {
            self.kept.fetch_sub(1, Ordering::Relaxed);
        }
        has_room
    }
}

/// A thing that the device ran.
struct Part {
    label: Option<Arc<str>>,
    work: RanWork,
    time: Range<u64>,
}

/// An operation with a number. Its last reference hands out its parts.
pub(crate) struct Numbered {
    number: u64,
    device: &'static Shared,
    ran: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    list: Vec<Part>,
    /// The time from the first start to the last end; none while nothing has run.
    whole: Option<Range<u64>>,
    /// Whether there was no room for a part.
    cut: bool,
}

impl Parts {
    fn cover(&mut self, time: &Range<u64>) {
        let whole = self.whole.get_or_insert_with(|| time.clone());
        *whole = whole.start.min(time.start)..whole.end.max(time.end);
    }
}

impl Numbered {
    /// Returns the operation that this thread submits to the device, if it has a number.
    pub(crate) fn entered(device: &'static Shared) -> Option<Arc<Self>> {
        let entered = ENTERED.get();
        // SAFETY: the variable's own count keeps the operation, and nothing here gives that up.
        let operation = unsafe { entered.as_ref() }.filter(|operation| ptr::eq(operation.device, device))?;
        // SAFETY: as above; the new count is that of the reference.
        unsafe {
            Arc::increment_strong_count(operation);
            Some(Arc::from_raw(operation))
        }
    }

    /// Notes that `work` has just ended.
    ///
    /// # Safety
    /// The module of a launch is loaded.
    #[cold]
    pub(crate) unsafe fn ran(&self, work: &Work, start: u64) {
        // SAFETY: by this function's contract.
        let (label, work) = unsafe { work.described() };
        self.add(label, work, start);
    }

    fn add(&self, label: Option<Arc<str>>, work: RanWork, start: u64) {
        let time = start..now();
        let mut ran = lock(&self.ran);
        ran.cover(&time);
        if self.device.recorder.has_room() {
            ran.list.push(Part { label, work, time });
        } else {
            self.device.recorder.lost.fetch_add(1, Ordering::Relaxed);
            ran.cut = true;
        }
    }

    /// Notes that the operation is done, and has taken no time of its own.
    fn passed(&self) {
        let now = now();
        lock(&self.ran).cover(&(now..now));
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        let recorder = &self.device.recorder;
        let Parts { mut list, whole, cut } =
            mem::take(self.ran.get_mut().unwrap_or_else(PoisonError::into_inner));
        // In a child after a fork the lock below may be held for good.
        if !recorder.is_on() || self.device.is_forked() {
            recorder.kept.fetch_sub(list.len(), Ordering::Relaxed);
            return;
        }
        list.sort_by_key(|part| part.time.start);
        // At least one part, and all of the time where some parts are missing.
        if let Some(time) = whole
            && (list.is_empty() || cut)
        {
            if recorder.has_room() {
                list.push(Part { label: None, work: RanWork::Other, time });
            } else if !cut {
                recorder.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !list.is_empty() {
            lock(&recorder.done).push((self.number, list));
        }
    }
}

/// The kind of an operation, as far as its time depends on it.
pub(crate) enum Timing {
    /// The stream's work runs from this moment.
    Work,
    /// The stream waits for a word from this moment.
    Word,
    /// A graph, whose nodes have times, or a wait for another stream, whose time is not the operation's.
    None,
}

/// The place in a stream for the operation that runs, if it has a number.
#[derive(Default)]
pub(crate) struct Slot(UnsafeCell<Option<Running>>);

struct Running {
    operation: Arc<Numbered>,
    timing: Timing,
    start: u64,
}

impl Slot {
    /// Begins an operation.
    ///
    /// # Safety
    /// The caller has the stream.
    #[cold]
    pub(crate) unsafe fn begin(&self, operation: Arc<Numbered>, timing: Timing) {
        // SAFETY: nobody else uses the slot, by this function's contract.
        let slot = unsafe { &mut *self.0.get() };
        // Last of all: the operation begins now.
        slot.insert(Running { operation, timing, start: 0 }).start = now();
    }

    /// Returns the operation.
    ///
    /// # Safety
    /// The caller has the stream.
    pub(crate) unsafe fn operation(&self) -> Option<Arc<Numbered>> {
        // SAFETY: nobody else uses the slot, by this function's contract.
        unsafe { &*self.0.get() }.as_ref().map(|running| running.operation.clone())
    }

    /// Ends the operation, if it has a number. `work` is the stream's.
    ///
    /// # Safety
    /// The caller has the stream. The work is alive and as it was while it ran, and its module is loaded.
    #[inline]
    pub(crate) unsafe fn end(&self, work: *const Work) {
        // SAFETY: nobody else uses the slot, by this function's contract.
        if let Some(running) = unsafe { (*self.0.get()).take() } {
            // SAFETY: passed on to the caller.
            unsafe { running.end(work) };
        }
    }

    /// Forgets the operation, which will not run.
    ///
    /// # Safety
    /// The caller has the stream.
    pub(crate) unsafe fn forget(&self) {
        // SAFETY: nobody else uses the slot, by this function's contract.
        drop(unsafe { (*self.0.get()).take() });
    }
}

impl Running {
    /// # Safety
    /// As for [`Slot::end`].
    #[cold]
    unsafe fn end(self, work: *const Work) {
        match self.timing {
            // SAFETY: by this function's contract.
            Timing::Work => unsafe { self.operation.ran(&*work, self.start) },
            Timing::Word => self.operation.add(None, RanWork::Other, self.start),
            Timing::None => self.operation.passed(),
        }
    }
}

impl Traces for CpuDevice {
    fn trace_begin(&self) -> Result<TraceClock> {
        self.shared.alive()?;
        self.shared.recorder.begun.fetch_add(1, Ordering::Relaxed);
        Ok(TraceClock::Host)
    }

    fn trace_end(&self) {
        self.shared.recorder.begun.fetch_sub(1, Ordering::Relaxed);
    }

    fn trace_enter(&self, operation: u64) {
        // A call that panicked has left nothing.
        self.trace_leave();
        let operation = Numbered { number: operation, device: self.shared, ran: Mutex::default() };
        ENTERED.set(Arc::into_raw(Arc::new(operation)));
    }

    fn trace_leave(&self) {
        let entered = ENTERED.replace(ptr::null());
        if !entered.is_null() {
            // SAFETY: made by `Arc::into_raw` in `trace_enter`, and the variable has it no more.
            drop(unsafe { Arc::from_raw(entered) });
        }
    }

    /// Nothing is ever held back: an operation's parts are there before its stream goes on.
    fn trace_take(&self, _flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> Result<u64> {
        self.shared.not_forked()?;
        let recorder = &self.shared.recorder;
        let done = mem::take(&mut *lock(&recorder.done));
        for (operation, parts) in done {
            recorder.kept.fetch_sub(parts.len(), Ordering::Relaxed);
            let last = parts.len() - 1;
            for (index, Part { label, work, time }) in parts.iter().enumerate() {
                let label = label.as_deref().unwrap_or_default();
                let Range { start, end } = *time;
                each(&Ran { operation, label, work: *work, start, end, last: index == last });
            }
        }
        Ok(recorder.lost.swap(0, Ordering::Relaxed))
    }
}
