//! Workers: the threads of a device, and how they find something to do.
//!
//! A device has one worker per core. Streams with something to do queue up here, most urgent first; an idle worker
//! takes one, else it helps with an operation that another worker offers. Kernels may wait for each other across
//! streams, so every stream must get a thread in the end: where streams queue up and no worker comes free
//! for a moment, the watchdog adds workers, which leave again when there is nothing to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::block::Runner;
use crate::calls::HOST;
use crate::device::Shared;
use crate::fault::AltStack;
use crate::job::{Offer, Owner};
use crate::plan::GraphRun;
use crate::stream::{self, Stream};
use crate::sync::lock;

/// Stream priorities: 0 the least urgent, the others below zero.
pub(crate) const PRIORITIES: usize = 6;

/// How long the last idle worker looks for work before it sleeps: waking it costs the host more than a launch may.
const SPIN: Duration = Duration::from_micros(30);
/// How long streams may queue up without any being taken before a worker is added.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long an added worker stays with nothing to do.
const LINGER: Duration = Duration::from_millis(500);
/// Most workers of a device.
const MOST: usize = 4096;

/// Something for a worker to begin.
pub(crate) enum Task {
    /// The next operations of a stream.
    Stream(Arc<Stream>),
    /// A node of a graph whose dependencies are done.
    Node(Arc<GraphRun>, usize),
}

#[derive(Default)]
struct Queues {
    tasks: [VecDeque<Task>; PRIORITIES],
    offers: Vec<(u64, Offer)>,
    tickets: u64,
    /// Workers that sleep.
    idle: usize,
    workers: usize,
}

impl Queues {
    fn pop(&mut self) -> Option<Task> {
        self.tasks.iter_mut().rev().find_map(VecDeque::pop_front)
    }

    fn waiting(&self) -> usize {
        self.tasks.iter().map(VecDeque::len).sum()
    }
}

/// Where tasks wait for workers.
pub(crate) struct Scheduler {
    queues: Mutex<Queues>,
    wake: Condvar,
    /// Tasks and offers, for a look without the lock.
    pending: AtomicUsize,
    /// Workers that look for work without sleeping: none or one.
    spinning: AtomicUsize,
    /// Tasks taken so far; the watchdog's sign of life.
    taken: AtomicU64,
    /// The watchdog is awake.
    armed: AtomicBool,
    alarm: Condvar,
    alarm_lock: Mutex<()>,
    /// Workers that stay.
    base: usize,
}

impl Scheduler {
    pub(crate) fn new(base: usize) -> Self {
        Self {
            queues: Mutex::default(),
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

    /// Starts the workers and the watchdog.
    pub(crate) fn start(shared: &'static Shared) -> std::io::Result<()> {
        for _ in 0..shared.scheduler.base {
            spawn(shared)?;
        }
        std::thread::Builder::new()
            .name(format!("gpustream-cpu{}-watch", shared.ordinal))
            .spawn(move || watch(shared))?;
        Ok(())
    }

    /// Queues a task; `level` 0 is the least urgent.
    pub(crate) fn push(&self, task: Task, level: usize) {
        let mut queues = lock(&self.queues);
        queues.tasks[level.min(PRIORITIES - 1)].push_back(task);
        self.pending.fetch_add(1, Ordering::SeqCst);
        self.rouse(queues);
    }

    /// Whether tasks wait for a worker.
    pub(crate) fn is_contended(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// Offers a job to idle workers.
    pub(crate) fn offer(&self, offer: Offer) -> u64 {
        let mut queues = lock(&self.queues);
        queues.tickets += 1;
        let ticket = queues.tickets;
        queues.offers.push((ticket, offer));
        self.pending.fetch_add(1, Ordering::SeqCst);
        if queues.idle > 0 {
            self.wake.notify_all();
        }
        ticket
    }

    /// Ends an offer: nobody joins any more.
    pub(crate) fn withdraw(&self, ticket: u64) {
        let mut queues = lock(&self.queues);
        if let Some(index) = queues.offers.iter().position(|(t, _)| *t == ticket) {
            queues.offers.swap_remove(index);
            self.pending.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Sees to it that somebody looks at the tasks that wait.
    fn rouse(&self, queues: MutexGuard<'_, Queues>) {
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

    /// The next thing to do, or none if this worker is to end.
    fn next(&self) -> Option<Next> {
        let mut looked = false;
        let mut queues = lock(&self.queues);
        loop {
            if let Some(task) = queues.pop() {
                self.pending.fetch_sub(1, Ordering::SeqCst);
                self.taken.fetch_add(1, Ordering::Relaxed);
                if queues.waiting() > 0 {
                    self.rouse(queues);
                }
                return Some(Next::Task(task));
            }
            // SAFETY: offers are withdrawn under this lock, before their jobs are complete.
            let open = queues.offers.iter().find(|(_, offer)| unsafe { (*offer.job).join() });
            if let Some((_, offer)) = open {
                return Some(Next::Help(*offer));
            }
            if !looked && self.spinning.load(Ordering::SeqCst) == 0 {
                looked = true;
                // Set under the lock: whoever pushes next sees a worker that looks, and need not wake one.
                self.spinning.store(1, Ordering::SeqCst);
                drop(queues);
                self.spin();
                self.spinning.store(0, Ordering::SeqCst);
                queues = lock(&self.queues);
            } else if queues.workers > self.base {
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

enum Next {
    Task(Task),
    Help(Offer),
}

/// Adds workers while tasks wait and none is taken.
fn watch(shared: &'static Shared) {
    let scheduler = &shared.scheduler;
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
                // Without another thread the tasks wait for one of those that are busy.
                if spawn(shared).is_err() {
                    break;
                }
            }
            step *= 2;
        }
    }
}

fn spawn(shared: &'static Shared) -> std::io::Result<()> {
    lock(&shared.scheduler.queues).workers += 1;
    let spawned = std::thread::Builder::new()
        .name(format!("gpustream-cpu{}", shared.ordinal))
        .stack_size(1 << 20)
        .spawn(move || Worker::new(shared).work());
    if spawned.is_err() {
        lock(&shared.scheduler.queues).workers -= 1;
    }
    spawned.map(drop)
}

/// What belongs to one worker thread.
pub(crate) struct Worker {
    shared: &'static Shared,
    runner: *mut Runner,
    alt_stack: Option<AltStack>,
}

impl Worker {
    fn new(shared: &'static Shared) -> Self {
        let runner = Box::into_raw(Runner::new(&HOST));
        Self { shared, runner, alt_stack: Some(AltStack::install(runner)) }
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// Where this thread runs kernels.
    pub(crate) fn runner(&mut self) -> *mut Runner {
        self.runner
    }

    fn work(mut self) {
        while let Some(next) = self.shared.scheduler.next() {
            match next {
                Next::Task(Task::Stream(stream)) => stream::run(&mut self, stream),
                Next::Task(Task::Node(run, node)) => crate::plan::run_node(&mut self, run, node),
                Next::Help(offer) => {
                    // SAFETY: `next` counted this worker in.
                    if unsafe { (*offer.job).help(&mut self) } {
                        self.complete(offer.owner);
                    }
                }
            }
        }
    }

    /// Goes on after the last share of an offered job.
    fn complete(&mut self, owner: Owner) {
        match owner {
            Owner::Stream(stream) => {
                // SAFETY: the leader handed its count on by not being the last.
                let stream = unsafe { Arc::from_raw(stream) };
                stream.completed_one();
                stream::run(self, stream);
            }
            Owner::Node(run, node) => {
                // SAFETY: likewise.
                let run = unsafe { Arc::from_raw(run) };
                crate::plan::completed_node(self, run, node);
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Also clears the signal handler's pointer to the runner.
        self.alt_stack = None;
        // SAFETY: made by `Box::into_raw` and used by this thread alone.
        drop(unsafe { Box::from_raw(self.runner) });
    }
}
