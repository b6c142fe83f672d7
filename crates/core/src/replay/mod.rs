//! Steps: operations that a stream holds back, and launches together as one graph.
//!
//! A step is run again and again. Its first run submits each operation as any stream does, and notes them. Later runs
//! compare each operation with the noted one and hold it back, for as long as they agree; then one launch of a graph stands
//! for all. Where they do not agree, the operations that were held back are submitted one by one.
//!
//! An operation that is held back has its number, its waits and its uses entered as if it had been submitted: only the
//! driver's call is missing. So the stream gives the driver everything that it holds back
//! ([`caught_up`](crate::stream::StreamCore::caught_up)) before any other call with its handle. Between such calls lies a
//! *segment*, with a graph of its own.
//!
//! | module | knows |
//! |---|---|
//! | `arguments` | the values of a kernel's arguments |
//! | `sequence` | a segment's operations as values, to compare, to change, to run |
//! | `order` | which operations must follow which, by the bytes that they touch |
//! | `shape` | one sequence with its graph |
//! | `segment` | the shapes that a segment had, and which of them an operation fits |
//! | `epoch` | the uses that stand for those of later operations |
//!
//! This layer knows operations, memory and the driver's graphs, but no streams.

mod arguments;
mod epoch;
mod order;
mod segment;
mod sequence;
mod shape;

use std::mem;
use std::num::NonZeroUsize;
use std::panic::Location;
use std::sync::Arc;

use gpustream_hal::{self as hal, CallSite, Error, LaunchConfig, RawStream, Result};

use crate::lint;
use crate::operation::{Argument, KernelLaunch, Operation, traced};
use crate::sync::this_thread;
use crate::trace::{self, InStream};
use crate::track::{Point, StreamId};
use epoch::SegmentEpoch;
use segment::{Fit, Segment};
use sequence::{Candidate, Lag, Sequence};
use shape::{Built, Effort};

/// The most segments of a step; later operations are submitted plainly.
const MOST_SEGMENTS: usize = 64;

/// The most operations of a segment.
const MOST_OPERATIONS: usize = 1 << 14;

/// The figures of a `gpustream::Replay`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayStats {
    /// Number of runs.
    pub runs: u64,
    /// Number of graphs launched, over all runs.
    pub launches: u64,
    /// Number of graphs made, over all runs.
    pub recordings: u64,
    /// Number of nodes that were set, over all runs.
    pub nodes_set: u64,
    /// Number of operations that were submitted by themselves, over all runs.
    pub plain: u64,
    /// Number of parts that the last run was cut into.
    pub segments: usize,
    /// Number of operations in the graphs of the last run.
    pub nodes: usize,
    /// The last graph that was made.
    pub last_recording: Option<ReplayRecording>,
}

/// A graph that a `gpustream::Replay` made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayRecording {
    /// The reason.
    pub reason: &'static str,
    /// The name of the operation that gave the reason: the one that was new, or had changed.
    pub operation: &'static str,
    /// The line of the program that submitted this operation.
    pub location: &'static Location<'static>,
}

impl ReplayRecording {
    pub(crate) fn new(reason: &'static str, CallSite { label, location }: CallSite) -> Self {
        Self { reason, operation: label, location }
    }
}

/// The uses of an operation that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    /// Earlier uses of the segment stand for all of them.
    Sealed,
    /// Some are to be entered.
    New,
}

/// The progress of a run in its segment.
enum SegmentProgress {
    /// No operation has come.
    Empty,
    /// The first `next` operations of that shape came, and are held back.
    Held { shape: usize, next: usize },
    /// The operations so far ran, and are noted for later runs.
    Noted(Box<Sequence>, ReplayRecording),
}

/// A step, in a stream during its runs.
pub struct ReplayStep {
    device: Arc<dyn hal::Device>,
    in_order: bool,
    /// The reason why no graphs are made of this step's operations.
    plain: Option<&'static str>,
    segments: Vec<Segment>,
    /// The index of the present segment.
    at: usize,
    progress: SegmentProgress,
    /// Whether what is held back touches memory that the host may wait for.
    holds_host_memory: bool,
    /// Whether what was released touches such memory, and no event says when it is done.
    owes_event: bool,
    /// The thread of the present run, whose operations alone can be held back; none after the run was paused.
    thread: Option<NonZeroUsize>,
    epoch: SegmentEpoch,
    /// The first failure of an operation that was held back, until the run's end.
    failed: Option<Error>,
    /// Graphs whose launches may be pending, which nothing else needs.
    retired: Vec<Built>,
    /// The figures so far; those of the last run count the present one.
    stats: ReplayStats,
    /// The place of the last operation that came, for a trace of what is about to be released.
    end: Option<InStream>,
}

impl ReplayStep {
    /// Creates a step of operations that run in parallel where they touch no common bytes, or `in_order`.
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
            stats: ReplayStats::default(),
            end: None,
        }
    }

    /// Begins a run on this thread.
    pub(crate) fn begin(&mut self) {
        (self.at, self.thread, self.stats.nodes) = (0, Some(this_thread()), 0);
        self.stats.runs += 1;
        let run = self.stats.runs;
        for segment in &mut self.segments {
            segment.begin(run, &mut self.retired);
        }
    }

    /// Ends a run, after everything was released.
    ///
    /// # Errors
    /// The failure of an operation that was held back.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.stats.segments = self.at;
        self.failed.take().map_or(Ok(()), Err)
    }

    pub fn stats(&self) -> ReplayStats {
        self.stats
    }

    /// Returns why no graphs are made of the operations, where none are.
    pub fn plain(&self) -> Option<&'static str> {
        self.plain
    }

    /// Takes out the graphs that are not needed any more. Their launches may be pending.
    pub fn take_retired(&mut self) -> Option<Box<dyn Send>> {
        if self.retired.is_empty() {
            return None;
        }
        Some(Box::new(mem::take(&mut self.retired)))
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

    /// Whether operations are held back.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        matches!(self.progress, SegmentProgress::Held { .. })
    }

    #[inline]
    pub(crate) fn is_this_threads(&self) -> bool {
        self.thread == Some(this_thread())
    }

    /// Returns whether this thread's operations are the step's, and none that was held back has failed.
    #[inline]
    pub(crate) fn goes_on(&self) -> bool {
        self.is_this_threads() && self.failed.is_none()
    }

    /// Returns the failure of an operation that was held back, to the thread that submitted it. The thread's later
    /// calls in the run and the run itself fail with it too: a handler of one call's error cannot know that another
    /// operation failed.
    #[inline]
    pub(crate) fn failure(&self) -> Option<Error> {
        if self.is_this_threads() { self.failed.clone() } else { None }
    }

    /// Returns whether an event is needed, by which the host can wait for what was released and for nothing later.
    pub(crate) fn take_owed_event(&mut self) -> bool {
        mem::take(&mut self.owes_event)
    }

    /// Submits the rest of the run plainly: the caller is about to use the stream's handle.
    pub(crate) fn pause(&mut self) {
        self.thread = None;
    }

    /// Holds back a launch that is the expected one, if the present segment or nobody but `stream` has used its memory.
    /// Returns what becomes of its uses, or `None` if it is not held back.
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
        let (shape, next) = match self.progress {
            SegmentProgress::Held { shape, next } => (shape, next),
            SegmentProgress::Empty => (segment.expected(), 0),
            SegmentProgress::Noted(..) => return None,
        };
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

    /// Notes whether an operation that is held back touches memory that the host may wait for.
    pub(crate) fn note_host_memory(&mut self, host: bool) {
        self.holds_host_memory |= host;
    }

    /// Returns the epoch of the present segment.
    #[inline]
    pub(crate) fn epoch(&self) -> SegmentEpoch {
        self.epoch
    }

    /// Holds an operation back and returns true, or returns false for one that is to be submitted now.
    ///
    /// # Errors
    /// The failure of an operation that was held back.
    ///
    /// # Safety
    /// As for [`submit`](crate::stream::StreamEntry::submit): `submission` has its place on `stream`, which is alive. The
    /// modules and the memory of what is held back stay alive until it is released and done.
    pub(crate) unsafe fn offer(&mut self, stream: RawStream, submission: &Operation<'_>) -> Result<bool> {
        let offer = match Candidate::of(submission) {
            Ok(offer) if self.plain.is_none() => offer,
            other => {
                let why = other.err().unwrap_or("this device's graphs are not used");
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
                    let why = "an operation of a replayed step is submitted by itself, since the step was cut in 64 graphs before \
                               it; have less in a step, or cut it less often";
                    lint::serialises_at(why, submission.caller.call_site.location);
                    self.stats.plain += 1;
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

    /// Gives everything that is held back to the driver, and ends the segment. A failure is kept for
    /// [`failure`](Self::failure).
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

    /// Launches all operations of a shape as one graph, or, where the driver refuses the graph, one by one.
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
                    // Every run would fail first.
                    self.plain = Some("the driver refused to make a graph of the operations");
                }
                self.retired.extend(shape.graph.take());
                let sequence = shape.sequence.clone();
                // SAFETY: handed on.
                unsafe { self.submit_plainly(stream, &sequence) };
            }
        }
    }

    /// Submits operations one by one. After a failure the others are not submitted, as where the program stops at the
    /// first.
    ///
    /// # Safety
    /// As for [`offer`](Self::offer).
    unsafe fn submit_plainly(&mut self, stream: RawStream, sequence: &Sequence) {
        for index in 0..sequence.len() {
            self.stats.plain += 1;
            let work = sequence.work(index);
            // SAFETY: by this function's contract.
            let mut submit = || unsafe { work.enqueue(&*self.device, stream) };
            let submitted = match (&mut self.end, sequence.operation(index)) {
                (Some(end), Some(operation)) => {
                    let later = (sequence.len() - 1 - index) as u64;
                    let number = end.point.number.saturating_sub(later);
                    let point = Point { number, ..end.point };
                    let at = InStream { point, after: mem::take(&mut end.after), ..*end };
                    trace::submission(&self.device, at, operation, traced(&work), &mut submit)
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

    /// Notes the place of the last operation that came, for a trace of what is about to be released.
    pub(crate) fn note_end(&mut self, end: InStream) {
        self.end = Some(end);
    }

    /// Says, where the lint is on, that the operation cuts the step, since no graph takes it.
    pub(crate) fn say_cut(&self, operation: CallSite) {
        self.say_by("a graph cannot have it as a node", operation);
    }

    fn say_by(&self, why: &str, operation: CallSite) {
        if lint::is_on() && !matches!(self.progress, SegmentProgress::Empty) {
            let why = format!(
                "a replayed step is cut in two graphs by this operation: {why}; each graph is a launch of its own"
            );
            lint::serialises_at(&why, operation.location);
        }
    }

    /// Says, where the lint is on, that a wait cuts the step after the last operation that came.
    pub(crate) fn say_wait(&self) {
        let last = match &self.progress {
            SegmentProgress::Empty => None,
            SegmentProgress::Noted(sequence, _) => sequence.operation(sequence.len().wrapping_sub(1)),
            SegmentProgress::Held { shape, next } => self.segments[self.at].operation(*shape, next - 1),
        };
        if let Some(last) = last {
            let why = "a replayed step is cut in two graphs after this operation, which somebody waits for before the step \
                       ends; each graph is a launch of its own";
            lint::serialises_at(why, last.location);
        }
    }
}
