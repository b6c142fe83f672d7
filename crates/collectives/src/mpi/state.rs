//! What the rank's side of a communicator shares with MPI's thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpustream::{Error, Result};

use crate::failure::CommunicatorFailure;

/// A rank's membership in a communicator, and why it failed, if it did.
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

    /// Returns why the communicator is unusable, if it is.
    pub(super) fn broken(&self) -> Option<CommunicatorFailure> {
        self.lock().clone()
    }

    pub(super) fn check(&self) -> Result<()> {
        self.broken().map_or(Ok(()), |broken| Err(Error::external(broken)))
    }

    /// Makes all later calls fail. Returns the first reason for that.
    pub(super) fn break_up(&self, broken: CommunicatorFailure) -> CommunicatorFailure {
        self.lock().get_or_insert(broken).clone()
    }
}
