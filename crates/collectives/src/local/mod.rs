//! Devices of one process, one rank each: the ranks meet on the host, and the last one to come enqueues the work of all.

mod call_matcher;
mod combine;
#[cfg(not(feature = "kernels"))]
mod no_kernels;
mod pending;
mod work;

use std::sync::Arc;
use std::time::Duration;

use gpustream::{Device, Result};

use crate::call::Call;
use call_matcher::CallMatcher;
pub(crate) use call_matcher::Posted;
use work::RankDevices;

/// One rank's place among the ranks of this process.
#[derive(Debug)]
pub(crate) struct Endpoint {
    meeting: Arc<CallMatcher>,
    rank: usize,
}

impl Endpoint {
    /// Makes the places of a new team, in the order of their ranks.
    pub(crate) fn of_devices(devices: &[Device], limit: Duration) -> Result<Vec<Self>> {
        let meeting = Arc::new(CallMatcher::new(RankDevices::load(devices)?, limit));
        Ok((0..devices.len()).map(|rank| Self { meeting: meeting.clone(), rank }).collect())
    }

    pub(crate) fn place(&self) -> (usize, usize) {
        (self.rank, self.meeting.size())
    }

    /// Gives the calls to the other ranks, and enqueues those for which all have come. Never blocks for another rank.
    pub(crate) fn post<'a>(&'a self, calls: Vec<Call<'a>>) -> Result<Posted<'a>> {
        self.meeting.post(self.rank, calls)
    }

    /// Blocks until all ranks have called this, and returns the place in the team of those with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        self.meeting.post_split(self.rank, color, key)?.wait_for_seat()
    }

    /// Ends the team for all ranks.
    pub(crate) fn abort(&self) {
        self.meeting.abort(self.rank);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.meeting.leave(self.rank);
    }
}
