//! Putting other work into single nodes of an executable.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use gpustream_hal::{self as hal, Device, GraphNode, RawGraphExec, RawGraphNode, RawStream, Result};

use crate::capture::refused;
use crate::graph_contents::Contents;
use crate::host_call::RepeatedCall;
use crate::node_recorder::{Attributed, NodeTarget, several_calls};
use crate::stream_core::{Access, StreamCore};
use crate::sync::{Mutex, lock};

/// Accesses of the last change that are remembered.
const REMEMBERED: usize = 8;

/// Takes the one operation that is to go into a node.
///
/// Made once per graph and used for every change, and it remembers what was put into the graph before: a change
/// usually refers to the same memory and kernels again, and then there is nothing to do but to call the driver.
/// Only the thread that makes the change may submit, so that takes no lock.
pub(crate) struct NodeSetter {
    slot: Arc<NodeSlot>,
    /// What the last change touched, all of it known.
    last: [LastAccess; REMEMBERED],
    known: Mutex<Known>,
    /// Whether there is something in `Known::new`.
    has_new: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// All that was put into nodes.
    all: Contents,
    /// What of it the graph does not know of yet.
    new: Contents,
    /// The closure on its way into a node; then the node's own call has it.
    call: Option<Arc<RepeatedCall>>,
}

/// Used by one thread at a time.
#[derive(Default)]
struct LastAccess {
    /// Where the block lies. It is kept alive, so nothing else lies there.
    block: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    mode: AtomicU8,
}

impl LastAccess {
    #[inline]
    fn is(&self, Access { block, range, mode }: &Access<'_>) -> bool {
        self.block.load(Ordering::Relaxed) == Arc::as_ptr(block).addr()
            && self.start.load(Ordering::Relaxed) == range.start
            && self.end.load(Ordering::Relaxed) == range.end
            && self.mode.load(Ordering::Relaxed) == *mode as u8
    }

    fn set(&self, Access { block, range, mode }: &Access<'_>) {
        self.block.store(Arc::as_ptr(block).addr(), Ordering::Relaxed);
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        self.mode.store(*mode as u8, Ordering::Relaxed);
    }
}

impl NodeSetter {
    pub(crate) fn new(slot: Arc<NodeSlot>) -> Self {
        let (last, known, has_new) = Default::default();
        Self { slot, last, known, has_new }
    }

    /// Calls the driver through the slot. What the operation touches is entered whatever the driver answers.
    #[inline]
    pub(crate) fn submit<'a>(
        &self,
        stream: &StreamCore,
        accesses: impl Iterator<Item = &'a Access<'a>>,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<()> {
        self.slot.claim()?;
        for (index, access) in accesses.enumerate() {
            let last = self.last.get(index);
            if !last.is_some_and(|last| last.is(access)) {
                self.enter(access, last);
            }
        }
        call(&*stream.device, stream.raw)
    }

    #[inline(never)]
    fn enter(&self, access: &Access<'_>, last: Option<&LastAccess>) {
        let Access { block, range, mode } = access;
        let Known { all, new, .. } = &mut *lock(&self.known);
        if all.uses.add(block, range, *mode) {
            new.uses.add(block, range, *mode);
            self.has_new.store(true, Ordering::Relaxed);
        }
        if let Some(last) = last {
            last.set(access);
        }
    }

    pub(crate) fn keep<T: Any + Send + Sync>(&self, keep: Arc<T>) {
        let Known { all, new, .. } = &mut *lock(&self.known);
        if all.keep(keep.clone()) {
            new.keep.push(keep);
            self.has_new.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn keep_call(&self, call: Arc<RepeatedCall>) {
        let before = lock(&self.known).call.replace(call);
        // With no lock held: closures own the user's values.
        drop(before);
    }

    pub(crate) fn let_go_of_call(&self) {
        let call = lock(&self.known).call.take();
        drop(call);
    }

    /// What the graph does not know of yet.
    #[inline]
    pub(crate) fn take_new(&self) -> Option<Contents> {
        if !self.has_new.load(Ordering::Relaxed) {
            return None;
        }
        self.has_new.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut lock(&self.known).new))
    }

    #[inline]
    pub(crate) fn slot(&self) -> &NodeSlot {
        &self.slot
    }
}

/// The executable's nodes that call a closure, and what they call.
pub(crate) type NodeCalls = Vec<(RawGraphNode, Arc<RepeatedCall>)>;

/// The node that the next call goes into.
pub(crate) struct NodeSlot {
    exec: RawGraphExec,
    attributed: Attributed,
    calls: NodeCalls,
    node: AtomicUsize,
    stage: AtomicU8,
    /// Who opened it.
    thread: AtomicUsize,
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
    pub(crate) fn new(exec: RawGraphExec, attributed: Attributed, calls: NodeCalls) -> Self {
        let (node, stage, thread) = Default::default();
        Self { exec, attributed, calls, node, stage, thread }
    }

    #[inline]
    pub(crate) fn open(&self, node: RawGraphNode) {
        self.node.store(node.0, Ordering::Relaxed);
        self.thread.store(this_thread(), Ordering::Relaxed);
        self.stage.store(OPEN, Ordering::Relaxed);
    }

    /// Lets one operation in.
    #[inline]
    fn claim(&self) -> Result<()> {
        if self.thread.load(Ordering::Relaxed) != this_thread() {
            return Err(refused("set a node from another thread than the one that called `Graph::set`"));
        }
        if self.stage.load(Ordering::Relaxed) != OPEN {
            return Err(refused("put several operations into one node; add a node for each"));
        }
        self.stage.store(CLAIMED, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == SET
    }

    /// Takes no more.
    #[inline]
    pub(crate) fn close(&self) {
        self.stage.store(CLOSED, Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
    }
}

/// A number that no other living thread has, and not zero: where something of the thread's own lies.
#[inline]
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl NodeTarget for NodeSlot {
    unsafe fn take(&self, device: &dyn Device, work: &GraphNode<'_>) -> Result<()> {
        // Only the operation that was let in makes calls, so no swap is needed.
        if self.stage.load(Ordering::Relaxed) != CLAIMED {
            return Err(several_calls());
        }
        self.stage.store(USED, Ordering::Relaxed);
        let node = RawGraphNode(self.node.load(Ordering::Relaxed));
        self.attributed.check(node, work)?;
        if let GraphNode::Host { data, .. } = *work
            && let Some((_, call)) = self.calls.iter().find(|(other, _)| *other == node)
        {
            // Not by the driver, which may have runs that are pending call it.
            // SAFETY: a node's closures come from `Stream::host_fn_repeat` alone, which passes a call that the setter
            // keeps meanwhile.
            call.replace(unsafe { &*data.cast_const().cast::<RepeatedCall>() });
            self.stage.store(SET, Ordering::Relaxed);
            return Ok(());
        }
        // SAFETY: while the slot is open the executable is alive, and `node` is one that it was made from; the
        // rest is the caller's word.
        unsafe { device.graph_set_node(self.exec, node, work) }?;
        self.stage.store(SET, Ordering::Relaxed);
        Ok(())
    }
}
