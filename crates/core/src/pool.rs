//! The stream-ordered pool between buffers and the drivers' allocators.
//!
//! Freeing memory makes no driver call and does not wait. The range goes back to the pool together with the uses that its
//! owner left behind. The stream of those uses can get the range again at once, because its next work comes after them
//! anyway. Another stream gets it when we know that the uses are done. Only under pressure, if neither the driver nor your
//! limit gives us more, a stream gets memory that another stream still uses; then its first access waits on the device. In
//! every case the uses stay in the new allocation's history. So ordering never depends on whether the pool was right about
//! work being done.
//!
//! This layer knows blocks, streams and the driver's allocators. It does not know devices, except through the trait
//! [`Users`].
//!
//! | module | knows |
//! |---|---|
//! | `lists` | finding a free range for a request; no streams, no addresses |
//! | `arena` | slabs, splitting, merging, owners; no driver, no locks |
//! | `driver` | using the driver's own pool instead |
//! | `source` | the drivers' plain allocators, with a log of their calls and your limit on top |
//! | `growth` | how much to ask a source for |
//! | `state` | the pool for one kind of memory: arenas, emptied blocks, figures |
//! | `pools` | locks, and what to try when memory runs out |
//! | `recorded` | allocation inside recordings |
//! | `give_back` | returning memory to the pool and to the driver |
//! | `watch` | trying again once work is done |
//! | `options` | the options that you can set |
//! | `replay` | a random mix of allocations |
//! | `stats` | figures, and who holds memory |

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

/// The unit of sizes and addresses in a slab, in bytes. Drivers align their memory to this, and the vector loads of kernels
/// may need it. It is also long enough to keep two neighbours from sharing a cache line.
pub(crate) const GRANULE: usize = 512;

/// Every driver aligns its allocations to this many bytes. If you ask for a larger alignment, we allocate that much more and
/// begin inside it.
const ALIGNED: usize = 256;

/// A request of up to this many bytes is small. Small requests get their own slabs, because otherwise one small long-lived
/// allocation could keep us from giving a large slab back.
const SMALL: usize = 128 << 10;

/// Returns true if we know that all these uses are done.
fn are_done(uses: &Uses) -> bool {
    uses.iter().all(|old| known_done(old.point))
}

/// What a device's pools need to ask about the streams that use its memory.
pub trait Users {
    /// Asks the driver how far each stream has come; never blocks.
    fn poll(&self);

    /// Returns true if we know that everything on the device's own streams is done.
    fn known_idle(&self) -> bool;

    /// Blocks until the freed memory is out of use, and takes back the memory that streams keep for their next copies.
    ///
    /// # Errors
    /// The errors on streams of this device.
    fn wait(&self) -> Result<()>;
}

/// Who holds a range: how many bytes the call asked for, and which call it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) requested: usize,
    pub(crate) call_site: CallSite,
}

impl Holder {
    pub(crate) const NOBODY: Self =
        Self { requested: 0, call_site: CallSite { label: "", location: Location::caller() } };
}
