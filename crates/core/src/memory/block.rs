//! The block: one live allocation.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpustream_hal::{HostPtr, RawBuffer};

use super::array::ArrayMemory;
use super::guard::Guards;
use super::registration::Registration;
use crate::deferred_drop::ForeignOwner;
use crate::module_core::ModuleCore;
use crate::sync::Latch;
use crate::track::{History, Uses};

/// What kind of memory a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    Device,
    /// Page-locked host memory.
    Pinned,
    /// Page-locked host memory that the host should only write.
    WriteCombined,
    /// Memory that migrates between host and device.
    Managed,
    /// Your own memory, page-locked in place.
    Registered,
    /// An array of the driver. It has no address.
    Array,
    /// Device memory with an address of its own, for textures.
    Texels,
}

impl MemoryKind {
    /// The kinds that a driver allocates.
    pub(crate) const ALL: [Self; 4] = [Self::Device, Self::Pinned, Self::WriteCombined, Self::Managed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "device memory",
            Self::Pinned => "pinned memory",
            Self::WriteCombined => "write-combined memory",
            Self::Managed => "managed memory",
            Self::Registered => "registered memory",
            Self::Array => "an array",
            Self::Texels => "memory of a texture",
        }
    }
}

/// What holds the memory of a block.
pub(crate) enum Backing {
    /// No place: the block is empty.
    Nowhere,
    /// The range with that number in an arena.
    Arena(u32),
    /// Memory from the driver's own pool.
    Driver,
    /// Your own memory. It is unlocked and freed when this is dropped.
    Registered { _memory: Box<Registration> },
    /// Foreign memory. Its owner is dropped with this.
    Foreign { _owner: ForeignOwner },
    /// Variables of a module. The module stays loaded until this is dropped.
    Module { _loaded: Arc<ModuleCore> },
    /// Memory for textures. It is freed when this is dropped.
    Array(Box<ArrayMemory>),
}

/// A range to fill a block with.
pub(crate) struct Filling {
    pub(crate) place: Backing,
    /// The device's address.
    pub(crate) start: usize,
    /// The host's address, or zero.
    pub(crate) host: usize,
    /// In bytes.
    pub(crate) size: usize,
    /// The uses that earlier owners left, if any.
    pub(crate) uses: Option<Uses>,
}

/// A range on its way back to the pools, with the uses that may still be running, if any.
pub(crate) struct Returned {
    pub(crate) kind: MemoryKind,
    pub(crate) place: Backing,
    pub(crate) address: RawBuffer,
    /// In bytes.
    pub(crate) size: usize,
    pub(crate) uses: Option<Uses>,
}

/// Where a block's range returns: pools, or a recording between a block and its pools.
pub(crate) trait Home: Send + Sync {
    /// Takes back a range that no one holds any more.
    fn give_back(&self, returned: Returned);

    /// Call this when a block's owner is gone but others hold the block.
    fn note_disowned(&self, _block: &Arc<Block>) {}
}

/// One allocation. Its owner shares it with the graphs that refer to it, and the last holder gives the range back.
///
/// A block keeps its home alive, and so the driver's device, because a graph may outlive the device handle whose memory it
/// touches.
// The fields are in this order so that what each operation looks at, from `host` to the history, lies in few cache lines.
#[repr(C)]
pub struct Block {
    pub address: RawBuffer,
    /// Size in bytes as allocated, including what we skipped at the front to align the block.
    pub(crate) capacity: usize,
    /// The host's address; null for device memory.
    pub host: HostPtr,
    pub kind: MemoryKind,
    /// True if a graph has ever referred to this allocation, or if textures may be made of it. Then operations touch its
    /// memory without a borrow.
    pub(crate) in_graph: AtomicBool,
    pub history: Latch<History>,
    pub(super) guards: Latch<Guards>,
    place: Backing,
    /// An empty block has this too, so that filling it changes no reference count. The pools break this circle when they are
    /// closed.
    home: Arc<dyn Home>,
}

// SAFETY: `host` is an address; guards and the tracker decide who may read or write there.
unsafe impl Send for Block {}
// SAFETY: `host` is an address; everything else in a block is immutable or latched.
unsafe impl Sync for Block {}

impl Block {
    /// Creates a block without memory, to be [`fill`](Self::fill)ed.
    pub(crate) fn empty(home: Arc<dyn Home>, kind: MemoryKind) -> Self {
        Self {
            address: RawBuffer(0),
            host: std::ptr::null_mut(),
            kind,
            capacity: 0,
            history: Latch::new(History::new(0, false)),
            in_graph: AtomicBool::new(false),
            guards: Latch::new(Guards::new()),
            place: Backing::Nowhere,
            home,
        }
    }

    /// Fills an empty block with a range. The caller asked for `bytes` bytes of it. The block begins at the first byte that
    /// is aligned to `align`; the pools ask for enough extra to make that possible.
    #[inline]
    pub(crate) fn fill(&mut self, filling: Filling, bytes: usize, align: usize) {
        // If the host can reach the memory, its address decides, because the host makes references there.
        let first = if filling.host == 0 { filling.start } else { filling.host };
        let skipped = first.wrapping_neg() & (align - 1);
        debug_assert!(skipped + bytes <= filling.size);
        self.address = RawBuffer(filling.start + skipped);
        self.host = if filling.host == 0 { 0 } else { filling.host + skipped } as HostPtr;
        self.capacity = filling.size;
        self.place = filling.place;
        self.history.get_mut().begin(bytes, filling.uses);
    }

    /// Returns the block's memory, if textures can be made of it.
    pub fn array(&self) -> Option<&ArrayMemory> {
        match &self.place {
            Backing::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Empties the block and returns its range for you to give back. `None` if the block was empty.
    #[inline]
    pub(crate) fn empty_out(&mut self) -> Option<Returned> {
        let place = std::mem::replace(&mut self.place, Backing::Nowhere);
        if matches!(place, Backing::Nowhere) {
            return None;
        }
        *self.in_graph.get_mut() = false;
        // If a guard was leaked, it holds nothing any more.
        self.guards.get_mut().clear();
        let uses = self.history.get_mut().end();
        Some(Returned { kind: self.kind, place, address: self.address, size: self.capacity, uses })
    }

    /// Puts a new home between the block and its old home. No one else may hold the block.
    pub(crate) fn rehome(&mut self, home: Arc<dyn Home>) {
        self.home = home;
    }

    /// Tells the home that the owner is gone but others hold the block.
    #[cold]
    pub(crate) fn disown(self: &Arc<Self>) {
        self.home.note_disowned(self);
    }

    #[inline]
    pub fn is_host(&self) -> bool {
        !self.host.is_null()
    }
}

impl Drop for Block {
    /// Gives the range back if a graph was the last holder. Otherwise the owner has already emptied the block.
    fn drop(&mut self) {
        if let Some(returned) = self.empty_out() {
            self.home.give_back(returned);
        }
    }
}
