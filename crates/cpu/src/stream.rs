//! Streams: queues that workers drain, one worker per stream at a time.

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use gpustream_hal::{
    DefaultStream, ErrorKind, HostFn, RawEvent, RawStream, Result, StreamOptions, StreamPriorities, Streams,
    WaitPolicy,
};

use crate::capture::Capture;
use crate::device::{CpuDevice, Shared};
use crate::error::error;
use crate::event::Event;
use crate::job::{Job, Owner};
use crate::plan;
use crate::queue::{self, Progress};
use crate::sync::lock;
use crate::work::Work;
use crate::worker::{PRIORITIES, Task, Worker};

/// A point in a stream.
pub(crate) type Mark = queue::Mark<Stream>;

/// The handles of the streams that are there without being made, as CUDA numbers them.
const LEGACY: RawStream = RawStream(1);
const PER_THREAD: RawStream = RawStream(2);

pub(crate) const PRIORITY_RANGE: StreamPriorities =
    StreamPriorities { least: 0, greatest: 1 - PRIORITIES as i32 };

/// Most operations that a stream holds at a time; whoever submits more waits, as with GPU drivers.
const MOST_PENDING: u64 = 1024;

enum Op {
    Work(Work),
    Wait(Mark),
}

/// What submitters see of a stream; behind a lock.
#[derive(Default)]
pub(crate) struct Submissions {
    ops: VecDeque<Op>,
    /// The stream is queued, running or waiting: whoever has it will see what is added to `ops`.
    scheduled: bool,
    /// The number up to which the stream is known to have room for operations.
    room_until: u64,
    /// Operation of the legacy stream up to which this one is ordered after it.
    after_legacy: u64,
    /// Of the legacy stream: the points of others that it is ordered after, as far as they are not reached.
    after: Vec<Mark>,
    pub(crate) capture: Option<Arc<Capture>>,
}

/// A stream.
pub(crate) struct Stream {
    shared: &'static Shared,
    level: usize,
    kind: Kind,
    submissions: Mutex<Submissions>,
    submitted: AtomicU64,
    progress: Progress<Arc<Stream>>,
    /// The first operation that was dropped or cut short because the device was lost.
    failed_from: AtomicU64,
    /// Operations taken off the queue; only for the worker that runs the stream.
    batch: UnsafeCell<VecDeque<Op>>,
    job: Job,
}

// SAFETY: `batch` is used by the worker that runs the stream alone: `scheduled` is set under the lock by the
// submitter that queues it and cleared by the worker that finds nothing left, so there is one at a time, handed on
// through the scheduler's lock or the job's counter.
unsafe impl Sync for Stream {}
// SAFETY: everything in it may move between threads.
unsafe impl Send for Stream {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Synchronises with the legacy stream.
    Blocking,
    Legacy,
}

impl Stream {
    fn new(shared: &'static Shared, priority: i32, kind: Kind) -> Arc<Self> {
        let level = (-priority).clamp(-PRIORITY_RANGE.least, -PRIORITY_RANGE.greatest) as usize;
        let stream = Arc::new(Self {
            shared,
            level,
            kind,
            submissions: Mutex::default(),
            submitted: AtomicU64::new(0),
            progress: Progress::new(),
            failed_from: AtomicU64::new(u64::MAX),
            batch: UnsafeCell::default(),
            job: Job::new(),
        });
        shared.streams.add(&stream, kind == Kind::Blocking);
        stream
    }

    pub(crate) fn shared(&self) -> &'static Shared {
        self.shared
    }

    pub(crate) fn level(&self) -> usize {
        self.level
    }

    pub(crate) fn is_legacy(&self) -> bool {
        self.kind == Kind::Legacy
    }

    /// What is submitted so far.
    pub(crate) fn submissions(&self) -> MutexGuard<'_, Submissions> {
        lock(&self.submissions)
    }

    /// Whether all up to operation `number` is done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.progress.is_done(number)
    }

    /// Blocks until all up to operation `number` is done. On a lost device that is when the one that runs has ended,
    /// or has been given enough time to.
    pub(crate) fn reach(&self, number: u64, policy: WaitPolicy) -> Result<()> {
        self.shared.not_forked()?;
        self.progress.reach(number, policy, || self.shared.limit());
        self.shared.alive()
    }

    /// On a lost device: whether no worker is in an operation of this stream, nor will be again.
    pub(crate) fn has_stopped(&self) -> bool {
        // With the lock held: an operation that is added after this comes to a worker who sees the loss.
        let submissions = lock(&self.submissions);
        let submitted = self.submitted.load(Ordering::Acquire);
        drop(submissions);
        self.is_done(submitted)
    }

    /// The submissions, once there is room for one more operation or a capture takes it. Blocks while there is not.
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
            // Not one by one: being woken costs more than a short operation takes.
            self.reach(submitted - MOST_PENDING / 2, WaitPolicy::Block)?;
        }
    }

    /// Blocks until all that is submitted is done; see [`reach`](Self::reach).
    pub(crate) fn finish(&self, policy: WaitPolicy) -> Result<()> {
        self.reach(self.submitted.load(Ordering::Acquire), policy)
    }

    /// Makes host threads that wait look at the device's state again.
    pub(crate) fn interrupt(&self) {
        self.progress.interrupt();
    }

    /// Adds `work`, or records it where the stream is being captured. Blocks while the stream is full.
    pub(crate) fn submit(self: &Arc<Self>, work: Work) -> Result<()> {
        self.shared.alive()?;
        let legacy = self.legacy_marks();
        let mut submissions = self.with_room()?;
        if let Some(capture) = &submissions.capture {
            return capture.record(self, work);
        }
        self.push_legacy(&mut submissions, legacy);
        self.push(submissions, Op::Work(work));
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
        let submissions = self.with_room()?;
        self.push(submissions, Op::Wait(mark));
        Ok(())
    }

    /// This point of the stream.
    pub(crate) fn mark(self: &Arc<Self>) -> u64 {
        let legacy = self.legacy_marks();
        let mut submissions = lock(&self.submissions);
        self.push_legacy(&mut submissions, legacy);
        self.schedule(submissions);
        self.submitted.load(Ordering::Relaxed)
    }

    /// Adds an operation; the number that it gets.
    fn append(&self, submissions: &mut Submissions, op: Op) -> u64 {
        submissions.ops.push_back(op);
        // Written under the lock alone.
        let number = self.submitted.load(Ordering::Relaxed) + 1;
        self.submitted.store(number, Ordering::Release);
        number
    }

    fn push(self: &Arc<Self>, mut submissions: MutexGuard<'_, Submissions>, op: Op) {
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
        self.shared.scheduler.push(Task::Stream(self.clone()), self.level);
    }

    /// What the legacy stream's rules order the next operation after: the points of other streams.
    fn legacy_marks(self: &Arc<Self>) -> Legacy {
        match self.kind {
            Kind::Plain => Legacy::None,
            Kind::Legacy => {
                Legacy::Marks(self.shared.streams.blocking().into_iter().filter_map(Self::pending).collect())
            }
            Kind::Blocking => {
                self.shared.streams.legacy().and_then(Self::pending).map_or(Legacy::None, Legacy::One)
            }
        }
    }

    fn push_legacy(&self, submissions: &mut Submissions, legacy: Legacy) {
        match legacy {
            Legacy::None => {}
            Legacy::One(mark) if mark.number <= submissions.after_legacy => {}
            Legacy::One(mark) => {
                submissions.after_legacy = mark.number;
                self.append(submissions, Op::Wait(mark));
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
                    self.append(submissions, Op::Wait(mark));
                }
            }
        }
    }

    /// This point of the stream, if it has not been reached.
    fn pending(self: Arc<Self>) -> Option<Mark> {
        let number = self.submitted.load(Ordering::Acquire);
        (!self.is_done(number)).then_some(Mark { stream: self, number })
    }

    /// Counts the operation that ran as done, and wakes those who waited for it.
    pub(crate) fn completed_one(&self) {
        if self.shared.is_lost() {
            self.failed_from.fetch_min(self.progress.done() + 1, Ordering::Relaxed);
        }
        self.progress.advance(|waiter| waiter.queue_up());
    }

    /// What follows the mark on this stream would work on what a device that was lost has left half done: this device
    /// is lost with it.
    fn came_after(&self, mark: &Mark) {
        if let Err(error) = mark.outcome() {
            let (here, there) = (self.shared.ordinal, mark.stream.shared.ordinal);
            let context = format!("CPU device {here} waited for CPU device {there}");
            self.shared.lose(error.with_context(context));
        }
    }
}

impl Mark {
    /// Of a point that has been reached: whether all before it was done.
    fn outcome(&self) -> Result<()> {
        let failed = self.number >= self.stream.failed_from.load(Ordering::Relaxed);
        if failed { self.stream.shared.alive() } else { Ok(()) }
    }
}

enum Legacy {
    None,
    One(Mark),
    Marks(Vec<Mark>),
}

/// Runs what the stream has to do, until it is empty, has to wait, or others are due.
pub(crate) fn run(worker: &mut Worker, stream: Arc<Stream>) {
    let mut stream = stream;
    loop {
        // SAFETY: this worker has the stream; see `Sync` above. The reference ends before the stream is handed on.
        let batch = unsafe { &mut *stream.batch.get() };
        if batch.is_empty() {
            let mut submissions = lock(&stream.submissions);
            if submissions.ops.is_empty() {
                submissions.scheduled = false;
                return;
            }
            std::mem::swap(&mut submissions.ops, batch);
        }
        let lost = stream.shared.is_lost();
        match batch.pop_front() {
            None => {}
            Some(Op::Wait(mark)) => {
                if !lost && !mark.stream.is_done(mark.number) {
                    // Back in front first: once the other stream knows of it, another worker may run this one.
                    let (other, number) = (mark.stream.clone(), mark.number);
                    batch.push_front(Op::Wait(mark));
                    match other.progress.watch(number, stream) {
                        None => return,
                        Some(back) => stream = back,
                    }
                    continue;
                }
                stream.came_after(&mark);
                stream.completed_one();
            }
            Some(Op::Work(_)) if lost => stream.completed_one(),
            Some(Op::Work(Work::Graph(run))) => {
                // Goes on when the graph's last node is done.
                plan::begin(worker, run, stream);
                return;
            }
            Some(Op::Work(work)) => {
                let owner = Arc::into_raw(stream);
                // SAFETY: the pointer is counted; this worker has the stream, and the operation before is complete.
                let complete = unsafe {
                    (*owner).job.begin(work);
                    (*owner).job.lead(worker, Owner::Stream(owner))
                };
                if !complete {
                    return;
                }
                // SAFETY: this worker was the last on the job, so the count is its own again.
                stream = unsafe { Arc::from_raw(owner) };
                stream.completed_one();
                if worker.shared().scheduler.is_contended() {
                    stream.queue_up();
                    return;
                }
            }
        }
    }
}

/// All streams of a device, for the legacy stream's rules and for waking everybody.
#[derive(Default)]
pub(crate) struct Registry {
    all: Mutex<Vec<std::sync::Weak<Stream>>>,
    blocking: Mutex<Vec<std::sync::Weak<Stream>>>,
    legacy: std::sync::OnceLock<Arc<Stream>>,
}

impl Registry {
    fn add(&self, stream: &Arc<Stream>, blocking: bool) {
        let add = |list: &Mutex<Vec<std::sync::Weak<Stream>>>| {
            let mut list = lock(list);
            if list.len() == list.capacity() {
                list.retain(|stream| stream.strong_count() > 0);
            }
            list.push(Arc::downgrade(stream));
        };
        add(&self.all);
        if blocking {
            add(&self.blocking);
        }
    }

    /// Every stream that is alive.
    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        lock(&self.all).iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    fn blocking(&self) -> Vec<Arc<Stream>> {
        lock(&self.blocking).iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    /// The legacy stream, if it has ever been used.
    fn legacy(&self) -> Option<Arc<Stream>> {
        self.legacy.get().cloned()
    }
}

/// A counted reference that leaves the count as it is: the handle keeps its own.
pub(crate) type Borrowed = ManuallyDrop<Arc<Stream>>;

/// A thread's default streams, by device.
type Defaults = Vec<(usize, Arc<Stream>)>;

thread_local! {
    /// This thread's default streams; null where it has none. Without a destructor: those of other variables may use
    /// the streams, and run in any order.
    static DEFAULTS: Cell<*mut Defaults> = const { Cell::new(std::ptr::null_mut()) };
}

/// Frees a thread's default streams, after its other destructors have run. None where the system has no more keys:
/// then they stay.
static AT_THREAD_END: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

unsafe extern "C" fn free_defaults(defaults: *mut c_void) {
    DEFAULTS.set(std::ptr::null_mut());
    // SAFETY: made by `Box::into_raw` on this thread, which has no other pointer to it any more.
    drop(unsafe { Box::from_raw(defaults.cast::<Defaults>()) });
}

/// This thread's default streams.
fn defaults() -> *mut Defaults {
    let known = DEFAULTS.get();
    if !known.is_null() {
        return known;
    }
    let new = Box::into_raw(Box::<Defaults>::default());
    DEFAULTS.set(new);
    let key = AT_THREAD_END.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the destructor gets what `pthread_setspecific` is given below.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(free_defaults)) } == 0).then_some(key)
    });
    if let Some(key) = key {
        // SAFETY: the key was made above. Without memory for the entry the streams stay.
        unsafe { libc::pthread_setspecific(*key, new.cast()) };
    }
    new
}

impl CpuDevice {
    /// The stream behind a handle.
    ///
    /// # Safety
    /// The handle is alive, or that of a default stream.
    pub(crate) unsafe fn stream(&self, raw: RawStream) -> Borrowed {
        match raw {
            RawStream(0) | LEGACY => {
                let legacy =
                    self.shared.streams.legacy.get_or_init(|| Stream::new(self.shared, 0, Kind::Legacy));
                // SAFETY: the registry keeps the stream for as long as the device is there: for good.
                ManuallyDrop::new(unsafe { Arc::from_raw(Arc::as_ptr(legacy)) })
            }
            PER_THREAD => {
                let key = std::ptr::from_ref(self.shared) as usize;
                // SAFETY: this thread's own, and nothing below comes here again.
                let streams = unsafe { &mut *defaults() };
                let known = streams.iter().find(|(device, _)| *device == key);
                let stream = if let Some((_, stream)) = known {
                    Arc::as_ptr(stream)
                } else {
                    let stream = Stream::new(self.shared, 0, Kind::Blocking);
                    streams.push((key, stream.clone()));
                    Arc::as_ptr(&stream)
                };
                // SAFETY: the thread keeps the stream until it ends, which is after this call.
                ManuallyDrop::new(unsafe { Arc::from_raw(stream) })
            }
            // SAFETY: made by `Arc::into_raw` in `stream_create`, and alive by the caller's promise.
            RawStream(address) => ManuallyDrop::new(unsafe { Arc::from_raw(address as *const Stream) }),
        }
    }
}

// SAFETY: a queue runs its operations one after the other, and answers by how many it has finished.
unsafe impl Streams for CpuDevice {
    fn stream_create(&self, options: StreamOptions) -> Result<RawStream> {
        self.shared.alive()?;
        let kind = if options.blocking_with_default { Kind::Blocking } else { Kind::Plain };
        let stream = Stream::new(self.shared, options.priority, kind);
        Ok(RawStream(Arc::into_raw(stream) as usize))
    }

    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        // A child leaves it to its parent: there may be locks on the way that nobody gives back.
        if stream.0 > PER_THREAD.0 && !self.shared.is_forked() {
            // SAFETY: made by `Arc::into_raw`, and not used again. Whoever runs or queues it has its own count.
            let stream = unsafe { Arc::from_raw(stream.0 as *const Stream) };
            Capture::abandon(&stream);
        }
        Ok(())
    }

    fn stream_default(&self, which: DefaultStream) -> Result<RawStream> {
        Ok(match which {
            DefaultStream::Legacy => LEGACY,
            DefaultStream::PerThread => PER_THREAD,
        })
    }

    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        self.shared.alive()?;
        refuse_captured(&stream)?;
        let number = if stream.kind == Kind::Legacy {
            stream.mark()
        } else {
            stream.submitted.load(Ordering::Acquire)
        };
        let done = stream.is_done(number);
        self.shared.alive()?;
        Ok(done)
    }

    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        self.shared.not_forked()?;
        refuse_captured(&stream)?;
        let number = if stream.kind == Kind::Legacy {
            stream.mark()
        } else {
            stream.submitted.load(Ordering::Acquire)
        };
        stream.reach(number, WaitPolicy::Spin)
    }

    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        // SAFETY: passed on to the caller.
        let (stream, event) = unsafe { (self.stream(stream), Event::borrow(event)) };
        event.wait_on(&stream)
    }

    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        // SAFETY: passed on to the caller.
        let stream = unsafe { self.stream(stream) };
        stream.submit(Work::Host { function, data: data as usize })
    }
}

/// A stream that is being captured has nothing to wait for.
fn refuse_captured(stream: &Stream) -> Result<()> {
    let submissions = lock(&stream.submissions);
    match &submissions.capture {
        None => Ok(()),
        Some(capture) => {
            capture.invalidate("the host waited for one of its streams, or asked whether it is done");
            Err(error(
                ErrorKind::Captured,
                "a stream that is being captured cannot be waited for or queried: end the capture first",
            ))
        }
    }
}
