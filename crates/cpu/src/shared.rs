//! The state of a device that its workers, its streams and all its handles share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use gpustream_hal::{Error, ErrorKind, Result};

use crate::error::error;
use crate::memory::{self, Memory};
use crate::options::CpuOptions;
use crate::worker::{self, Scheduler};

/// How long after a device was lost its waits still last: what ran beside the failure ends within that time, or is
/// taken for stuck. Nothing that it may touch is given back then.
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
    streams: &'static dyn Interrupt,
    /// The device that was opened before this one; see `fork.rs`.
    pub(crate) previous: AtomicPtr<Self>,
    lost: AtomicBool,
    /// This process is a child of the one whose threads the device's are.
    forked: AtomicBool,
    /// The error that ended the device, and when.
    end: OnceLock<(Error, Instant)>,
}

impl Shared {
    /// A device whose threads have not been started. `streams` are those of the device.
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
            memory: Memory::new(memory::machine_total() / devices as u64, options.check),
            streams,
            previous: AtomicPtr::default(),
            lost: AtomicBool::new(false),
            forked: AtomicBool::new(false),
            end: OnceLock::new(),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The error that ended the device, for every call after it.
    pub(crate) fn alive(&self) -> Result<()> {
        if self.is_lost() { Err(self.loss()) } else { Ok(()) }
    }

    #[cold]
    fn loss(&self) -> Error {
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

    /// Ends the device with `error`: what is pending is dropped, what runs ends at its next chunk of work at the latest
    /// if it ever comes there, and everybody who waits is told when that is so.
    #[cold]
    pub(crate) fn lose(&self, error: Error) {
        // The first one counts; it is there before anybody can ask for it.
        if self.end.set((error, Instant::now())).is_ok() {
            self.lost.store(true, Ordering::Release);
            self.streams.interrupt();
        }
    }

    /// Until when a wait may last: for good unless the device is lost.
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

    /// Refuses what a child asks of its parent's device, before any lock is taken.
    pub(crate) fn not_forked(&self) -> Result<()> {
        if self.is_forked() { Err(self.loss()) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    /// Called in a child after a fork, where any lock may be held for good.
    pub(crate) fn leave_to_parent(&self) {
        self.forked.store(true, Ordering::Relaxed);
        self.lost.store(true, Ordering::Release);
    }
}
