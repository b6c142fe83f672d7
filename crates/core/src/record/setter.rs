//! Changing an executable: you put other work into one of its nodes.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gpustream_hal::{self as hal, LaunchConfig, RawFunction, RawGraphExec, RawGraphNode, Result, Work};

use super::attributes::Attributed;
use super::contents::{Contents, Keep};
use super::order::NodeOrder;
use crate::host_call::RepeatedCall;
use crate::launch::LaunchRequest;
use crate::memory::Access;
use crate::operation::{Argument, DriverCalls, KernelLaunch, Operation, Retained, not_a_node};
use crate::sync::{Mutex, lock, this_thread};

/// An expected launch has at most this many arguments.
const ARGUMENTS: usize = 16;

/// The executable's nodes that call a closure, each with its call.
pub type NodeCalls = Vec<(RawGraphNode, Arc<RepeatedCall>)>;

/// Receives the one operation that goes into a node of an executable.
///
/// We make a setter once per graph and use it for every change. It remembers what was put into the graph before, because a
/// change usually refers to the memory that the node had, and to the kernel that was set last. Then we can skip the checks
/// and just call the driver. Only the thread that makes the change may submit, so submitting takes no lock.
pub struct NodeSetter {
    device: Arc<dyn hal::Device>,
    /// Alive while the setter is open.
    exec: RawGraphExec,
    attributed: Attributed,
    calls: NodeCalls,
    /// The number of the thread that opened the setter, or [`NOBODY`] while it is closed.
    thread: AtomicUsize,
    /// Only the thread that opened the setter uses this. While the setter is closed, it is only read.
    change: UnsafeCell<Change>,
    known: Mutex<KnownNode>,
    /// True if `KnownNode::new` holds anything.
    has_new: AtomicBool,
    /// True if nodes touch other memory than when we last checked their order.
    is_unchecked: AtomicBool,
}

/// A number that no thread has.
const NOBODY: usize = 0;

/// The change that is being made, and what we know of the last one.
struct Change {
    /// The node that the next operation goes into.
    node: RawGraphNode,
    /// The node's index.
    index: usize,
    stage: ChangeStage,
    order: NodeOrder,
    expected: Option<Expected>,
    /// The address of the last change's module. We keep the module alive, so nothing else has that address.
    last_module: Option<usize>,
}

/// How far a change has come.
#[derive(Clone, Copy, PartialEq)]
enum ChangeStage {
    /// One operation may come.
    Open,
    /// The operation came, but the driver has not taken it yet.
    Taken,
    /// The driver has taken the operation.
    Set,
}

#[derive(Default)]
struct KnownNode {
    /// The contents of everything that was put into nodes.
    all: Contents,
    /// The part of `all` that the graph does not know of yet.
    new: Contents,
}

/// The last launch that was put into a node. If the same kernel comes for a node that has the same memory already, we need
/// not check it again.
struct Expected {
    function: RawFunction,
    request: LaunchRequest,
    /// The shape of the request.
    config: LaunchConfig,
    /// The sizes of the parameters in bytes.
    sizes: Arc<[usize]>,
}

// SAFETY: only the thread that opened the setter uses `change`, which `own` checks, and there is one such thread after the
// other. While the setter is closed, `change` is only read, by `check_order`. Everything else is atomic or locked.
unsafe impl Sync for NodeSetter {}

impl NodeSetter {
    /// Creates a setter for the nodes that `exec` was made from. While the setter is open, `exec` must be alive.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(
        device: Arc<dyn hal::Device>,
        exec: RawGraphExec,
        attributed: Attributed,
        calls: NodeCalls,
        order: NodeOrder,
    ) -> Self {
        let change = Change {
            node: RawGraphNode(0),
            index: 0,
            stage: ChangeStage::Set,
            order,
            expected: None,
            last_module: None,
        };
        let (change, thread) = (UnsafeCell::new(change), AtomicUsize::new(NOBODY));
        let (known, has_new, is_unchecked) = Default::default();
        Self { device, exec, attributed, calls, thread, change, known, has_new, is_unchecked }
    }

    /// Lets one operation of this thread in. It goes into `node`, which has that `index`.
    ///
    /// # Safety
    /// The setter is closed, and no one else calls [`check_order`](Self::check_order) until it is closed again.
    #[inline]
    pub unsafe fn open(&self, node: RawGraphNode, index: usize) {
        // SAFETY: no thread uses a closed setter, and from here on other threads are refused.
        let change = unsafe { &mut *self.change.get() };
        (change.node, change.index, change.stage) = (node, index, ChangeStage::Open);
        self.thread.store(this_thread().get(), Ordering::Relaxed);
    }

    /// Returns true if the driver has taken this thread's operation.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.own().is_some_and(|change| change.stage == ChangeStage::Set)
    }

    /// Closes the setter, so that it lets no operation in.
    #[inline]
    pub fn close(&self) {
        self.thread.store(NOBODY, Ordering::Relaxed);
    }

    /// If nodes have changed, checks that the graph orders the nodes that now conflict.
    ///
    /// # Errors
    /// [`ErrorKind::Hazard`](gpustream_hal::ErrorKind::Hazard) if it does not. The error names two such nodes.
    ///
    /// # Safety
    /// The setter is closed, and no thread opens it meanwhile.
    #[inline]
    pub unsafe fn check_order(&self) -> Result<()> {
        if !self.is_unchecked.load(Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: no thread changes it, by this function's contract.
        unsafe { &*self.change.get() }.order.check()?;
        self.is_unchecked.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the change, but only to the thread that makes it.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the check of the thread takes the place of a lock")]
    fn own(&self) -> Option<&mut Change> {
        if self.thread.load(Ordering::Relaxed) != this_thread().get() {
            return None;
        }
        // SAFETY: this thread opened the setter, and other threads are refused until it is closed. While a function of this
        // type holds the change, it calls no other function that asks for it.
        Some(unsafe { &mut *self.change.get() })
    }

    /// Puts a launch into the node if it is the last launch again, perhaps with other scalars: the same kernel with the
    /// same shape, on the memory that the node has. Returns `None` for any other launch; then you must check it and
    /// [submit](Self::submit) it.
    ///
    /// # Safety
    /// As for [`StreamEntry::follow`](crate::stream::StreamEntry::follow).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub(crate) unsafe fn follow<'a, A>(
        &self,
        launch: &KernelLaunch<'a, A>,
        shown: impl Fn(&'a A) -> Option<Argument<'a>>,
    ) -> Option<Result<()>> {
        let Change { node, index, stage, order, expected, .. } = self.own()?;
        let expected = expected.as_ref().filter(|_| *stage == ChangeStage::Open)?;
        if expected.function != launch.function
            || expected.sizes.len() != launch.args.len()
            || expected.request != *launch.request
        {
            return None;
        }
        let mut room = [const { MaybeUninit::<*mut c_void>::uninit() }; ARGUMENTS];
        let mut own = order.accesses(*index).iter();
        for ((arg, &wanted), to) in launch.args.iter().zip(&*expected.sizes).zip(&mut room) {
            let value = match shown(arg)? {
                Argument::Value { bytes, size } if size == wanted => bytes,
                Argument::Memory { address, access }
                    if wanted == size_of::<usize>() && own.next()?.is(access) =>
                {
                    std::ptr::from_ref(address).cast()
                }
                _ => return None,
            };
            to.write(value.cast_mut().cast());
        }
        if own.next().is_some() {
            return None;
        }
        order.came_from(*index, launch.caller.call_site);
        *stage = ChangeStage::Taken;
        // SAFETY: one pointer for each argument has been written, and an expected launch has no more than there is room
        // for.
        let args = unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), launch.args.len()) };
        let work = Work::Kernel { function: launch.function, config: &expected.config, args };
        let set = self.attributed.check(*node, &work).and_then(|()| {
            // SAFETY: while the setter is open the executable is alive, and `node` is one of the nodes it was made
            // from, whose memory the graph has; the module was entered with the last launch; the rest is this function's
            // contract.
            unsafe { self.device.graph_set_node(self.exec, *node, &work) }
        });
        match set {
            Ok(()) => {
                *stage = ChangeStage::Set;
                Some(Ok(()))
            }
            Err(error) => Some(Err(error.with_call_site(launch.caller.call_site))),
        }
    }

    /// Puts an operation into the node. We enter the memory that it touches even if the driver refuses it. In that case we
    /// assume that the node may do the old work or the new one.
    ///
    /// # Safety
    /// As for [`StreamEntry::submit`](crate::stream::StreamEntry::submit).
    pub(crate) unsafe fn submit(&self, submission: &Operation<'_>) -> Result<()> {
        let Some(Change { node, index, stage, order, expected, last_module }) = self.own() else {
            return Err(not_a_node(
                "set it from another thread than the one that called `Graph::set_node`; submit the operation from that \
                 thread",
            ));
        };
        if *stage != ChangeStage::Open {
            return Err(not_a_node("put several operations into one node; add a node for each"));
        }
        *stage = ChangeStage::Taken;
        let &Operation { caller, accesses, ref call, kept, .. } = submission;
        let work = call.node()?;
        *expected = None;
        let (node, index) = (*node, *index);
        self.attributed.check(node, work)?;
        if !self.is_unchecked.load(Ordering::Relaxed) {
            order.forget_changes();
        }
        if order.add(index, caller.call_site, accesses) {
            self.is_unchecked.store(true, Ordering::Relaxed);
            for access in accesses {
                self.enter(access);
            }
        }
        match kept {
            Retained::Nothing => {}
            Retained::Kernel { module, .. } => {
                let address = Some(Arc::as_ptr(module).addr());
                if *last_module != address {
                    self.keep(module.clone());
                    *last_module = address;
                }
            }
            Retained::Closure(new) => {
                if let Some((_, call)) = self.calls.iter().find(|(other, _)| *other == node) {
                    // We don't call the driver here, because then pending runs might call the new closure.
                    call.replace(new)?;
                    order.keep_last(index, accesses.len());
                    *stage = ChangeStage::Set;
                    return Ok(());
                }
            }
        }
        // SAFETY: while the setter is open the executable is alive, and `node` is one of the nodes it was made from;
        // everything that the work refers to was entered, and the rest is this function's contract. A closure is put
        // into no other node: all nodes that call closures are in `calls`, and drivers refuse to change a node's kind
        // of work.
        unsafe { self.device.graph_set_node(self.exec, node, work) }?;
        order.keep_last(index, accesses.len());
        *stage = ChangeStage::Set;
        *expected = Expected::of(submission);
        Ok(())
    }

    #[inline(never)]
    fn enter(&self, Access { block, range, mode }: &Access<'_>) {
        let KnownNode { all, new } = &mut *lock(&self.known);
        if all.uses.add(block, range, *mode) {
            new.uses.add(block, range, *mode);
            self.has_new.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    fn keep(&self, keep: Keep) {
        let KnownNode { all, new } = &mut *lock(&self.known);
        if all.keep(keep.clone()) {
            new.keep.push(keep);
            self.has_new.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the contents that the graph does not know of yet.
    #[inline]
    pub fn take_new(&self) -> Option<Contents> {
        if !self.has_new.load(Ordering::Relaxed) {
            return None;
        }
        self.has_new.store(false, Ordering::Relaxed);
        Some(std::mem::take(&mut lock(&self.known).new))
    }
}

impl Expected {
    /// Returns what to expect after this launch, if there is room for its arguments.
    fn of(submission: &Operation<'_>) -> Option<Self> {
        let &Operation { ref call, kept, .. } = submission;
        let Retained::Kernel { sizes: Some(sizes), request, .. } = kept else { return None };
        let DriverCalls::Work(Work::Kernel { function, config, .. }) = call else { return None };
        (sizes.len() <= ARGUMENTS).then(|| Self {
            function: *function,
            request: *request,
            config: **config,
            sizes: sizes.clone(),
        })
    }
}
