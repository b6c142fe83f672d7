//! The state of a device that its workers, its streams and all its handles share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use gpustream_hal::{Error, ErrorKind, Fault, Result, host_memory};

use crate::error::error;
use crate::memory::Memory;
use crate::memory_waits::MemoryWaits;
use crate::options::CpuOptions;
use crate::recorder::Recorder;
use crate::worker::{self, Scheduler};

/// The time after the loss of a device for which its waits still last: work beside the failure ends within that time,
/// or is taken for stuck. Memory that stuck work may touch is never given back.
const GRACE: Duration = Duration::from_secs(5);

/// A worker of a device.
pub(crate) type Worker = worker::Worker<Shared>;

/// The streams of a device, on which host threads may wait.
pub(crate) trait Interrupt: Sync {
    /// Makes host threads that wait look at the device's state again.
    fn interrupt(&self);
}

/// The state that all handles of one device share: its primary context. Lives for good, as its threads do.
pub(crate) struct Shared {
    pub(crate) ordinal: usize,
    pub(crate) options: CpuOptions,
    pub(crate) scheduler: Scheduler<Self>,
    pub(crate) memory: Memory,
    pub(crate) words: MemoryWaits,
    pub(crate) recorder: Recorder,
    streams: &'static dyn Interrupt,
    /// The device that was opened before this one; see `fork.rs`.
    pub(crate) previous: AtomicPtr<Self>,
    lost: AtomicBool,
    /// Whether this process is a child of the one to which the device's threads belong.
    forked: AtomicBool,
    /// The error that ended the device, and when.
    end: OnceLock<(Error, Instant)>,
    fault: Fault,
}

impl Shared {
    /// Returns a device whose threads have not been started. `streams` are those of the device.
    pub(crate) fn new(
        ordinal: usize,
        devices: usize,
        options: CpuOptions,
        streams: &'static dyn Interrupt,
    ) -> Self {
        Self {
            ordinal,
            options,
            scheduler: Scheduler::new(options.workers),
            memory: Memory::new(host_memory::total() / devices as u64, options.check),
            words: MemoryWaits::new(),
            recorder: Recorder::default(),
            streams,
            previous: AtomicPtr::default(),
            lost: AtomicBool::new(false),
            forked: AtomicBool::new(false),
            end: OnceLock::new(),
            fault: Fault::of("cpu", ordinal),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Fails with the error that ended the device, for every call after that.
    pub(crate) fn alive(&self) -> Result<()> {
        match self.is_lost() {
            false => Ok(()),
            true if self.is_forked() => Err(self.loss()),
            true => Err(self.loss().with_fault(&self.fault)),
        }
    }

    /// Returns the error that ended the device, which this is no report of.
    #[cold]
    pub(crate) fn loss(&self) -> Error {
        if self.is_forked() {
            return error(
                ErrorKind::DeviceLost,
                "this process was forked from the one that opened the device, and has none of its threads: open the \
                 device after the fork, or start processes with `std::process::Command`",
            );
        }
        let end = self.end.get().map(|(error, _)| error.clone());
        end.unwrap_or_else(|| error(ErrorKind::DeviceLost, "the device is lost"))
    }

    /// Ends the device with `error`: pending work is dropped, running work ends at its next chunk at the latest if it
    /// ever comes there, and all waiters are told when that is so.
    #[cold]
    pub(crate) fn lose(&self, error: Error) {
        // The first error counts; it is there before any thread can ask for it.
        if self.end.set((error, Instant::now())).is_ok() {
            self.lost.store(true, Ordering::Release);
            self.streams.interrupt();
        }
    }

    /// Returns the moment until which a wait may last: none unless the device is lost.
    #[inline]
    pub(crate) fn limit(&self) -> Option<Instant> {
        if self.is_lost() { Some(self.last_moment()) } else { None }
    }

    #[cold]
    fn last_moment(&self) -> Instant {
        match self.end.get() {
            Some((_, at)) if !self.is_forked() => *at + GRACE,
            _ => Instant::now(),
        }
    }

    /// Refuses a child's call on its parent's device, before any lock is taken.
    pub(crate) fn not_forked(&self) -> Result<()> {
        if self.is_forked() { Err(self.loss()) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// Marks the device as its parent's, in a child after a fork, where any lock may be held for good.
    pub(crate) fn leave_to_parent(&self) {
        self.forked.store(true, Ordering::Relaxed);
        self.recorder.leave_to_parent();
        self.lost.store(true, Ordering::Release);
    }
}
