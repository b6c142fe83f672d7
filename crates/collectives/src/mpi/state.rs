//! The state that the rank's side of a communicator and MPI's thread share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpustream::{Error, Result};

use crate::failure::CommunicatorFailure;

/// The bond of a rank with the others, until something breaks it.
#[derive(Debug)]
pub(super) struct CommunicatorState {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) limit: Duration,
    broken: Mutex<Option<CommunicatorFailure>>,
}

impl CommunicatorState {
    pub(super) fn new((rank, size): (usize, usize), limit: Duration) -> Self {
        Self { rank, size, limit, broken: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<CommunicatorFailure>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why the communicator is of no use, if it is of none.
    pub(super) fn broken(&self) -> Option<CommunicatorFailure> {
        self.lock().clone()
    }

    pub(super) fn check(&self) -> Result<()> {
        self.broken().map_or(Ok(()), |broken| Err(Error::external(broken)))
    }

    /// Lets no call succeed from here on, and returns the first reason for that.
    pub(super) fn break_up(&self, broken: CommunicatorFailure) -> CommunicatorFailure {
        self.lock().get_or_insert(broken).clone()
    }
}
