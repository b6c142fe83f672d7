//! NCCL or RCCL: ranks on GPUs in any number of processes.
//!
//! No call waits forever: a [communicator](comm) can end a call that a thread is in, and a thread
//! [watches](watchdog) the calls and the work that they enqueue.

mod api;
mod comm;
mod compare;
mod enqueue;
mod library;
mod local_ranks;
mod split;
mod start;
mod watchdog;

use std::sync::Arc;
use std::thread;

use gpustream::interop::{GraphWatcher, on_behalf};
use gpustream::{Device, Error, Result, Stream};

use crate::call::{Batches, Collective};
use crate::call_rules::CallRules;
use crate::exchange::Exchange;
use crate::failure::CommunicatorFailure;
use comm::{Comm, Handles};
pub(crate) use library::Vendor;
use local_ranks::{Contribution, LocalRanks};
use watchdog::Watchdog;

/// One rank's connection to the others through NCCL.
#[derive(Debug)]
pub(crate) struct Endpoint {
    comm: Arc<Comm>,
    watch: Watchdog,
    local_ranks: Arc<LocalRanks>,
    /// Graphs that contain calls hold this, and through it they keep the communicator alive.
    graphs: Arc<GraphWatcher>,
    device: Device,
    /// True if the ranks compare their calls. A rank that is alone has nothing to compare.
    checked: bool,
    /// The stream for comparisons with ranks in other processes, if there are any.
    comparisons: Option<Stream>,
}

impl Endpoint {
    /// Makes the endpoints of ranks that are all in this process, in order.
    pub(crate) fn of_devices(devices: &[Device], terms: CallRules) -> Result<Vec<Self>> {
        let Some(first) = devices.first() else { return Ok(Vec::new()) };
        let api = Vendor::of(first.info().backend)?.library()?;
        let handles = start::in_process(api, devices, terms.limit)?;
        let ranks = handles.into_iter().zip(devices).enumerate();
        let local_ranks = LocalRanks::of_process(devices.len());
        let endpoint = |(rank, (handles, device))| {
            Self::new(api, (rank, devices.len()), handles, local_ranks.clone(), device, terms)
        };
        ranks.map(endpoint).collect()
    }

    /// Makes the endpoint for the rank of this process. Blocks until all ranks have come.
    pub(crate) fn of_process(
        place: (usize, usize),
        device: &Device,
        exchange: &dyn Exchange,
        terms: CallRules,
    ) -> Result<Self> {
        let api = Vendor::of(device.info().backend)?.library()?;
        let handles = start::among_processes(api, place, device, exchange, terms.limit)?;
        Self::new(api, place, handles, LocalRanks::of_one(), device, terms)
    }

    fn new(
        api: &'static api::Api,
        place: (usize, usize),
        handles: Handles,
        local_ranks: Arc<LocalRanks>,
        device: &Device,
        terms: CallRules,
    ) -> Result<Self> {
        let comm = Arc::new(Comm::new(api, place, handles, terms.limit));
        let watch = Watchdog::start(comm.clone(), local_ranks.clone())?;
        let graphs = watch.graphs(&comm);
        let checked = terms.checked && place.1 > 1;
        let comparisons = (checked && !local_ranks.is_whole()).then(|| device.stream()).transpose()?;
        Ok(Self { comm, watch, local_ranks, graphs, device: device.clone(), checked, comparisons })
    }

    pub(crate) fn place(&self) -> (usize, usize) {
        (self.comm.rank, self.comm.size)
    }

    /// Enqueues the calls of several ranks, each rank's in order. If calls are checked, blocks for the other
    /// ranks.
    pub(crate) fn run(sets: Batches<'_, Self>) -> Result<()> {
        let Some(first) = sets.iter().find_map(|(_, calls)| calls.first()) else { return Ok(()) };
        on_behalf(first.caller, || {
            crate::compare::each(&sets, |endpoint| endpoint.checked, compare::compare)
        })?;
        enqueue::run(sets)
    }

    /// Blocks until all ranks have called this. Returns the endpoint among the ranks with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        if self.checked {
            compare::compare(&[(self, &Collective::Split.to_string())])?;
        }
        let part = split::split(self, color, key)?;
        let terms = CallRules { limit: self.comm.limit, checked: self.checked };
        Self::new(self.comm.api, part.place, part.handles, part.local_ranks, &self.device, terms)
    }

    /// Gives the other ranks of this process a value, and returns what all of them gave. Blocks until all
    /// have come.
    fn exchange(&self, value: Contribution, call: impl std::fmt::Display) -> Result<Vec<Contribution>> {
        self.meet(self.local_ranks.contribute(self.comm.rank, value), call)
    }

    /// Returns what the ranks of this process gave in an exchange that this rank has contributed to. Blocks
    /// until all have.
    fn meet(&self, exchange: usize, call: impl std::fmt::Display) -> Result<Vec<Contribution>> {
        self.local_ranks
            .meet(exchange, call, self.comm.limit)
            .map_err(|broken| Error::external(self.end(&broken)))
    }

    /// Ends the communicator for the ranks of this process, and aborts the calls that are under way. We cannot
    /// tell other processes, so they notice after the time limit.
    pub(crate) fn abort(&self) {
        self.end(&CommunicatorFailure::Aborted { rank: self.comm.rank });
    }

    /// Ends the communicator. Returns the reason, which is that of the first failure.
    fn end(&self, broken: &CommunicatorFailure) -> CommunicatorFailure {
        let broken = self.watch.fail(broken);
        self.comm.break_up(broken.clone());
        broken
    }
}

impl Drop for Endpoint {
    /// Leaves the communicator to the watchdog's thread, which closes it once its work is done.
    fn drop(&mut self) {
        if thread::panicking() {
            self.end(&CommunicatorFailure::Panicked { rank: self.comm.rank });
        }
    }
}
