//! MPI: one rank in each of several processes. You can use it for CPU devices, or if your hosts have no NCCL.
//!
//! A call is divided into pieces. For each piece the rank's [stream](enqueue) copies the data to [staging
//! memory](stage) and waits for a flag. The [thread](process) that makes all MPI calls exchanges the piece
//! and sets the flag. Then the stream copies the result to your memory. While one piece is exchanged, the
//! next is copied.

mod combine;
mod comm;
mod enqueue;
mod group;
mod mail;
mod messenger;
mod process;
mod stage;
mod state;

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use gpustream::{Device, Error, ErrorKind, Result};

use crate::call::{Batches, Collective};
use crate::call_rules::CallRules;
use crate::compare::{self, ENCODED, different, encode};
use crate::failure::CommunicatorFailure;
use group::{HostCollective, NewCommunicator, Number};
pub(crate) use messenger::Messenger;
use process::{Process, Task};
use stage::Staging;
use state::CommunicatorState;

/// One rank's connection to the others through MPI.
pub(crate) struct Endpoint {
    process: &'static Process,
    number: Number,
    state: Arc<CommunicatorState>,
    staging: Mutex<Staging>,
    device: Device,
    checked: bool,
}

impl Endpoint {
    /// Makes the endpoint for the rank of this process. Blocks until all ranks have come.
    pub(crate) fn of_process(place: (usize, usize), device: &Device, terms: CallRules) -> Result<Self> {
        let process = process::of_process()?;
        if process.place != place {
            let ((rank, size), (own_rank, own_size)) = (place, process.place);
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the launcher's variables make this process rank {rank} of {size}, but MPI makes it rank {own_rank} of {own_size}; \
                     start the processes with the `mpirun` of the MPI that the program was built with ({})",
                    process.version
                ),
            ));
        }
        Self::split_from(process, process::WORLD, (0, 0), device, terms)
    }

    fn split_from(
        process: &'static Process,
        whole: Number,
        (color, key): (i32, i32),
        device: &Device,
        terms: CallRules,
    ) -> Result<Self> {
        let CallRules { limit, checked } = terms;
        let NewCommunicator { number, state } =
            process.meet(whole, limit, |reply| HostCollective::Split { color, key, reply }).wait()?;
        let staging = Mutex::new(Staging::new(device, state.size));
        Ok(Self { process, number, state, staging, device: device.clone(), checked })
    }

    pub(crate) fn place(&self) -> (usize, usize) {
        (self.state.rank, self.state.size)
    }

    /// Enqueues the calls of several ranks, each rank's in order. If calls are checked, blocks for the other
    /// ranks.
    pub(crate) fn run(sets: Batches<'_, Self>) -> Result<()> {
        compare::each(&sets, |endpoint| endpoint.checked, compare)?;
        enqueue::run(sets)
    }

    /// Blocks until all ranks have called this. Returns the endpoint among the ranks with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        compare(&[(self, &Collective::Split.to_string())])?;
        let terms = CallRules { limit: self.state.limit, checked: self.checked };
        Self::split_from(self.process, self.number, (color, key), &self.device, terms)
    }

    /// Ends the communicator and the work of its calls for this rank. The others notice after the time limit.
    pub(crate) fn abort(&self) {
        self.break_up(CommunicatorFailure::Aborted { rank: self.state.rank });
    }

    fn break_up(&self, broken: CommunicatorFailure) {
        self.process.give(self.number, Task::Break(self.state.break_up(broken)));
    }

    fn staging(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// If calls are checked, compares one call of each given rank with those of all other ranks. Blocks until all
/// have sent theirs.
fn compare(calls: &[(&Endpoint, &str)]) -> Result<()> {
    let pending: Vec<_> = calls
        .iter()
        .filter(|(endpoint, _)| endpoint.checked)
        .map(|(endpoint, text)| {
            let (own, all) = (Box::new(encode(text)), vec![0; ENCODED * endpoint.state.size]);
            let compare = |reply| HostCollective::Compare { own, all, reply };
            (endpoint, text, endpoint.process.meet(endpoint.number, endpoint.state.limit, compare))
        })
        .collect();
    let mut outcome = Ok(());
    for (endpoint, text, answer) in pending {
        let all = answer.wait().map_err(|error| error.with_context(format_args!("before {text}")))?;
        if let Some(broken) = different(&all) {
            // Earlier calls go on.
            endpoint.state.break_up(broken.clone());
            outcome = Err(Error::external(broken));
        }
    }
    outcome
}

impl Drop for Endpoint {
    /// Leaves the communicator to MPI's thread, which closes it once its work is done.
    fn drop(&mut self) {
        if thread::panicking() {
            self.break_up(CommunicatorFailure::Panicked { rank: self.state.rank });
        }
        let none = Staging::new(&self.device, 0);
        let staging = mem::replace(self.staging.get_mut().unwrap_or_else(PoisonError::into_inner), none);
        self.process.give(self.number, Task::Close(staging));
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("state", &self.state).finish_non_exhaustive()
    }
}
