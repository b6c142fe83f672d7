//! One running operation, shared by the workers that have nothing better to do.
//!
//! The worker that begins the operation leads: it does units in growing chunks and, once there is clearly enough to
//! share, offers the rest to idle workers. The worker that finishes last completes the operation, so no worker waits
//! for another. Units are begun in their order, since blocks may wait for those before them.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::processor;
use crate::shared::{Shared, Worker};
use crate::work::Task;
use crate::worker::{Runnable, SharedOffer, SharedTask};

/// An operation that takes longer than this is offered to other workers: about what waking one costs.
const SHARE_AFTER: Duration = Duration::from_micros(15);
/// The smallest chunks are sized to take about this long, so that the last ones end together.
const CHUNK: Duration = Duration::from_micros(40);
/// The most small chunks in a large one: the cost of the blocks ahead is a guess.
const LARGEST: u64 = 8;
/// A worker that is idle comes within this time, unless it waits for the leader's processor.
const COMES_WITHIN: Duration = Duration::from_micros(40);
/// The value that stands for no processor.
const NOWHERE: usize = usize::MAX;

/// A place in which one operation runs at a time.
pub(crate) struct Job {
    /// Alive while workers are on the job.
    work: UnsafeCell<*const Task>,
    units: AtomicU64,
    /// The first unit that nobody has claimed; beyond the last one if none is left.
    next: AtomicU64,
    /// Workers on the operation.
    crew: AtomicU32,
    /// The processor on which the leader is to be left alone.
    place: AtomicUsize,
    /// The most workers that may be on an operation at once, at least one.
    most: u32,
}

// SAFETY: `work` is written by `begin`, when no worker is on the job, and only read while there are; the crew
// counter's release and acquire order the two.
unsafe impl Sync for Job {}
// SAFETY: all of it may move between threads, and so may the work that it points to.
unsafe impl Send for Job {}

/// The work of a job that has not begun.
static NOTHING: Task = Task::Empty;

impl Job {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            work: UnsafeCell::new(&raw const NOTHING),
            units: AtomicU64::new(0),
            next: AtomicU64::new(0),
            crew: AtomicU32::new(0),
            place: AtomicUsize::new(NOWHERE),
            most,
        }
    }

    /// Runs an operation on this worker and those that come to help. True if the operation is complete; otherwise the
    /// last helper will complete it, and the job must not be touched any more.
    ///
    /// # Safety
    /// The last operation in here is complete, and the caller alone may begin the next. The work stays as it is and where
    /// it is until the operation is complete. The promises of the operation's submission hold.
    #[inline]
    pub(crate) unsafe fn run(
        &self,
        work: *const Task,
        worker: &mut Worker,
        task: *const dyn Runnable<Shared>,
        part: usize,
    ) -> bool {
        // SAFETY: passed on to the caller.
        unsafe {
            let units = (*work).units();
            if units != 1 {
                self.begin(work, units);
                return self.lead(worker, task, part);
            }
            // There is nothing to share.
            if let Err(error) = (*work).run(worker, 0, 1) {
                worker.device().lose(error);
            }
            true
        }
    }

    /// Puts an operation in.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn begin(&self, work: *const Task, units: u64) {
        self.units.store(units, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        // SAFETY: no worker reads the pointer now.
        unsafe { *self.work.get() = work };
        self.crew.store(1, Ordering::Release);
    }

    /// Runs the operation that was put in, as [`run`](Self::run) does.
    ///
    /// # Safety
    /// Follows `begin`, once. The promises of the operation's submission hold.
    #[inline(never)]
    unsafe fn lead(&self, worker: &mut Worker, task: *const dyn Runnable<Shared>, part: usize) -> bool {
        // Damage in checked mode is looked for after each block, and must not be another worker's.
        let alone = worker.device().options.check || self.most == 1;
        let (begun, mut grain) = (Instant::now(), 1);
        // SAFETY: this worker is on the job.
        if !alone && unsafe { (**self.work.get()).is_offered_first() } {
            // SAFETY: passed on to the caller.
            unsafe { self.share(worker, grain, SharedOffer { job: self, task, part }) };
            return self.leave();
        }
        // SAFETY: passed on to the caller; the claimed units are this worker's.
        while unsafe { self.take(worker, &mut grain) } {
            if !alone && begun.elapsed() > SHARE_AFTER && self.is_any_left() {
                // SAFETY: passed on to the caller.
                unsafe { self.share(worker, grain, SharedOffer { job: self, task, part }) };
                break;
            }
        }
        self.leave()
    }

    /// Offers the units that are left, and takes part in them.
    ///
    /// # Safety
    /// As for [`lead`](Self::lead).
    unsafe fn share(&self, worker: &mut Worker, mut grain: u64, offer: SharedOffer<Shared>) {
        self.place.store(processor::current(), Ordering::Relaxed);
        let (ticket, others) = worker.device().scheduler.offer(offer);
        let mut expected = others.then(Instant::now);
        // SAFETY: passed on to the caller; the claimed units are this worker's.
        while unsafe { self.take(worker, &mut grain) } {
            if expected.is_some_and(|since| since.elapsed() > COMES_WITHIN) {
                expected = None;
                if self.crew.load(Ordering::Relaxed) == 1 {
                    // One of the two moves, and the other has the processor.
                    self.place.store(NOWHERE, Ordering::Relaxed);
                    processor::move_away();
                }
            }
        }
        worker.device().scheduler.withdraw(ticket);
    }

    fn is_any_left(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.units.load(Ordering::Relaxed)
    }

    fn leave(&self) -> bool {
        self.crew.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Does the next chunk of one or several times `grain` units, and adapts `grain` to the time that it took. Returns false if
    /// nothing is left, or nothing worth doing.
    ///
    /// # Safety
    /// This worker is on the operation, and the promises of its submission hold.
    unsafe fn take(&self, worker: &mut Worker, grain: &mut u64) -> bool {
        let units = self.units.load(Ordering::Relaxed);
        let times = (self.fair_part(worker, units) / *grain).clamp(1, LARGEST);
        let chunk = *grain * times;
        let first = self.next.fetch_add(chunk, Ordering::Relaxed);
        // A lost device's results are never handed out, so the operation stops where it can.
        if worker.device().is_lost() {
            self.stop();
            return false;
        }
        if first >= units {
            return false;
        }
        // SAFETY: `begin` is done, by the caller's promise, and the work stays while this worker is on the job.
        let work = unsafe { &**self.work.get() };
        let begun = Instant::now();
        // SAFETY: passed on to the caller; nobody else gets the units that were claimed.
        if let Err(error) = unsafe { work.run(worker, first, (first + chunk).min(units)) } {
            worker.device().lose(error);
            // The rest of the operation is not worth doing.
            self.stop();
            return false;
        }
        *grain = next_grain(*grain, begun.elapsed() / times as u32, units);
        true
    }

    /// Returns half of a worker's part of what is left, if all come that may (Polychronopoulos and Kuck, "Guided
    /// Self-Scheduling", 1987); or 0 for one worker alone, which leaves all of it to the workers that may come.
    /// Neighbouring units touch neighbouring memory: if two workers did them in turns, they would exchange its lines.
    fn fair_part(&self, worker: &Worker, units: u64) -> u64 {
        if self.crew.load(Ordering::Relaxed) == 1 {
            return 0;
        }
        let workers = u64::from(self.most).min(worker.workers());
        units.saturating_sub(self.next.load(Ordering::Relaxed)) / (2 * workers)
    }

    /// Leaves nothing to claim.
    fn stop(&self) {
        self.next.store(self.units.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl SharedTask<Shared> for Job {
    unsafe fn join(&self) -> bool {
        // Workers join one at a time, under the scheduler's lock.
        let joins = self.is_any_left() && self.crew.load(Ordering::Relaxed) < self.most;
        if joins {
            self.crew.fetch_add(1, Ordering::Relaxed);
        }
        joins
    }

    unsafe fn help(&self, worker: &mut Worker) -> bool {
        if self.place.load(Ordering::Relaxed) == processor::current() {
            processor::move_away();
        }
        let mut grain = 1;
        // SAFETY: passed on to the caller; the claimed units are this worker's.
        while unsafe { self.take(worker, &mut grain) } {}
        self.leave()
    }
}

fn next_grain(grain: u64, took: Duration, units: u64) -> u64 {
    if took < CHUNK / 2 {
        // At least 16 chunks, so that late helpers still find some.
        (grain * 2).min((units / 16).max(1))
    } else if took > CHUNK * 2 {
        (grain / 2).max(1)
    } else {
        grain
    }
}
