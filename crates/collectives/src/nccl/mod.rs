//! Ranks on GPUs of any number of processes, by NCCL or RCCL.
//!
//! The communicators are NCCL's non-blocking ones, so that no call waits for ever: what NCCL goes on with in the background
//! is waited for here, up to the time limit, and what it enqueued is [watched](watch).

mod api;
mod comm;
mod enqueue;
mod library;
mod start;
mod watch;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gpustream::{Device, Result};

use crate::broken::Broken;
use crate::call::Call;
use crate::exchange::Exchange;
use comm::{Comm, Handle};
pub(crate) use library::Vendor;
use watch::Watch;

/// One rank's place among NCCL's.
#[derive(Debug)]
pub(crate) struct Seat {
    comm: Arc<Comm>,
    watch: Watch,
}

impl Seat {
    /// Makes the places of ranks that are all in this process, in their order.
    pub(crate) fn of_devices(devices: &[Device], limit: Duration) -> Result<Vec<Self>> {
        let Some(first) = devices.first() else { return Ok(Vec::new()) };
        let api = Vendor::of(first.info().backend)?.library()?;
        let handles = start::in_process(api, devices, limit)?.into_iter().enumerate();
        handles.map(|(rank, handle)| Self::new(api, (rank, devices.len()), handle, limit)).collect()
    }

    /// Makes the place of this process's rank. Blocks until all ranks have come.
    pub(crate) fn of_process(
        place: (usize, usize),
        device: &Device,
        exchange: &dyn Exchange,
        limit: Duration,
    ) -> Result<Self> {
        let api = Vendor::of(device.info().backend)?.library()?;
        let handle = start::among_processes(api, place, device, exchange, limit)?;
        Self::new(api, place, handle, limit)
    }

    fn new(api: &'static api::Api, place: (usize, usize), handle: Handle, limit: Duration) -> Result<Self> {
        let comm = Arc::new(Comm::new(api, place, handle, limit));
        Ok(Self { watch: Watch::start(comm.clone())?, comm })
    }

    pub(crate) fn rank(&self) -> usize {
        self.comm.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.comm.size
    }

    /// Enqueues the calls of several ranks, each in the order of that rank's.
    pub(crate) fn run(sets: Vec<(&Self, Vec<Call<'_>>)>) -> Result<()> {
        enqueue::run(sets)
    }

    /// Blocks until all ranks have called this, and returns the place among those with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        let Comm { api, limit, .. } = *self.comm;
        let mut held = self.comm.hold();
        let whole = held.handle()?;
        let (handle, place) = start::split(api, whole, color, key, limit).map_err(|error| {
            match held.reason("`split`", &error) {
                Some(broken) => enqueue::break_up(&self.watch, &mut held, broken),
                None => error,
            }
        })?;
        Self::new(api, place, handle, limit)
    }

    /// Ends the communicator and the work of its calls, for this rank; the others notice by the time limit.
    pub(crate) fn abort(&self) {
        self.end(Broken::Aborted { rank: self.comm.rank });
    }

    fn end(&self, broken: Broken) {
        self.watch.fail(&broken);
        self.comm.break_up(broken);
    }
}

impl Drop for Seat {
    /// Leaves the communicator to the watching thread, which closes it once its work is done.
    fn drop(&mut self) {
        if thread::panicking() {
            self.end(Broken::Panicked { rank: self.comm.rank });
        }
    }
}
