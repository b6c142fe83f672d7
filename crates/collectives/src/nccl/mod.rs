//! Ranks on GPUs of any number of processes, by NCCL or RCCL.
//!
//! No call waits for ever: a [communicator](comm) can end the call that a thread is in, and a thread [watches](watch) the calls
//! and the work that they enqueue.

mod api;
mod comm;
mod compare;
mod enqueue;
mod library;
mod split;
mod start;
mod watch;

use std::sync::Arc;
use std::thread;

use gpustream::{Device, GraphWatcher, Result, Stream};

use crate::broken::Broken;
use crate::call::{Batches, Operation};
use crate::exchange::Exchange;
use crate::terms::Terms;
use comm::{Comm, Handles};
pub(crate) use library::Vendor;
use watch::Watch;

/// One rank's place among NCCL's.
#[derive(Debug)]
pub(crate) struct Seat {
    comm: Arc<Comm>,
    watch: Watch,
    /// Kept by the graphs that contain calls, which keep the communicator by it.
    graphs: Arc<GraphWatcher>,
    device: Device,
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
        let seat = |(rank, (handles, device))| Self::new(api, (rank, devices.len()), handles, device, terms);
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
        let handles = start::among_processes(api, place, device, exchange, terms.limit)?;
        Self::new(api, place, handles, device, terms)
    }

    fn new(
        api: &'static api::Api,
        place: (usize, usize),
        handles: Handles,
        device: &Device,
        terms: Terms,
    ) -> Result<Self> {
        let comm = Arc::new(Comm::new(api, place, handles, terms.limit));
        let watch = Watch::start(comm.clone())?;
        let graphs = watch.graphs(&comm);
        let comparisons = (terms.checked && place.1 > 1).then(|| device.stream()).transpose()?;
        Ok(Self { comm, watch, graphs, device: device.clone(), comparisons })
    }

    pub(crate) fn place(&self) -> (usize, usize) {
        (self.comm.rank, self.comm.size)
    }

    /// Enqueues the calls of several ranks, each in the order of that rank's. Blocks for the other ranks where calls are checked.
    pub(crate) fn run(sets: Batches<'_, Self>) -> Result<()> {
        crate::compare::each(&sets, |seat| seat.comparisons.is_some(), compare::compare)?;
        enqueue::run(sets)
    }

    /// Blocks until all ranks have called this, and returns the place among those with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        compare::compare(&[(self, &Operation::Split.to_string())])?;
        let (handles, place) = split::split(self, color, key)?;
        let terms = Terms { limit: self.comm.limit, checked: self.comparisons.is_some() };
        Self::new(self.comm.api, place, handles, &self.device, terms)
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
