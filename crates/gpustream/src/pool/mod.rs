//! The stream-ordered pool between buffers and the drivers' allocators.
//!
//! Freeing makes no driver call and waits for nothing: the range goes back with the uses that its owner left
//! behind. Allocating hands it out at once to the stream that those uses precede, and to any other when they are
//! known to be done. Only under pressure, when neither driver nor limit gives more, does a stream get memory that
//! another still uses; its first access then waits, on the device. Whoever gets it, the uses stay in the new
//! allocation's history, so order never rests on the pool being right about what is done.
//!
//! | module | knows |
//! |---|---|
//! | `lists` | which free range a request gets (the policy); no streams, no addresses |
//! | `arena` | slabs, splitting, merging, owners; no driver, no locks |
//! | `driver` | the driver's own pool instead |
//! | `pools` | locks, growth, what to do when there is no more |
//! | `give_back` | the way back, to the pool and to the driver |
//! | `options` | what a program chooses |
//! | `replay` | a random mix of allocations against each policy |
//! | `stats` | figures, and who holds what |

pub(crate) mod arena;
mod driver;
mod give_back;
pub(crate) mod lists;
mod options;
mod pools;
#[cfg(test)]
mod replay;
mod stats;

use std::panic::Location;

use gpustream_hal::{Operation, Result};

pub(crate) use options::MemoryOptions;
pub use options::PoolPolicy;
pub(crate) use pools::Pools;
pub use stats::{Holding, MemorySnapshot, MemoryStats};

/// Sizes and addresses in a slab are multiples of this many bytes: the alignment that drivers give and kernels'
/// vector loads want, and above what two neighbours could falsely share.
pub(crate) const GRANULE: usize = 512;

/// The streams that use a device's memory, as far as its pools ask about them.
pub(crate) trait Users {
    /// Asks the driver how far each of them has come; never blocks.
    fn look(&self);

    /// Whether everything submitted to the device's own streams is known to be done.
    fn are_known_idle(&self) -> bool;

    /// Blocks until the memory that was freed is out of use, and takes back the memory that streams keep for their next
    /// copies.
    ///
    /// # Errors
    /// Those of the device's own streams.
    fn settle(&self) -> Result<()>;
}

/// Who holds a range: bytes asked for, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) requested: usize,
    pub(crate) operation: Operation,
}

impl Holder {
    pub(crate) const NOBODY: Self =
        Self { requested: 0, operation: Operation { label: "", location: Location::caller() } };
}
