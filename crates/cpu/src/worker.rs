//! Workers: the threads of a device, and how they find something to do.
//!
//! A device has one worker per core. Streams with something to do queue up here, most urgent first. An idle
//! worker takes one, or helps with an operation that another worker offers. Kernels may wait for kernels in
//! other streams, so every stream must get a thread eventually, even if you have more streams than cores. If
//! streams queue up and no worker becomes free for a moment, the watchdog adds workers, and they leave again
//! when there is nothing to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpustream_hal::thread::with_signals_blocked;

use crate::block::Runner;
use crate::calls::HOST;
use crate::fault::AltStack;
use crate::sync::lock;

/// Stream priorities: 0 the least urgent, the others below zero.
pub(crate) const PRIORITIES: usize = 6;

/// How long the last idle worker looks for work before it sleeps, because waking it costs the host more than
/// a launch may.
const SPIN: Duration = Duration::from_micros(30);
/// How long streams may queue up without any being taken before we add a worker.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long an added worker stays if it has nothing to do, or if we have not had to add a worker while
/// another one sleeps. Without the second rule, work that wakes each worker in turn would keep all that were
/// ever added.
const LINGER: Duration = Duration::from_millis(500);
/// How many workers a device may have.
const MOST: usize = 4096;

/// Something for the workers of a device `D` to do: a stream's next operations, or the nodes of a running
/// graph.
pub(crate) trait Runnable<D>: Send + Sync {
    /// Begins the task. `part` is the node of a graph; its dependencies are done.
    fn run(self: Arc<Self>, part: usize, worker: &mut Worker<D>);

    /// Continues after the offered operation. This worker did the last share of it.
    fn completed(self: Arc<Self>, part: usize, worker: &mut Worker<D>);
}

/// A running operation that other workers may help with.
pub(crate) trait SharedTask<D>: Sync {
    /// Counts another worker in, if something is left for it.
    ///
    /// # Safety
    /// The operation must be offered, and must not be withdrawn meanwhile.
    unsafe fn join(&self) -> bool;

    /// Does a share of the operation. Returns true if that completed it.
    ///
    /// # Safety
    /// [`join`](Self::join) must have counted this worker.
    unsafe fn help(&self, worker: &mut Worker<D>) -> bool;
}

/// An operation that others may help with, and the task that continues when it is complete.
pub(crate) struct SharedOffer<D: 'static> {
    pub(crate) job: *const dyn SharedTask<D>,
    /// From `Arc::into_raw`. The count passes to the worker that completes the operation.
    pub(crate) task: *const dyn Runnable<D>,
    pub(crate) part: usize,
}

// SAFETY: the job stays in place until it is complete, which is after its withdrawal. Owners are counted
// references that may move between threads.
unsafe impl<D> Send for SharedOffer<D> {}

/// A task that waits for a worker, and its part.
type Waiting<D> = (Arc<dyn Runnable<D>>, usize);

struct Queues<D: 'static> {
    tasks: [VecDeque<Waiting<D>>; PRIORITIES],
    offers: Vec<(u64, SharedOffer<D>)>,
    tickets: u64,
    /// Number of workers that sleep.
    idle: usize,
    workers: usize,
    /// When the last worker was added.
    added: Instant,
}

impl<D> Queues<D> {
    fn new() -> Self {
        let tasks = [const { VecDeque::new() }; PRIORITIES];
        Self { tasks, offers: Vec::new(), tickets: 0, idle: 0, workers: 0, added: Instant::now() }
    }

    fn pop(&mut self) -> Option<Waiting<D>> {
        self.tasks.iter_mut().rev().find_map(VecDeque::pop_front)
    }

    fn waiting(&self) -> usize {
        self.tasks.iter().map(VecDeque::len).sum()
    }
}

/// The tasks that wait for workers of a device `D`.
pub(crate) struct Scheduler<D: 'static> {
    queues: Mutex<Queues<D>>,
    wake: Condvar,
    /// Number of tasks and offers, for a look without the lock.
    pending: AtomicUsize,
    /// How many workers look for work without sleeping: none or one.
    spinning: AtomicUsize,
    /// How many tasks were taken so far. The watchdog looks at it for progress.
    taken: AtomicU64,
    /// True if the watchdog is awake.
    armed: AtomicBool,
    alarm: Condvar,
    alarm_lock: Mutex<()>,
    /// How many workers always stay.
    base: usize,
}

impl<D: Sync> Scheduler<D> {
    pub(crate) fn new(base: usize) -> Self {
        Self {
            queues: Mutex::new(Queues::new()),
            wake: Condvar::new(),
            pending: AtomicUsize::new(0),
            spinning: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            alarm: Condvar::new(),
            alarm_lock: Mutex::new(()),
            base,
        }
    }

    /// Starts the workers and the watchdog of `device`, which has this number.
    pub(crate) fn start(&'static self, device: &'static D, ordinal: usize) -> std::io::Result<()> {
        let crew = Crew { scheduler: self, device, ordinal };
        for _ in 0..self.base {
            crew.spawn()?;
        }
        let builder = std::thread::Builder::new().name(format!("gpustream-cpu{ordinal}-watch"));
        with_signals_blocked(|| builder.spawn(move || crew.watch()))?;
        Ok(())
    }

    /// Queues a part of a task; `level` 0 is the least urgent.
    pub(crate) fn push(&self, task: Arc<dyn Runnable<D>>, part: usize, level: usize) {
        let mut queues = lock(&self.queues);
        queues.tasks[level.min(PRIORITIES - 1)].push_back((task, part));
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.rouse(queues);
    }

    /// Returns true if tasks wait for a worker.
    pub(crate) fn is_contended(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// Offers a job to idle workers. Returns the ticket for withdrawing it, and whether any worker will come.
    pub(crate) fn offer(&self, offer: SharedOffer<D>) -> (u64, bool) {
        let mut queues = lock(&self.queues);
        queues.tickets += 1;
        let ticket = queues.tickets;
        queues.offers.push((ticket, offer));
        self.pending.fetch_add(1, Ordering::SeqCst);
        let asleep = queues.idle > 0;
        if asleep {
            self.wake.notify_all();
        }
        (ticket, asleep || self.spinning.load(Ordering::SeqCst) != 0)
    }

    /// Ends an offer. No more workers join.
    pub(crate) fn withdraw(&self, ticket: u64) {
        let mut queues = lock(&self.queues);
        if let Some(index) = queues.offers.iter().position(|(t, _)| *t == ticket) {
            queues.offers.swap_remove(index);
            self.pending.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Makes sure that a worker looks at the waiting tasks.
    fn rouse(&self, queues: MutexGuard<'_, Queues<D>>) {
        if self.spinning.load(Ordering::SeqCst) != 0 {
            return;
        }
        if queues.idle > 0 {
            drop(queues);
            self.wake.notify_one();
        } else if !self.armed.swap(true, Ordering::SeqCst) {
            drop(queues);
            drop(lock(&self.alarm_lock));
            self.alarm.notify_one();
        }
    }

    /// Waits for the next thing to do. Returns `None` if this worker must end.
    fn next(&self) -> Option<Next<D>> {
        let mut looked = false;
        let mut queues = lock(&self.queues);
        loop {
            if let Some((task, part)) = queues.pop() {
                self.pending.fetch_sub(1, Ordering::SeqCst);
                self.taken.fetch_add(1, Ordering::Relaxed);
                if queues.waiting() > 0 {
                    self.rouse(queues);
                }
                return Some(Next::Task(task, part));
            }
            // SAFETY: offers are withdrawn under this lock, before their jobs are complete.
            let open = queues.offers.iter().find(|(_, offer)| unsafe { (*offer.job).join() });
            if let Some(&(_, SharedOffer { job, task, part })) = open {
                return Some(Next::Help(SharedOffer { job, task, part }));
            }
            if !looked && self.spinning.load(Ordering::SeqCst) == 0 {
                looked = true;
                // This is set under the lock, so the next thread that pushes sees a worker that looks, and
                // need not wake one.
                self.spinning.store(1, Ordering::SeqCst);
                drop(queues);
                self.spin();
                self.spinning.store(0, Ordering::SeqCst);
                queues = lock(&self.queues);
            } else if queues.workers > self.base {
                if queues.idle > 0 && queues.added.elapsed() > LINGER {
                    queues.workers -= 1;
                    return None;
                }
                queues.idle += 1;
                let (guard, timeout) =
                    self.wake.wait_timeout(queues, LINGER).unwrap_or_else(PoisonError::into_inner);
                queues = guard;
                queues.idle -= 1;
                if timeout.timed_out() && queues.workers > self.base && queues.waiting() == 0 {
                    queues.workers -= 1;
                    return None;
                }
            } else {
                queues.idle += 1;
                queues = self.wake.wait(queues).unwrap_or_else(PoisonError::into_inner);
                queues.idle -= 1;
            }
        }
    }

    fn spin(&self) {
        let begun = Instant::now();
        while self.pending.load(Ordering::SeqCst) == 0 && begun.elapsed() < SPIN {
            for _ in 0..16 {
                std::hint::spin_loop();
            }
        }
    }
}

enum Next<D: 'static> {
    Task(Arc<dyn Runnable<D>>, usize),
    Help(SharedOffer<D>),
}

/// The threads of one device.
struct Crew<D: 'static> {
    scheduler: &'static Scheduler<D>,
    device: &'static D,
    ordinal: usize,
}

impl<D: Sync> Crew<D> {
    /// Adds workers while tasks wait and none is taken.
    fn watch(&self) {
        let scheduler = self.scheduler;
        loop {
            let mut guard = lock(&scheduler.alarm_lock);
            while !scheduler.armed.load(Ordering::SeqCst) {
                guard = scheduler.alarm.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            drop(guard);
            let mut step = 1;
            loop {
                let before = scheduler.taken.load(Ordering::Relaxed);
                std::thread::sleep(PATIENCE);
                let queues = lock(&scheduler.queues);
                let waiting = queues.waiting();
                if waiting == 0 {
                    scheduler.armed.store(false, Ordering::SeqCst);
                    break;
                }
                let room = MOST.saturating_sub(queues.workers);
                drop(queues);
                if scheduler.taken.load(Ordering::Relaxed) != before {
                    step = 1;
                    continue;
                }
                for _ in 0..step.min(waiting).min(room) {
                    // If there can be no other thread, the tasks wait for one of the busy ones.
                    if self.spawn().is_err() {
                        break;
                    }
                }
                step *= 2;
            }
        }
    }

    /// Adds a worker.
    fn spawn(&self) -> std::io::Result<()> {
        let (scheduler, device) = (self.scheduler, self.device);
        {
            let mut queues = lock(&scheduler.queues);
            queues.workers += 1;
            queues.added = Instant::now();
        }
        let name = format!("gpustream-cpu{}", self.ordinal);
        let builder = std::thread::Builder::new().name(name).stack_size(1 << 20);
        let spawned = with_signals_blocked(|| builder.spawn(move || Worker::new(scheduler, device).work()));
        if spawned.is_err() {
            lock(&scheduler.queues).workers -= 1;
        }
        spawned.map(drop)
    }
}

/// A worker thread of a device `D`.
pub(crate) struct Worker<D: 'static> {
    scheduler: &'static Scheduler<D>,
    device: &'static D,
    runner: *mut Runner,
    alt_stack: Option<AltStack>,
}

impl<D: Sync> Worker<D> {
    fn new(scheduler: &'static Scheduler<D>, device: &'static D) -> Self {
        let runner = Box::into_raw(Runner::new(&HOST));
        Self { scheduler, device, runner, alt_stack: Some(AltStack::install(runner)) }
    }

    pub(crate) fn device(&self) -> &'static D {
        self.device
    }

    /// Returns how many workers always stay.
    pub(crate) fn workers(&self) -> u64 {
        self.scheduler.base as u64
    }

    /// Returns the runner that this thread runs kernels on.
    pub(crate) fn runner(&mut self) -> *mut Runner {
        self.runner
    }

    fn work(mut self) {
        while let Some(next) = self.scheduler.next() {
            match next {
                Next::Task(task, part) => task.run(part, &mut self),
                Next::Help(SharedOffer { job, task, part }) => {
                    // SAFETY: `next` counted this worker in.
                    if unsafe { (*job).help(&mut self) } {
                        // SAFETY: the leader was not the last, so it has handed its count on.
                        let task = unsafe { Arc::from_raw(task) };
                        task.completed(part, &mut self);
                    }
                }
            }
        }
    }
}

impl<D> Drop for Worker<D> {
    fn drop(&mut self) {
        // This also clears the signal handler's pointer to the runner.
        self.alt_stack = None;
        // SAFETY: made by `Box::into_raw` and used by this thread alone.
        drop(unsafe { Box::from_raw(self.runner) });
    }
}
