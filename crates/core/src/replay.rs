//! Steps: operations that a stream defers, so that it can launch them together as one graph.
//!
//! You run a step again and again. In its first run we submit each operation as usual, and note it. In later runs we compare
//! each operation with the noted one. As long as they agree we defer the operation, and in the end we launch one graph for
//! all of them. If an operation differs, we submit the deferred ones one by one.
//!
//! When we defer an operation, we still give it its number, its waits and its uses, as if we had submitted it. Only the
//! driver's call is missing. So before any other call with the stream's handle, we must give the driver everything that is
//! deferred ([`caught_up`](crate::stream::StreamCore::caught_up)). The part of a step between two such calls is a *segment*,
//! and each segment has its own graph.
//!
//! | module | knows |
//! |---|---|
//! | `arguments` | the values of a kernel's arguments |
//! | `sequence` | a segment's operations as values, to compare, to change, to run |
//! | `order` | which operations must follow which, by the bytes that they touch |
//! | `shape` | one sequence with its graph |
//! | `segment` | the shapes that a segment has had, and which of them an operation fits |
//! | `epoch` | lets one use stand for the uses of later operations |
//!
//! This layer knows operations, memory and the driver's graphs, but not streams.

mod arguments;
mod epoch;
mod order;
mod segment;
mod sequence;
mod shape;

use std::mem;
use std::num::NonZeroUsize;
use std::panic::Location;
use std::sync::{Arc, OnceLock};

use gpustream_hal::{self as hal, CallSite, Error, LaunchConfig, RawStream, Result};

use crate::lint;
use crate::operation::{Argument, DriverCalls, KernelLaunch, Operation};
use crate::record::RecordedCalls;
use crate::sync::this_thread;
use crate::trace::{self, InStream};
use crate::track::{Point, StreamId};
use epoch::SegmentEpoch;
use segment::{Fit, Segment};
use sequence::{Candidate, Deferred, Lag, Sequence, recorded};
use shape::{Built, Effort};

/// A step can have at most this many segments. If there are more operations, we submit them plainly.
const MOST_SEGMENTS: usize = 64;

/// A segment can have at most this many operations.
const MOST_OPERATIONS: usize = 1 << 14;

/// Figures about a `gpustream::Replay`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayStats {
    /// Number of runs.
    pub runs: u64,
    /// How many graphs we launched, over all runs.
    pub launches: u64,
    /// How many graphs we made, over all runs.
    pub recordings: u64,
    /// How many nodes we set, over all runs.
    pub nodes_set: u64,
    /// How many operations we submitted by themselves, over all runs.
    pub plain: u64,
    /// How many parts the last run was cut into. There can be 64.
    pub segments: usize,
    /// How many operations of the last run came after 64 parts. We submit these by themselves in every run. If it is not 0,
    /// let each run do less, for example one round of a loop instead of the whole loop, or remove what cuts the step:
    /// `GPUSTREAM_LINT=1` names the lines.
    pub beyond_limit: u64,
    /// How many operations the graphs of the last run have.
    pub nodes: usize,
    /// The last graph that we made.
    pub last_recording: Option<ReplayRecording>,
}

/// A graph that a `gpustream::Replay` made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayRecording {
    /// Why we made it.
    pub reason: &'static str,
    /// The name of the operation that was the reason, because it was new or had changed.
    pub operation: &'static str,
    /// The line of your program that submitted this operation.
    pub location: &'static Location<'static>,
}

impl ReplayRecording {
    pub(crate) fn new(reason: &'static str, CallSite { label, location }: CallSite) -> Self {
        Self { reason, operation: label, location }
    }
}

/// What to do with the uses of a deferred operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    /// Nothing: earlier uses of the segment stand for all of them.
    Sealed,
    /// Enter some of them.
    New,
}

/// How far a run has come in its segment.
enum SegmentProgress {
    /// No operation has come yet.
    Empty,
    /// The first `next` operations of that shape have come, and we deferred them.
    Held { shape: usize, next: usize },
    /// The operations have run so far, and we note them for later runs.
    Noted(Box<Sequence>, ReplayRecording),
}

impl SegmentProgress {
    /// Returns the shape and the index of the operation that we expect next, or `None` if the operations are being noted.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of an operation that is held back")]
    fn expected_in(&self, segment: &Segment) -> Option<(usize, usize)> {
        match *self {
            Self::Held { shape, next } => Some((shape, next)),
            Self::Empty => Some((segment.expected(), 0)),
            Self::Noted(..) => None,
        }
    }
}

/// A step. During its runs it lives in the stream.
pub struct ReplayStep {
    device: Arc<dyn hal::Device>,
    in_order: bool,
    /// If set, we make no graphs for this step, and this is the reason.
    plain: Option<&'static str>,
    segments: Vec<Segment>,
    /// The index of the current segment.
    at: usize,
    progress: SegmentProgress,
    /// True if a deferred operation touches memory that the host may wait for.
    holds_host_memory: bool,
    /// True if released operations touch such memory, and no event tells when they are done.
    owes_event: bool,
    /// The thread of the current run. We only defer the operations of this thread. `None` once the run is paused.
    thread: Option<NonZeroUsize>,
    epoch: SegmentEpoch,
    /// The first failure of a deferred operation, until the run ends.
    failed: Option<Error>,
    /// Graphs that nothing else needs. We keep them because their launches may be pending.
    retired: Vec<Built>,
    /// Recorded calls that ran by themselves. We keep them for the same reason.
    retired_calls: Vec<Arc<OnceLock<RecordedCalls>>>,
    /// The figures so far. Those about the last run are counting the current one.
    stats: ReplayStats,
    /// Where the last operation was in its stream, so that a trace can show what we are about to release.
    end: Option<InStream>,
}

impl ReplayStep {
    /// Creates a step. Its operations run in parallel if they touch no common bytes, unless you say `in_order`.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn new(device: Arc<dyn hal::Device>, in_order: bool) -> Self {
        let plain = device.info().quirks.graph_fault;
        Self {
            device,
            in_order,
            plain,
            segments: Vec::new(),
            at: 0,
            progress: SegmentProgress::Empty,
            holds_host_memory: false,
            owes_event: false,
            thread: None,
            epoch: SegmentEpoch::next(),
            failed: None,
            retired: Vec::new(),
            retired_calls: Vec::new(),
            stats: ReplayStats::default(),
            end: None,
        }
    }

    /// Begins a run on this thread.
    pub(crate) fn begin(&mut self) {
        (self.at, self.thread, self.stats.nodes) = (0, Some(this_thread()), 0);
        self.stats.beyond_limit = 0;
        self.stats.runs += 1;
        let run = self.stats.runs;
        for segment in &mut self.segments {
            segment.begin(run, &mut self.retired);
        }
    }

    /// Ends a run. Everything must have been released.
    ///
    /// # Errors
    /// The failure of a deferred operation.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.stats.segments = self.at;
        self.failed.take().map_or(Ok(()), Err)
    }

    pub fn stats(&self) -> ReplayStats {
        self.stats
    }

    /// Returns the reason why we make no graphs, if we make none.
    pub fn plain(&self) -> Option<&'static str> {
        self.plain
    }

    /// Takes out the graphs that nothing needs any more. Their launches may be pending, so you must not destroy them yet.
    pub fn take_retired(&mut self) -> Option<Box<dyn Send>> {
        if self.retired.is_empty() && self.retired_calls.is_empty() {
            return None;
        }
        Some(Box::new((mem::take(&mut self.retired), mem::take(&mut self.retired_calls))))
    }

    /// Returns the operations of the shapes that ran last, each with the operations that it follows directly.
    pub fn operations(&self) -> Vec<(CallSite, Vec<usize>)> {
        let mut operations = Vec::new();
        for segment in &self.segments[..self.stats.segments.min(self.segments.len())] {
            let first = operations.len();
            segment.list(self.in_order, |operation, after| {
                let after = after.iter().map(|before| first + before).collect();
                operations.push((operation, after));
            });
        }
        operations
    }

    /// Returns true if operations are deferred.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        matches!(self.progress, SegmentProgress::Held { .. })
    }

    #[inline]
    pub(crate) fn is_this_threads(&self) -> bool {
        self.thread == Some(this_thread())
    }

    /// Returns true if this thread runs the step, and no deferred operation has failed.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        self.is_this_threads() && self.failed.is_none()
    }

    /// Returns the failure of a deferred operation, but only to the thread that submitted it. That thread's later calls in
    /// the run, and the run itself, fail with it too, because if you handle the error of one call you cannot know that
    /// another operation failed.
    #[inline]
    pub(crate) fn failure(&self) -> Option<Error> {
        if self.is_this_threads() { self.failed.clone() } else { None }
    }

    /// Returns true if we need an event so that the host can wait for the released operations, and for nothing later.
    pub(crate) fn take_owed_event(&mut self) -> bool {
        mem::take(&mut self.owes_event)
    }

    /// Submits the rest of the run plainly, because the caller is about to use the stream's handle.
    pub(crate) fn pause(&mut self) {
        self.thread = None;
    }

    /// Defers a launch if it is the expected one, and if only the current segment or `stream` has used its memory. Returns
    /// what to do with its uses, or `None` if we did not defer it.
    ///
    /// # Safety
    /// As for [`StreamEntry::follow`](crate::stream::StreamEntry::follow).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of an operation that is held back")]
    pub(crate) unsafe fn follow<'a, A>(
        &mut self,
        launch: &KernelLaunch<'a, A>,
        shown: impl Fn(&'a A) -> Option<Argument<'a>>,
        resolved: impl Fn() -> Option<LaunchConfig>,
        stream: StreamId,
    ) -> Option<Uses> {
        let segment = self.segments.get_mut(self.at)?;
        let (shape, next) = self.progress.expected_in(segment)?;
        let shape_of = segment.shape_mut(shape)?;
        let mut lag = Lag::None;
        // SAFETY: handed on.
        let uses =
            unsafe { shape_of.sequence.follow(next, launch, shown, resolved, self.epoch, stream, &mut lag) };
        if lag > Lag::None {
            shape_of.note_lag(next, lag);
        }
        let uses = uses?;
        match &mut self.progress {
            SegmentProgress::Held { next, .. } => *next += 1,
            progress => *progress = SegmentProgress::Held { shape, next: 1 },
        }
        Some(uses)
    }

    /// Call this for a deferred operation, to note whether it touches memory that the host may wait for.
    pub(crate) fn note_host_memory(&mut self, host: bool) {
        self.holds_host_memory |= host;
    }

    /// Returns the epoch of the current segment.
    #[inline]
    pub(crate) fn epoch(&self) -> SegmentEpoch {
        self.epoch
    }

    /// If this operation would be deferred if only its calls were recorded, returns the room for the recording.
    pub(crate) fn unrecorded(&self, submission: &Operation<'_>) -> Option<Arc<OnceLock<RecordedCalls>>> {
        if !matches!(submission.call, DriverCalls::External { key: Some(_), .. }) || self.plain.is_some() {
            return None;
        }
        let segment = self.segments.get(self.at)?;
        let (shape, next) = self.progress.expected_in(segment)?;
        segment.shape(shape)?.sequence.unrecorded(next, &Candidate::of(submission).ok()?).cloned()
    }

    /// Defers an operation and returns true, or returns false if you must submit it now.
    ///
    /// # Errors
    /// The failure of a deferred operation.
    ///
    /// # Safety
    /// As for [`submit`](crate::stream::StreamEntry::submit): `submission` has its place on `stream`, which is alive. The
    /// modules and the memory of deferred operations stay alive until these are released and done.
    pub(crate) unsafe fn offer(&mut self, stream: RawStream, submission: &Operation<'_>) -> Result<bool> {
        let offer = match Candidate::of(submission) {
            Ok(offer) if self.plain.is_none() => offer,
            other => {
                let why = other.err().unwrap_or("the library makes no graphs for this step");
                self.say_by(why, submission.caller.call_site);
                // SAFETY: handed on.
                unsafe { self.release(stream) };
                self.stats.plain += 1;
                return self.failed.clone().map_or(Ok(false), Err);
            }
        };
        loop {
            if self.at == self.segments.len() {
                if self.at == MOST_SEGMENTS {
                    let why = "an operation of a replayed step is submitted by itself, because the step was cut into 64 \
                               graphs before it; put less into a step, or cut it less often";
                    lint::serialises_at(why, submission.caller.call_site.location);
                    self.stats.plain += 1;
                    self.stats.beyond_limit += 1;
                    return Ok(false);
                }
                self.segments.push(Segment::default());
            }
            let segment = &mut self.segments[self.at];
            let held = match &mut self.progress {
                SegmentProgress::Noted(sequence, _) if sequence.len() == MOST_OPERATIONS => {
                    // SAFETY: handed on.
                    unsafe { self.release(stream) };
                    continue;
                }
                SegmentProgress::Noted(sequence, _) => {
                    sequence.push(&offer);
                    self.stats.plain += 1;
                    return Ok(false);
                }
                SegmentProgress::Empty => None,
                SegmentProgress::Held { shape, next } => Some((*shape, *next)),
            };
            match segment.fit(held, &offer, self.stats.runs) {
                Fit::Shape { shape, next } => {
                    self.progress = SegmentProgress::Held { shape, next };
                    self.holds_host_memory |= submission.accesses.iter().any(|access| access.is_the_hosts());
                    return Ok(true);
                }
                Fit::NextSegment => {
                    // SAFETY: handed on.
                    unsafe { self.release(stream) };
                    if let Some(failed) = self.failed.clone() {
                        return Err(failed);
                    }
                }
                Fit::None => {
                    let mut sequence =
                        held.map_or_else(Sequence::default, |(shape, next)| segment.first(shape, next));
                    // SAFETY: handed on.
                    unsafe { self.submit_plainly(stream, &sequence) };
                    self.owes_event |= mem::take(&mut self.holds_host_memory);
                    if let Some(failed) = self.failed.clone() {
                        self.progress = SegmentProgress::Empty;
                        return Err(failed);
                    }
                    sequence.push(&offer);
                    let cause = ReplayRecording::new("a new operation", offer.operation());
                    self.progress = SegmentProgress::Noted(Box::new(sequence), cause);
                    self.stats.plain += 1;
                    return Ok(false);
                }
            }
        }
    }

    /// Gives everything that is deferred to the driver, and ends the segment. If that fails, [`failure`](Self::failure)
    /// tells.
    ///
    /// # Safety
    /// As for [`offer`](Self::offer).
    #[inline]
    pub(crate) unsafe fn release(&mut self, stream: RawStream) {
        let run = self.stats.runs;
        self.epoch = SegmentEpoch::next();
        self.owes_event |= mem::take(&mut self.holds_host_memory);
        match mem::replace(&mut self.progress, SegmentProgress::Empty) {
            SegmentProgress::Empty => return,
            SegmentProgress::Noted(sequence, cause) => {
                self.segments[self.at].note(*sequence, cause, self.in_order, run, &mut self.retired);
            }
            SegmentProgress::Held { shape, next } => {
                if let Some(shape) = self.segments[self.at].whole(shape, next) {
                    // SAFETY: handed on.
                    unsafe { self.launch(stream, shape) };
                } else {
                    let sequence = self.segments[self.at].first(shape, next);
                    // SAFETY: handed on.
                    unsafe { self.submit_plainly(stream, &sequence) };
                    if let Some(operation) = sequence.operation(next.wrapping_sub(1)) {
                        let cause = ReplayRecording::new("the last operation of a shorter run", operation);
                        self.segments[self.at].note(sequence, cause, self.in_order, run, &mut self.retired);
                    }
                }
            }
        }
        self.at += 1;
    }

    /// Launches all operations of a shape as one graph. If the driver refuses the graph, submits them one by one.
    ///
    /// # Safety
    /// As for [`offer`](Self::offer).
    #[inline]
    unsafe fn launch(&mut self, stream: RawStream, index: usize) {
        let run = self.stats.runs;
        let Some(shape) = self.segments[self.at].use_shape(index, run) else { return };
        let mut effort = Effort::default();
        let (first, operations) = (shape.sequence.operation(0), shape.sequence.len() as u32);
        // SAFETY: the stream is alive and of this device; the rest is this function's contract.
        let mut launch = || unsafe { shape.launch(&self.device, stream, &mut effort) };
        let launched = match (self.end.take(), first) {
            (Some(at), Some(first)) => {
                let operation = CallSite { label: "replayed step", ..first };
                let work = trace::WorkKind::Step { operations };
                trace::submission(&self.device, at, operation, work, &mut launch)
            }
            _ => launch(),
        };
        let Effort { built, ready, set, replaced } = effort;
        self.stats.nodes_set += set;
        self.retired.extend(replaced);
        match launched {
            Ok(()) => {
                self.stats.launches += 1;
                self.stats.nodes += shape.sequence.len();
                if built {
                    self.stats.recordings += 1;
                    self.stats.last_recording = Some(shape.cause);
                }
            }
            Err(error) if ready => {
                let error = error.with_context("launching a replayed step");
                let error = first.into_iter().fold(error, Error::with_call_site);
                self.failed.get_or_insert(error);
            }
            Err(_) => {
                if built {
                    // Otherwise every run would try, and fail, again.
                    self.plain = Some("the driver refused to make a graph of the operations");
                }
                self.retired.extend(shape.graph.take());
                let sequence = shape.sequence.clone();
                // SAFETY: handed on.
                unsafe { self.submit_plainly(stream, &sequence) };
            }
        }
    }

    /// Submits operations one by one. If one fails, we leave out the rest, just as your program would stop at the first
    /// error.
    ///
    /// # Safety
    /// As for [`offer`](Self::offer).
    unsafe fn submit_plainly(&mut self, stream: RawStream, sequence: &Sequence) {
        for index in 0..sequence.len() {
            self.stats.plain += 1;
            let deferred = sequence.deferred(index);
            if let Deferred::Calls(calls) = deferred {
                // The launch may be pending when the sequence goes.
                self.retired_calls.push(calls.clone());
            }
            let mut submit = || match deferred {
                // SAFETY: by this function's contract.
                Deferred::Work(work) => unsafe { work.enqueue(&*self.device, stream) },
                // SAFETY: as above; we keep the value until the launch is done.
                Deferred::Calls(calls) => unsafe { recorded(calls)?.launch(stream) },
            };
            let submitted = match (&mut self.end, sequence.operation(index)) {
                (Some(end), Some(operation)) => {
                    let later = (sequence.len() - 1 - index) as u64;
                    let number = end.point.number.saturating_sub(later);
                    let point = Point { number, ..end.point };
                    let (name, after) = (end.name.clone(), mem::take(&mut end.after));
                    let at = InStream { point, name, after, ..*end };
                    trace::submission(&self.device, at, operation, deferred.kind(), &mut submit)
                }
                _ => submit(),
            };
            if let (Err(error), Some(operation)) = (submitted, sequence.operation(index)) {
                self.failed.get_or_insert(error.with_call_site(operation));
                break;
            }
        }
        self.end = None;
    }

    /// Notes where the last operation was in its stream, so that a trace can show what we are about to release.
    pub(crate) fn note_end(&mut self, end: InStream) {
        self.end = Some(end);
    }

    /// If the lint is on, says that the operation cuts the step, because it cannot go into a graph.
    pub(crate) fn say_cut(&self, call_site: CallSite) {
        self.say_by("it cannot be a node of a graph", call_site);
    }

    fn say_by(&self, why: &str, call_site: CallSite) {
        if lint::is_on() && !matches!(self.progress, SegmentProgress::Empty) {
            let why = format!(
                "this operation cuts a replayed step into two graphs, because {why}; each graph costs a launch, so move \
                 it to the step's beginning or end"
            );
            lint::serialises_at(&why, call_site.location);
        }
    }

    /// If the lint is on, says that a wait cuts the step after the last operation.
    pub(crate) fn say_wait(&self) {
        let last = match &self.progress {
            SegmentProgress::Empty => None,
            SegmentProgress::Noted(sequence, _) => sequence.operation(sequence.len().wrapping_sub(1)),
            SegmentProgress::Held { shape, next } => self.segments[self.at].operation(*shape, next - 1),
        };
        if let Some(last) = last {
            let why = "a replayed step is cut into two graphs after this operation, because a thread or a stream waits \
                       for it before the step ends; each graph costs a launch, so wait after the step";
            lint::serialises_at(why, last.location);
        }
    }
}
