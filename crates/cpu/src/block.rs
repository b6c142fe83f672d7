//! Running the blocks of a kernel on one OS thread: barriers and warp operations by switching fibers.
//!
//! A kernel that never waits runs as a plain loop over its threads on the first fiber. The first wait keeps that
//! thread where it is, and the next fiber goes on with the next thread, and so on; from then on the block's
//! threads take turns until all are done.

use std::ffi::{CStr, c_char};

use crate::abi::{Context, Dim, Entry, Host, WarpResult, barrier};
use crate::fiber::{Exchange, Fiber, Stop, Stretch};
use crate::warp;

/// What a thread of the block is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Has not begun.
    #[default]
    Pending,
    /// Can run: it was let go, or it is the one that runs.
    Ready,
    /// Waits for the whole block.
    AtBarrier,
    /// Waits for lanes of its warp.
    AtWarp,
    /// Has returned.
    Exited,
}

/// Where in the source a thread waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) file: *const c_char,
    pub(crate) line: u32,
}

impl Default for Site {
    fn default() -> Self {
        Self { file: std::ptr::null(), line: 0 }
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.file.is_null() {
            return write!(f, "an unknown place");
        }
        // SAFETY: the compiler's __builtin_FILE(), a literal of the module, which is loaded.
        let file = unsafe { CStr::from_ptr(self.file) }.to_string_lossy();
        write!(f, "{file}:{}", self.line)
    }
}

/// The place and message of a kernel's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Linear number of the block.
    pub(crate) block: u64,
    /// Number of the thread in its block, where it is known.
    pub(crate) thread: Option<u32>,
    pub(crate) message: String,
}

/// Everything one worker needs to run blocks. The context comes first: kernels hand back its address.
#[repr(C)]
pub(crate) struct Runner {
    pub(crate) context: Context,
    fibers: Vec<Fiber>,
    /// The thread that each fiber holds, for fibers below `held`.
    holds: Vec<u32>,
    exchange: Exchange,
    /// What each thread of the block is doing. Bytes on their own: a barrier touches all of them.
    pub(crate) states: Vec<State>,
    /// The warp operation that each thread waits in, or was in last.
    pub(crate) waits: Vec<warp::Wait>,
    /// Fibers with a thread of this block.
    held: usize,
    /// The fiber that runs.
    current: usize,
    /// The first thread the running stretch ran; those up to the one that waits have returned.
    stretch_start: u32,
    /// The stretch that runs has not waited yet.
    fresh: bool,
    in_block: bool,
    at_barrier: u32,
    exited: u32,
    barrier_site: Site,
    barrier_result: (u32, u32),
    failure: Option<Failure>,
    /// Left by the signal handler, which must not allocate.
    pub(crate) crash: Option<Crash>,
    crash_address: Option<usize>,
}

/// What the signal handler saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    pub(crate) signal: i32,
    pub(crate) address: usize,
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.signal {
            libc::SIGSEGV => write!(f, "accesses memory at {:#x} that it may not (SIGSEGV)", self.address),
            libc::SIGBUS => write!(f, "accesses memory at {:#x} that is not there (SIGBUS)", self.address),
            libc::SIGFPE => write!(f, "divides an integer by zero or overflows dividing (SIGFPE)"),
            libc::SIGILL => write!(f, "executes an illegal instruction or a trap (SIGILL)"),
            signal => write!(f, "is ended by signal {signal}"),
        }
    }
}

static HOST: Host = Host { barrier: on_barrier, warp: on_warp, fail: on_fail };

impl Runner {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            context: Context {
                host: &raw const HOST,
                params: std::ptr::null(),
                grid: Dim::default(),
                block: Dim::default(),
                warp_size: 32,
                dynamic_shared: 0,
                current_block: 0,
                current_thread: 0,
                wide: 0,
                check: 0,
                reserved: 0,
            },
            fibers: Vec::new(),
            holds: Vec::new(),
            exchange: Exchange::new(),
            states: Vec::new(),
            waits: Vec::new(),
            held: 0,
            current: 0,
            stretch_start: 0,
            fresh: false,
            in_block: false,
            at_barrier: 0,
            exited: 0,
            barrier_site: Site::default(),
            barrier_result: (0, 0),
            failure: None,
            crash: None,
            crash_address: None,
        })
    }

    /// Runs blocks `first..end` of the launch that `context` describes.
    ///
    /// Raw, because kernels reach the runner by its address whenever a fiber runs: no reference to it may be alive
    /// then.
    ///
    /// # Safety
    /// `this` is alive and used by no one else; `entry` is a loaded kernel's, the context's parameters fit it, and
    /// what the kernel does is sound.
    pub(crate) unsafe fn run(this: *mut Self, entry: Entry, first: u64, end: u64) -> Result<(), Failure> {
        let mut next = first;
        while next < end {
            // SAFETY: passed on to the caller; no reference outlives its statement.
            unsafe {
                (*this).in_block = false;
                (*this).held = 0;
                let Some(thread) = Self::start(this, entry, next, end, 0)? else { break };
                let block = (*this).context.current_block;
                Self::finish_block(this, entry, block, thread + 1)?;
                next = block + 1;
            }
        }
        Ok(())
    }

    /// Runs the rest of a block, whose threads below `begun` have begun and at least one of which has waited.
    unsafe fn finish_block(this: *mut Self, entry: Entry, block: u64, mut begun: u32) -> Result<(), Failure> {
        // SAFETY: passed on to the caller; no reference outlives its statement.
        unsafe {
            let total = (*this).context.block.count() as u32;
            while begun < total {
                if let Some(thread) = Self::start(this, entry, block, block + 1, begun)? {
                    begun = thread + 1;
                } else {
                    (*this).exit(begun..total);
                    begun = total;
                }
            }
            loop {
                if (*this).at_barrier == total {
                    (*this).release_barrier();
                }
                let mut ran = false;
                for index in 0..(*this).held {
                    let thread = (&(*this).holds)[index];
                    if (&(*this).states)[thread as usize] != State::Ready {
                        continue;
                    }
                    ran = true;
                    (*this).context.current_thread = thread;
                    let fiber = (*this).enter(index);
                    let stop = (*fiber).resume(&raw mut (*this).exchange);
                    if stop != Stop::Waiting || (*this).failure.is_some() {
                        (*this).after(stop)?;
                        (*this).exit(thread..thread + 1);
                    }
                }
                if (*this).exited == total {
                    return Ok(());
                }
                if !ran && (*this).at_barrier != total && !warp::resolve_stall(&mut *this) {
                    return Err((*this).stuck());
                }
            }
        }
    }

    /// Starts the next fiber on the threads from `thread` on. Returns the one it got to if that one waited, and
    /// nothing if all threads of the stretch ran to their end.
    unsafe fn start(
        this: *mut Self,
        entry: Entry,
        first: u64,
        end: u64,
        thread: u32,
    ) -> Result<Option<u32>, Failure> {
        let stretch = Stretch { entry, context: this.cast(), first, end, first_thread: thread };
        // SAFETY: passed on to the caller; no reference outlives its statement.
        unsafe {
            let index = (*this).held;
            if index == (*this).fibers.len() {
                let fiber = Fiber::new(index, &raw mut (*this).exchange).map_err(|error| {
                    let message = format!("no stack for a thread that waits: {error}");
                    (*this).failure_at(Some(thread), message)
                })?;
                (*this).fibers.push(fiber);
                (*this).holds.push(0);
            }
            (*this).stretch_start = thread;
            (*this).fresh = true;
            (*this).exchange.stretch = Some(stretch);
            let fiber = (*this).enter(index);
            let stop = (*fiber).start(&raw mut (*this).exchange);
            let ran_through = std::mem::take(&mut (*this).fresh);
            if stop == Stop::Crashed || (*this).failure.is_some() {
                (*this).after(stop)?;
            }
            if ran_through {
                return Ok(None);
            }
            let thread = (&(*this).holds)[index];
            if stop == Stop::Waiting {
                (*this).held += 1;
            } else {
                (*this).exit(thread..thread + 1);
            }
            Ok(Some(thread))
        }
    }

    /// Makes fiber `index` the one that runs.
    fn enter(&mut self, index: usize) -> *mut Fiber {
        self.current = index;
        &raw mut self.fibers[index]
    }

    #[cold]
    fn after(&mut self, stop: Stop) -> Result<(), Failure> {
        if stop == Stop::Crashed {
            let crash = self.crash.take();
            self.crash_address = crash.map(|crash| crash.address);
            let message = crash.map_or_else(|| "crashes".into(), |crash| crash.to_string());
            self.failure = Some(self.failure_at(self.running_thread(), message));
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn exit(&mut self, threads: std::ops::Range<u32>) {
        self.exited += threads.len() as u32;
        self.states[threads.start as usize..threads.end as usize].fill(State::Exited);
    }

    fn release_barrier(&mut self) {
        self.at_barrier = 0;
        self.states.fill(State::Ready);
        self.barrier_result.1 = std::mem::take(&mut self.barrier_result.0);
    }

    /// Notes that `thread` waits, and which threads before it in its stretch have returned.
    fn hold(&mut self, thread: u32) {
        if !self.in_block {
            self.in_block = true;
            let threads = self.context.block.count() as usize;
            self.states.clear();
            self.states.resize(threads, State::Pending);
            self.waits.resize(threads, warp::Wait::default());
            self.at_barrier = 0;
            self.exited = 0;
            self.barrier_result = (0, 0);
        }
        if std::mem::take(&mut self.fresh) {
            self.exit(self.stretch_start..thread);
            self.holds[self.current] = thread;
            self.context.current_thread = thread;
        }
    }

    /// Why no thread can go on.
    fn stuck(&self) -> Failure {
        let waiting = self.states.iter().position(|&s| s == State::AtBarrier);
        let Some(waiting) = waiting else { return warp::stuck(self) };
        let site = self.barrier_site;
        let missing = self.states.iter().position(|&s| s != State::AtBarrier);
        let other = match missing.map(|thread| (thread, self.states[thread])) {
            Some((thread, State::Exited)) => {
                format!("thread {} has returned without reaching it", self.place(thread as u32))
            }
            Some((thread, _)) => {
                let at = self.waits[thread].site;
                format!("thread {} waits in a warp operation at {at}", self.place(thread as u32))
            }
            None => "another thread never reaches it".into(),
        };
        let message = format!(
            "waits at the barrier at {site}, but {other}: every thread of a block must reach every barrier"
        );
        self.failure_at(Some(waiting as u32), message)
    }

    #[cold]
    fn different_barriers(&mut self, thread: u32, site: Site) {
        let message = format!(
            "waits at the barrier at {site} while other threads wait at the one at {}: every thread of a block \
             must reach the same barrier",
            self.barrier_site
        );
        let failure = self.failure_at(Some(thread), message);
        self.set_failure(failure);
    }

    /// Where the threads at the barrier wait.
    pub(crate) fn barrier_site(&self) -> Site {
        self.barrier_site
    }

    /// The coordinates of a thread.
    pub(crate) fn place(&self, thread: u32) -> Dim {
        self.context.block.place(u64::from(thread))
    }

    pub(crate) fn failure_at(&self, thread: Option<u32>, message: String) -> Failure {
        Failure { block: self.context.current_block, thread, message }
    }

    /// For the signal handler: the fiber that runs.
    pub(crate) fn running(&self) -> Option<&Fiber> {
        self.fibers.get(self.current)
    }

    /// The thread that runs, where that is known without asking the module.
    fn running_thread(&self) -> Option<u32> {
        (self.in_block && !self.fresh).then_some(self.context.current_thread)
    }

    /// For the signal handler and checks: makes the run end with this failure.
    pub(crate) fn set_failure(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// The address that the kernel which crashed last could not access.
    pub(crate) fn crash_address(&mut self) -> Option<usize> {
        self.crash_address.take()
    }

    /// Throws away all fibers, after a failure left kernels on them.
    pub(crate) fn abandon(&mut self) {
        self.fibers.clear();
        self.holds.clear();
        self.held = 0;
        self.in_block = false;
        self.failure = None;
    }
}

/// `__syncthreads` and its kin.
unsafe extern "C" fn on_barrier(
    context: *mut Context,
    thread: u32,
    kind: u32,
    predicate: u32,
    file: *const c_char,
    line: u32,
) -> u32 {
    let this = context.cast::<Runner>();
    {
        // SAFETY: the context is the first field of a runner, which waits in `resume` while its kernel runs.
        let runner = unsafe { &mut *this };
        runner.hold(thread);
        if runner.at_barrier == 0 {
            runner.barrier_site = Site { file, line };
        } else if runner.barrier_site.line != line {
            runner.different_barriers(thread, Site { file, line });
        }
        runner.states[thread as usize] = State::AtBarrier;
        runner.at_barrier += 1;
        runner.barrier_result.0 += predicate;
    }
    // SAFETY: this is the fiber that runs; the reference above is gone.
    unsafe { Fiber::wait(&raw mut (*this).exchange) };
    if kind == barrier::PLAIN {
        return 0;
    }
    // SAFETY: as above; a read of fields.
    let (count, total) = unsafe { ((*this).barrier_result.1, (*this).context.block.count() as u32) };
    match kind {
        barrier::COUNT => count,
        barrier::AND => u32::from(count == total),
        barrier::OR => u32::from(count != 0),
        _ => 0,
    }
}

/// Shuffles, votes and `__syncwarp`.
unsafe extern "C" fn on_warp(
    context: *mut Context,
    thread: u32,
    kind: u32,
    source: u32,
    mask: u64,
    value: u64,
    file: *const c_char,
    line: u32,
) -> WarpResult {
    let this = context.cast::<Runner>();
    let done = {
        // SAFETY: as in `on_barrier`.
        let runner = unsafe { &mut *this };
        runner.hold(thread);
        let site = Site { file, line };
        warp::arrive(runner, thread, warp::Wait { kind, source, mask, value, active: 0, site })
    };
    if !done {
        // SAFETY: as in `on_barrier`.
        unsafe { Fiber::wait(&raw mut (*this).exchange) };
    }
    // SAFETY: likewise.
    let wait = unsafe { (&(*this).waits)[thread as usize] };
    WarpResult { value: wait.value, active: wait.active }
}

/// `assert`, `__trap` and checks: the thread never goes on.
unsafe extern "C" fn on_fail(
    context: *mut Context,
    thread: u32,
    message: *const c_char,
    file: *const c_char,
    line: u32,
) {
    let this = context.cast::<Runner>();
    {
        // SAFETY: as in `on_barrier`.
        let runner = unsafe { &mut *this };
        // SAFETY: a string of the module or of its stack, alive while it waits here.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
        let failure = runner.failure_at(Some(thread), format!("{} fails at {}", text, Site { file, line }));
        runner.set_failure(failure);
    }
    loop {
        // SAFETY: as in `on_barrier`. The worker sees the failure and never resumes this fiber.
        unsafe { Fiber::wait(&raw mut (*this).exchange) };
    }
}
