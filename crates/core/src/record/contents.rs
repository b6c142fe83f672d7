//! The contents of a graph: the memory it touches, the values it keeps alive, and the order of its operations.

use std::any::Any;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpustream_hal::CallSite;
use smallvec::SmallVec;

use crate::host_call::RepeatedCall;
use crate::memory::{Access, Block};
use crate::track::{Mode, Touched};

/// A value that a graph must keep alive, because its nodes refer to it.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// A recorded operation and the operations it follows directly, by index.
pub struct GraphOperation {
    pub call_site: CallSite,
    pub after: SmallVec<[usize; 2]>,
    /// The operations of a conditional node's body.
    pub body: Vec<GraphOperation>,
}

/// The contents of a finished recording, which go to its graph.
#[derive(Default)]
pub struct Contents {
    pub uses: GraphUses,
    pub operations: Vec<GraphOperation>,
    pub(crate) keep: Vec<Keep>,
    /// The closures that nodes may call.
    pub calls: Vec<Arc<RepeatedCall>>,
    /// The number of levels of child graphs and bodies below this graph.
    pub levels: usize,
    /// True if something in `keep` is told of launches.
    pub watched: bool,
    /// True if one operation may be several nodes for the driver.
    pub(crate) several: bool,
    /// True if there is a conditional node. Drivers neither copy such a graph nor make two executables from it.
    pub conditional: bool,
}

impl Contents {
    /// Keeps a value alive. Returns false if we keep it already.
    pub(crate) fn keep(&mut self, keep: Keep) -> bool {
        let new = !self.keep.iter().any(|old| Arc::ptr_eq(old, &keep));
        if new {
            self.keep.push(keep);
        }
        new
    }

    /// Returns true if we know that the driver's nodes follow each other in the same way in both.
    pub fn has_edges_of(&self, other: &Self) -> bool {
        let (one, other_one) = (self.operations.iter(), other.operations.iter());
        !self.several
            && !other.several
            && one.map(|operation| &operation.after).eq(other_one.map(|operation| &operation.after))
    }

    /// Takes out your values, if there are any. They may own anything.
    pub fn take_values(&mut self) -> Option<Box<dyn Send>> {
        let owns = !self.calls.is_empty() || self.watched;
        owns.then(|| Box::new((mem::take(&mut self.calls), mem::take(&mut self.keep))) as _)
    }

    /// Returns the values of type `T` that we keep.
    pub fn kept<T: Any + Send + Sync>(&self) -> impl Iterator<Item = Arc<T>> {
        self.keep.iter().filter_map(|keep| keep.clone().downcast().ok())
    }

    /// Adds the contents of a node.
    pub fn merge(&mut self, new: Self) {
        self.uses.extend(&new.uses);
        for keep in new.keep {
            self.keep(keep);
        }
        self.calls.extend(new.calls);
        self.levels = self.levels.max(new.levels);
        self.watched |= new.watched;
        self.several |= new.several;
        self.conditional |= new.conditional;
    }
}

/// What a graph needs: the memory that it touches, and perhaps the whole device. A launch enters each range once, and not
/// once per node.
#[derive(Default)]
pub struct GraphUses {
    /// Sorted by the block's address.
    blocks: Vec<(Arc<Block>, Touched)>,
    /// True if the host can hold guards on some of the memory.
    host: bool,
    /// True if one of the operations needs the whole device.
    pub(crate) whole_device: bool,
}

impl GraphUses {
    /// Returns these uses of memory.
    pub fn of(accesses: &[&Access<'_>]) -> Self {
        let mut uses = Self::default();
        for access in accesses {
            uses.add(access.block, &access.range, access.mode);
        }
        uses
    }

    /// Returns true if the host can hold guards on some of the memory.
    pub fn touch_host_memory(&self) -> bool {
        self.host
    }

    /// Returns true if the graph touches the block.
    pub(crate) fn touch(&self, block: &Arc<Block>) -> bool {
        self.blocks.binary_search_by_key(&Arc::as_ptr(block), |(old, _)| Arc::as_ptr(old)).is_ok()
    }

    #[inline]
    pub fn accesses(&self) -> impl Iterator<Item = Access<'_>> + Clone {
        self.blocks.iter().flat_map(|(block, touched)| {
            touched.iter().map(move |(range, mode)| Access { block, range: range.clone(), mode: *mode })
        })
    }

    /// Adds a use. Returns false if we know the use already.
    #[inline]
    pub(crate) fn add(&mut self, block: &Arc<Block>, range: &Range<usize>, mode: Mode) -> bool {
        match self.blocks.binary_search_by_key(&Arc::as_ptr(block), |(old, _)| Arc::as_ptr(old)) {
            Ok(index) => self.blocks[index].1.add(range, mode),
            Err(index) => {
                self.insert(index, block, range, mode);
                true
            }
        }
    }

    /// Adds the first use of a block, at its place in the list.
    fn insert(&mut self, index: usize, block: &Arc<Block>, range: &Range<usize>, mode: Mode) {
        block.in_graph.store(true, Ordering::Release);
        self.host |= block.is_host();
        let mut touched = Touched::default();
        touched.add(range, mode);
        self.blocks.insert(index, (block.clone(), touched));
    }

    pub(crate) fn extend(&mut self, more: &Self) {
        self.whole_device |= more.whole_device;
        for access in more.accesses() {
            self.add(access.block, &access.range, access.mode);
        }
    }
}
