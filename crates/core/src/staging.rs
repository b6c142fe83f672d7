//! Copies of ordinary host memory, in pieces through pinned memory.
//!
//! The driver can copy pageable memory only at a fraction of what the bus could take, and it makes the host wait. So
//! instead, several threads fill pinned pieces while the device copies the earlier ones. We need several, because one
//! thread cannot fill them as fast as the bus takes them. Copies of up to a few megabytes take a shorter path, and if the
//! driver offers it, the shortest ones travel along with the command.
//!
//! ```text
//! upload     slice --threads--> pinned pieces --stream--> device
//! download   slice <--threads-- pinned pieces <--stream-- device
//! ```
//!
//! The pieces come from the device's pool of pinned memory. [`InFlight`] limits how many bytes a stream may have in flight.
//! If several threads have not copied for a while, the memory goes back to the driver.
//!
//! This layer knows how to cut a copy, how many bytes may be in flight, which threads copy, and streams. It knows no
//! handles, because `copy`, one layer above, makes the copies.

pub(crate) mod in_flight;
pub mod parallel_copy;

use std::ops::Range;
use std::time::Duration;

use crate::stream::StreamCore;
use in_flight::InFlight;

/// Length of the longest piece, in bytes: long enough to hide the cost of a copy, short enough to start early.
const LONGEST_PIECE: usize = 2 << 20;

/// Length of the pieces that one thread copies: long compared with a driver call, but short enough to start early.
pub const PIECE: usize = 256 << 10;

/// Length of the shortest piece, for a ring that is too small for longer ones.
const SHORTEST_PIECE: usize = 64 << 10;

/// A copy gets one more thread for each full share of this many bytes. One thread fills pieces at 17 to 25 GB/s and empties
/// them at 17 GB/s. That is less than half of what the bus takes, and about what the driver reaches by itself (H200).
const SHARE: usize = 768 << 10;

/// Length of the longest upload, or part of one, that we put into a chunk as a whole.
const LONGEST_IN_CHUNK: usize = 4 << 20;

/// This many threads saturate all buses that we have seen so far.
const MOST_THREADS: usize = 8;

/// You can ask for at most this many threads, because more of them cost more than they copy.
const THREADS_LIMIT: usize = 256;

/// If several threads have not copied for this long, the pinned memory goes back to the driver.
const IDLE: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };

/// Options for copies of ordinary memory. Zero means that we choose.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StagingOptions {
    /// How many bytes of pinned memory one stream may have in flight.
    pub(crate) ring: usize,
    /// How many threads copy, including the calling one.
    pub(crate) threads: usize,
}

impl StagingOptions {
    /// Fills the options that are still open from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        let either = |own: usize, other| if own > 0 { own } else { other };
        Self { ring: either(self.ring, other.ring), threads: either(self.threads, other.threads) }
    }
}

/// A device's staging: its settings, and the bytes in flight.
pub struct Staging {
    threads: usize,
    pub in_flight: InFlight,
}

impl Staging {
    pub(crate) fn new(options: StagingOptions) -> Self {
        let given = |value: usize| (value > 0).then_some(value);
        let threads = given(options.threads)
            .unwrap_or_else(|| {
                let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                (cores / 2).clamp(1, MOST_THREADS)
            })
            .min(THREADS_LIMIT);
        // Each thread fills one of its pieces while another is being copied.
        let ring = given(options.ring).unwrap_or(2 * threads * LONGEST_PIECE);
        Self { threads, in_flight: InFlight::new(ring) }
    }

    /// Cuts a copy of `bytes` bytes into pieces. If a copy `follows` another one closely, starting early gains nothing,
    /// because the device is still busy. And each driver call costs as much as copying 50 KB. So we cut such a copy into as
    /// few pieces as we can.
    pub fn plan(&self, bytes: usize, threads: usize, follows: bool) -> Plan {
        let threads = (1 + bytes / SHARE).min(threads);
        let piece = match (threads, follows) {
            (1, false) => PIECE,
            (_, true) => bytes.div_ceil(threads),
            // Two for each thread, so that it can fill one while the other is copied.
            (_, false) => bytes.div_ceil(2 * threads),
        };
        let piece = piece.next_multiple_of(4 << 10).max(PIECE).min(self.longest_piece());
        Plan { bytes, piece, helpers: (threads - 1).min(bytes.div_ceil(piece) - 1) }
    }

    /// Returns how long a piece can be, in bytes.
    pub fn longest_piece(&self) -> usize {
        LONGEST_PIECE.min(self.in_flight.limit()).max(SHORTEST_PIECE)
    }

    /// Returns how many threads may copy, including the calling one.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns how many threads may submit to a stream.
    pub fn threads_for(&self, stream: &StreamCore) -> usize {
        if stream.is_one_threads() { 1 } else { self.threads }
    }

    /// Returns how long an upload, or part of one, can be so that it still goes through a chunk. Several chunks fit into the
    /// ring, so that we can fill one while others are being copied.
    pub fn longest_in_chunk(&self) -> usize {
        LONGEST_IN_CHUNK.min(self.in_flight.limit() / 4).max(SHORTEST_PIECE)
    }
}

/// The pieces of a copy.
pub struct Plan {
    pub bytes: usize,
    piece: usize,
    /// How many threads help the calling one.
    pub helpers: usize,
}

impl Plan {
    pub fn pieces(&self) -> usize {
        self.bytes.div_ceil(self.piece)
    }

    pub fn range(&self, index: usize) -> Range<usize> {
        let start = index * self.piece;
        start..self.bytes.min(start + self.piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_cover_every_byte_once() {
        let sizes =
            (0..30).flat_map(|log| [(1usize << log) - 1, 1 << log, (1 << log) + 1]).filter(|&n| n > 0);
        for bytes in sizes {
            for (threads, ring) in [(1, 0), (2, 0), (8, 0), (3, 1 << 16), (8, 1 << 20)] {
                let staging = Staging::new(StagingOptions { ring, threads });
                for plan in [false, true].map(|follows| staging.plan(bytes, threads, follows)) {
                    let mut end = 0;
                    for index in 0..plan.pieces() {
                        let range = plan.range(index);
                        assert_eq!(range.start, end);
                        assert!(!range.is_empty() && range.len() <= LONGEST_PIECE);
                        end = range.end;
                    }
                    assert_eq!(end, bytes);
                    assert!(plan.helpers < threads && plan.helpers < plan.pieces());
                    assert!(plan.helpers == 0 || bytes >= SHARE);
                }
                let (alone, following) =
                    (staging.plan(bytes, threads, false), staging.plan(bytes, threads, true));
                assert!(following.pieces() <= alone.pieces());
            }
        }
    }
}
