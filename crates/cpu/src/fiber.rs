//! Fibers: the stacks on which the threads of a block wait for each other.
//!
//! A [`Fiber`] runs stretches of a kernel, one after another, and is given up to its worker whenever the
//! kernel waits. It never leaves the OS thread that made it, because a kernel's shared memory is that thread's.

use std::io;
use std::num::NonZeroUsize;

use corosensei::stack::{Stack, StackPointer};
use corosensei::trap::CoroutineTrapHandler;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::abi::{Context, Entry};

/// Bytes of one fiber's stack. Pages that are never touched cost nothing.
const STACK_BYTES: usize = 256 << 10;

/// Distance between the tops of neighbouring stacks beyond their size. Without it the hot part of every stack falls
/// into the same cache sets, which makes a switch four times slower.
const STAGGER: usize = 320;

/// A mapped stack with a guard page below it.
struct FiberStack {
    map: *mut u8,
    len: usize,
    top: usize,
}

impl FiberStack {
    /// `index` tells neighbouring stacks apart.
    fn new(index: usize) -> io::Result<Self> {
        let page = page_size();
        let len = STACK_BYTES + page;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no other memory.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = map.cast::<u8>();
        // Half of the stack at most goes to the stagger; 320 is a multiple of the 64 bytes of a cache line.
        let top = map as usize + len - index * STAGGER % (STACK_BYTES / 2);
        let stack = Self { map, len, top };
        // SAFETY: the page is the first of the mapping made above.
        if unsafe { libc::mprotect(map.cast(), page, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }
}

impl Drop for FiberStack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this stack's own and no coroutine uses it any more.
        unsafe { libc::munmap(self.map.cast(), self.len) };
    }
}

// SAFETY: `limit..base` is mapped, far larger than the minimum, and starts with a guard page; both ends are
// multiples of 64.
unsafe impl Stack for FiberStack {
    fn base(&self) -> StackPointer {
        NonZeroUsize::new(self.top).unwrap_or(NonZeroUsize::MIN)
    }

    fn limit(&self) -> StackPointer {
        NonZeroUsize::new(self.map as usize).unwrap_or(NonZeroUsize::MIN)
    }
}

/// Why a fiber came back to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The stretch is done.
    Finished,
    /// The thread it runs waits.
    Waiting,
    /// The kernel crashed; the fiber must be thrown away.
    Crashed,
}

/// A stretch of a kernel: blocks `first..end`, from a thread of the first on.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) entry: Entry,
    pub(crate) context: *mut Context,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) first_thread: u32,
}

type Switch = Yielder<Stretch, Stop>;
type Routine = Coroutine<Stretch, Stop, Stop, FiberStack>;

/// A stack with a kernel on it.
pub(crate) struct Fiber {
    routine: Option<Routine>,
    /// Set by the routine when it starts; points into its stack, where it stays.
    switch: Box<*const Switch>,
    index: usize,
    /// What the routine is resumed with; only read when it starts a stretch.
    stretch: Option<Stretch>,
}

impl Fiber {
    /// `index` tells the fibers of one worker apart.
    pub(crate) fn new(index: usize) -> io::Result<Self> {
        let mut fiber = Self { routine: None, switch: Box::new(std::ptr::null()), index, stretch: None };
        fiber.build()?;
        Ok(fiber)
    }

    fn build(&mut self) -> io::Result<()> {
        let stack = FiberStack::new(self.index)?;
        let switch: *mut *const Switch = &raw mut *self.switch;
        let body = move |yielder: &Switch, mut stretch: Stretch| -> Stop {
            // SAFETY: the box outlives the routine, which is dropped or reset before it.
            unsafe { *switch = std::ptr::from_ref(yielder) };
            loop {
                // SAFETY: whoever starts a stretch vouches for its entry and context.
                unsafe {
                    (stretch.entry)(stretch.context, stretch.first, stretch.end, stretch.first_thread);
                }
                stretch = yielder.suspend(Stop::Finished);
            }
        };
        self.routine = Some(Coroutine::with_stack(stack, body));
        Ok(())
    }

    /// Starts a stretch; the fiber's last one is done.
    ///
    /// # Safety
    /// The entry is a loaded kernel's, and the context fits it and stays valid until the stretch is done.
    pub(crate) unsafe fn start(&mut self, stretch: Stretch) -> Stop {
        self.stretch = Some(stretch);
        self.resume()
    }

    /// Goes on where the fiber waited.
    pub(crate) fn resume(&mut self) -> Stop {
        let (Some(routine), Some(stretch)) = (self.routine.as_mut(), self.stretch) else {
            return Stop::Crashed;
        };
        match routine.resume(stretch) {
            CoroutineResult::Yield(stop) | CoroutineResult::Return(stop) => stop,
        }
    }

    /// Gives the worker its turn. Called on the fiber's own stack.
    ///
    /// # Safety
    /// The caller runs on this fiber.
    pub(crate) unsafe fn wait(switch: *const *const ()) {
        // SAFETY: by the caller's promise the routine has started, so the pointer is set, and its yielder lives
        // on the stack that is running.
        let yielder = unsafe { &*(*switch).cast::<Switch>() };
        yielder.suspend(Stop::Waiting);
    }

    /// What [`wait`](Self::wait) is called with.
    pub(crate) fn switch(&self) -> *const *const () {
        (&raw const *self.switch).cast()
    }

    /// For the signal handler: makes a crashed kernel return to its worker.
    pub(crate) fn trap_handler(&self) -> Option<CoroutineTrapHandler<Stop>> {
        self.routine.as_ref().map(Coroutine::trap_handler)
    }

    /// Throws away whatever is on the stack.
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        self.discard();
        self.build()
    }

    fn discard(&mut self) {
        if let Some(mut routine) = self.routine.take() {
            // SAFETY: the frames on the stack are the closure above, which owns nothing, and the kernel's, which are
            // never unwound: a kernel's locals have no destructors anybody may rely on.
            unsafe { routine.force_reset() };
        }
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        self.discard();
    }
}

/// The system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: a query without side effects.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if size > 0 { size as usize } else { 4096 }
}
