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

/// What a worker and its fibers tell each other. One per worker, at a fixed place.
pub(crate) struct Exchange {
    /// What the fiber that is started next is to run.
    pub(crate) stretch: Option<Stretch>,
    /// How the fiber that runs gives up its turn; set by whoever lets it run.
    switch: *const Switch,
}

impl Exchange {
    pub(crate) const fn new() -> Self {
        Self { stretch: None, switch: std::ptr::null() }
    }
}

type Switch = Yielder<(), Stop>;
type Routine = Coroutine<(), Stop, Stop, FiberStack>;

/// A stack with a kernel on it. One cache line: a barrier touches every fiber of the block.
#[repr(align(64))]
pub(crate) struct Fiber {
    routine: Routine,
    /// How this fiber gives up its turn, once it has run; points into its stack, where it stays.
    switch: *const Switch,
}

impl Fiber {
    /// `index` tells the fibers of one worker apart; `exchange` outlives the fiber.
    pub(crate) fn new(index: usize, exchange: *mut Exchange) -> io::Result<Self> {
        let body = move |switch: &Switch, ()| -> Stop {
            loop {
                // SAFETY: the exchange is alive, and whoever starts a stretch vouches for its entry and context. No
                // reference to it is alive on either side while this runs.
                unsafe {
                    (*exchange).switch = switch;
                    let Some(s) = (*exchange).stretch else { return Stop::Crashed };
                    (s.entry)(s.context, s.first, s.end, s.first_thread);
                }
                switch.suspend(Stop::Finished);
            }
        };
        let routine = Coroutine::with_stack(FiberStack::new(index)?, body);
        Ok(Self { routine, switch: std::ptr::null() })
    }

    /// Starts the stretch in the exchange; the fiber's last one is done.
    ///
    /// # Safety
    /// `exchange` is the fiber's; the stretch's entry is a loaded kernel's, and its context fits it and stays valid
    /// until the stretch is done.
    pub(crate) unsafe fn start(&mut self, exchange: *mut Exchange) -> Stop {
        let stop = self.go_on();
        // SAFETY: set by the fiber when it began.
        self.switch = unsafe { (*exchange).switch };
        stop
    }

    /// Goes on where the fiber waited.
    ///
    /// # Safety
    /// `exchange` is the fiber's, and the fiber waits.
    #[inline]
    pub(crate) unsafe fn resume(&mut self, exchange: *mut Exchange) -> Stop {
        // SAFETY: the exchange is alive.
        unsafe { (*exchange).switch = self.switch };
        self.go_on()
    }

    #[inline]
    fn go_on(&mut self) -> Stop {
        match self.routine.resume(()) {
            CoroutineResult::Yield(stop) | CoroutineResult::Return(stop) => stop,
        }
    }

    /// Gives the worker its turn; returns when it lets this fiber go on.
    ///
    /// # Safety
    /// Called on the stack of the fiber that runs.
    #[inline]
    pub(crate) unsafe fn wait(exchange: *mut Exchange) {
        // SAFETY: set by whoever let this fiber run; it lives on the stack that is running.
        unsafe { &*(*exchange).switch }.suspend(Stop::Waiting);
    }

    /// For the signal handler: makes a crashed kernel return to its worker.
    pub(crate) fn trap_handler(&self) -> CoroutineTrapHandler<Stop> {
        self.routine.trap_handler()
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        // SAFETY: the frames on the stack are the closure above, which owns nothing, and the kernel's, which are
        // never unwound: a kernel's locals have no destructors anybody may rely on.
        unsafe { self.routine.force_reset() };
    }
}

/// The system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: a query without side effects.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if size > 0 { size as usize } else { 4096 }
}
