//! One rank in each of several processes, by MPI: for CPU devices, and for hosts without NCCL.
//!
//! A call becomes pieces. For each piece the rank's [stream](enqueue) copies the given part to [staging memory](stage),
//! and waits for a flag; the [thread](process) that makes all calls of MPI exchanges the piece and sets the flag; the
//! stream then copies what the rank gets. One piece is exchanged while the next is copied.

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
use crate::compare::{self, SHOWN, different, show};
use crate::failure::CommunicatorFailure;
use group::{HostCollective, NewCommunicator, Number};
pub(crate) use messenger::Messenger;
use process::{Process, Task};
use stage::Staging;
use state::CommunicatorState;

/// One rank's place among MPI's.
pub(crate) struct Endpoint {
    process: &'static Process,
    number: Number,
    bond: Arc<CommunicatorState>,
    staging: Mutex<Staging>,
    device: Device,
    checked: bool,
}

impl Endpoint {
    /// Makes the place of this process's rank. Blocks until all ranks have come.
    pub(crate) fn of_process(place: (usize, usize), device: &Device, terms: CallRules) -> Result<Self> {
        let process = process::of_process()?;
        if process.place != place {
            let ((rank, size), (own_rank, own_size)) = (place, process.place);
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the launcher's variables make this process rank {rank} of {size}, and MPI rank {own_rank} of {own_size}; \
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
        let NewCommunicator { number, bond } =
            process.meet(whole, limit, |reply| HostCollective::Split { color, key, reply }).wait()?;
        let staging = Mutex::new(Staging::new(device, bond.size));
        Ok(Self { process, number, bond, staging, device: device.clone(), checked })
    }

    pub(crate) fn place(&self) -> (usize, usize) {
        (self.bond.rank, self.bond.size)
    }

    /// Enqueues the calls of several ranks, each in the order of that rank's. Blocks for the other ranks where calls are
    /// checked.
    pub(crate) fn run(sets: Batches<'_, Self>) -> Result<()> {
        compare::each(&sets, |endpoint| endpoint.checked, compare)?;
        enqueue::run(sets)
    }

    /// Blocks until all ranks have called this, and returns the place among those with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        compare(&[(self, &Collective::Split.to_string())])?;
        let terms = CallRules { limit: self.bond.limit, checked: self.checked };
        Self::split_from(self.process, self.number, (color, key), &self.device, terms)
    }

    /// Ends the communicator and the work of its calls, for this rank; the others notice by the time limit.
    pub(crate) fn abort(&self) {
        self.break_up(CommunicatorFailure::Aborted { rank: self.bond.rank });
    }

    fn break_up(&self, broken: CommunicatorFailure) {
        self.process.give(self.number, Task::Break(self.bond.break_up(broken)));
    }

    fn staging(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares one call of each of some ranks with those of all others, where calls are checked. Blocks until these have shown
/// theirs.
fn compare(calls: &[(&Endpoint, &str)]) -> Result<()> {
    let shown: Vec<_> = calls
        .iter()
        .filter(|(endpoint, _)| endpoint.checked)
        .map(|(endpoint, text)| {
            let (shown, all) = (Box::new(show(text)), vec![0; SHOWN * endpoint.bond.size]);
            let compare = |reply| HostCollective::Compare { shown, all, reply };
            (endpoint, text, endpoint.process.meet(endpoint.number, endpoint.bond.limit, compare))
        })
        .collect();
    let mut outcome = Ok(());
    for (endpoint, text, answer) in shown {
        let all = answer.wait().map_err(|error| error.with_context(format_args!("before {text}")))?;
        if let Some(broken) = different(&all) {
            // Earlier calls go on.
            endpoint.bond.break_up(broken.clone());
            outcome = Err(Error::external(broken));
        }
    }
    outcome
}

impl Drop for Endpoint {
    /// Leaves the communicator to MPI's thread, which closes it once its work is done.
    fn drop(&mut self) {
        if thread::panicking() {
            self.break_up(CommunicatorFailure::Panicked { rank: self.bond.rank });
        }
        let none = Staging::new(&self.device, 0);
        let staging = mem::replace(self.staging.get_mut().unwrap_or_else(PoisonError::into_inner), none);
        self.process.give(self.number, Task::Close(staging));
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("bond", &self.bond).finish_non_exhaustive()
    }
}
