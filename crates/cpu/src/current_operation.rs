//! The place in a stream for the operation that runs, where the device is traced.

use std::cell::UnsafeCell;
use std::sync::Arc;

use gpustream_hal::RanWork;
use gpustream_hal::trace::now;

use crate::recorder::Numbered;
use crate::work::Task;

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
pub(crate) struct CurrentOperation(UnsafeCell<Option<Running>>);

struct Running {
    operation: Arc<Numbered>,
    timing: Timing,
    start: u64,
}

impl CurrentOperation {
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
    pub(crate) unsafe fn end(&self, work: *const Task) {
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
    /// As for [`CurrentOperation::end`].
    #[cold]
    unsafe fn end(self, work: *const Task) {
        match self.timing {
            // SAFETY: by this function's contract.
            Timing::Work => self.operation.ran(unsafe { (*work).described() }, self.start),
            Timing::Word => self.operation.ran((None, RanWork::Other), self.start),
            Timing::None => self.operation.passed(),
        }
    }
}
