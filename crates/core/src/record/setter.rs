//! Changes to an executable: other work is put into one of its nodes.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use gpustream_hal::{self as hal, LaunchConfig, RawFunction, RawGraphExec, RawGraphNode, Result, Work};

use super::attributes::Attributed;
use super::contents::{Contents, Keep};
use crate::host_call::RepeatedCall;
use crate::launch::LaunchRequest;
use crate::memory::Access;
use crate::operation::{Argument, Call, Kept, Launched, Submission, refused};
use crate::sync::{Mutex, lock, this_thread};

/// Accesses of the last change that are remembered.
const REMEMBERED: usize = 8;

/// The most arguments of a launch that is expected.
const ARGUMENTS: usize = 16;

/// The executable's nodes that call a closure, each with its call.
pub type NodeCalls = Vec<(RawGraphNode, Arc<RepeatedCall>)>;

/// The receiver of the one operation that is to go into a node of an executable.
///
/// A setter is made once per graph and used for every change, and remembers what was put into the graph before. A
/// change usually refers to the same memory and kernels again, and then there is nothing to do but to call the driver.
/// Only the thread that makes the change may submit, so submitting takes no lock.
pub struct NodeSetter {
    device: Arc<dyn hal::Device>,
    /// Alive while the setter is open.
    exec: RawGraphExec,
    attributed: Attributed,
    calls: NodeCalls,
    /// The node that the next operation goes into.
    node: AtomicUsize,
    stage: AtomicU8,
    /// The thread that opened the setter; 0 while it is closed.
    thread: AtomicUsize,
    /// The accesses of the last change, all of which are in `known`.
    last: [LastAccess; REMEMBERED],
    /// Used by the thread that opened the setter alone.
    expected: UnsafeCell<Option<Expected>>,
    /// The address of the last change's module. The module is kept alive, so nothing else has that address.
    last_module: AtomicUsize,
    known: Mutex<Known>,
    /// Whether `Known::new` holds anything.
    has_new: AtomicBool,
}

/// No operation may come.
const CLOSED: u8 = 0;
/// One operation may come.
const OPEN: u8 = 1;
/// The operation came, and the driver has not taken it.
const TAKEN: u8 = 2;
/// The driver has taken the operation.
const SET: u8 = 3;

#[derive(Default)]
struct Known {
    /// The contents of everything that was put into nodes.
    all: Contents,
    /// The part of `all` that the graph does not know of yet.
    new: Contents,
}

/// The last launch that was put into a node. The same kernel on the same memory needs no checks.
struct Expected {
    function: RawFunction,
    request: LaunchRequest,
    /// The shape of the request.
    config: LaunchConfig,
    /// The sizes of the parameters in bytes.
    sizes: Arc<[usize]>,
    /// The number of accesses, all of which are remembered.
    accesses: usize,
}

/// One access of the last change. Used by one thread at a time.
#[derive(Default)]
struct LastAccess {
    /// The address of the block. The block is kept alive, so nothing else has that address.
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

// SAFETY: `expected` is used by the thread that opened the setter alone, which `follow` and `claim` check, and by one such
// thread after the other. All else is atomic or locked.
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
    ) -> Self {
        let (node, stage, thread, last, expected, last_module, known, has_new) = Default::default();
        Self {
            device,
            exec,
            attributed,
            calls,
            node,
            stage,
            thread,
            last,
            expected,
            last_module,
            known,
            has_new,
        }
    }

    /// Lets one operation in, which goes into `node`.
    #[inline]
    pub fn open(&self, node: RawGraphNode) {
        self.node.store(node.0, Ordering::Relaxed);
        self.thread.store(this_thread(), Ordering::Relaxed);
        self.stage.store(OPEN, Ordering::Relaxed);
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == SET
    }

    /// Lets no operation in any more.
    #[inline]
    pub fn close(&self) {
        self.stage.store(CLOSED, Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn claim(&self) -> Result<()> {
        if self.thread.load(Ordering::Relaxed) != this_thread() {
            return Err(refused("set a node from another thread than the one that called `Graph::set_node`"));
        }
        // Only this thread gets here, so no swap is needed.
        if self.stage.load(Ordering::Relaxed) != OPEN {
            return Err(refused("put several operations into one node; add a node for each"));
        }
        self.stage.store(TAKEN, Ordering::Relaxed);
        Ok(())
    }

    /// Puts a launch into the node if it is the last one again, perhaps with other scalars: the same kernel in the same shape on
    /// the same memory. Returns `None` for any other, which is to be checked and [submitted](Self::submit).
    ///
    /// # Safety
    /// As for [`StreamCore::follow`](crate::queue::StreamCore::follow).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub(crate) unsafe fn follow<'a, A>(
        &self,
        launch: &Launched<'a, A>,
        shown: impl Fn(&'a A) -> Option<Argument<'a>>,
    ) -> Option<Result<()>> {
        let is_open = self.thread.load(Ordering::Relaxed) == this_thread()
            && self.stage.load(Ordering::Relaxed) == OPEN;
        if !is_open {
            return None;
        }
        // SAFETY: this thread opened the setter.
        let expected = unsafe { &*self.expected.get() }.as_ref()?;
        if expected.function != launch.function
            || expected.sizes.len() != launch.args.len()
            || expected.request != *launch.request
        {
            return None;
        }
        let mut room = [const { MaybeUninit::<*mut c_void>::uninit() }; ARGUMENTS];
        let mut last = self.last[..expected.accesses].iter();
        for ((arg, &wanted), to) in launch.args.iter().zip(&*expected.sizes).zip(&mut room) {
            let value = match shown(arg)? {
                Argument::Value { bytes, size } if size == wanted => bytes,
                Argument::Memory { address, access }
                    if wanted == size_of::<usize>() && last.next()?.is(access) =>
                {
                    std::ptr::from_ref(address).cast()
                }
                _ => return None,
            };
            to.write(value.cast_mut().cast());
        }
        if last.next().is_some() {
            return None;
        }
        self.stage.store(TAKEN, Ordering::Relaxed);
        // SAFETY: one for each argument has been written; an expected launch has no more than there is room for.
        let args = unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), launch.args.len()) };
        let work = Work::Kernel { function: launch.function, config: &expected.config, args };
        let node = RawGraphNode(self.node.load(Ordering::Relaxed));
        let set = self.attributed.check(node, &work).and_then(|()| {
            // SAFETY: while the setter is open the executable is alive, and `node` is one of the nodes it was made
            // from; the memory and the module were entered with the last launch; the rest is this function's contract.
            unsafe { self.device.graph_set_node(self.exec, node, &work) }
        });
        match set {
            Ok(()) => {
                self.stage.store(SET, Ordering::Relaxed);
                Some(Ok(()))
            }
            Err(error) => Some(Err(error.with_operation(*launch.operation))),
        }
    }

    /// Puts an operation into the node. The memory that the operation touches is entered whatever the driver answers.
    ///
    /// # Safety
    /// As for [`StreamCore::submit`](crate::queue::StreamCore::submit).
    pub(crate) unsafe fn submit(&self, submission: &Submission<'_>) -> Result<()> {
        self.claim()?;
        let &Submission { accesses, ref call, kept, .. } = submission;
        let work = call.node()?;
        // SAFETY: this thread claimed the setter, and so opened it.
        unsafe { *self.expected.get() = None };
        for (index, access) in accesses.iter().enumerate() {
            let last = self.last.get(index);
            if !last.is_some_and(|last| last.is(access)) {
                self.enter(access, last);
            }
        }
        let node = RawGraphNode(self.node.load(Ordering::Relaxed));
        self.attributed.check(node, work)?;
        match kept {
            Kept::Nothing => {}
            Kept::Kernel { module, .. } => {
                if self.last_module.load(Ordering::Relaxed) != Arc::as_ptr(module).addr() {
                    self.keep(module.clone());
                    self.last_module.store(Arc::as_ptr(module).addr(), Ordering::Relaxed);
                }
            }
            Kept::Closure(new) => {
                if let Some((_, call)) = self.calls.iter().find(|(other, _)| *other == node) {
                    // No call to the driver, which might have pending runs call the new closure.
                    call.replace(new);
                    self.stage.store(SET, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        // SAFETY: while the setter is open the executable is alive, and `node` is one of the nodes it was made from;
        // everything that the work refers to was entered, and the rest is this function's contract. A closure is put
        // into no other node: all nodes that call closures are in `calls`, and drivers refuse to change a node's kind
        // of work.
        unsafe { self.device.graph_set_node(self.exec, node, work) }?;
        self.stage.store(SET, Ordering::Relaxed);
        // SAFETY: this thread claimed the setter, and so opened it.
        unsafe { *self.expected.get() = expected(submission) };
        Ok(())
    }

    #[inline(never)]
    fn enter(&self, access: &Access<'_>, last: Option<&LastAccess>) {
        let Access { block, range, mode } = access;
        let Known { all, new } = &mut *lock(&self.known);
        if all.uses.add(block, range, *mode) {
            new.uses.add(block, range, *mode);
            self.has_new.store(true, Ordering::Relaxed);
        }
        if let Some(last) = last {
            last.set(access);
        }
    }

    #[cold]
    fn keep(&self, keep: Keep) {
        let Known { all, new } = &mut *lock(&self.known);
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

/// Returns the launch, if there is room to remember all that it touches.
fn expected(submission: &Submission<'_>) -> Option<Expected> {
    let &Submission { accesses, ref call, kept, .. } = submission;
    let Kept::Kernel { sizes: Some(sizes), request, .. } = kept else { return None };
    let Call::Work(Work::Kernel { function, config, .. }) = call else { return None };
    (accesses.len() <= REMEMBERED && sizes.len() <= ARGUMENTS).then(|| Expected {
        function: *function,
        request: *request,
        config: **config,
        sizes: sizes.clone(),
        accesses: accesses.len(),
    })
}
