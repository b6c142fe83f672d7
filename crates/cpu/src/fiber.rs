//! Fibers: stacks that a block's threads wait on.
//!
//! A [`Fiber`] runs stretches of a kernel, one after another. When a kernel waits, its fiber passes its turn
//! to another fiber or to the worker's own stack ([`crate::switch`]). A fiber never leaves the OS thread that
//! made it, because a kernel's shared memory belongs to that thread. So if a thread of a block waits, its
//! worker must come back to it.

use std::io;

use crate::abi::{Context, Entry, MAX_THREADS};
use crate::switch;

/// How many bytes a thread of a block has for its local variables. It is the same as on a GPU.
pub(crate) const LOCALS_BYTES: usize = 512 << 10;

/// Bytes for the stack frames of functions that a kernel calls, such as `printf`.
const FRAMES_BYTES: usize = 64 << 10;

/// How far the tops of neighbouring stacks are apart, in addition to their size. Without it the hot parts of
/// all stacks would fall into the same cache sets, which makes a switch four times slower.
const STAGGER: usize = 320;

/// After this distance the stagger starts over.
const STAGGER_SPAN: usize = 128 << 10;

/// How many bytes a fiber has for its stack. We can be generous, because pages that are never touched cost
/// nothing.
const STACK_BYTES: usize = LOCALS_BYTES + FRAMES_BYTES + STAGGER_SPAN;

/// How many bytes below a stack cannot be accessed. Kernels are compiled so that they touch their stack in
/// steps of at most 64 KiB as it grows, however large a frame is. The stack pointer may then be one step
/// further.
const GUARD_BYTES: usize = 128 << 10;

/// A mapped stack with guard pages below.
struct FiberStack {
    map: *mut u8,
    len: usize,
    top: usize,
}

impl FiberStack {
    /// Maps a stack. `index` distinguishes neighbouring stacks.
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
        // SAFETY: the mapping belongs to this stack, and no fiber uses it anymore.
        unsafe { libc::munmap(self.map.cast(), self.len) };
    }
}

/// Why a fiber has passed its turn back to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No fiber can continue without the worker.
    Idle,
    /// The kernel crashed, so we must throw the fiber away.
    Crashed,
}

/// A stretch of a kernel: blocks `first..end`, beginning at a thread of the first.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) entry: Entry,
    pub(crate) context: *mut Context,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) first_thread: u32,
}

/// A function that we call on a fiber that has finished its stretch. It returns the fiber that continues, or
/// `None` for the worker.
pub(crate) type OnDone = unsafe fn(*mut Context) -> Option<usize>;

/// The state that a worker shares with its fibers. There is one per worker, at a fixed address.
pub(crate) struct Exchange {
    on_done: OnDone,
    /// The stretch of the fiber that is started next.
    pub(crate) stretch: Option<Stretch>,
    /// Why the worker's stack runs again.
    stop: Stop,
    /// The stack pointer of the worker. Its own stack waits while fibers run.
    worker: usize,
    /// The fiber that runs.
    running: usize,
    /// The stack pointers of the waiting fibers. They are stored apart from the fibers, so that a barrier
    /// touches only eight bytes of each.
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

    /// Lets fiber `index` run on the worker's thread, until some fiber passes the turn back to the worker.
    ///
    /// # Safety
    /// Must be called on the worker's own stack. The fiber must be alive. It must either be waiting, or have
    /// nothing to do while the exchange has a stretch with a valid entry and context. No reference may be
    /// alive to anything that kernels reach through their context.
    #[inline]
    pub(crate) unsafe fn run(this: *mut Self, index: usize) -> Stop {
        // SAFETY: by the caller's promise, the stack pointer is that of a waiting fiber.
        unsafe {
            (*this).running = index;
            switch::switch(&raw mut (*this).worker, (*this).waiting_at[index]);
            (*this).stop
        }
    }

    /// Records that the running fiber waits at `here`, and passes the turn to fiber `next` or to the worker.
    /// Returns the stack pointer to continue with.
    #[inline]
    pub(crate) fn pass_turn(&mut self, here: usize, next: Option<usize>) -> usize {
        // These remainders do not change the numbers. They just save a barrier the bounds checks.
        self.waiting_at[self.running % MAX_THREADS] = here;
        if let Some(next) = next {
            self.running = next;
            self.waiting_at[next % MAX_THREADS]
        } else {
            self.stop = Stop::Idle;
            self.worker
        }
    }

    /// Passes the turn of the running fiber back to the worker, because its kernel cannot continue.
    ///
    /// # Safety
    /// Must be called on the running fiber's stack, with no reference alive to anything that others reach.
    /// The worker then throws the fiber away.
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

    /// Prefetches the memory that a fiber needs first when it runs. Any index is fine.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        switch::prefetch(self.waiting_at[index % MAX_THREADS]);
    }
}

/// A stack that kernels run on.
pub(crate) struct Fiber {
    stack: FiberStack,
}

impl Fiber {
    /// Makes a fiber with nothing to do. `index`, below [`MAX_THREADS`], distinguishes one worker's fibers.
    ///
    /// # Safety
    /// `exchange` must outlive the fiber, and the previous fiber with this index must be gone.
    pub(crate) unsafe fn new(index: usize, exchange: *mut Exchange) -> io::Result<Self> {
        let stack = FiberStack::new(index)?;
        // SAFETY: the stack is new, mapped and large enough; the exchange is alive.
        unsafe { (*exchange).waiting_at[index] = switch::prepare(stack.top, body, exchange) };
        Ok(Self { stack })
    }

    /// Returns true if a stack pointer is on this fiber or just past its end. For the signal handler.
    pub(crate) fn contains(&self, stack_pointer: usize) -> bool {
        let start = self.stack.map as usize;
        (start..start + self.stack.len).contains(&stack_pointer)
    }

    /// Returns true if an access to `address` was just past the stack's end. For the signal handler.
    pub(crate) fn guards(&self, address: usize) -> bool {
        let start = self.stack.map as usize;
        (start..start + GUARD_BYTES).contains(&address)
    }

    /// Returns the function and stack pointer that a crashed fiber must continue with; the argument is
    /// `exchange`. For the signal handler. The function overwrites what is on the stack.
    pub(crate) fn crash_landing(&self) -> (usize, usize) {
        (crashed as *const () as usize, switch::call_frame(self.stack.top))
    }
}

/// Runs a stretch on any fiber. The fiber then waits at `start` for the next one.
unsafe extern "C" fn body(exchange: *mut Exchange, start: usize) -> usize {
    // SAFETY: the exchange is alive, and the starter of a stretch vouches for its entry and context. No
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
    // SAFETY: the signal handler makes the running fiber call this.
    unsafe { Exchange::give_up(exchange, Stop::Crashed) }
}

/// Maps new zeroed memory, with additional `flags`.
pub(crate) fn map(len: usize, flags: libc::c_int) -> io::Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: an anonymous mapping at an address that the system chooses touches no other memory.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if map == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(map.cast()) }
}

/// Returns the system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: a query without side effects.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if size > 0 { size as usize } else { 4096 }
}
