//! Putting other work into single nodes of an executable.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gpustream_hal::{self as hal, Device, GraphNode, RawGraphExec, RawGraphNode, RawStream, Result};

use crate::capture::refused;
use crate::graph_contents::Contents;
use crate::host_call::RepeatedCall;
use crate::node_recorder::{NodeTarget, several_calls};
use crate::stream_core::{Access, StreamCore};
use crate::sync::lock;

/// Takes the one operation that is to go into a node.
///
/// Made once per graph and used for every change, and it remembers what was put into the graph before: a change
/// usually refers to the same memory and kernels again, and then there is nothing to do but to call the driver.
pub(crate) struct NodeSetter {
    slot: Arc<NodeSlot>,
    contents: Mutex<Known>,
    /// Whether there is something in `Known::new`.
    has_new: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// All that was put into nodes.
    all: Contents,
    /// What of it the graph does not know of yet.
    new: Contents,
}

impl NodeSetter {
    pub(crate) fn new(slot: Arc<NodeSlot>) -> Self {
        Self { slot, contents: Mutex::default(), has_new: AtomicBool::new(false) }
    }

    /// Calls the driver through the slot. What the operation touches is entered whatever the driver answers.
    pub(crate) fn submit<'a>(
        &self,
        stream: &StreamCore,
        accesses: impl Iterator<Item = &'a Access<'a>>,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<()> {
        let Known { all, new } = &mut *lock(&self.contents);
        if !self.slot.is_open() {
            return Err(refused("put several operations into one node; add a node for each"));
        }
        for Access { block, range, mode } in accesses {
            if all.uses.add(block, range, *mode) {
                new.uses.add(block, range, *mode);
                self.has_new.store(true, Ordering::Relaxed);
            }
        }
        call(&*stream.device, stream.raw)
    }

    pub(crate) fn keep<T: Any + Send + Sync>(&self, keep: Arc<T>) {
        let Known { all, new } = &mut *lock(&self.contents);
        if all.keep(keep.clone()) {
            new.keep.push(keep);
            self.has_new.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn keep_call(&self, call: Arc<RepeatedCall>) {
        lock(&self.contents).new.calls.push(call);
        self.has_new.store(true, Ordering::Relaxed);
    }

    /// What the graph does not know of yet.
    pub(crate) fn take_new(&self) -> Option<Contents> {
        if !self.has_new.load(Ordering::Relaxed) {
            return None;
        }
        self.has_new.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut lock(&self.contents).new))
    }

    pub(crate) fn slot(&self) -> &NodeSlot {
        &self.slot
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
/// One call may come.
const OPEN: u8 = 1;
/// It came, and the driver has not taken it.
const USED: u8 = 2;
/// The driver has taken it.
const SET: u8 = 3;

impl NodeSlot {
    /// For nodes that `exec` was made from. It must outlive the slot's being open.
    pub(crate) fn new(exec: RawGraphExec) -> Self {
        Self { exec, node: AtomicUsize::new(0), stage: AtomicU8::new(CLOSED) }
    }

    pub(crate) fn open(&self, node: RawGraphNode) {
        self.node.store(node.0, Ordering::Relaxed);
        self.stage.store(OPEN, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == OPEN
    }

    pub(crate) fn is_set(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == SET
    }

    /// Takes no more.
    pub(crate) fn close(&self) {
        self.stage.store(CLOSED, Ordering::Relaxed);
    }
}

impl NodeTarget for NodeSlot {
    unsafe fn take(&self, device: &dyn Device, work: &GraphNode<'_>) -> Result<()> {
        // Calls come one at a time, from `NodeSetter::submit`; no swap is needed.
        if !self.is_open() {
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
