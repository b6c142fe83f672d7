//! Fibers: the stacks on which the threads of a block wait for each other.
//!
//! A [`Fiber`] runs stretches of a kernel, one after another. When a kernel waits, its fiber hands over to another
//! fiber or to the worker's own stack ([`crate::switch`]). Fibers never leave the OS thread that made them, because a
//! kernel's shared memory is that thread's.

use std::io;

use crate::abi::{Context, Entry, MAX_THREADS};
use crate::switch;

/// Bytes that a thread of a block has for its local variables, as on a GPU.
pub(crate) const LOCALS_BYTES: usize = 512 << 10;

/// Bytes for the frames of the functions that a kernel calls, `printf` among them.
const FRAMES_BYTES: usize = 64 << 10;

/// Distance between the tops of neighbouring stacks beyond their size. Without it the hot part of every stack falls
/// into the same cache sets, which makes a switch four times slower.
const STAGGER: usize = 320;

/// The distance after which the stagger begins anew.
const STAGGER_SPAN: usize = 128 << 10;

/// Bytes of one fiber's stack. Pages that are never touched cost nothing.
const STACK_BYTES: usize = LOCALS_BYTES + FRAMES_BYTES + STAGGER_SPAN;

/// Bytes below a stack that nothing may touch. A kernel is compiled so that it touches its stack in steps of at most 64
/// KiB as it goes down, however large a frame is; the stack pointer may then be a step further.
const GUARD_BYTES: usize = 128 << 10;

/// A mapped stack with guard pages below.
struct FiberStack {
    map: *mut u8,
    len: usize,
    top: usize,
}

impl FiberStack {
    /// Maps a stack; `index` tells neighbouring stacks apart.
    fn new(index: usize) -> io::Result<Self> {
        let len = STACK_BYTES + GUARD_BYTES;
        let map = map(len, libc::MAP_NORESERVE | libc::MAP_STACK)?;
        // 320 is a multiple of the 64 bytes of a cache line.
        let top = map as usize + len - index * STAGGER % STAGGER_SPAN;
        let stack = Self { map, len, top };
        // SAFETY: these are the first pages of the mapping made above; pages have at most 64 KiB.
        if unsafe { libc::mprotect(map.cast(), GUARD_BYTES, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }
}

impl Drop for FiberStack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this stack's own, and no fiber uses the mapping any more.
        unsafe { libc::munmap(self.map.cast(), self.len) };
    }
}

/// The reason why a fiber handed the turn back to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No fiber can go on without the worker.
    Idle,
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

/// A function that is called on a fiber whose stretch is done; returns the fiber that goes on, if not the worker.
pub(crate) type OnDone = unsafe fn(*mut Context) -> Option<usize>;

/// The state that a worker and its fibers share. One per worker, at a fixed place.
pub(crate) struct Exchange {
    on_done: OnDone,
    /// The stretch of the fiber that is started next.
    pub(crate) stretch: Option<Stretch>,
    /// The reason why the worker's stack runs again.
    stop: Stop,
    /// The stack pointer of the worker's own stack, which waits while fibers run.
    worker: usize,
    /// The fiber that runs.
    running: usize,
    /// The stack pointers of the other fibers, which wait. They lie apart from the fibers, so that a barrier touches
    /// eight bytes of each.
    waiting_at: [usize; MAX_THREADS],
}

impl Exchange {
    pub(crate) const fn new(on_done: OnDone) -> Self {
        Self { on_done, stretch: None, stop: Stop::Idle, worker: 0, running: 0, waiting_at: [0; MAX_THREADS] }
    }

    /// Returns the fiber that runs, or ran last.
    #[inline]
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Lets fiber `index` run on the worker's thread until a fiber hands the turn back to the worker.
    ///
    /// # Safety
    /// Called on the worker's own stack. The fiber is alive. Either it waits, or it has nothing to do and the exchange
    /// has a stretch whose entry and context are valid. No reference to what kernels reach through their context is
    /// alive.
    #[inline]
    pub(crate) unsafe fn run(this: *mut Self, index: usize) -> Stop {
        // SAFETY: by the caller's promise the fiber's stack pointer is that of a fiber that waits.
        unsafe {
            (*this).running = index;
            switch::switch(&raw mut (*this).worker, (*this).waiting_at[index]);
            (*this).stop
        }
    }

    /// Notes that the fiber that runs waits at `here`, and gives the turn to fiber `next`, or to the worker. Returns
    /// the stack pointer to go on with.
    #[inline]
    pub(crate) fn pass_turn(&mut self, here: usize, next: Option<usize>) -> usize {
        // The remainders are the numbers themselves, and spare a barrier the comparisons with the arrays' ends.
        self.waiting_at[self.running % MAX_THREADS] = here;
        if let Some(next) = next {
            self.running = next;
            self.waiting_at[next % MAX_THREADS]
        } else {
            self.stop = Stop::Idle;
            self.worker
        }
    }

    /// Gives the worker the turn of the fiber that runs, whose kernel goes no further.
    ///
    /// # Safety
    /// Called on the stack of the fiber that runs, with no reference to what others reach alive. The worker throws the
    /// fiber away.
    pub(crate) unsafe fn give_up(this: *mut Self, stop: Stop) -> ! {
        let mut nowhere = 0;
        loop {
            // SAFETY: the worker waits in `run`.
            unsafe {
                (*this).stop = stop;
                switch::switch(&raw mut nowhere, (*this).worker);
            }
        }
    }

    /// Has the processor fetch the memory that a fiber needs first when it runs. Any index will do.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        switch::prefetch(self.waiting_at[index % MAX_THREADS]);
    }
}

/// A stack on which kernels run.
pub(crate) struct Fiber {
    stack: FiberStack,
}

impl Fiber {
    /// Makes a fiber that has nothing to do. `index`, below [`MAX_THREADS`], tells the fibers of one worker apart.
    ///
    /// # Safety
    /// `exchange` outlives the fiber, and the fiber that had this index is gone.
    pub(crate) unsafe fn new(index: usize, exchange: *mut Exchange) -> io::Result<Self> {
        let stack = FiberStack::new(index)?;
        // SAFETY: the stack is new, mapped and large enough; the exchange is alive.
        unsafe { (*exchange).waiting_at[index] = switch::prepare(stack.top, body, exchange) };
        Ok(Self { stack })
    }

    /// Returns whether a stack pointer lies on this fiber, also just beyond its end; for the signal handler.
    pub(crate) fn contains(&self, stack_pointer: usize) -> bool {
        let start = self.stack.map as usize;
        (start..start + self.stack.len).contains(&stack_pointer)
    }

    /// Returns whether an access to `address` was one beyond the stack's end; for the signal handler.
    pub(crate) fn guards(&self, address: usize) -> bool {
        let start = self.stack.map as usize;
        (start..start + GUARD_BYTES).contains(&address)
    }

    /// Returns the function and the stack pointer with which a crashed fiber goes on, `exchange` being the argument;
    /// for the signal handler. The stack's contents are overwritten.
    pub(crate) fn crash_landing(&self) -> (usize, usize) {
        (crashed as *const () as usize, switch::call_frame(self.stack.top))
    }
}

/// Runs a stretch, on any fiber. The fiber then waits at `start` for the next.
unsafe extern "C" fn body(exchange: *mut Exchange, start: usize) -> usize {
    // SAFETY: the exchange is alive, and the caller that starts a stretch vouches for its entry and context. No
    // reference to either is alive while the kernel runs.
    unsafe {
        let mut next = None;
        if let Some(s) = (*exchange).stretch {
            (s.entry)(s.context, s.first, s.end, s.first_thread);
            next = ((*exchange).on_done)(s.context);
        }
        (*exchange).pass_turn(start, next)
    }
}

/// Ends a fiber whose kernel crashed.
unsafe extern "C" fn crashed(exchange: *mut Exchange) -> ! {
    // SAFETY: the signal handler makes the fiber that runs call this.
    unsafe { Exchange::give_up(exchange, Stop::Crashed) }
}

/// Maps new memory of zeros, with `flags` beside those that say so.
pub(crate) fn map(len: usize, flags: libc::c_int) -> io::Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no other memory.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if map == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(map.cast()) }
}

/// Returns the system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: a query without side effects.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if size > 0 { size as usize } else { 4096 }
}
