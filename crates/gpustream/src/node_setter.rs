//! Putting other work into single nodes of an executable.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use gpustream_hal::{self as hal, Device, GraphNode, RawGraphExec, RawGraphNode, RawStream, Result};
use smallvec::SmallVec;

use crate::capture::refused;
use crate::graph_contents::Contents;
use crate::host_call::RepeatedCall;
use crate::memory::Block;
use crate::node_recorder::{NodeTarget, several_calls};
use crate::stream_core::{Access, StreamCore};
use crate::sync::Latch;
use crate::track::Mode;

/// Takes the one operation that is to go into a node.
///
/// Made once per graph and used for every change, and it remembers what was put into the graph before: a change
/// usually refers to the same memory and kernels again, and then there is nothing to do but to call the driver.
pub(crate) struct NodeSetter {
    slot: Arc<NodeSlot>,
    contents: Latch<Known>,
    /// Whether there is something in `Known::new`.
    has_new: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// All that was put into nodes.
    all: Contents,
    /// What of it the graph does not know of yet.
    new: Contents,
    /// What the last change touched, all of it known: the next one usually touches the same again.
    last: SmallVec<[LastAccess; 4]>,
}

#[derive(PartialEq, Eq)]
struct LastAccess {
    /// Where the block lies. It is kept alive, so nothing else lies there.
    block: usize,
    range: Range<usize>,
    mode: Mode,
}

impl NodeSetter {
    pub(crate) fn new(slot: Arc<NodeSlot>) -> Self {
        Self { slot, contents: Latch::new(Known::default()), has_new: AtomicBool::new(false) }
    }

    /// Calls the driver through the slot. What the operation touches is entered whatever the driver answers.
    #[inline]
    pub(crate) fn submit<'a>(
        &self,
        stream: &StreamCore,
        accesses: impl Iterator<Item = &'a Access<'a>>,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<()> {
        let mut known = self.contents.lock();
        if !self.slot.claim() {
            return Err(refused("put several operations into one node; add a node for each"));
        }
        for (index, Access { block, range, mode }) in accesses.enumerate() {
            let access = LastAccess { block: Arc::as_ptr(block).addr(), range: range.clone(), mode: *mode };
            if known.last.get(index) != Some(&access) && known.enter(index, block, access) {
                self.has_new.store(true, Ordering::Relaxed);
            }
        }
        drop(known);
        call(&*stream.device, stream.raw)
    }

    pub(crate) fn keep<T: Any + Send + Sync>(&self, keep: Arc<T>) {
        let Known { all, new, .. } = &mut *self.contents.lock();
        if all.keep(keep.clone()) {
            new.keep.push(keep);
            self.has_new.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn keep_call(&self, call: Arc<RepeatedCall>) {
        self.contents.lock().new.calls.push(call);
        self.has_new.store(true, Ordering::Relaxed);
    }

    /// What the graph does not know of yet.
    #[inline]
    pub(crate) fn take_new(&self) -> Option<Contents> {
        if !self.has_new.load(Ordering::Relaxed) {
            return None;
        }
        self.has_new.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut self.contents.lock().new))
    }

    #[inline]
    pub(crate) fn slot(&self) -> &NodeSlot {
        &self.slot
    }
}

impl Known {
    /// Enters access number `index` of a change; `false` where the graph knows of it.
    #[inline(never)]
    fn enter(&mut self, index: usize, block: &Arc<Block>, access: LastAccess) -> bool {
        let fresh = self.all.uses.add(block, &access.range, access.mode);
        if fresh {
            self.new.uses.add(block, &access.range, access.mode);
        }
        self.last.truncate(index);
        self.last.push(access);
        fresh
    }
}

/// The node that the next call goes into.
pub(crate) struct NodeSlot {
    exec: RawGraphExec,
    node: AtomicUsize,
    stage: AtomicU8,
}

/// Nothing is to be put into a node.
const CLOSED: u8 = 0;
/// One operation may come.
const OPEN: u8 = 1;
/// It came, and may make one call.
const CLAIMED: u8 = 2;
/// The call came, and the driver has not taken it.
const USED: u8 = 3;
/// The driver has taken it.
const SET: u8 = 4;

impl NodeSlot {
    /// For nodes that `exec` was made from. It must outlive the slot's being open.
    pub(crate) fn new(exec: RawGraphExec) -> Self {
        Self { exec, node: AtomicUsize::new(0), stage: AtomicU8::new(CLOSED) }
    }

    #[inline]
    pub(crate) fn open(&self, node: RawGraphNode) {
        self.node.store(node.0, Ordering::Relaxed);
        self.stage.store(OPEN, Ordering::Relaxed);
    }

    /// Lets one operation in. One thread at a time asks.
    #[inline]
    fn claim(&self) -> bool {
        let open = self.stage.load(Ordering::Relaxed) == OPEN;
        if open {
            self.stage.store(CLAIMED, Ordering::Relaxed);
        }
        open
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == SET
    }

    /// Takes no more.
    #[inline]
    pub(crate) fn close(&self) {
        self.stage.store(CLOSED, Ordering::Relaxed);
    }
}

impl NodeTarget for NodeSlot {
    unsafe fn take(&self, device: &dyn Device, work: &GraphNode<'_>) -> Result<()> {
        // Only the operation that was let in makes calls, so no swap is needed.
        if self.stage.load(Ordering::Relaxed) != CLAIMED {
            return Err(several_calls());
        }
        self.stage.store(USED, Ordering::Relaxed);
        let node = RawGraphNode(self.node.load(Ordering::Relaxed));
        // SAFETY: while the slot is open the executable is alive, and `node` is one that it was made from; the
        // rest is the caller's word.
        unsafe { device.graph_set_node(self.exec, node, work) }?;
        self.stage.store(SET, Ordering::Relaxed);
        Ok(())
    }
}
