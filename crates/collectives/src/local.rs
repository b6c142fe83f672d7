//! Several devices in one process, one rank each. The ranks meet on the host, and the last one to come
//! enqueues the work of all, because only then do we know that the calls match.

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

/// One rank's connection to the other ranks in this process.
#[derive(Debug)]
pub(crate) struct Endpoint {
    matcher: Arc<CallMatcher>,
    rank: usize,
}

impl Endpoint {
    /// Makes the endpoints of a new communicator, in the order of their ranks.
    pub(crate) fn of_devices(devices: &[Device], limit: Duration) -> Result<Vec<Self>> {
        let matcher = Arc::new(CallMatcher::new(RankDevices::load(devices)?, limit));
        Ok((0..devices.len()).map(|rank| Self { matcher: matcher.clone(), rank }).collect())
    }

    pub(crate) fn place(&self) -> (usize, usize) {
        (self.rank, self.matcher.size())
    }

    /// Hands the calls over, and enqueues those that all other ranks have made too. Never waits for another
    /// rank, so you can make calls for several ranks on one thread.
    pub(crate) fn post<'a>(&'a self, calls: Vec<Call<'a>>) -> Result<Posted<'a>> {
        self.matcher.post(self.rank, calls)
    }

    /// Blocks until all ranks have called this. Returns the endpoint among the ranks with this color.
    pub(crate) fn split(&self, color: i32, key: i32) -> Result<Self> {
        self.matcher.post_split(self.rank, color, key)?.wait_for_endpoint()
    }

    /// Ends the communicator for all ranks.
    pub(crate) fn abort(&self) {
        self.matcher.abort(self.rank);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.matcher.leave(self.rank);
    }
}
