//! The state that a device's workers, streams and handles share.

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

/// How long waits may still last after a device is lost. Other running work ends within that time, or we
/// consider it stuck. We never give back memory that stuck work may touch.
const GRACE: Duration = Duration::from_secs(5);

/// A worker of a device.
pub(crate) type Worker = worker::Worker<Shared>;

/// The streams of a device. Host threads may be waiting for them.
pub(crate) trait Interrupt: Sync {
    /// Makes waiting host threads look at the device's state again.
    fn interrupt(&self);
}

/// The state that all handles of a device share: its primary context. It lives forever, because its threads
/// do.
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
    /// True if this process is a child of the one that owns the device's threads.
    forked: AtomicBool,
    /// The error that ended the device, and when.
    end: OnceLock<(Error, Instant)>,
    fault: Fault,
}

impl Shared {
    /// Returns a device whose threads are not started yet. `streams` are the device's.
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

    /// Fails with the error that ended the device, if one did.
    pub(crate) fn alive(&self) -> Result<()> {
        match self.is_lost() {
            false => Ok(()),
            true if self.is_forked() => Err(self.loss()),
            true => Err(self.loss().with_fault(&self.fault)),
        }
    }

    /// Returns the error that ended the device, marked as an earlier failure.
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

    /// Ends the device with `error`. Pending work is dropped, running work ends at its next chunk if it gets
    /// there, and then all waiters are told.
    #[cold]
    pub(crate) fn lose(&self, error: Error) {
        // The first error counts. It must be there before another thread can ask for it.
        if self.end.set((error, Instant::now())).is_ok() {
            self.lost.store(true, Ordering::Release);
            self.streams.interrupt();
        }
    }

    /// Returns how long a wait may last: without limit unless the device is lost.
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

    /// Refuses a child's call on its parent's device, before we take any lock.
    pub(crate) fn not_forked(&self) -> Result<()> {
        if self.is_forked() { Err(self.loss()) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// In a child after a fork, marks the device as the parent's, because any lock may stay locked forever.
    pub(crate) fn leave_to_parent(&self) {
        self.forked.store(true, Ordering::Relaxed);
        self.recorder.leave_to_parent();
        self.lost.store(true, Ordering::Release);
    }
}
