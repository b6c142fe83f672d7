//! Submitting: we make the waits that an operation needs, call the driver, and enter the operation's use.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{self as hal, RawStream, Result};
use smallvec::SmallVec;

use super::mark::Owed;
use super::{Mark, StateGuard, StreamCore, StreamEntry, StreamState, StreamTable, prune};
use crate::memory::{Access, Remembered, check_guards, enter_graph_memory};
use crate::operation::{DriverCalls, HostWait, Operation, hazard};
use crate::record::GraphUses;
use crate::sync::{LatchGuard, RawMutexGuard};
use crate::trace;
use crate::track::{Clock, History, Point, Tracking, Use};

/// An operation that has its place in a stream. The stream stays locked until the operation's driver calls have been made.
///
/// The caller makes those calls, with as few functions around them as we can. Drivers call deeper than processors remember
/// return addresses (16 to 32 levels). So each function around a driver's call returns to a place that the processor did not
/// expect, and that costs 10 to 40 ns. This type is one pointer, so that it fits into a register.
pub struct Begun<'s> {
    pub(super) state: StateGuard<'s>,
}

impl<'s> StreamEntry<'s> {
    /// Submits an operation that keeps only its memory alive, and that the host waits for alone.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    ///
    /// # Safety
    /// The call must be sound if the accesses are ordered and the blocks that they name are alive.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub unsafe fn submit_call<'a>(
        &'a self,
        accesses: &'a [&'a Access<'a>],
        call: DriverCalls<'a>,
    ) -> Result<()> {
        // SAFETY: handed on.
        unsafe { self.submit(&mut Operation::new(&self.caller, accesses, call)) }
    }

    /// Puts one operation into the stream's destination. If operations run there, we add the waits that the accesses need,
    /// make the driver's call, and enter the use.
    ///
    /// # Errors
    /// [`Hazard`](gpustream_hal::ErrorKind::Hazard) if you order operations yourself and forgot a wait;
    /// [`Captured`](gpustream_hal::ErrorKind::Captured) if another thread captures the stream, or if this operation cannot
    /// be recorded; or the driver refuses. All these errors name the call.
    ///
    /// # Safety
    /// The calls must be sound if the accesses are ordered, and as long as the blocks that they name and the kept values are
    /// alive. Only recordings keep a closure, so with a closure the stream must be recorded. The submission must be this
    /// entry's.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub unsafe fn submit(&self, submission: &mut Operation<'_>) -> Result<()> {
        let &mut Operation { accesses, waited, .. } = submission;
        if let Some(begun) = self.begin(accesses, waited)? {
            // SAFETY: the stream is alive, and the accesses are ordered.
            let result = unsafe { submission.call.enqueue(&*self.stream.device, self.stream.raw) };
            return self.finish(begun, accesses.iter().copied(), waited, result);
        }
        cold_path();
        // SAFETY: handed on.
        unsafe { self.submit_elsewhere(submission) }
    }

    /// Gives an operation its place in the stream, after the waits that its accesses need. Returns `None` if the operation
    /// does not simply run, because it is recorded, traced or offered to a step. Then call
    /// [`submit_elsewhere`](Self::submit_elsewhere).
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit), except that the driver has not refused anything yet.
    #[inline(never)]
    pub fn begin(&self, accesses: &[&Access<'_>], waited: HostWait) -> Result<Option<Begun<'s>>> {
        let stream = self.stream;
        if trace::is_on() || !stream.destination.is_driver() || stream.is_in_step() {
            cold_path();
            return Ok(None);
        }
        let state = stream.state.lock();
        if state.step.is_some() || state.is_recorded() {
            cold_path();
            return Ok(None);
        }
        match self.prepare(state, accesses.iter().copied(), waited) {
            Ok(begun) => Ok(Some(begun)),
            Err(error) => self.named(Err(error)),
        }
    }

    /// Ends a submission. `result` is what the operation's driver calls returned.
    ///
    /// # Errors
    /// The error in `result`. If the device waits for each operation, also the errors of the wait.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub fn finish<'a>(
        &self,
        begun: Begun<'_>,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
        waited: HostWait,
        result: Result<()>,
    ) -> Result<()> {
        let Begun { state } = begun;
        if result.is_ok() && !state.concludes {
            state.unlock();
            return Ok(());
        }
        cold_path();
        self.named(self.conclude(state, accesses, waited, result))
    }

    /// Makes an operation's calls, and ends the submission. A trace shows them as `traced`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    fn run<'a>(
        &self,
        mut begun: Begun<'_>,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
        waited: HostWait,
        traced: Option<trace::WorkKind>,
        call: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let result = match traced {
            None => call(),
            Some(work) => {
                let mut call = Some(call);
                let call = &mut || call.take().map_or(Ok(()), |call| call());
                self.trace(&mut begun.state, work, call)
            }
        };
        self.finish(begun, accesses, waited, result)
    }

    /// Makes the calls of an operation while a trace is on.
    #[cold]
    fn trace(
        &self,
        state: &mut StreamState,
        work: trace::WorkKind,
        call: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let at = self.stream.place(state.number, std::mem::take(&mut state.waited));
        trace::submission(&self.stream.device, at, self.caller.call_site, work, call)
    }

    /// Like [`submit`](Self::submit), but for an operation that cannot be recorded; `what` completes the error "you cannot
    /// …".
    ///
    /// `call` makes the driver calls of the operation. It must enqueue on this stream and return. A trace shows it as
    /// `work`.
    ///
    /// # Errors
    /// [`Captured`](gpustream_hal::ErrorKind::Captured) if the stream is recorded; otherwise as for
    /// [`submit`](Self::submit).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub fn submit_outside_captures<'a, I>(
        &self,
        what: &str,
        work: trace::WorkKind,
        accesses: I,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<()>
    where
        I: Iterator<Item: Borrow<Access<'a>>> + Clone,
    {
        let of_place = accesses.clone();
        let prepare = |state| self.prepare(state, of_place, HostWait::Alone);
        self.named(self.submit_prepared(what, work, accesses, prepare, call))
    }

    /// Runs a graph with this many operations. It does not borrow its memory, so you may hold host guards there.
    ///
    /// # Errors
    /// [`HostBorrowed`](gpustream_hal::ErrorKind::HostBorrowed) if such a guard conflicts with `uses`; otherwise as for
    /// [`submit_outside_captures`](Self::submit_outside_captures).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub fn launch_graph(
        &self,
        operations: u32,
        uses: &GraphUses,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<()> {
        let check = || if uses.touch_host_memory() { check_guards(uses.accesses()) } else { Ok(()) };
        let prepare = |mut state: StateGuard<'s>| {
            self.stream.pay(&mut state, &uses.accesses(), HostWait::Alone)?;
            self.prepare_among_others(state, uses.accesses(), check)
        };
        let work = trace::WorkKind::Graph { operations };
        self.named(self.submit_prepared("launch a graph inside it", work, uses.accesses(), prepare, call))
    }

    /// Submits an operation that cannot be recorded. `prepare` gives it its place.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    fn submit_prepared<'a>(
        &self,
        what: &str,
        work: trace::WorkKind,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
        prepare: impl FnOnce(StateGuard<'s>) -> Result<Begun<'s>>,
        call: impl FnOnce(&dyn hal::Device, RawStream) -> Result<()>,
    ) -> Result<()> {
        let stream = self.stream;
        let mut state = stream.running(what)?;
        stream.caught_up_for(&mut state, self.caller.call_site)?;
        let traced = trace::is_on().then_some(work);
        let begun = prepare(state)?;
        self.run(begun, accesses, HostWait::Alone, traced, || call(&*stream.device, stream.raw))
    }

    /// Gives an operation its place in the stream: makes the waits that its accesses need, counts it, and enters its uses.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    #[allow(clippy::needless_pass_by_value)] // an iterator, cloned per pass
    pub(super) fn prepare<'a, I>(
        &self,
        mut state: StateGuard<'s>,
        accesses: I,
        waited: HostWait,
    ) -> Result<Begun<'s>>
    where
        I: Iterator<Item: Borrow<Access<'a>>> + Clone,
    {
        self.stream.pay(&mut state, &accesses, waited)?;
        // The usual case: only this stream has used the memory.
        let is_usual = accesses.clone().all(|access| {
            let block = access.borrow().block;
            block.history.hint() == Some(self.stream.id.get()) && !block.in_graph.load(Ordering::Acquire)
        });
        if is_usual {
            self.enter_all(&mut state, accesses);
            return Ok(Begun { state });
        }
        cold_path();
        self.prepare_among_others(state, accesses, || Ok(()))
    }

    /// Like [`prepare`](Self::prepare), but for memory that other streams have used, or that graphs refer to. With graphs,
    /// `check` has the last word, and we call it under the same lock under which we enter the uses.
    #[inline(never)]
    #[allow(clippy::needless_pass_by_value)] // an iterator, cloned per pass
    fn prepare_among_others<'a>(
        &self,
        mut state: StateGuard<'s>,
        accesses: impl Iterator<Item: Borrow<Access<'a>>> + Clone,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<Begun<'s>> {
        let in_graph = accesses.clone().any(|access| access.borrow().block.in_graph.load(Ordering::Acquire));
        let mut entering = in_graph.then(enter_graph_memory);
        // With graphs, only now can no other thread enter uses while we look.
        if !accesses.clone().all(|access| access.borrow().block.history.hint() == Some(self.stream.id.get()))
        {
            state = self.order(state, accesses.clone(), &mut entering)?;
        }
        check()?;
        self.enter_all(&mut state, accesses);
        Ok(Begun { state })
    }

    /// Counts an operation, and enters its uses.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    fn enter_all<'a>(&self, state: &mut StreamState, accesses: impl Iterator<Item: Borrow<Access<'a>>>) {
        let Self { stream, caller } = self;
        // We take the number even if the call fails, because a driver may have enqueued part of the work. And if a backend
        // panics, the uses that we enter here stay.
        state.number += 1;
        let point = Point { stream: stream.id, number: state.number };
        stream.counted.store(point.number, Ordering::Release);
        state.concludes = caller.rules.blocking || stream.is_one_threads();
        for access in accesses {
            let access = access.borrow();
            state.concludes |= access.is_the_hosts();
            self.enter(access, point);
        }
    }

    /// Makes the driver call of an operation that has its place.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    pub(super) unsafe fn call(&self, begun: Begun<'_>, submission: &mut Operation<'_>) -> Result<()> {
        let &mut Operation { accesses, ref mut call, waited, .. } = submission;
        let traced = traced(call);
        // SAFETY: the stream is alive, and the accesses are ordered.
        let call = || unsafe { call.enqueue(&*self.stream.device, self.stream.raw) };
        self.run(begun, accesses.iter().copied(), waited, traced, call)
    }

    /// Enters a use for this stream's next submission.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    fn enter(&self, access: &Access<'_>, point: Point) {
        let new = || Use::new(point, self.caller.call_site);
        let mut history = access.block.history.lock();
        if history.hint() != Some(self.stream.id.get()) {
            cold_path();
            return enter_among_others(history, access, new());
        }
        // If one stream always uses the whole memory, its uses replace each other.
        if history.insert(&access.range, access.mode, new) {
            cold_path();
            if history.is_crowded() {
                prune(&mut history);
            }
        }
    }

    /// Ends a submission that failed, or that a thread or a watcher waits for. This is a separate function so that the code
    /// of the usual case lies close together.
    #[inline(never)]
    fn conclude<'a>(
        &self,
        mut state: StateGuard<'_>,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
        waited: HostWait,
        result: Result<()>,
    ) -> Result<()> {
        let Self { stream, caller } = self;
        if stream.is_one_threads() {
            // Other threads wait for this event. We record it even if the call failed, because the driver may have enqueued
            // part.
            let marked = stream.mark(&mut state);
            if result.is_ok() {
                marked?;
            }
        } else if result.is_ok() && waited != HostWait::WithNext {
            // The host waits for this operation, so it needs an event, if it has none yet.
            for access in accesses {
                if access.borrow().is_the_hosts() {
                    state.owed.push(Owed::Use(Remembered::of(access.borrow())));
                }
            }
        }
        if caller.rules.blocking && result.is_ok() {
            let cell = stream.mark(&mut state).map(|mark| mark.cell.clone());
            drop(state);
            cell.and_then(|cell| stream.synchronize(&cell))?;
        }
        result
    }

    /// Adds the waits that an operation with these accesses needs. It may unlock a held `entering` and lock it again.
    #[inline(never)]
    #[allow(clippy::needless_pass_by_value)] // an iterator, cloned per pass
    fn order<'a>(
        &self,
        mut state: StateGuard<'s>,
        accesses: impl Iterator<Item: Borrow<Access<'a>>> + Clone,
        entering: &mut Option<RawMutexGuard<'static>>,
    ) -> Result<StateGuard<'s>> {
        let mut missing = self.missing(&state, accesses.clone());
        if missing.is_empty() {
            return Ok(state);
        }
        while !missing.is_empty() {
            let in_graph = entering.take().is_some();
            // This unlocks the stream for a moment, so new uses may have come.
            state = self.order_after(state, &missing)?;
            *entering = in_graph.then(enter_graph_memory);
            missing = self.missing(&state, accesses.clone());
        }
        // We can only do this now, because the points that this operation relies on must stay until it is entered.
        state.prune_clock();
        Ok(state)
    }

    /// The uses that must come before an operation with these accesses, and do not yet.
    fn missing<'a>(
        &self,
        state: &StreamState,
        accesses: impl Iterator<Item: Borrow<Access<'a>>>,
    ) -> SmallVec<[Use; 4]> {
        let id = self.stream.id;
        let mut missing = SmallVec::new();
        for access in accesses {
            let access = access.borrow();
            let history = access.block.history.lock();
            history.conflicts(&access.range, access.mode, |old| {
                if old.point.stream != id && !state.clock.covers(old.point) {
                    missing.push(*old);
                }
            });
            if history.is_only(id) {
                history.set_hint(Some(id.get()));
            }
        }
        missing
    }

    /// Makes this stream wait for `missing`.
    ///
    /// # Errors
    /// [`Hazard`](gpustream_hal::ErrorKind::Hazard) if you order operations yourself and forgot a wait.
    #[cold]
    fn order_after(&self, state: StateGuard<'s>, missing: &[Use]) -> Result<StateGuard<'s>> {
        drop(state);
        let Self { stream, caller } = self;
        let mut waits: SmallVec<[(Point, Option<Mark>); 4]> = SmallVec::new();
        let mut running: SmallVec<[(Point, Arc<StreamCore>); 4]> = SmallVec::new();
        for old in missing {
            let other = StreamTable::shared()
                .get(old.point.stream)
                .filter(|other| !other.needs_no_wait(old.point.number));
            match (other, caller.rules.tracking) {
                (None, _) => waits.push((old.point, None)),
                (Some(_), Some(Tracking::Strict)) if !old.recycled => {
                    return Err(hazard(caller.call_site, old.call_site));
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
        let began =
            "submit to its stream from this thread; another thread began it meanwhile, so try again later";
        let mut state = stream.running(began)?;
        stream.pay_all(&mut state)?;
        let raw = stream.caught_up(&mut state)?;
        for (point, mark) in waits {
            if let Some(mark) = mark
                && !state.clock.covers(point)
            {
                // SAFETY: both are alive, and the event has been recorded.
                if let Err(refusal) = unsafe { stream.device.stream_wait_event(raw, mark.cell.raw) } {
                    let Some(other) = StreamTable::shared().get(point.stream) else { return Err(refusal) };
                    drop(state);
                    other.outlast_capture(refusal)?;
                    // The caller looks again at what is missing.
                    return stream.running(began);
                }
                state.clock.merge(&mark.clock);
                state.note_wait(point);
            }
            state.clock.advance(point);
        }
        Ok(state)
    }
}

impl StreamCore {
    /// If you wait for submission `number`, you also wait for these points of other streams.
    fn clock_at(&self, number: u64) -> Clock {
        let state = self.state.lock();
        let mark = state.marks.iter().find(|mark| mark.number >= number);
        mark.map_or(&state.clock, |mark| &mark.clock).clone()
    }
}

/// Returns what a trace says about an operation, if a trace is on.
#[inline]
fn traced(call: &DriverCalls<'_>) -> Option<trace::WorkKind> {
    if !trace::is_on() {
        return None;
    }
    cold_path();
    Some(call.traced())
}

/// Enters a use of memory that other streams have used.
#[inline(never)]
pub(super) fn enter_among_others(mut history: LatchGuard<'_, History>, access: &Access<'_>, new: Use) {
    history.set_hint(None);
    history.insert(&access.range, access.mode, || new);
    if history.is_crowded() {
        prune(&mut history);
    }
}

/// Leaves out points that come before others anyway, so that we make no wait that is not needed.
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
        // We look again at all points that we left out so far, because the new one may have covered one of them.
        kept[candidate] = !(0..points.len()).all(|index| kept[index] || covered(points[index].0));
    }
    let mut kept = kept.into_iter();
    points.retain(|_| kept.next() == Some(true));
    points
}
