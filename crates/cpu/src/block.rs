//! Runs the blocks of a kernel on one OS thread. Barriers and warp operations switch fibers.
//!
//! A kernel that never waits runs as a plain loop over its threads on the first fiber, so it pays nothing for
//! barriers that it does not have. If a thread does wait, its stack must stay as it is. So the next fiber
//! continues with the next thread, and so on. From then on the block's threads take turns until all are done.

mod stuck;

use crate::abi::{Context, Dim, Entry, Host, Lane, MAX_THREADS};
use crate::barrier::Barrier;
use crate::failure::{Crash, Failure, Site};
use crate::fiber::{Exchange, Fiber, Stop, Stretch};
use crate::thread::ThreadState;
use crate::warp::{self, Threads};

/// A worker's state for running blocks. The context must come first, because kernels pass its address back to
/// us.
///
/// The arrays have a fixed size, because a barrier goes through most of them once per thread and must not
/// chase pointers.
#[repr(C)]
pub(crate) struct Runner {
    pub(crate) context: Context,
    barrier: Barrier,
    /// Threads of the block.
    total: u32,
    /// Threads of the block that have begun.
    begun: u32,
    /// The threads that have not returned. A barrier waits for these.
    alive: u32,
    /// The first thread of the running stretch. The threads from there to the one that waits have returned.
    stretch_start: u32,
    /// True if the running stretch has not waited yet.
    fresh: bool,
    in_block: bool,
    /// Number of fibers with a thread of this block.
    held: usize,
    fibers: Vec<Fiber>,
    failure: Option<Failure>,
    /// Set by the signal handler, which must not allocate.
    pub(crate) crash: Option<Crash>,
    crash_address: Option<usize>,
    exchange: Exchange,
    /// The state of each thread in the block. These are separate bytes, because a barrier touches all of
    /// them.
    states: [ThreadState; MAX_THREADS],
    /// The thread that each fiber holds, for fibers below `held`.
    holds: [u32; MAX_THREADS],
    /// The warp operation that each thread waits in, or last waited in. Kernels write here.
    lanes: Box<[Lane]>,
}

impl Runner {
    /// Returns a runner whose kernels can call `host`.
    pub(crate) fn new(host: &'static Host) -> Box<Self> {
        Box::new(Self {
            context: Context {
                host,
                params: std::ptr::null(),
                grid: Dim::default(),
                block: Dim::default(),
                warp_size: 32,
                dynamic_shared: 0,
                current_block: 0,
                current_thread: 0,
                wide: 0,
                check: 0,
                vote: 0,
                lanes: std::ptr::null_mut(),
                meeting: std::ptr::null(),
            },
            barrier: Barrier::default(),
            total: 0,
            begun: 0,
            alive: 0,
            stretch_start: 0,
            fresh: false,
            in_block: false,
            held: 0,
            fibers: Vec::new(),
            failure: None,
            crash: None,
            crash_address: None,
            exchange: Exchange::new(on_done),
            states: [ThreadState::Pending; MAX_THREADS],
            holds: [0; MAX_THREADS],
            lanes: vec![Lane::NONE; MAX_THREADS].into_boxed_slice(),
        })
    }

    /// Runs blocks `first..end` of the launch that `context` describes.
    ///
    /// `this` is a raw pointer, because kernels reach the runner by its address whenever a fiber runs, and
    /// then no reference to it may be alive.
    ///
    /// # Safety
    /// `this` must be alive and not shared, `entry` must belong to a loaded kernel, the context's parameters
    /// must fit it, and the kernel itself must be sound.
    #[inline]
    pub(crate) unsafe fn run(this: *mut Self, entry: Entry, first: u64, end: u64) -> Result<(), Failure> {
        // SAFETY: by the caller's promise.
        unsafe { (*this).context.lanes = (*this).lanes.as_mut_ptr() };
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

    /// Runs the rest of a block after one of its threads has waited.
    #[inline(never)]
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
                if (*this).alive == 0 {
                    return Ok(());
                }
                let Some(index) = (*this).next_ready() else {
                    if !warp::resolve_stall(&mut (*this).threads()) {
                        return Err((*this).stuck());
                    }
                    continue;
                };
                (*this).enter(index);
                Self::go_on(this, index)?;
            }
        }
    }

    /// Lets the next fiber begin a stretch. Returns when no fiber can continue without the worker.
    #[inline]
    unsafe fn start(this: *mut Self, stretch: Stretch) -> Result<(), Failure> {
        // SAFETY: passed on to the caller; no reference outlives its statement.
        unsafe {
            if (*this).held == (*this).fibers.len() {
                Self::add_fiber(this, stretch.first_thread)?;
            }
            let fiber = (*this).enter_fresh(stretch);
            Self::go_on(this, fiber)
        }
    }

    /// Makes the next fiber. `thread` will run on it.
    #[cold]
    unsafe fn add_fiber(this: *mut Self, thread: u32) -> Result<(), Failure> {
        // SAFETY: passed on to the caller; no reference outlives its statement.
        unsafe {
            let index = (*this).held;
            let fiber = Fiber::new(index, &raw mut (*this).exchange).map_err(|error| {
                (*this).failure_at(
                    Some(thread),
                    format!("needs a stack for a thread that waits, but the system has none: {error}"),
                )
            })?;
            (*this).fibers.push(fiber);
        }
        Ok(())
    }

    /// Lets a fiber run, and all those that it passes its turn to.
    unsafe fn go_on(this: *mut Self, fiber: usize) -> Result<(), Failure> {
        // SAFETY: passed on to the caller; no reference outlives its statement.
        unsafe {
            let stop = Exchange::run(&raw mut (*this).exchange, fiber);
            // From here on, the running fiber is the one that has passed its turn back, not the one that we
            // let run.
            if stop == Stop::Crashed || (*this).failure.is_some() {
                return Err((*this).end(stop));
            }
        }
        Ok(())
    }

    /// Records that the running fiber has finished its stretch. Returns the fiber that continues, or `None`
    /// for the worker.
    fn finished(&mut self) -> Option<usize> {
        if !self.in_block {
            return None;
        }
        if self.fresh {
            // No thread of this stretch waited, so we know that these were the block's last threads.
            self.fresh = false;
            self.exit(self.stretch_start..self.total);
            self.begun = self.total;
        } else {
            self.alive -= 1;
            self.states[self.holds[self.exchange.running()] as usize] = ThreadState::Exited;
        }
        if self.alive == 0 {
            return None;
        }
        if let Some(votes) = self.barrier.pass(self.alive) {
            self.let_go(votes);
        }
        self.successor()
    }

    /// Gives the next fiber a stretch, and returns that fiber.
    fn enter_fresh(&mut self, stretch: Stretch) -> usize {
        self.exchange.stretch = Some(stretch);
        self.stretch_start = stretch.first_thread;
        self.fresh = true;
        self.enter(self.held);
        self.held
    }

    /// Records that fiber `index` will run.
    fn enter(&mut self, index: usize) {
        self.context.current_thread = self.holds[index];
    }

    /// Returns the next fiber in turn whose thread can continue.
    fn next_ready(&mut self) -> Option<usize> {
        let ready = |&index: &usize| self.states[self.holds[index] as usize] == ThreadState::Ready;
        (self.exchange.running() + 1..self.held).find(ready).or_else(|| (0..self.held).find(ready))
    }

    /// The running fiber cannot continue. Returns the fiber that can go on without the help of the worker.
    fn successor(&mut self) -> Option<usize> {
        if self.begun < self.total || self.failure.is_some() {
            return self.start_next();
        }
        // A fiber whose threads have all finished holds no thread, so the running one may be beyond those
        // that do.
        let mut next = self.exchange.running() + 1;
        if next >= self.held {
            next = 0;
        }
        if self.states[self.holds[next] as usize] != ThreadState::Ready {
            return None;
        }
        self.exchange.prefetch(next + 1);
        self.enter(next);
        Some(next)
    }

    /// If the next fiber already exists, gives it the threads that have not begun, and returns it.
    fn start_next(&mut self) -> Option<usize> {
        if self.failure.is_some() || self.held == self.fibers.len() {
            return None;
        }
        let block = self.context.current_block;
        let stretch = self.exchange.stretch?;
        Some(self.enter_fresh(Stretch { first: block, end: block + 1, first_thread: self.begun, ..stretch }))
    }

    /// Returns true if each thread of the block has a fiber with the thread's number, and nothing has failed.
    fn all_held(&self) -> bool {
        self.held == self.total as usize && self.failure.is_none()
    }

    /// Returns why the run ends.
    #[cold]
    fn end(&mut self, stop: Stop) -> Failure {
        if stop == Stop::Crashed {
            let crash = self.crash.take();
            self.crash_address = crash.filter(Crash::is_access).map(|crash| crash.address);
            let message = crash.map_or_else(|| "crashes".into(), |crash| crash.to_string());
            self.failure = Some(self.failure_at(self.running_thread(), message));
        }
        self.failure.take().unwrap_or_else(|| self.failure_at(None, "is ended".into()))
    }

    fn exit(&mut self, threads: std::ops::Range<u32>) {
        self.alive -= threads.len() as u32;
        self.states[threads.start as usize..threads.end as usize].fill(ThreadState::Exited);
    }

    /// Records that `thread` waits, and which threads before it in its stretch have returned.
    #[inline]
    fn hold(&mut self, thread: u32) {
        if self.fresh {
            self.hold_first(thread);
        }
    }

    fn hold_first(&mut self, thread: u32) {
        if !self.in_block {
            self.in_block = true;
            self.total = self.context.block.count() as u32;
            self.states[..self.total as usize].fill(ThreadState::Pending);
            self.barrier = Barrier::default();
            self.alive = self.total;
        }
        let fiber = self.exchange.running();
        self.fresh = false;
        self.begun = thread + 1;
        self.held = fiber + 1;
        self.exit(self.stretch_start..thread);
        self.holds[fiber] = thread;
        self.context.current_thread = thread;
    }

    /// Returns the threads of the block.
    fn threads(&mut self) -> Threads<'_> {
        Threads {
            states: &mut self.states[..self.total as usize],
            lanes: &mut self.lanes,
            warp_size: self.context.warp_size,
        }
    }

    /// Makes a thread wait at a barrier. `here` is its stack pointer. Returns the next thread's stack pointer
    /// to continue with. If this is not the usual arrival or the next thread cannot run, returns `None` and
    /// changes nothing.
    #[inline]
    pub(crate) fn take_turns(
        &mut self,
        thread: u32,
        predicate: u32,
        line: u32,
        here: usize,
    ) -> Option<usize> {
        if !self.barrier.is_usual(line, self.alive) {
            return None;
        }
        let next = if thread + 1 == self.total { 0 } else { thread + 1 };
        let fiber = next as usize;
        if self.states[fiber % MAX_THREADS] != ThreadState::Ready {
            return None;
        }
        self.barrier.join(predicate);
        self.states[thread as usize % MAX_THREADS] = ThreadState::AtBarrier;
        self.context.current_thread = next;
        self.exchange.prefetch(fiber + 1);
        Some(self.exchange.pass_turn(here, Some(fiber)))
    }

    /// Makes a thread wait at a barrier. `here` is its stack pointer. Returns the stack pointer to continue
    /// with: another thread's, the worker's, or `here` if the thread is the last to arrive.
    pub(crate) fn arrive_at_barrier(
        &mut self,
        thread: u32,
        predicate: u32,
        site: Site,
        here: usize,
    ) -> usize {
        self.hold(thread);
        let all_held = self.all_held();
        if let Err(other) = self.barrier.meet(site, all_held) {
            self.different_barriers(thread, site, other);
        }
        self.states[thread as usize] = ThreadState::AtBarrier;
        self.barrier.join(predicate);
        if let Some(votes) = self.barrier.pass(self.alive) {
            self.let_go(votes);
            return here;
        }
        let next = self.successor();
        self.exchange.pass_turn(here, next)
    }

    /// Releases the threads that wait at the barrier, which are all that have not returned.
    fn let_go(&mut self, votes: u32) {
        self.context.vote = votes;
        let states = &mut self.states[..self.total as usize];
        if self.alive == self.total {
            states.fill(ThreadState::Ready);
        } else {
            states
                .iter_mut()
                .filter(|state| **state == ThreadState::AtBarrier)
                .for_each(|state| *state = ThreadState::Ready);
        }
    }

    #[cold]
    fn different_barriers(&mut self, thread: u32, site: Site, other: Site) {
        let message = format!(
            "waits at the barrier at {site} while other threads wait at the one at {other}: every thread of a block \
             must reach the same barrier"
        );
        let failure = self.failure_at(Some(thread), message);
        self.set_failure(failure);
    }

    /// Makes a thread wait in the warp operation that its lane describes. `here` is its stack pointer.
    /// Returns the stack pointer to continue with: another thread's, the worker's, or `here` if the thread
    /// completes the operation.
    pub(crate) fn arrive_at_warp(&mut self, thread: u32, here: usize) -> usize {
        self.hold(thread);
        if warp::enter(&mut self.threads(), thread) {
            return here;
        }
        let next = self.successor();
        self.exchange.pass_turn(here, next)
    }

    /// Returns the coordinates of a thread.
    fn place(&self, thread: u32) -> Dim {
        self.context.block.place(u64::from(thread))
    }

    pub(crate) fn failure_at(&self, thread: Option<u32>, message: String) -> Failure {
        Failure { block: self.context.current_block, thread, message }
    }

    /// Returns what the worker and its fibers share.
    pub(crate) fn exchange(&mut self) -> *mut Exchange {
        &raw mut self.exchange
    }

    /// Returns the running fiber, for the signal handler.
    pub(crate) fn running(&self) -> Option<&Fiber> {
        self.fibers.get(self.exchange.running())
    }

    /// Returns the running thread, if we know it without asking the module.
    fn running_thread(&self) -> Option<u32> {
        (self.in_block && !self.fresh).then_some(self.context.current_thread)
    }

    /// Makes the run end with this failure, unless there already is one.
    pub(crate) fn set_failure(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Takes the address that the last crashed kernel could not access.
    pub(crate) fn crash_address(&mut self) -> Option<usize> {
        self.crash_address.take()
    }

    /// Throws away all fibers, because after a failure there are still kernels on them. We cannot continue
    /// those, and they own nothing that we would have to drop.
    pub(crate) fn abandon(&mut self) {
        self.fibers.clear();
        self.held = 0;
        self.in_block = false;
        self.failure = None;
    }
}

/// Continues after a stretch. [`Exchange`] calls this on the fiber that has finished it.
unsafe fn on_done(context: *mut Context) -> Option<usize> {
    // SAFETY: the context is the first field of a runner, whose worker waits in `Exchange::run` while fibers run.
    unsafe { (*context.cast::<Runner>()).finished() }
}
