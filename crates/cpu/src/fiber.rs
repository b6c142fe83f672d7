//! Fibers: the stacks on which the threads of a block wait for each other.
//!
//! A [`Fiber`] runs stretches of a kernel, one after another. When a kernel waits, its fiber hands over to another
//! fiber or to the worker's own stack, by [`switch`]. Fibers never leave the OS thread that made them, because a
//! kernel's shared memory is that thread's.
//!
//! The switch is our own, of a dozen instructions, because it is the price of a barrier: leaving by a jump and
//! arriving by the return that fits the other fiber's call keeps the processor's return prediction right.
//! General coroutine libraries return to a common parent at each step, which mispredicts three times per thread
//! and barrier (measured with corosensei: three times slower).

use std::io;

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

/// Why a fiber came back to its worker.
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

/// Called on a fiber whose stretch is done; says which fiber goes on, if not the worker.
pub(crate) type OnDone = unsafe fn(*mut Context) -> Option<*mut Fiber>;

/// What a worker and its fibers tell each other. One per worker, at a fixed place.
pub(crate) struct Exchange {
    on_done: OnDone,
    /// What the fiber that is started next is to run.
    pub(crate) stretch: Option<Stretch>,
    /// Why the worker's stack runs again.
    stop: Stop,
    /// Where the worker's own stack waits while fibers run.
    worker: usize,
    /// Where the fiber that runs notes its stack pointer.
    running: *mut usize,
}

impl Exchange {
    pub(crate) const fn new(on_done: OnDone) -> Self {
        Self { on_done, stretch: None, stop: Stop::Idle, worker: 0, running: std::ptr::null_mut() }
    }
}

/// A stack with a kernel on it.
pub(crate) struct Fiber {
    /// Its stack pointer while it does not run.
    waiting_at: usize,
    stack: FiberStack,
}

impl Fiber {
    /// `index` tells the fibers of one worker apart; `exchange` outlives the fiber.
    pub(crate) fn new(index: usize, exchange: *mut Exchange) -> io::Result<Self> {
        let stack = FiberStack::new(index)?;
        // SAFETY: the stack is new, mapped and large enough.
        let waiting_at = unsafe { arch::prepare(stack.top, exchange) };
        Ok(Self { waiting_at, stack })
    }

    /// Lets the fiber run on the worker's thread until one of them hands the turn back to the worker.
    ///
    /// # Safety
    /// Called on the worker's own stack. `fiber` is alive; `exchange` is that of all the worker's fibers. Either the
    /// fiber waits, or it has nothing to do and the exchange has a stretch whose entry and context are valid. No
    /// reference to what kernels reach through their context is alive.
    #[inline]
    pub(crate) unsafe fn run(fiber: *mut Self, exchange: *mut Exchange) -> Stop {
        // SAFETY: by the caller's promise the fiber's stack pointer is that of a fiber that waits.
        unsafe {
            (*exchange).running = &raw mut (*fiber).waiting_at;
            arch::switch(&raw mut (*exchange).worker, (*fiber).waiting_at);
            (*exchange).stop
        }
    }

    /// Hands the turn from the fiber that runs to the worker.
    ///
    /// # Safety
    /// Called on the stack of the fiber that runs, with no reference to what others reach alive.
    #[inline]
    pub(crate) unsafe fn wait(exchange: *mut Exchange) {
        // SAFETY: the worker waits in `run`.
        unsafe {
            (*exchange).stop = Stop::Idle;
            arch::switch((*exchange).running, (*exchange).worker);
        }
    }

    /// Hands the turn from the fiber that runs to another one that waits.
    ///
    /// # Safety
    /// As for [`wait`](Self::wait); `next` is a fiber of the same worker, and waits.
    #[inline]
    pub(crate) unsafe fn hand_over(next: *mut Self, exchange: *mut Exchange) {
        // SAFETY: by the caller's promise.
        unsafe {
            let from = std::mem::replace(&mut (*exchange).running, &raw mut (*next).waiting_at);
            arch::switch(from, (*next).waiting_at);
        }
    }

    /// Has the processor fetch what the fiber needs first when it runs.
    #[inline]
    pub(crate) fn prefetch(&self) {
        arch::prefetch(self.waiting_at);
    }

    /// For the signal handler: whether a stack pointer lies on this fiber, also just beyond its end.
    pub(crate) fn contains(&self, stack_pointer: usize) -> bool {
        let start = self.stack.map as usize;
        (start..start + self.stack.len).contains(&stack_pointer)
    }

    /// For the signal handler: where a crashed fiber goes on, on which stack pointer, with `exchange` as its argument.
    /// What was on the stack is overwritten.
    pub(crate) fn crash_landing(&self) -> (usize, usize) {
        (crashed as *const () as usize, arch::call_frame(self.stack.top))
    }
}

/// What runs on every fiber.
unsafe extern "C" fn body(exchange: *mut Exchange) -> ! {
    loop {
        // SAFETY: the exchange is alive, and whoever starts a stretch vouches for its entry and context. No reference
        // to either is alive while the kernel runs. The worker waits in `run`.
        unsafe {
            let mut next = None;
            if let Some(s) = (*exchange).stretch {
                (s.entry)(s.context, s.first, s.end, s.first_thread);
                next = ((*exchange).on_done)(s.context);
            }
            match next {
                Some(next) => Fiber::hand_over(next, exchange),
                None => Fiber::wait(exchange),
            }
        }
    }
}

/// Where a fiber goes on whose kernel crashed. It is thrown away afterwards.
unsafe extern "C" fn crashed(exchange: *mut Exchange) -> ! {
    let mut nowhere = 0;
    loop {
        // SAFETY: the worker waits in `run`.
        unsafe {
            (*exchange).stop = Stop::Crashed;
            arch::switch(&raw mut nowhere, (*exchange).worker);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::naked_asm;

    use super::Exchange;

    /// Leaves this stack, noting where in `from`, and goes on with the one that waits at `to`.
    ///
    /// # Safety
    /// `to` was noted by this function, or made by [`prepare`].
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn switch(from: *mut usize, to: usize) {
        // The registers a call preserves, on the stack that is left. Floating-point modes are left alone: kernels
        // do not change them.
        naked_asm!(
            "push rbp",
            "push rbx",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "mov [rdi], rsp",
            "mov rsp, rsi",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbx",
            "pop rbp",
            "ret",
        )
    }

    /// The first thing on a new stack: calls `rbx` with `r12`.
    #[unsafe(naked)]
    unsafe extern "C" fn enter() {
        naked_asm!("mov rdi, r12", "call rbx", "ud2")
    }

    /// Fills a new stack so that switching to the result calls [`super::body`].
    ///
    /// # Safety
    /// The stack below `top` is mapped.
    pub(super) unsafe fn prepare(top: usize, exchange: *mut Exchange) -> usize {
        let body = super::body as *const () as usize;
        // As `switch` pops them: r15, r14, r13, r12, rbx, rbp, and where to return. `enter` starts 16 bytes below
        // the top, aligned as a call wants it.
        let frame = [0, 0, 0, exchange as usize, body, 0, enter as *const () as usize];
        let at = top - 16 - size_of_val(&frame);
        // SAFETY: within the stack, which is aligned to 64 bytes.
        unsafe { (at as *mut [usize; 7]).write(frame) };
        at
    }

    /// The stack pointer with which a function that was called starts.
    pub(super) fn call_frame(top: usize) -> usize {
        top - 8
    }

    #[inline]
    pub(super) fn prefetch(at: usize) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in 0..3 {
            // SAFETY: a prefetch faults nowhere.
            unsafe { _mm_prefetch::<_MM_HINT_T0>((at + 64 * line) as *const i8) };
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use std::arch::naked_asm;

    use super::Exchange;

    /// Leaves this stack, noting where in `from`, and goes on with the one that waits at `to`.
    ///
    /// # Safety
    /// `to` was noted by this function, or made by [`prepare`].
    #[unsafe(naked)]
    pub(super) unsafe extern "C" fn switch(from: *mut usize, to: usize) {
        // The registers a call preserves, on the stack that is left.
        naked_asm!(
            "sub sp, sp, #160",
            "stp x19, x20, [sp, #0]",
            "stp x21, x22, [sp, #16]",
            "stp x23, x24, [sp, #32]",
            "stp x25, x26, [sp, #48]",
            "stp x27, x28, [sp, #64]",
            "stp x29, x30, [sp, #80]",
            "stp d8, d9, [sp, #96]",
            "stp d10, d11, [sp, #112]",
            "stp d12, d13, [sp, #128]",
            "stp d14, d15, [sp, #144]",
            "mov x9, sp",
            "str x9, [x0]",
            "mov sp, x1",
            "ldp x19, x20, [sp, #0]",
            "ldp x21, x22, [sp, #16]",
            "ldp x23, x24, [sp, #32]",
            "ldp x25, x26, [sp, #48]",
            "ldp x27, x28, [sp, #64]",
            "ldp x29, x30, [sp, #80]",
            "ldp d8, d9, [sp, #96]",
            "ldp d10, d11, [sp, #112]",
            "ldp d12, d13, [sp, #128]",
            "ldp d14, d15, [sp, #144]",
            "add sp, sp, #160",
            "ret",
        )
    }

    /// The first thing on a new stack: calls `x19` with `x20`.
    #[unsafe(naked)]
    unsafe extern "C" fn enter() {
        naked_asm!("mov x0, x20", "blr x19", "brk #1")
    }

    /// Fills a new stack so that switching to the result calls [`super::body`].
    ///
    /// # Safety
    /// The stack below `top` is mapped.
    pub(super) unsafe fn prepare(top: usize, exchange: *mut Exchange) -> usize {
        let mut frame = [0; 20];
        frame[0] = super::body as *const () as usize;
        frame[1] = exchange as usize;
        frame[11] = enter as *const () as usize;
        let at = top - size_of_val(&frame);
        // SAFETY: within the stack, which is aligned to 64 bytes.
        unsafe { (at as *mut [usize; 20]).write(frame) };
        at
    }

    /// The stack pointer with which a function that was called starts.
    pub(super) fn call_frame(top: usize) -> usize {
        top
    }

    #[inline]
    pub(super) fn prefetch(at: usize) {
        for line in 0..4 {
            // SAFETY: a prefetch faults nowhere.
            unsafe {
                std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at + 64 * line, options(nostack, readonly));
            }
        }
    }
}

/// The system's page size in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: a query without side effects.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if size > 0 { size as usize } else { 4096 }
}
