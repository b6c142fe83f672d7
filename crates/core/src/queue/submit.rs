//! Submitting: the waits that an operation needs, its driver call, and the use that it leaves behind.

use std::borrow::Borrow;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpustream_hal::hint::cold_path;
use gpustream_hal::{self as hal, Error, ErrorKind, Operation, RawStream, Result};
use smallvec::SmallVec;

use super::mark::Owed;
use super::{Mark, StateGuard, StreamCore, StreamState, StreamTable, prune};
use crate::memory::Access;
use crate::operation::{Call, Rules, Submission, Waited, hazard, refused};
use crate::queue::{Recording, Sink};
use crate::record::{Condition, NodeAdder};
use crate::sync::{LatchGuard, Mutex, MutexGuard, lock};
use crate::trace;
use crate::track::{Clock, History, Point, Tracking, Use};

/// The hint on a history that streams share: no stream's number.
const MIXED: u64 = 0;

/// An operation that has its place in a stream, which is locked until the operation's calls have been made.
///
/// The party that submits makes the calls, with as few functions as possible around them. Drivers call deeper than processors
/// remember returns (16 to 32 levels), so that each function around a driver's call returns to a place that the processor did
/// not expect, which costs 10 to 40 ns. This is one pointer, which comes in a register.
pub struct Begun<'s> {
    pub(super) state: StateGuard<'s>,
}

impl StreamCore {
    /// Puts one operation into the stream's sink. An operation that runs gets the waits that its accesses need, then the
    /// driver's call, and leaves its use behind.
    ///
    /// # Safety
    /// The calls are sound once the accesses are ordered, for as long as the blocks that they name and what is kept are
    /// alive. A closure is kept by recordings alone: with one, the stream is recorded.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub unsafe fn submit(&self, submission: &mut Submission<'_>) -> Result<()> {
        let &mut Submission { operation, rules, accesses, waited, .. } = submission;
        if let Some(begun) = self.begin(rules, &operation, accesses)? {
            // SAFETY: the stream is alive, and the accesses are ordered.
            let result = unsafe { submission.call.enqueue(&*self.device, self.raw) };
            return self.finish(begun, rules, &operation, accesses.iter().copied(), waited, result);
        }
        cold_path();
        // SAFETY: handed on.
        unsafe { self.submit_elsewhere(submission) }.map_err(|error| error.with_operation(operation))
    }

    /// Gives an operation its place in the stream, behind the waits that its accesses need. Returns `None` for one that does
    /// not simply run: [`submit_elsewhere`](Self::submit_elsewhere) is for those that are recorded, traced or offered to a step.
    #[inline(never)]
    pub fn begin<'s>(
        &'s self,
        rules: Rules,
        operation: &Operation,
        accesses: &[&Access<'_>],
    ) -> Result<Option<Begun<'s>>> {
        if trace::is_on() || !matches!(self.sink, Sink::Driver) || self.is_in_step() {
            cold_path();
            return Ok(None);
        }
        if let Err(error) = self.check_thread() {
            return Err(error.with_operation(*operation));
        }
        let state = self.state.lock();
        if state.step.is_some() || state.is_recorded() {
            cold_path();
            return Ok(None);
        }
        match self.prepare(rules, state, operation, accesses.iter().copied()) {
            Ok(begun) => Ok(Some(begun)),
            Err(error) => Err(error.with_operation(*operation)),
        }
    }

    /// Ends the submission of an operation whose calls had this result.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub fn finish<'a>(
        &self,
        begun: Begun<'_>,
        rules: Rules,
        operation: &Operation,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
        waited: Waited,
        result: Result<()>,
    ) -> Result<()> {
        let Begun { state } = begun;
        if result.is_ok() && !state.concludes {
            state.unlock();
            return Ok(());
        }
        cold_path();
        let finished = self.conclude(rules, state, accesses, waited, result);
        finished.map_err(|error| error.with_operation(*operation))
    }

    /// Makes an operation's calls, which are `traced` if somebody traces, and ends the submission.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    fn run<'a>(
        &self,
        mut begun: Begun<'_>,
        rules: Rules,
        operation: &Operation,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
        waited: Waited,
        traced: Option<trace::Work>,
        call: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let result = match traced {
            None => call(),
            Some(work) => {
                let mut call = Some(call);
                let call = &mut || call.take().map_or(Ok(()), |call| call());
                self.trace(&mut begun.state, *operation, work, call)
            }
        };
        self.finish(begun, rules, operation, accesses, waited, result)
    }

    /// Makes the calls of an operation that somebody traces.
    #[cold]
    fn trace(
        &self,
        state: &mut StreamState,
        operation: Operation,
        work: trace::Work,
        call: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let at = self.place(state.number, std::mem::take(&mut state.waited));
        trace::submission(&self.device, at, operation, work, call)
    }

    /// Records a conditional node, whose body `fill` gives to the adder that it is called with.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] on a stream that is neither captured nor stands for a node or body.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit), for the word and for each operation of the body.
    pub unsafe fn condition(
        &self,
        rules: Rules,
        condition: &Condition<'_>,
        fill: impl FnOnce(&Arc<NodeAdder>) -> Result<()>,
    ) -> Result<()> {
        // SAFETY: handed on, to each sink.
        let submitted = unsafe {
            match &self.sink {
                Sink::Driver => (self.check_thread())
                    .and_then(|()| self.capture().ok_or_else(no_graph))
                    .and_then(|capture| capture.condition(self, rules.tracking, condition, fill)),
                Sink::Set(_) => {
                    Err(refused("put a condition into a node that is there; build the graph anew"))
                }
                Sink::Node(adder) => adder.condition(rules.tracking, condition, fill),
            }
        };
        submitted.map_err(|error| error.with_operation(condition.operation))
    }

    /// Puts one operation where it goes, for which [`begin`](Self::begin) has returned nothing. Errors do not name it yet.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    #[inline(never)]
    pub unsafe fn submit_elsewhere(&self, submission: &mut Submission<'_>) -> Result<()> {
        // SAFETY: handed on, to each sink.
        unsafe {
            match &self.sink {
                Sink::Driver => self.submit_otherwise(submission),
                Sink::Set(setter) => setter.submit(submission),
                Sink::Node(adder) => adder.submit(submission),
            }
        }
    }

    /// Puts one operation into the capture that the stream takes part in, to the step whose run goes on, or, traced, to the
    /// driver.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    unsafe fn submit_otherwise(&self, submission: &mut Submission<'_>) -> Result<()> {
        self.check_thread()?;
        let state = self.state.lock();
        let Recording::Capture(capture) = &state.recording else {
            // SAFETY: handed on.
            return unsafe { self.submit_unexpected(state, submission) };
        };
        let capture = capture.clone();
        drop(state);
        // Only the capturing thread gets further, and only that thread ends the capture.
        // SAFETY: handed on.
        unsafe { capture.submit(self, submission) }
    }

    /// As [`submit`](Self::submit), for an operation that no recording can take; `what` completes the error "one cannot …".
    ///
    /// `call` must enqueue on this stream and return; it makes the driver calls of the operation, which is `work` to traces.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub fn submit_outside_captures<'a, I>(
        &self,
        rules: Rules,
        operation: Operation,
        what: &str,
        work: trace::Work,
        accesses: I,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<()>
    where
        I: Iterator<Item: Borrow<Access<'a>>> + Clone,
    {
        let run = || {
            self.check_thread()?;
            let mut state = self.running(what)?;
            self.caught_up_for(&mut state, operation)?;
            let traced = trace::is_on().then_some(work);
            let begun = self.prepare(rules, state, &operation, accesses.clone())?;
            let call = || call(&*self.device, self.raw);
            self.run(begun, rules, &operation, accesses, Waited::Alone, traced, call)
        };
        run().map_err(|error| error.with_operation(operation))
    }

    /// Gives an operation its place in the stream: makes the waits that its accesses need, counts it, and enters its uses.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    #[allow(clippy::needless_pass_by_value)] // an iterator, cloned per pass
    pub(super) fn prepare<'s, 'a, I>(
        &'s self,
        rules: Rules,
        mut state: StateGuard<'s>,
        operation: &Operation,
        accesses: I,
    ) -> Result<Begun<'s>>
    where
        I: Iterator<Item: Borrow<Access<'a>>> + Clone,
    {
        self.pay(&mut state, &accesses)?;
        // The usual case: nobody but this stream has used the memory.
        let is_usual = accesses.clone().all(|access| {
            let block = access.borrow().block;
            block.history.hint() == self.id.0 && !block.in_graph.load(Ordering::Acquire)
        });
        if is_usual {
            self.enter_all(rules, &mut state, operation, accesses);
            return Ok(Begun { state });
        }
        cold_path();
        self.prepare_among_others(rules, state, operation, accesses)
    }

    /// As [`prepare`](Self::prepare), for memory that others have used, or graphs refer to.
    #[inline(never)]
    #[allow(clippy::needless_pass_by_value)] // an iterator, cloned per pass
    fn prepare_among_others<'s, 'a>(
        &'s self,
        rules: Rules,
        mut state: StateGuard<'s>,
        operation: &Operation,
        accesses: impl Iterator<Item: Borrow<Access<'a>>> + Clone,
    ) -> Result<Begun<'s>> {
        let in_graph = accesses.clone().any(|access| access.borrow().block.in_graph.load(Ordering::Acquire));
        let mut entering = in_graph.then(enter_graph_memory);
        // With graphs, only now does nobody enter uses beside this look.
        if !accesses.clone().all(|access| access.borrow().block.history.hint() == self.id.0) {
            state = self.order(rules, state, *operation, accesses.clone(), &mut entering)?;
        }
        self.enter_all(rules, &mut state, operation, accesses);
        Ok(Begun { state })
    }

    /// Counts an operation, and enters its uses.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    fn enter_all<'a>(
        &self,
        rules: Rules,
        state: &mut StreamState,
        operation: &Operation,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
    ) {
        // Taken even if the call fails: a driver may have enqueued part, and the uses entered here stay where a backend
        // panics.
        state.number += 1;
        let point = Point { stream: self.id, number: state.number };
        self.counted.store(point.number, Ordering::Release);
        state.concludes = rules.blocking || self.is_one_threads();
        for access in accesses {
            let access = access.borrow();
            state.concludes |= access.is_the_hosts();
            self.enter(access, point, operation);
        }
    }

    /// Makes the call of an operation that has its place.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    pub(super) unsafe fn call(&self, begun: Begun<'_>, submission: &mut Submission<'_>) -> Result<()> {
        let &mut Submission { operation, rules, accesses, ref mut call, waited, .. } = submission;
        let traced = traced(call);
        // SAFETY: the stream is alive, and the accesses are ordered.
        let call = || unsafe { call.enqueue(&*self.device, self.raw) };
        self.run(begun, rules, &operation, accesses.iter().copied(), waited, traced, call)
    }

    /// Enters a use that this stream's next submission makes.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    fn enter(&self, access: &Access<'_>, point: Point, operation: &Operation) {
        let mut history = access.block.history.lock();
        if history.hint() != self.id.0 {
            cold_path();
            return enter_among_others(history, access, Use::new(point, *operation));
        }
        // Uses of the whole by one stream replace each other.
        if history.insert(&access.range, access.mode, || Use::new(point, *operation)) {
            cold_path();
            if history.is_crowded() {
                prune(&mut history);
            }
        }
    }

    /// Ends the submission of an operation that failed, or that somebody waits for. Apart from the usual case, whose
    /// code then lies close together.
    #[inline(never)]
    fn conclude<'a>(
        &self,
        rules: Rules,
        mut state: StateGuard<'_>,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
        waited: Waited,
        result: Result<()>,
    ) -> Result<()> {
        if self.is_one_threads() {
            // Other threads wait by this event. Also on failure: the driver may have enqueued part.
            let marked = self.mark(&mut state);
            if result.is_ok() {
                marked?;
            }
        } else if result.is_ok() && waited == Waited::Alone {
            // Host access waits for exactly this operation, so it needs an event of its own, if not yet.
            state.owed.retain(|owed| matches!(owed, Owed::Point(_)));
            let owed =
                accesses.map(|access| access.borrow().is_the_hosts().then(|| Owed::new(access.borrow())));
            state.owed.extend(owed.flatten());
        }
        if rules.blocking && result.is_ok() {
            let cell = self.mark(&mut state).map(|mark| mark.cell.clone());
            drop(state);
            // SAFETY: the event was just recorded on this stream, which is alive.
            cell.and_then(|cell| unsafe { cell.synchronize() })?;
        }
        result
    }

    /// Adds the waits that an operation with these accesses needs. A held `entering` is let go and taken again.
    #[inline(never)]
    #[allow(clippy::needless_pass_by_value)] // an iterator, cloned per pass
    fn order<'s, 'a>(
        &'s self,
        rules: Rules,
        mut state: StateGuard<'s>,
        operation: Operation,
        accesses: impl Iterator<Item: Borrow<Access<'a>>> + Clone,
        entering: &mut Option<MutexGuard<'static, ()>>,
    ) -> Result<StateGuard<'s>> {
        let mut missing = self.missing(&state, accesses.clone());
        if missing.is_empty() {
            return Ok(state);
        }
        while !missing.is_empty() {
            let in_graph = entering.take().is_some();
            // This lets go of the lock meanwhile, so that new uses may have come.
            state = self.order_after(rules, state, operation, &missing)?;
            *entering = in_graph.then(enter_graph_memory);
            missing = self.missing(&state, accesses.clone());
        }
        // Only now: the points that this operation relies on must stay until it is entered.
        state.prune_clock();
        Ok(state)
    }

    /// The uses that an operation with these accesses must be ordered after and is not.
    fn missing<'a>(
        &self,
        state: &StreamState,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
    ) -> SmallVec<[Use; 4]> {
        let mut missing = SmallVec::new();
        for access in accesses {
            let access = access.borrow();
            let history = access.block.history.lock();
            history.conflicts(&access.range, access.mode, |old| {
                if old.point.stream != self.id && !state.clock.covers(old.point) {
                    missing.push(*old);
                }
            });
            if history.is_only(self.id) {
                history.set_hint(self.id.0);
            }
        }
        missing
    }

    /// Makes this stream wait for `missing`.
    ///
    /// # Errors
    /// [`ErrorKind::Hazard`](gpustream_hal::ErrorKind::Hazard) where the user orders operations, and has not.
    #[cold]
    fn order_after<'s>(
        &'s self,
        rules: Rules,
        state: StateGuard<'s>,
        operation: Operation,
        missing: &[Use],
    ) -> Result<StateGuard<'s>> {
        drop(state);
        let mut waits: SmallVec<[(Point, Option<Mark>); 4]> = SmallVec::new();
        let mut running: SmallVec<[(Point, Arc<Self>); 4]> = SmallVec::new();
        for old in missing {
            let other = StreamTable::shared()
                .get(old.point.stream)
                .filter(|other| !other.needs_no_wait(old.point.number));
            match (other, rules.tracking) {
                (None, _) => waits.push((old.point, None)),
                (Some(_), Some(Tracking::Strict)) if !old.recycled => {
                    return Err(hazard(operation, old.operation));
                }
                (Some(_), None) if !old.recycled => waits.push((old.point, None)),
                (Some(other), _) => match running.iter_mut().find(|(point, _)| point.stream == other.id) {
                    Some((point, _)) => point.number = point.number.max(old.point.number),
                    None => running.push((old.point, other)),
                },
            }
        }
        for (point, other) in without_implied(running) {
            match other.mark_for(point.number)? {
                Some(mark) => waits.push((Point { stream: other.id, number: mark.number }, Some(mark))),
                None => waits.push((point, None)),
            }
        }
        let began = "submit to it from another thread than the one that captures, which began meanwhile";
        let mut state = self.running(began)?;
        self.pay(&mut state, &iter::empty::<&Access<'_>>())?;
        let raw = self.caught_up(&mut state)?;
        for (point, mark) in waits {
            if let Some(mark) = mark
                && !state.clock.covers(point)
            {
                // SAFETY: both are alive, and the event has been recorded.
                unsafe { self.device.stream_wait_event(raw, mark.cell.raw) }?;
                state.clock.merge(&mark.clock);
                state.note_wait(point);
            }
            state.clock.advance(point);
        }
        Ok(state)
    }

    /// The points of other streams that a wait for submission `number` would wait for.
    fn clock_at(&self, number: u64) -> Clock {
        let state = self.state.lock();
        let mark = state.marks.iter().find(|mark| mark.number >= number);
        mark.map_or(&state.clock, |mark| &mark.clock).clone()
    }
}

/// Returns the error for a condition outside a graph.
#[cold]
fn no_graph() -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        "a condition is part of a graph, and this stream is not being captured; call this in `Stream::capture`, or on the \
         stream that `GraphBuilder::node` gives",
    )
}

/// Returns what a trace says of an operation, where somebody listens.
#[inline]
fn traced(call: &Call<'_>) -> Option<trace::Work> {
    if !trace::is_on() {
        return None;
    }
    cold_path();
    Some(call.traced())
}

/// Enters a use of memory that other streams have used.
#[inline(never)]
pub(super) fn enter_among_others(mut history: LatchGuard<'_, History>, access: &Access<'_>, new: Use) {
    history.set_hint(MIXED);
    history.insert(&access.range, access.mode, || new);
    if history.is_crowded() {
        prune(&mut history);
    }
}

/// Admits one thread at a time to memory that graphs refer to, from the look at its uses to the entry of the new one. Other
/// memory needs no such lock: borrows keep conflicting operations of other threads out. A graph's launch holds no borrow, and
/// two launches that conflict would each miss the other. Never held across a driver's call.
#[inline]
fn enter_graph_memory() -> MutexGuard<'static, ()> {
    static ENTERING: Mutex<()> = Mutex::new(());
    lock(&ENTERING)
}

/// Leaves out the points that come before others anyway, so that each wait is needed.
fn without_implied(
    mut points: SmallVec<[(Point, Arc<StreamCore>); 4]>,
) -> SmallVec<[(Point, Arc<StreamCore>); 4]> {
    if points.len() < 2 {
        return points;
    }
    let clocks: SmallVec<[Clock; 4]> =
        points.iter().map(|(point, stream)| stream.clock_at(point.number)).collect();
    let mut kept: SmallVec<[bool; 4]> = SmallVec::from_elem(true, points.len());
    for candidate in 0..points.len() {
        kept[candidate] = false;
        let covered =
            |point: Point| (0..clocks.len()).any(|other| kept[other] && clocks[other].covers(point));
        // All points left out so far are looked at again: the candidate may have covered one.
        kept[candidate] = !(0..points.len()).all(|index| kept[index] || covered(points[index].0));
    }
    let mut kept = kept.into_iter();
    points.retain(|_| kept.next() == Some(true));
    points
}
