//! What a device is doing at this moment, in numbers for a service's metrics.

use gpustream_hal::{Error, unheard};

use crate::device_core::DeviceCore;
use crate::memory::MemoryKind;
use crate::pool::MemoryStats;

/// What a device is doing at this moment. See [`metrics`](DeviceCore::metrics).
#[derive(Debug)]
#[non_exhaustive]
pub struct Metrics {
    /// How many streams the device handle has, including dropped ones whose work is not done.
    pub streams: usize,
    /// How many operations these streams have been given. A graph's launch counts as one.
    pub submitted: u64,
    /// How many of these operations were not done when we asked. It may be too high, because we can only ask about a few points
    /// of each stream; by 128 at most if your program asks for room between its calls.
    pub pending: u64,
    /// The pending operations of the stream that has most. From some 1,024 on, calls that submit to it block.
    pub longest_queue: u64,
    /// The device memory that the library holds and uses.
    pub device_memory: MemoryStats,
    /// The page-locked host memory that the library holds and uses for this device.
    pub pinned_memory: MemoryStats,
    /// The device's failure, if it no longer works.
    pub fault: Option<Error>,
}

impl DeviceCore {
    /// Counts what the device is doing. Does not block. Asks the driver a few times for each stream that has work.
    pub fn metrics(&self) -> Metrics {
        let mut metrics = Metrics {
            streams: 0,
            submitted: 0,
            pending: 0,
            longest_queue: 0,
            device_memory: self.pools.stats(MemoryKind::Device),
            pinned_memory: self.pools.stats(MemoryKind::Pinned),
            fault: None,
        };
        for stream in self.own_streams() {
            let submitted = stream.counted();
            if !stream.known_done(submitted)
                && let Err(fault) = unheard(|| stream.poll_progress())
            {
                metrics.fault = Some(fault);
            }
            let pending = submitted.saturating_sub(stream.completed());
            metrics.streams += 1;
            metrics.submitted += submitted;
            metrics.pending += pending;
            metrics.longest_queue = metrics.longest_queue.max(pending);
        }
        metrics
    }
}
