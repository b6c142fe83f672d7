//! A stream: a queue of operations. Only one worker at a time may drain it, because operations must run in
//! order.

mod registry;

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use gpustream_hal::{Result, StreamPriorities, WaitPolicy};

use crate::capture::{CapturableStream, Capture};
use crate::current_operation::{CurrentOperation, Timing};
use crate::job::Job;
use crate::memory_waits::{Awaited, Waiter};
use crate::plan::{self, GraphRun, Launcher};
use crate::progress::{self, Progress};
use crate::recorder::Numbered;
use crate::shared::{Shared, Worker};
use crate::sync::lock;
use crate::work::Task;
use crate::worker::{PRIORITIES, Runnable};

pub(crate) use self::registry::Registry;

/// A point in a stream.
pub(crate) type Mark = progress::Point<Stream>;

/// Least urgent and most urgent priority.
pub(crate) const PRIORITY_RANGE: StreamPriorities =
    StreamPriorities { least: 0, greatest: 1 - PRIORITIES as i32 };

/// How many operations a stream can hold. A thread that submits more waits, as with GPU drivers.
const MOST_PENDING: u64 = 1024;

enum QueuedOperation {
    Work(Task),
    /// Runs a graph to its end.
    Graph(Arc<GraphRun>),
    Wait(Mark),
    WaitWord(Awaited),
    /// The number of the next operation. The entry itself does not count, and leaves the queue together with
    /// that operation.
    Number(Arc<Numbered>),
}

impl QueuedOperation {
    fn timing(&self) -> Timing {
        match self {
            Self::Work(_) => Timing::Work,
            Self::WaitWord(_) => Timing::Word,
            _ => Timing::None,
        }
    }
}

/// What submitters change in a stream, behind a lock.
#[derive(Default)]
pub(crate) struct Submissions {
    ops: VecDeque<QueuedOperation>,
    /// True if the stream is queued, running or waiting. The worker that then gets it will see what is added
    /// to `ops`.
    scheduled: bool,
    /// We know that the stream has room for operations up to this number.
    room_until: u64,
    /// The legacy stream's operation that this stream is already ordered after.
    after_legacy: u64,
    /// The points of other streams that the legacy stream is ordered after, if they are not reached yet.
    /// Empty in other streams.
    after: Vec<Mark>,
    pub(crate) capture: Option<Arc<Capture<Stream>>>,
}

/// A stream.
pub(crate) struct Stream {
    shared: &'static Shared,
    /// The device's streams.
    siblings: &'static Registry,
    level: usize,
    kind: StreamKind,
    submissions: Mutex<Submissions>,
    submitted: AtomicU64,
    progress: Progress<Arc<Stream>>,
    /// The first operation that was dropped or cut short because the device was lost.
    failed_from: AtomicU64,
    /// Operations that were taken off the queue. Only for the worker that runs the stream.
    batch: UnsafeCell<VecDeque<QueuedOperation>>,
    /// The running operation, or the last one. Written by the worker that runs the stream.
    work: UnsafeCell<Task>,
    /// The running operation, if it has a number. Only for the worker that runs the stream.
    slot: CurrentOperation,
    job: Job,
    /// How many workers may run the stream's operations.
    share: Option<u32>,
}

// SAFETY: only the worker that runs the stream uses `batch`, and it writes `work` while no worker is on the
// job. There is only one such worker at a time: `scheduled` is set under the lock by the submitter that
// queues the stream, and cleared by the worker that finds nothing left. A worker hands the stream on through
// one of four things: the scheduler's lock, the job's counter, the graph's counter, or the lock for words.
// `slot` is used only by that worker, too.
unsafe impl Sync for Stream {}
// SAFETY: everything in it may move between threads.
unsafe impl Send for Stream {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Plain,
    /// Synchronises with the legacy stream.
    Blocking,
    Legacy,
}

impl Stream {
    pub(crate) fn new(
        shared: &'static Shared,
        siblings: &'static Registry,
        priority: i32,
        kind: StreamKind,
        share: Option<u32>,
    ) -> Arc<Self> {
        let level = (-priority).clamp(-PRIORITY_RANGE.least, -PRIORITY_RANGE.greatest) as usize;
        let stream = Arc::new(Self {
            shared,
            siblings,
            level,
            kind,
            submissions: Mutex::default(),
            submitted: AtomicU64::new(0),
            progress: Progress::new(),
            failed_from: AtomicU64::new(u64::MAX),
            batch: UnsafeCell::default(),
            work: UnsafeCell::new(Task::Empty),
            slot: CurrentOperation::default(),
            job: Job::new(share.unwrap_or(u32::MAX)),
            share,
        });
        siblings.add(&stream, kind == StreamKind::Blocking);
        stream
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// Returns how many workers may run the stream's operations; `None` for all.
    pub(crate) fn share(&self) -> Option<u32> {
        self.share
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.kind == StreamKind::Legacy
    }

    /// Returns the number of the operation that was submitted last.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Returns the stream's capture. The submissions are not locked anymore, because a capture takes that
    /// lock itself.
    pub(crate) fn capture(&self) -> Option<Arc<Capture<Self>>> {
        self.submissions().capture.clone()
    }

    /// Locks the submissions.
    pub(crate) fn submissions(&self) -> MutexGuard<'_, Submissions> {
        lock(&self.submissions)
    }

    /// Returns true if everything up to operation `number` is done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.progress.is_done(number)
    }

    /// Blocks until everything up to operation `number` is done. On a lost device, blocks until the running
    /// operation has ended or has had enough time to end.
    pub(crate) fn reach(&self, number: u64, policy: WaitPolicy) -> Result<()> {
        self.shared.not_forked()?;
        self.progress.reach(number, policy, || self.shared.limit());
        self.shared.alive()
    }

    /// For a lost device, returns true if no worker is in an operation of this stream, and none can be again.
    pub(crate) fn has_stopped(&self) -> bool {
        // We hold the lock, so if an operation is added after this, its worker sees the loss.
        let submissions = lock(&self.submissions);
        let submitted = self.submitted();
        drop(submissions);
        self.is_done(submitted)
    }

    /// Locks the submissions once there is room for one more operation, or if a capture will take it. Blocks
    /// until then.
    fn with_room(&self) -> Result<MutexGuard<'_, Submissions>> {
        loop {
            let mut submissions = lock(&self.submissions);
            let submitted = self.submitted.load(Ordering::Relaxed);
            if submitted < submissions.room_until || submissions.capture.is_some() {
                return Ok(submissions);
            }
            submissions.room_until = self.progress.done() + MOST_PENDING;
            if submitted < submissions.room_until {
                return Ok(submissions);
            }
            drop(submissions);
            // We wait for half of them at once, because being woken costs more than a short operation takes.
            self.reach(submitted - MOST_PENDING / 2, WaitPolicy::Block)?;
        }
    }

    /// Blocks until everything that was submitted is done; see [`reach`](Self::reach).
    pub(crate) fn finish(&self, policy: WaitPolicy) -> Result<()> {
        self.reach(self.submitted(), policy)
    }

    /// Adds `work`, or records it if the stream is being captured. Blocks while the stream is full.
    pub(crate) fn submit(self: &Arc<Self>, work: Task) -> Result<()> {
        self.submit_op(work, QueuedOperation::Work, |capture, work| capture.record(self, work))
    }

    /// Adds a run of a graph, or records its nodes if the stream is being captured. Blocks while the stream
    /// is full.
    pub(crate) fn submit_graph(self: &Arc<Self>, run: Arc<GraphRun>) -> Result<()> {
        self.submit_op(run, QueuedOperation::Graph, |capture, run| capture.record_graph(self, run.plan()))
    }

    #[inline]
    fn submit_op<T>(
        self: &Arc<Self>,
        what: T,
        op: impl FnOnce(T) -> QueuedOperation,
        record: impl FnOnce(&Capture<Self>, T) -> Result<()>,
    ) -> Result<()> {
        self.shared.alive()?;
        let legacy = self.legacy_marks();
        let mut submissions = self.with_room()?;
        if let Some(capture) = &submissions.capture {
            return record(capture, what);
        }
        self.push_legacy(&mut submissions, legacy);
        self.number(&mut submissions);
        self.push(submissions, op(what));
        Ok(())
    }

    /// Adds a wait for `mark`. Blocks while the stream is full.
    pub(crate) fn submit_wait(self: &Arc<Self>, mark: Mark) -> Result<()> {
        self.shared.alive()?;
        if Arc::ptr_eq(&mark.stream, self) {
            return Ok(());
        }
        if mark.stream.is_done(mark.number) {
            return mark.outcome();
        }
        let mut submissions = self.with_room()?;
        self.number(&mut submissions);
        self.push(submissions, QueuedOperation::Wait(mark));
        Ok(())
    }

    /// Adds a wait for a word. No capture can contain one. Blocks while the stream is full.
    pub(crate) fn submit_wait_word(self: &Arc<Self>, word: Awaited) -> Result<()> {
        self.submit_op(word, QueuedOperation::WaitWord, |capture, _| capture.refuse_word())
    }

    /// Adds a write to a word. No capture can contain one. Blocks while the stream is full.
    pub(crate) fn submit_write_word(self: &Arc<Self>, address: usize, value: u32) -> Result<()> {
        let work = Task::WriteWord { address, value };
        self.submit_op(work, QueuedOperation::Work, |capture, _| capture.refuse_word())
    }

    /// Returns this point of the stream.
    pub(crate) fn mark(self: &Arc<Self>) -> u64 {
        let legacy = self.legacy_marks();
        let mut submissions = lock(&self.submissions);
        self.push_legacy(&mut submissions, legacy);
        self.schedule(submissions);
        self.submitted.load(Ordering::Relaxed)
    }

    /// Adds an operation, and returns its number.
    fn append(&self, submissions: &mut Submissions, op: QueuedOperation) -> u64 {
        submissions.ops.push_back(op);
        // Written under the lock alone.
        let number = self.submitted.load(Ordering::Relaxed) + 1;
        self.submitted.store(number, Ordering::Release);
        number
    }

    /// If the device is traced, gives the next operation the number that this thread has for it.
    #[inline]
    fn number(&self, submissions: &mut Submissions) {
        if self.shared.recorder.is_on() {
            self.number_traced(submissions);
        }
    }

    #[cold]
    #[inline(never)]
    fn number_traced(&self, submissions: &mut Submissions) {
        submissions.ops.extend(Numbered::entered(&self.shared.recorder).map(QueuedOperation::Number));
    }

    fn push(self: &Arc<Self>, mut submissions: MutexGuard<'_, Submissions>, op: QueuedOperation) {
        self.append(&mut submissions, op);
        self.schedule(submissions);
    }

    fn schedule(self: &Arc<Self>, mut submissions: MutexGuard<'_, Submissions>) {
        if !submissions.scheduled && !submissions.ops.is_empty() {
            submissions.scheduled = true;
            drop(submissions);
            self.queue_up();
        }
    }

    pub(crate) fn queue_up(self: &Arc<Self>) {
        self.shared.scheduler.push(self.clone(), 0, self.level);
    }

    /// Returns the points of other streams that the next operation must follow by the legacy stream's rules.
    fn legacy_marks(self: &Arc<Self>) -> Legacy {
        match self.kind {
            StreamKind::Plain => Legacy::None,
            StreamKind::Legacy => {
                Legacy::Marks(self.siblings.blocking().into_iter().filter_map(Self::pending).collect())
            }
            StreamKind::Blocking => {
                self.siblings.legacy().and_then(Self::pending).map_or(Legacy::None, Legacy::One)
            }
        }
    }

    fn push_legacy(&self, submissions: &mut Submissions, legacy: Legacy) {
        match legacy {
            Legacy::None => {}
            Legacy::One(mark) if mark.number <= submissions.after_legacy => {}
            Legacy::One(mark) => {
                submissions.after_legacy = mark.number;
                self.append(submissions, QueuedOperation::Wait(mark));
            }
            Legacy::Marks(marks) => {
                submissions.after.retain(|known| !known.stream.is_done(known.number));
                for mark in marks {
                    let known = submissions.after.iter_mut().find(|m| Arc::ptr_eq(&m.stream, &mark.stream));
                    match known {
                        Some(known) if known.number >= mark.number => continue,
                        Some(known) => known.number = mark.number,
                        None => submissions.after.push(mark.clone()),
                    }
                    self.append(submissions, QueuedOperation::Wait(mark));
                }
            }
        }
    }

    /// Returns this point of the stream, if it has not been reached.
    fn pending(self: Arc<Self>) -> Option<Mark> {
        let number = self.submitted();
        (!self.is_done(number)).then_some(Mark { stream: self, number })
    }

    /// Takes the next operation off the queue. If there is none, the worker gives the stream up.
    #[inline]
    fn next_operation(&self) -> Option<QueuedOperation> {
        // SAFETY: this worker owns the stream; see `Sync` above. The reference ends before the stream is
        // handed on.
        let batch = unsafe { &mut *self.batch.get() };
        if batch.is_empty() {
            let mut submissions = lock(&self.submissions);
            if submissions.ops.is_empty() {
                submissions.scheduled = false;
                return None;
            }
            std::mem::swap(&mut submissions.ops, batch);
        }
        batch.pop_front()
    }

    /// Gives the operation that runs next its number.
    fn begin(&self, operation: Arc<Numbered>) {
        // SAFETY: this worker owns the stream; see `Sync` above.
        let next = unsafe { &*self.batch.get() }.front();
        let timing = next.map_or(Timing::None, QueuedOperation::timing);
        // SAFETY: this worker owns the stream.
        unsafe { self.slot.begin(operation, timing) };
    }

    /// Counts the operation that ran as done, and wakes the streams that waited for it.
    fn completed_one(&self) {
        // We do this before waiters wake, because they may ask for the times.
        // SAFETY: this worker owns the stream, and the work stays pending until the count below; see `Sync` above.
        unsafe { self.slot.end(self.work.get()) };
        if self.shared.is_lost() {
            self.failed_from.fetch_min(self.progress.done() + 1, Ordering::Relaxed);
        }
        self.progress.advance(|waiter| waiter.queue_up());
    }

    /// If the mark belongs to a lost device, this device is lost too, because operations after the mark would
    /// work on data that is only half done.
    fn came_after(&self, mark: &Mark) {
        if mark.has_failed() {
            let error = mark.stream.shared.loss();
            let (here, there) = (self.shared.ordinal, mark.stream.shared.ordinal);
            let context = format!("CPU device {here} waited for CPU device {there}");
            self.shared.lose(error.with_context(context));
        }
    }
}

impl Mark {
    /// Succeeds if all operations before this point were really done. The point must have been reached.
    fn outcome(&self) -> Result<()> {
        if self.has_failed() { self.stream.shared.alive() } else { Ok(()) }
    }

    fn has_failed(&self) -> bool {
        self.number >= self.stream.failed_from.load(Ordering::Relaxed) && self.stream.shared.is_lost()
    }
}

enum Legacy {
    None,
    One(Mark),
    Marks(Vec<Mark>),
}

/// Runs the stream's operations until none is left, one must wait, or it is other streams' turn.
fn run(worker: &mut Worker, stream: Arc<Stream>) {
    let mut stream = stream;
    while let Some(operation) = stream.next_operation() {
        match run_one(worker, stream, operation) {
            Some(ours) => stream = ours,
            None => return,
        }
    }
}

/// Runs one operation. Returns the stream if this worker goes on with it. Otherwise the stream may already run
/// elsewhere.
#[inline]
fn run_one(worker: &mut Worker, stream: Arc<Stream>, operation: QueuedOperation) -> Option<Arc<Stream>> {
    let lost = stream.shared.is_lost();
    match operation {
        QueuedOperation::Number(operation) => stream.begin(operation),
        QueuedOperation::Wait(mark) if !lost && !mark.stream.is_done(mark.number) => {
            return wait_for(stream, mark);
        }
        QueuedOperation::Wait(mark) => {
            stream.came_after(&mark);
            stream.completed_one();
        }
        QueuedOperation::Work(_) | QueuedOperation::Graph(_) | QueuedOperation::WaitWord(_) if lost => {
            // SAFETY: this worker owns the stream.
            unsafe { stream.slot.forget() };
            stream.completed_one();
        }
        // SAFETY: the word is alive until the wait is done, by its submission.
        QueuedOperation::WaitWord(word) if unsafe { word.is_met() } => stream.completed_one(),
        QueuedOperation::WaitWord(word) => {
            let shared = stream.shared;
            // SAFETY: submitting the wait has started the thread, and the wait is done when the stream
            // continues.
            unsafe { shared.words.wait(word, stream) };
            return None;
        }
        QueuedOperation::Graph(run) => {
            // SAFETY: this worker owns the stream.
            let operation = unsafe { stream.slot.operation() };
            let is_done = plan::begin(worker, run, stream.clone(), operation);
            // Otherwise the stream continues when the graph's last node is done.
            return if is_done { goes_on(worker, stream) } else { None };
        }
        QueuedOperation::Work(work) => return run_work(worker, stream, work),
    }
    Some(stream)
}

/// Leaves the stream to the one that it waits for. Returns it if that one has just reached the mark.
fn wait_for(stream: Arc<Stream>, mark: Mark) -> Option<Arc<Stream>> {
    // The operation must go back to the front first: once the other stream knows this one, another worker may
    // run this one.
    let (other, number) = (mark.stream.clone(), mark.number);
    // SAFETY: this worker owns the stream; see `Sync` above. The reference ends before the stream is handed
    // on.
    unsafe { &mut *stream.batch.get() }.push_front(QueuedOperation::Wait(mark));
    other.progress.watch(number, stream)
}

/// Runs work, perhaps together with other workers. Returns the stream if this worker goes on with it.
#[inline]
fn run_work(worker: &mut Worker, stream: Arc<Stream>, work: Task) -> Option<Arc<Stream>> {
    let owner = Arc::into_raw(stream);
    // SAFETY: the pointer is counted; this worker owns the stream, and the previous operation is complete.
    let complete = unsafe {
        *(*owner).work.get() = work;
        (*owner).job.run((*owner).work.get(), worker, owner, 0)
    };
    if !complete {
        return None;
    }
    // SAFETY: this worker was the last on the job, so the count belongs to it again.
    goes_on(worker, unsafe { Arc::from_raw(owner) })
}

/// Counts the operation that this worker ran as done. Returns the stream unless it was queued again, because
/// it is other streams' turn.
fn goes_on(worker: &mut Worker, stream: Arc<Stream>) -> Option<Arc<Stream>> {
    stream.completed_one();
    if worker.device().scheduler.is_contended() {
        stream.queue_up();
        return None;
    }
    Some(stream)
}

impl Runnable<Shared> for Stream {
    fn run(self: Arc<Self>, _part: usize, worker: &mut Worker) {
        run(worker, self);
    }

    fn completed(self: Arc<Self>, _part: usize, worker: &mut Worker) {
        self.completed_one();
        run(worker, self);
    }
}

impl Launcher for Stream {
    fn level(&self) -> usize {
        self.level
    }

    fn graph_done(self: Arc<Self>) {
        self.completed_one();
        // We queue it instead of running it here, because a thousand graphs in a row would be a thousand
        // frames on this stack.
        self.queue_up();
    }
}

impl Waiter for Stream {
    fn wait_done(self: Arc<Self>) {
        self.completed_one();
        self.queue_up();
    }
}

impl CapturableStream for Stream {
    fn is_legacy(&self) -> bool {
        self.is_legacy()
    }

    fn with_capture<R>(&self, then: impl FnOnce(&mut Option<Arc<Capture<Self>>>) -> R) -> R {
        then(&mut self.submissions().capture)
    }
}
