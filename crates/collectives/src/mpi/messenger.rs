//! Messages between MPI's processes, before their ranks have a communicator.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpustream::Result;

use super::group::{HostCollective, NewCommunicator, Number};
use super::mail::Mail;
use super::process::{self, Process, Task};
use super::state::CommunicatorState;

/// One process among those that send each other messages. MPI keeps its resources until the process ends.
pub(crate) struct Messenger {
    process: &'static Process,
    number: Number,
    state: Arc<CommunicatorState>,
}

impl Messenger {
    /// Blocks until all processes have called this, at most for `limit`. From then on `deliver` gets the
    /// messages of the others, on MPI's thread, while some thread [listens](Self::listen).
    pub(crate) fn join(limit: Duration, deliver: impl Fn(&[u8]) + Send + 'static) -> Result<Self> {
        let process = process::of_process()?;
        let split = |reply| HostCollective::Split { color: 0, key: 0, reply };
        let NewCommunicator { number, state } = process.meet(process::WORLD, limit, split).wait()?;
        process.give(number, Task::Mail(Mail::Open(Box::new(deliver))));
        Ok(Self { process, number, state })
    }

    /// Returns MPI's number for this process.
    pub(crate) fn rank(&self) -> usize {
        self.process.place.0
    }

    /// Sends a message to all other processes.
    ///
    /// # Errors
    /// Why MPI accepts no messages.
    pub(crate) fn send(&self, message: Vec<u8>) -> Result<()> {
        self.state.check()?;
        self.process.give(self.number, Task::Mail(Mail::Send(message.into())));
        Ok(())
    }

    /// Messages are delivered until the returned value is dropped.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(crate) fn listen(&self) -> Result<Listening<'_>> {
        self.state.check()?;
        self.process.give(self.number, Task::Mail(Mail::Listen));
        Ok(Listening(self))
    }
}

/// A thread that waits for messages.
pub(crate) struct Listening<'a>(&'a Messenger);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.process.give(self.0.number, Task::Mail(Mail::Rest));
    }
}

impl fmt::Debug for Messenger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post").field("number", &self.number).finish_non_exhaustive()
    }
}
