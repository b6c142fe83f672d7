//! A slot in each stream for the running operation, used if the device is traced.

use std::cell::UnsafeCell;
use std::sync::Arc;

use gpustream_hal::WorkKind;
use gpustream_hal::trace::now;

use crate::recorder::Numbered;
use crate::work::Task;

/// What an operation's time depends on.
pub(crate) enum Timing {
    /// The stream's work has been running since then.
    Work,
    /// The stream has been waiting for a word since then.
    Word,
    /// A graph, whose nodes have times, or a wait for another stream, whose time does not count.
    None,
}

/// The slot for the running operation, if it has a number.
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
    /// The caller must own the stream.
    #[cold]
    pub(crate) unsafe fn begin(&self, operation: Arc<Numbered>, timing: Timing) {
        // SAFETY: the slot is not shared, by this function's contract.
        let slot = unsafe { &mut *self.0.get() };
        // This comes last, because the operation begins now.
        slot.insert(Running { operation, timing, start: 0 }).start = now();
    }

    /// Returns the operation.
    ///
    /// # Safety
    /// The caller must own the stream.
    pub(crate) unsafe fn operation(&self) -> Option<Arc<Numbered>> {
        // SAFETY: the slot is not shared, by this function's contract.
        unsafe { &*self.0.get() }.as_ref().map(|running| running.operation.clone())
    }

    /// Ends the operation, if it has a number. `work` is the stream's work.
    ///
    /// # Safety
    /// The caller must own the stream. The work must be alive and unchanged, and its module loaded.
    #[inline]
    pub(crate) unsafe fn end(&self, work: *const Task) {
        // SAFETY: the slot is not shared, by this function's contract.
        if let Some(running) = unsafe { (*self.0.get()).take() } {
            // SAFETY: passed on to the caller.
            unsafe { running.end(work) };
        }
    }

    /// Forgets the operation, because it will not run.
    ///
    /// # Safety
    /// The caller must own the stream.
    pub(crate) unsafe fn forget(&self) {
        // SAFETY: the slot is not shared, by this function's contract.
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
            Timing::Word => self.operation.ran((None, WorkKind::Other), self.start),
            Timing::None => self.operation.passed(),
        }
    }
}
