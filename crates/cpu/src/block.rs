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
    /// Threads of the block that have begun.
    begun: u32,
    /// The stretch that runs has not waited yet.
    fresh: bool,
    in_block: bool,
    /// Threads of the block.
    total: u32,
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
            exchange: Exchange::new(on_done),
            states: Vec::new(),
            waits: Vec::new(),
            held: 0,
            current: 0,
            stretch_start: 0,
            begun: 0,
            fresh: false,
            in_block: false,
            total: 0,
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
                (*this).begun = 0;
                Self::start(
                    this,
                    Stretch { entry, context: this.cast(), first: next, end, first_thread: 0 },
                )?;
                if !(*this).in_block {
                    break;
                }
                let block = (*this).context.current_block;
                Self::finish_block(this, entry, block)?;
                next = block + 1;
            }
        }
        Ok(())
    }

    /// Runs the rest of a block, one of whose threads has waited.
    unsafe fn finish_block(this: *mut Self, entry: Entry, block: u64) -> Result<(), Failure> {
        // SAFETY: passed on to the caller; no reference outlives its statement.
        unsafe {
            let total = (*this).context.block.count() as u32;
            loop {
                let first_thread = (*this).begun;
                if first_thread == total {
                    break;
                }
                let stretch =
                    Stretch { entry, context: this.cast(), first: block, end: block + 1, first_thread };
                Self::start(this, stretch)?;
            }
            loop {
                if (*this).exited == total {
                    return Ok(());
                }
                let Some(index) = (*this).next_ready() else {
                    if !warp::resolve_stall(&mut *this) {
                        return Err((*this).stuck());
                    }
                    continue;
                };
                let fiber = (*this).enter(index);
                Self::go_on(this, fiber)?;
            }
        }
    }

    /// Has the next fiber begin a stretch. Comes back when no fiber can go on without the worker.
    unsafe fn start(this: *mut Self, stretch: Stretch) -> Result<(), Failure> {
        // SAFETY: passed on to the caller; no reference outlives its statement.
        unsafe {
            let index = (*this).held;
            if index == (*this).fibers.len() {
                let fiber = Fiber::new(index, &raw mut (*this).exchange).map_err(|error| {
                    let message = format!("no stack for a thread that waits: {error}");
                    (*this).failure_at(Some(stretch.first_thread), message)
                })?;
                (*this).fibers.push(fiber);
                (*this).holds.push(0);
            }
            let fiber = (*this).enter_fresh(stretch);
            Self::go_on(this, fiber)
        }
    }

    /// Lets a fiber run, and those that it hands its turn to.
    unsafe fn go_on(this: *mut Self, fiber: *mut Fiber) -> Result<(), Failure> {
        // SAFETY: passed on to the caller; no reference outlives its statement.
        unsafe {
            let stop = Fiber::run(fiber, &raw mut (*this).exchange);
            // From here on `current` is the fiber that came back, not the one that was let go.
            if stop == Stop::Crashed || (*this).failure.is_some() {
                return Err((*this).end(stop));
            }
        }
        Ok(())
    }

    /// The fiber that runs is done with its stretch: which one goes on, if not the worker.
    fn finished(&mut self) -> Option<*mut Fiber> {
        if !self.in_block {
            return None;
        }
        if self.fresh {
            // None of its threads waited: they were the block's last.
            self.fresh = false;
            self.exit(self.stretch_start..self.total);
            self.begun = self.total;
        } else {
            self.exited += 1;
            self.states[self.holds[self.current] as usize] = State::Exited;
        }
        if self.exited == self.total { None } else { self.successor() }
    }

    /// Gives the next fiber a stretch and makes it the one that runs.
    fn enter_fresh(&mut self, stretch: Stretch) -> *mut Fiber {
        self.exchange.stretch = Some(stretch);
        self.stretch_start = stretch.first_thread;
        self.fresh = true;
        self.enter(self.held)
    }

    /// Makes fiber `index` the one that runs.
    #[inline]
    fn enter(&mut self, index: usize) -> *mut Fiber {
        self.current = index;
        self.context.current_thread = self.holds[index];
        &raw mut self.fibers[index]
    }

    /// A fiber whose thread can go on: the next one in turn.
    fn next_ready(&mut self) -> Option<usize> {
        let ready = |&index: &usize| self.states[self.holds[index] as usize] == State::Ready;
        (self.current + 1..self.held).find(ready).or_else(|| (0..self.held).find(ready))
    }

    /// Where the thread that waits can hand its turn to without the worker's help.
    #[inline]
    fn successor(&mut self) -> Option<*mut Fiber> {
        if self.begun < self.total || self.failure.is_some() {
            return self.start_next();
        }
        // A fiber whose threads all ran to their end holds none, so `current` may be beyond those that do.
        let mut next = self.current + 1;
        if next >= self.held {
            next = 0;
        }
        if self.states[self.holds[next] as usize] != State::Ready {
            return None;
        }
        if let Some(after) = self.fibers.get(next + 1) {
            after.prefetch();
        }
        Some(self.enter(next))
    }

    /// The next fiber, if there is one already, for the threads that have not begun.
    fn start_next(&mut self) -> Option<*mut Fiber> {
        if self.failure.is_some() || self.held == self.fibers.len() {
            return None;
        }
        let block = self.context.current_block;
        let stretch = self.exchange.stretch?;
        Some(self.enter_fresh(Stretch { first: block, end: block + 1, first_thread: self.begun, ..stretch }))
    }

    /// Why the run ends.
    #[cold]
    fn end(&mut self, stop: Stop) -> Failure {
        if stop == Stop::Crashed {
            let crash = self.crash.take();
            self.crash_address = crash.map(|crash| crash.address);
            let message = crash.map_or_else(|| "crashes".into(), |crash| crash.to_string());
            self.failure = Some(self.failure_at(self.running_thread(), message));
        }
        self.failure.take().unwrap_or_else(|| self.failure_at(None, "is ended".into()))
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
    #[inline]
    fn hold(&mut self, thread: u32) {
        if self.fresh {
            self.hold_first(thread);
        }
    }

    fn hold_first(&mut self, thread: u32) {
        if !self.in_block {
            self.in_block = true;
            let threads = self.context.block.count() as usize;
            self.total = threads as u32;
            self.states.clear();
            self.states.resize(threads, State::Pending);
            self.waits.resize(threads, warp::Wait::default());
            self.at_barrier = 0;
            self.exited = 0;
            self.barrier_result = (0, 0);
        }
        self.fresh = false;
        self.begun = thread + 1;
        self.held = self.current + 1;
        self.exit(self.stretch_start..thread);
        self.holds[self.current] = thread;
        self.context.current_thread = thread;
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

    /// For the signal handler: what its fibers share.
    pub(crate) fn exchange(&mut self) -> *mut Exchange {
        &raw mut self.exchange
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

/// Hands the turn to another thread of the block, and returns when this one can go on.
///
/// # Safety
/// Called on the stack of the fiber that runs, with no reference to the runner alive.
#[inline]
unsafe fn wait(this: *mut Runner) {
    // SAFETY: by the caller's promise; the reference ends before the switch.
    unsafe {
        match (*this).successor() {
            Some(next) => Fiber::hand_over(next, &raw mut (*this).exchange),
            None => Fiber::wait(&raw mut (*this).exchange),
        }
    }
}

/// What [`Exchange`] calls on a fiber whose stretch is done.
unsafe fn on_done(context: *mut Context) -> Option<*mut Fiber> {
    // SAFETY: the context is the first field of a runner, whose worker waits in `Fiber::run` while fibers run.
    unsafe { (*context.cast::<Runner>()).finished() }
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
    let last;
    {
        // SAFETY: the context is the first field of a runner, whose worker waits in `Fiber::run` while kernels run.
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
        last = runner.at_barrier == runner.total;
        if last {
            runner.release_barrier();
        }
    }
    if !last {
        // SAFETY: this is the fiber that runs; the reference above is gone.
        unsafe { wait(this) };
    }
    if kind == barrier::PLAIN {
        return 0;
    }
    // SAFETY: as above; a read of fields.
    let (count, total) = unsafe { ((*this).barrier_result.1, (*this).total) };
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
        unsafe { wait(this) };
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
        let failure = runner.failure_at(Some(thread), format!("{} at {}", text, Site { file, line }));
        runner.set_failure(failure);
    }
    loop {
        // SAFETY: as in `on_barrier`. The worker sees the failure and never resumes this fiber.
        unsafe { Fiber::wait(&raw mut (*this).exchange) };
    }
}
