//! A running operation, shared by idle workers.
//!
//! The worker that begins the operation leads. It works in growing chunks, and once there is clearly enough
//! to share, it offers the rest to idle workers. Whichever worker finishes last completes the operation, so
//! no worker waits for another. Units are begun in order, because blocks may wait for earlier blocks.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::processor;
use crate::shared::{Shared, Worker};
use crate::stray::Watch;
use crate::work::Task;
use crate::worker::{Runnable, SharedOffer, SharedTask};

/// We offer an operation to other workers if it takes longer than this, which is about what it costs to wake
/// one.
const SHARE_AFTER: Duration = Duration::from_micros(15);
/// The smallest chunks should take about this long, so that all workers finish together.
const CHUNK: Duration = Duration::from_micros(40);
/// How many small chunks a large chunk may have. There is a limit because the cost of the next blocks is a
/// guess.
const LARGEST: u64 = 8;
/// An idle worker comes within this time, unless it is waiting for the leader's processor.
const COMES_WITHIN: Duration = Duration::from_micros(40);
/// The value that stands for no processor.
const NOWHERE: usize = usize::MAX;

/// A slot for one operation at a time.
pub(crate) struct Job {
    /// Alive while workers are on the job.
    work: UnsafeCell<*const Task>,
    units: AtomicU64,
    /// The first unit that is not claimed. If none is left, a number past the end.
    next: AtomicU64,
    /// How many workers are on the operation.
    crew: AtomicU32,
    /// The processor that helpers must leave to the leader.
    place: AtomicUsize,
    /// How many workers may be on an operation at once, at least one.
    most: u32,
}

// SAFETY: `work` is written by `begin`, when no worker is on the job, and only read while there are some. The
// crew counter's release and acquire order the two.
unsafe impl Sync for Job {}
// SAFETY: everything in it may move between threads, and so may the work that it points to.
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

    /// Runs an operation on this worker and on those that come to help. Returns true if the operation is
    /// complete. Otherwise the last helper will complete it, and you must not touch the job anymore.
    ///
    /// # Safety
    /// The previous operation in here must be complete, and only the caller may begin the next. The work must
    /// stay unchanged in its place until the operation is complete. The promises of the operation's
    /// submission must hold.
    #[inline]
    pub(crate) unsafe fn run(
        &self,
        work: *const Task,
        worker: &mut Worker,
        task: *const dyn Runnable<Shared>,
        part: usize,
    ) -> bool {
        let device = worker.device();
        // SAFETY: passed on to the caller.
        unsafe {
            let watch = device.options.check.then(|| Watch::begin(&*work, device));
            let units = (*work).units();
            let complete = if units == 1 {
                // There is nothing to share.
                if let Err(error) = (*work).run(worker, 0, 1) {
                    device.lose(error);
                }
                true
            } else {
                self.begin(work, units);
                self.lead(worker, task, part)
            };
            // In checked mode this worker has done all of it.
            if let Some(watch) = watch
                && let Some(error) = watch.end(&*work, device)
                && !device.is_lost()
            {
                device.lose(error);
            }
            complete
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
    /// Must follow `begin`, once. What the submission promised must hold.
    #[inline(never)]
    unsafe fn lead(&self, worker: &mut Worker, task: *const dyn Runnable<Shared>, part: usize) -> bool {
        // Checked mode looks for damage after each block, so another worker must not cause any meanwhile.
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

    /// Offers the remaining units to other workers, and helps with them.
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
                    // The helper runs on the same processor. One of them moves away, and the other keeps it.
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

    /// Does the next chunk: a multiple of `grain` units. Adapts `grain` to the time that it took. Returns
    /// false if nothing worth doing is left.
    ///
    /// # Safety
    /// This worker must be on the operation, and the promises of its submission must hold.
    unsafe fn take(&self, worker: &mut Worker, grain: &mut u64) -> bool {
        let units = self.units.load(Ordering::Relaxed);
        let times = (self.fair_part(worker, units) / *grain).clamp(1, LARGEST);
        let chunk = *grain * times;
        let first = self.next.fetch_add(chunk, Ordering::Relaxed);
        // You never get results of a lost device, so the operation stops as soon as it can.
        if worker.device().is_lost() {
            self.stop();
            return false;
        }
        if first >= units {
            return false;
        }
        // SAFETY: `begin` is done, by the caller's promise, and the work stays while this worker is on the
        // job.
        let work = unsafe { &**self.work.get() };
        let begun = Instant::now();
        // SAFETY: passed on to the caller; these units are claimed, so no other worker gets them.
        if let Err(error) = unsafe { work.run(worker, first, (first + chunk).min(units)) } {
            worker.device().lose(error);
            // After an error you cannot use the result, so we skip the rest.
            self.stop();
            return false;
        }
        *grain = next_grain(*grain, begun.elapsed() / times as u32, units);
        true
    }

    /// Returns half of the share that this worker has in what is left, if all allowed workers come
    /// (Polychronopoulos and Kuck, "Guided Self-Scheduling", 1987). Returns 0 for a worker that is alone,
    /// because it can leave everything to the workers that may come. Neighbouring units touch neighbouring
    /// memory, so if two workers alternated, they would exchange cache lines.
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
        // At least 16 chunks, so that late helpers still get some.
        (grain * 2).min((units / 16).max(1))
    } else if took > CHUNK * 2 {
        (grain / 2).max(1)
    } else {
        grain
    }
}
