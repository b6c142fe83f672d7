//! Steps: operations that are deferred until one graph can stand for them, or until the driver has to have them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpustream_hal::{CallSite, LaunchConfig, RawStream, Result};

use super::mark::Owed;
use super::submit::enter_among_others;
use super::{ContextHold, Origin, Recording, StateGuard, StreamCore, StreamEntry, StreamState, prune};
use crate::memory::Access;
use crate::operation::{Argument, DriverCalls, KernelLaunch, Operation};
use crate::record::RecordedCalls;
use crate::reentrancy::is_inside;
use crate::replay::{ReplayStep, Uses};
use crate::trace;
use crate::track::{Point, Use};

/// The run of a step on a stream. If you drop it, the run ends.
pub struct ReplayRun<'a> {
    stream: &'a Arc<StreamCore>,
    step: Option<&'a mut Option<Box<ReplayStep>>>,
}

impl<'a> ReplayRun<'a> {
    /// Begins a run of `step` on this thread, if the stream's operations run and no other step is running there. Otherwise
    /// the operations go where they would go without a step.
    ///
    /// # Errors
    /// The error of [`check_thread`](StreamCore::check_thread).
    pub fn begin(stream: &'a Arc<StreamCore>, step: &'a mut Option<Box<ReplayStep>>) -> Result<Self> {
        stream.check_thread()?;
        let mut state = stream.state.lock();
        // If a stream is not only ours, other code orders its work with that stream's, and nothing tells us. Then deferred
        // work would come too late. Also, a node that was not made by a capture runs on the whole device.
        let usable = step.as_ref().is_some_and(|step| step.plain().is_none())
            && stream.origin == Origin::Ours
            && stream.part().is_none();
        if !usable || state.is_recorded() || state.step.is_some() {
            return Ok(Self { stream, step: None });
        }
        if let Some(mut held) = step.take() {
            held.begin();
            state.step = Some(held);
            state.enable_fast_path(true);
        }
        Ok(Self { stream, step: Some(step) })
    }

    /// Gives the driver what is still deferred, and ends the run.
    ///
    /// # Errors
    /// The failure of a deferred operation.
    #[inline]
    pub fn end(mut self) -> Result<()> {
        self.finish()
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    fn finish(&mut self) -> Result<()> {
        let Some(place) = self.step.take() else { return Ok(()) };
        let mut state = self.stream.state.lock();
        self.stream.release(&mut state);
        state.enable_fast_path(false);
        *place = state.step.take();
        drop(state);
        place.as_mut().map_or(Ok(()), |step| step.end())
    }
}

impl Drop for ReplayRun<'_> {
    /// Ends the run of a closure that panicked. Its operations count as submitted. If one fails, the next wait reports that.
    fn drop(&mut self) {
        if let Err(failed) = self.finish() {
            self.stream.failures.keep(failed);
        }
    }
}

impl StreamCore {
    /// Returns true while a step is running.
    #[inline]
    pub fn is_in_step(&self) -> bool {
        self.state.is_enabled()
    }

    /// Returns the driver's handle for you to use. The work that you submit to it comes in order with this stream's
    /// operations, so we defer nothing from here on until the step's run ends. If this thread captures the stream, you get
    /// the handle that the driver captures.
    pub fn handle(&self) -> RawStream {
        if let Some(raw) = self.proxy_here() {
            return raw;
        }
        let is_first = !self.shared.swap(true, Ordering::Relaxed);
        // You may submit right after an operation that has a watcher. A thread that holds the state submits there too, so
        // from here on we record no event late.
        if is_first
            && let Some(mut state) = self.try_state()
            && state.is_watched()
            && !state.is_recorded()
        {
            // If this failed, the next submission meets the failure as well.
            let _ = self.pay_all(&mut state);
        }
        // An external operation's closure runs while the state is locked, and then nothing is deferred.
        if self.is_in_step() && !is_inside() {
            let mut state = self.state.lock();
            self.release(&mut state);
            if let Some(step) = &mut state.step {
                step.pause();
            }
        }
        self.raw
    }

    /// Returns the driver's handle, after the driver has received everything that was submitted.
    ///
    /// # Errors
    /// The failure of a deferred operation, if this thread submitted it.
    #[inline]
    pub(crate) fn caught_up(&self, state: &mut StreamState) -> Result<RawStream> {
        if state.step.is_none() { Ok(self.raw) } else { self.catch_up(state) }
    }

    #[cold]
    fn catch_up(&self, state: &mut StreamState) -> Result<RawStream> {
        if let Some(step) = &state.step {
            step.say_wait();
        }
        self.end_segment(state)
    }

    /// Like [`caught_up`](Self::caught_up), for an operation that cannot go into a graph.
    pub(super) fn caught_up_for(&self, state: &mut StreamState, call_site: CallSite) -> Result<RawStream> {
        let Some(step) = &state.step else { return Ok(self.raw) };
        step.say_cut(call_site);
        self.end_segment(state)
    }

    fn end_segment(&self, state: &mut StreamState) -> Result<RawStream> {
        self.release(state);
        let failed = state.step.as_ref().and_then(|step| step.failure());
        failed.map_or(Ok(self.raw), Err)
    }

    /// Returns the driver's handle, after the driver has received what was deferred. If nothing was, the current segment
    /// goes on.
    pub(super) fn caught_up_in_segment(&self, state: &mut StreamState) -> Result<RawStream> {
        if state.holds_any() { self.caught_up(state) } else { Ok(self.raw) }
    }

    /// Gives the driver what is deferred, and ends the segment.
    fn release(&self, state: &mut StreamState) {
        let Some(step) = &mut state.step else { return };
        if trace::is_on() {
            step.note_end(self.place(state.number, std::mem::take(&mut state.waited)));
        }
        // SAFETY: the stream is alive. We entered the uses of the deferred operations before their memory could be freed, so
        // the memory stays until this stream's work up to here is done.
        unsafe { step.release(self.raw) };
        if step.take_owed_event() {
            state.owed.push(Owed::Any);
        }
    }
}

impl<'s> StreamEntry<'s> {
    /// Like [`follow`](Self::follow), for the step that is running.
    ///
    /// # Safety
    /// As for [`follow`](Self::follow).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of an operation that is held back")]
    pub(super) unsafe fn follow_step<'a, A>(
        &self,
        launch: &KernelLaunch<'a, A>,
        shown: impl Fn(&'a A) -> Option<Argument<'a>>,
        resolved: impl Fn() -> Option<LaunchConfig>,
    ) -> Option<Result<()>> {
        let Self { stream, caller } = self;
        let mut state = stream.state.enter()?;
        let StreamState { step, recording, owed, number, .. } = &mut *state;
        if let (Some(step), Recording::None) = (step.as_deref_mut(), recording)
            && step.goes_on()
            && owed.is_empty()
            && !caller.rules.blocking
            // SAFETY: handed on.
            && let Some(uses) = unsafe { step.follow(launch, &shown, resolved, stream.id) }
        {
            *number += 1;
            stream.counted.store(*number, Ordering::Release);
            if uses == Uses::New {
                let new = Use::new(Point { stream: stream.id, number: *number }, caller.call_site);
                for arg in launch.args {
                    if let Some(Argument::Memory { access, .. }) = shown(arg) {
                        enter_in_segment(access, new, step);
                    }
                }
            }
            return Some(Ok(()));
        }
        None
    }

    /// Submits an operation that is not recorded and that no step expects.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    pub(super) unsafe fn submit_unexpected(
        &self,
        mut state: StateGuard<'s>,
        submission: &mut Operation<'_>,
    ) -> Result<()> {
        match &mut state.step {
            Some(step) if step.is_this_threads() && !self.caller.rules.blocking => {
                if let Some(failed) = step.failure() {
                    return Err(failed);
                }
                // SAFETY: handed on.
                unsafe { self.offer_to_step(state, submission) }
            }
            _ => {
                self.stream.caught_up(&mut state)?;
                let begun = self.prepare(state, submission.accesses.iter().copied(), submission.waited)?;
                // SAFETY: handed on.
                unsafe { self.call(begun, submission) }
            }
        }
    }

    /// Submits an operation that may not be the expected one, or that touches memory that others use.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    #[inline(never)]
    unsafe fn offer_to_step(&self, state: StateGuard<'s>, submission: &mut Operation<'_>) -> Result<()> {
        let stream = self.stream;
        let mut begun = self.prepare(state, submission.accesses.iter().copied(), submission.waited)?;
        let StreamState { step, owed, number, waited, .. } = &mut *begun.state;
        if let Some(step) = step
            && trace::is_on()
            && step.holds_any()
        {
            step.note_end(stream.place(*number - 1, std::mem::take(waited)));
        }
        if let Some(step) = step
            && let Some(room) = step.unrecorded(submission)
            && let DriverCalls::External { calls, .. } = &mut submission.call
            // While the host waits for the whole device, we make the calls as usual.
            && let Ok(_hold) = ContextHold::for_capture(&*stream.device)
            && let Some(recorded) = RecordedCalls::record(&stream.device, calls)?
        {
            let _ = room.set(recorded);
        }
        let held = match step {
            // SAFETY: the operation has its place on this stream, which is alive; its uses have been entered, so that
            // memory and module stay until the stream's work up to here is done.
            Some(step) => unsafe { step.offer(stream.raw, submission) },
            None => Ok(false),
        };
        if step.as_mut().is_some_and(|step| step.take_owed_event()) {
            if held.is_ok() {
                // This event comes before our operation, but we have already taken the operation's number.
                let last = *number - 1;
                stream.mark_on(&mut begun.state, stream.raw, last)?;
            } else {
                owed.push(Owed::Any);
            }
        }
        if held? {
            return Ok(());
        }
        // SAFETY: handed on.
        unsafe { self.call(begun, submission) }
    }
}

/// Enters a use by a deferred operation, unless an earlier use of the segment stands for it.
#[inline(never)]
fn enter_in_segment(access: &Access<'_>, new: Use, step: &mut ReplayStep) {
    let Access { block, range, mode } = access;
    let epoch = step.epoch();
    if epoch.covers(block.history.epoch(), *mode) {
        return;
    }
    step.note_host_memory(access.is_the_hosts());
    let mut history = block.history.lock();
    if history.hint() != Some(new.point.stream.get()) {
        enter_among_others(history, access, new);
    } else if history.insert_whole(range, *mode, || new) {
        history.set_epoch(epoch.of(*mode));
    } else if history.is_crowded() {
        prune(&mut history);
    }
}

impl StreamState {
    /// Returns true if operations are deferred.
    #[inline]
    pub(super) fn holds_any(&self) -> bool {
        self.step.as_ref().is_some_and(|step| step.holds_any())
    }
}
