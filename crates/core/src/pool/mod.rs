//! The stream-ordered pool between buffers and the drivers' allocators.
//!
//! Freeing makes no driver call and waits for nothing: the range goes back with the uses that its owner left behind.
//! The stream that those uses precede gets the range again at once, and any other stream when the uses are known to be
//! done. A stream gets memory that another still uses only under pressure, when neither driver nor limit gives more;
//! the stream's first access then waits, on the device. In every case the uses stay in the new allocation's history, so
//! order never rests on the pool being right about the end of work.
//!
//! This layer knows blocks, streams and the driver's allocators, and of devices the trait [`Users`] alone.
//!
//! | module | knows |
//! |---|---|
//! | `lists` | lists that find a free range for a request; no streams, no addresses |
//! | `arena` | slabs, splitting, merging, owners; no driver, no locks |
//! | `driver` | the driver's own pool instead |
//! | `source` | the drivers' plain allocators, the log of their calls, the program's limit, on top of each other |
//! | `growth` | how much to ask a source for |
//! | `state` | the pool of one kind of memory: arenas, emptied blocks, figures |
//! | `pools` | locks, and the steps when there is no more |
//! | `recorded` | allocation inside recordings |
//! | `give_back` | the way back, to the pool and to the driver |
//! | `watch` | asking again once work is done |
//! | `options` | a program's choices |
//! | `replay` | a random mix of allocations |
//! | `stats` | figures, and the holders of memory |

mod arena;
mod driver;
mod give_back;
mod growth;
mod lists;
mod options;
mod pools;
mod recorded;
mod source;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod watch;

use std::panic::Location;

use gpustream_hal::{CallSite, Result};

use crate::stream::known_done;
use crate::track::Uses;

pub(crate) use options::MemoryOptions;
pub use options::PoolPolicy;
pub(crate) use pools::Pools;
pub use stats::{Holding, MemorySnapshot, MemoryStats};

/// The unit of sizes and addresses in a slab, in bytes: the alignment that drivers give and that the vector loads of
/// kernels want, and above the distance at which two neighbours could falsely share.
pub(crate) const GRANULE: usize = 512;

/// The alignment that every driver's allocations have, in bytes. A request for more gets that much more memory, and begins
/// within it.
const ALIGNED: usize = 256;

/// The largest size of a small request, in bytes. Small requests share slabs of their own, so that a long-lived one
/// does not keep a large slab from being given back.
const SMALL: usize = 128 << 10;

/// Returns whether all the work of these uses is known to be done.
fn are_done(uses: &Uses) -> bool {
    uses.iter().all(|old| known_done(old.point))
}

/// The streams that use a device's memory, as far as its pools ask about them.
pub trait Users {
    /// Asks the driver how far each stream has come; never blocks.
    fn poll(&self);

    /// Returns whether everything submitted to the device's own streams is known to be done.
    fn known_idle(&self) -> bool;

    /// Blocks until the memory that was freed is out of use, and takes back the memory that streams keep for their next
    /// copies.
    ///
    /// # Errors
    /// The errors of the device's own streams.
    fn wait(&self) -> Result<()>;
}

/// The holder of a range: the bytes asked for, and the operation that asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) requested: usize,
    pub(crate) operation: CallSite,
}

impl Holder {
    pub(crate) const NOBODY: Self =
        Self { requested: 0, operation: CallSite { label: "", location: Location::caller() } };
}
