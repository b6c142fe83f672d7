//! One live allocation.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpustream_hal::{HostPtr, RawBuffer, Result};

use super::guard::Guards;
use super::registration::Registration;
use crate::pool::arena::Taken;
use crate::pool::lists::NONE;
use crate::pool::{Memory, Returned};
use crate::sync::Latch;
use crate::track::{History, Uses};

/// The number that stands for a range that is in no arena.
const REGISTERED: u32 = u32::MAX - 2;

/// What kind of memory a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Device,
    /// Page-locked host memory.
    Pinned,
    /// Page-locked host memory that the host only writes.
    WriteCombined,
    /// Memory that migrates between host and device.
    Managed,
    /// The program's own memory, page-locked in place.
    Registered,
}

impl Kind {
    /// Those that a driver allocates.
    pub(crate) const ALL: [Self; 4] = [Self::Device, Self::Pinned, Self::WriteCombined, Self::Managed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "device memory",
            Self::Pinned => "pinned memory",
            Self::WriteCombined => "write-combined memory",
            Self::Managed => "managed memory",
            Self::Registered => "registered memory",
        }
    }
}

/// One allocation. Shared by its owner and the graphs that refer to it; the last of them gives the range back.
///
/// Holds the memory that the range lies in, whoever holds the block, and with that the driver's device: a graph may
/// outlive the handle of the device whose memory it touches.
pub(crate) struct Block {
    pub(crate) address: RawBuffer,
    /// Where the host sees it; null for device memory.
    pub(crate) host: HostPtr,
    pub(crate) kind: Kind,
    /// Size in bytes as allocated.
    pub(crate) capacity: usize,
    pub(crate) history: Latch<History>,
    /// Whether a graph has ever referred to it; then launches touch it without a borrow.
    pub(crate) in_graph: AtomicBool,
    pub(super) guards: Latch<Guards>,
    /// The range's number in its arena.
    id: u32,
    registration: Option<Box<Registration>>,
    /// Also of an empty block, so that filling one counts nothing: [`Memory::close`] breaks the circle.
    memory: Arc<Memory>,
}

// SAFETY: `host` is an address; who may read or write there is the business of guards and the tracker.
unsafe impl Send for Block {}
// SAFETY: as above; everything else in a block is immutable or latched.
unsafe impl Sync for Block {}

impl Block {
    /// An allocation of no memory, to be [`fill`](Self::fill)ed.
    pub(crate) fn empty(memory: &Arc<Memory>, kind: Kind) -> Self {
        Self {
            address: RawBuffer(0),
            host: std::ptr::null_mut(),
            kind,
            capacity: 0,
            history: Latch::new(History::new(0, false)),
            in_graph: AtomicBool::new(false),
            guards: Latch::new(Guards::default()),
            id: NONE,
            registration: None,
            memory: memory.clone(),
        }
    }

    /// Makes an empty block the one of `taken`, of which `bytes` were asked for.
    #[inline]
    pub(crate) fn fill(&mut self, taken: Taken, bytes: usize) {
        self.address = RawBuffer(taken.start);
        self.host = taken.host as HostPtr;
        self.capacity = taken.size;
        self.id = taken.id;
        self.history.get_mut().begin(bytes, taken.uses);
    }

    /// Makes an empty block the one of registered memory of `bytes` bytes.
    pub(crate) fn fill_registered(&mut self, registration: Registration, bytes: usize) -> Result<()> {
        self.address = registration.device_address()?;
        self.host = registration.host();
        self.capacity = bytes;
        self.id = REGISTERED;
        self.history.get_mut().begin(bytes, Uses::new());
        self.registration = Some(Box::new(registration));
        Ok(())
    }

    /// Makes the block empty; what was in it must be given back.
    #[inline]
    pub(crate) fn empty_out(&mut self) -> Option<Returned> {
        let id = std::mem::replace(&mut self.id, NONE);
        if id == NONE {
            return None;
        }
        *self.in_graph.get_mut() = false;
        // A guard that was leaked holds nothing any more.
        self.guards.get_mut().clear();
        let uses = self.history.get_mut().end();
        let registration = self.registration.take();
        Some(Returned { kind: self.kind, id, address: self.address, size: self.capacity, uses, registration })
    }

    #[inline]
    pub(crate) fn is_host(&self) -> bool {
        !self.host.is_null()
    }

    /// Forgets the uses that are known to be done.
    pub(crate) fn prune(&self, history: &mut History) {
        history.prune(|point| self.memory.streams().is_known_done(point));
    }
}

impl Drop for Block {
    /// Where a graph was the last to hold it. Otherwise the owner has emptied it.
    fn drop(&mut self) {
        if let Some(returned) = self.empty_out() {
            self.memory.give_back(returned);
        }
    }
}
