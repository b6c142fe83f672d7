//! Ranks on GPUs of any number of processes, by NCCL or RCCL.
//!
//! The communicators are NCCL's non-blocking ones, so that no call waits for ever: what NCCL goes on with in the background
//! is waited for here, up to the time limit, and what it enqueued is [watched](watch).

mod api;
mod comm;
mod compare;
mod enqueue;
mod library;
mod start;
mod watch;

use std::iter;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gpustream::{Device, Result, Stream};

use crate::broken::Broken;
use crate::call::{Call, Operation};
use crate::exchange::Exchange;
use crate::terms::Terms;
use comm::{Comm, Handle};
pub(crate) use library::Vendor;
use watch::Watch;

/// One rank's place among NCCL's.
#[derive(Debug)]
pub(crate) struct Seat {
    comm: Arc<Comm>,
    watch: Watch,
    /// The stream for comparisons of calls; none where calls are not checked, or where there is no other rank.
    comparisons: Option<Stream>,
}

impl Seat {
    /// Makes the places of ranks that are all in this process, in their order.
    pub(crate) fn of_devices(devices: &[Device], terms: Terms) -> Result<Vec<Self>> {
        let Some(first) = devices.first() else { return Ok(Vec::new()) };
        let api = Vendor::of(first.info().backend)?.library()?;
        let handles = start::in_process(api, devices, terms.limit)?;
        let ranks = handles.into_iter().zip(devices).enumerate();
        let seat = |(rank, (handle, device))| {
            Self::new(api, (rank, devices.len()), handle, terms.limit, terms.checked.then_some(device))
        };
        ranks.map(seat).collect()
    }

    /// Makes the place of this process's rank. Blocks until all ranks have come.
    pub(crate) fn of_process(
        place: (usize, usize),
        device: &Device,
        exchange: &dyn Exchange,
        terms: Terms,
    ) -> Result<Self> {
        let api = Vendor::of(device.info().backend)?.library()?;
        let handle = start::among_processes(api, place, device, exchange, terms.limit)?;
        Self::new(api, place, handle, terms.limit, terms.checked.then_some(device))
    }

    /// Makes a rank's place, which compares its calls on a stream of the device `checked`, where that is given.
    fn new(
        api: &'static api::Api,
        place: (usize, usize),
        handle: Handle,
        limit: Duration,
        checked: Option<&Device>,
    ) -> Result<Self> {
        let comm = Arc::new(Comm::new(api, place, handle, limit));
        let watch = Watch::start(comm.clone())?;
        let comparisons = checked.filter(|_| place.1 > 1).map(Device::stream).transpose()?;
        Ok(Self { comm, watch, comparisons })
    }

    pub(crate) fn rank(&self) -> usize {
        self.comm.rank
    }

    pub(crate) fn size(&self) -> usize {
        self.comm.size
    }

    /// Enqueues the calls of several ranks, each in the order of that rank's. Blocks for the other ranks where calls are checked.
    pub(crate) fn run(sets: Vec<(&Self, Vec<Call<'_>>)>) -> Result<()> {
        compare::compare_calls(&sets)?;
        enqueue::run(sets)
    }

    /// Blocks until all ranks have called this, and returns the place among those with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        let Comm { api, limit, .. } = *self.comm;
        compare::compare(iter::once((self, &Operation::Split.to_string())))?;
        let mut held = self.comm.hold();
        let whole = held.handle()?;
        let (handle, place) = start::split(api, whole, color, key, limit).map_err(|error| {
            match held.reason("`split`", &error) {
                Some(broken) => enqueue::break_up(&self.watch, &mut held, broken),
                None => error,
            }
        })?;
        Self::new(api, place, handle, limit, self.comparisons.as_ref().map(Stream::device))
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
