//! Ranks on GPUs of any number of processes, by NCCL or RCCL.
//!
//! No call waits for ever: a [communicator](comm) can end the call that a thread is in, and a thread [watches](watch) the calls
//! and the work that they enqueue.

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

use gpustream::interop::GraphWatcher;
use gpustream::{Device, Error, Result, Stream};

use crate::call::{Batches, Collective};
use crate::call_rules::CallRules;
use crate::exchange::Exchange;
use crate::failure::CommunicatorFailure;
use comm::{Comm, Handles};
pub(crate) use library::Vendor;
use local_ranks::{Contribution, LocalRanks};
use watchdog::Watchdog;

/// One rank's place among NCCL's.
#[derive(Debug)]
pub(crate) struct Endpoint {
    comm: Arc<Comm>,
    watch: Watchdog,
    team: Arc<LocalRanks>,
    /// Kept by the graphs that contain calls, which keep the communicator by it.
    graphs: Arc<GraphWatcher>,
    device: Device,
    /// Whether the ranks compare their calls. One that is alone has nothing to compare.
    checked: bool,
    /// The stream for comparisons with ranks in other processes, if there are any.
    comparisons: Option<Stream>,
}

impl Endpoint {
    /// Makes the places of ranks that are all in this process, in their order.
    pub(crate) fn of_devices(devices: &[Device], terms: CallRules) -> Result<Vec<Self>> {
        let Some(first) = devices.first() else { return Ok(Vec::new()) };
        let api = Vendor::of(first.info().backend)?.library()?;
        let handles = start::in_process(api, devices, terms.limit)?;
        let ranks = handles.into_iter().zip(devices).enumerate();
        let team = LocalRanks::of_process(devices.len());
        let endpoint = |(rank, (handles, device))| {
            Self::new(api, (rank, devices.len()), handles, team.clone(), device, terms)
        };
        ranks.map(endpoint).collect()
    }

    /// Makes the place of this process's rank. Blocks until all ranks have come.
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
        team: Arc<LocalRanks>,
        device: &Device,
        terms: CallRules,
    ) -> Result<Self> {
        let comm = Arc::new(Comm::new(api, place, handles, terms.limit));
        let watch = Watchdog::start(comm.clone(), team.clone())?;
        let graphs = watch.graphs(&comm);
        let checked = terms.checked && place.1 > 1;
        let comparisons = (checked && !team.is_whole()).then(|| device.stream()).transpose()?;
        Ok(Self { comm, watch, team, graphs, device: device.clone(), checked, comparisons })
    }

    pub(crate) fn place(&self) -> (usize, usize) {
        (self.comm.rank, self.comm.size)
    }

    /// Enqueues the calls of several ranks, each in the order of that rank's. Blocks for the other ranks where calls are checked.
    pub(crate) fn run(sets: Batches<'_, Self>) -> Result<()> {
        crate::compare::each(&sets, |endpoint| endpoint.checked, compare::compare)?;
        enqueue::run(sets)
    }

    /// Blocks until all ranks have called this, and returns the place among those with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        if self.checked {
            compare::compare(&[(self, &Collective::Split.to_string())])?;
        }
        let part = split::split(self, color, key)?;
        let terms = CallRules { limit: self.comm.limit, checked: self.checked };
        Self::new(self.comm.api, part.place, part.handles, part.team, &self.device, terms)
    }

    /// Shows the ranks of this process a value, and returns what they show. Blocks until all have come.
    fn show(&self, value: Contribution, call: impl std::fmt::Display) -> Result<Vec<Contribution>> {
        self.meet(self.team.show(self.comm.rank, value), call)
    }

    /// Returns what the ranks of this process show at a meeting to which this one has come. Blocks until all have.
    fn meet(&self, meeting: usize, call: impl std::fmt::Display) -> Result<Vec<Contribution>> {
        self.team.meet(meeting, call, self.comm.limit).map_err(|broken| Error::external(self.end(&broken)))
    }

    /// Ends the communicator and the work of its calls, for the ranks of this process; others notice by the time limit.
    pub(crate) fn abort(&self) {
        self.end(&CommunicatorFailure::Aborted { rank: self.comm.rank });
    }

    /// Returns the reason: that of the first failure.
    fn end(&self, broken: &CommunicatorFailure) -> CommunicatorFailure {
        let broken = self.watch.fail(broken);
        self.comm.break_up(broken.clone());
        broken
    }
}

impl Drop for Endpoint {
    /// Leaves the communicator to the watching thread, which closes it once its work is done.
    fn drop(&mut self) {
        if thread::panicking() {
            self.end(&CommunicatorFailure::Panicked { rank: self.comm.rank });
        }
    }
}
