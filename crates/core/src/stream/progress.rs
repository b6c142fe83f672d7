//! How far a stream has come. There are three verbs, each for the whole stream, for a submission's number and for a mark.
//!
//! | verb | the driver | the stream's end | a number | a mark |
//! |---|---|---|---|---|
//! | known | is not asked | | [`known_done`](StreamCore::known_done) | |
//! | poll | is asked, and the host goes on | [`poll`](StreamCore::poll) | [`poll_number`](StreamCore::poll_number) | [`poll_mark`](StreamCore::poll_mark) |
//! | wait | makes the host wait | [`wait`](StreamCore::wait), [`wait_end`](StreamCore::wait_end) | [`wait_number`](StreamCore::wait_number) | |
//!
//! We keep each answer (`set_done`): once we have seen that work is done, we know it.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpustream_hal::{Error, ErrorKind, Result};

use super::{EventCell, Mark, StateGuard, StreamCore, StreamState, StreamTable};
use crate::failures;
use crate::reentrancy;
use crate::trace;
use crate::track::{Clock, Point};

impl StreamCore {
    /// Returns true if we know that everything up to `number` is done.
    #[inline]
    pub fn known_done(&self, number: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= number
    }

    /// Returns true if you need not wait for `number`. Either we know that it is done, or the host closure on this thread
    /// comes after it. Or the stream is retired and its last mark has been reached; then we may be unable to wait any more.
    #[inline]
    pub(crate) fn needs_no_wait(&self, number: u64) -> bool {
        self.known_done(number)
            || reentrancy::is_past(Point { stream: self.id, number })
            || self.is_retired() && self.poll_last_mark(number).is_ok_and(|clock| clock.is_some())
    }

    /// Notes that everything up to `number` is done.
    pub(crate) fn set_done(&self, number: u64) {
        // We cannot use `fetch_max` here, because ThreadSanitizer does not see it.
        let mut done = self.completed.load(Ordering::Relaxed);
        while done < number {
            match self.completed.compare_exchange_weak(done, number, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => done = now,
            }
        }
    }

    /// Notes that the mark has been reached, and with it everything that it comes after.
    pub fn set_reached(&self, mark: &Mark) {
        self.set_done(mark.number);
        StreamTable::shared().set_done(&mark.clock);
    }

    /// Asks if everything submitted is done. Returns false if the stream is being captured, or if another thread is using
    /// it right now, because that thread may be waiting for room in the stream.
    pub(crate) fn poll(&self) -> Result<bool> {
        let clock = self.poll_clock()?;
        if let Some(clock) = &clock {
            StreamTable::shared().set_done(clock);
        }
        Ok(clock.is_some())
    }

    /// Like [`poll`](Self::poll), but gives the caller the clock, because with it other streams' work is done as well.
    pub(crate) fn poll_clock(&self) -> Result<Option<Clock>> {
        let Some(state) = self.try_state() else { return Ok(None) };
        // No one waits because of this answer, so operations may stay deferred.
        if state.is_recorded() || state.holds_any() {
            return Ok(None);
        }
        self.poll_caught_up(state)
    }

    /// Like [`poll_clock`](Self::poll_clock), if you know that the stream is not captured.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed; the failure of a deferred operation.
    pub(crate) fn poll_locked(&self, mut state: StateGuard<'_>) -> Result<Option<Clock>> {
        self.caught_up(&mut state)?;
        self.poll_caught_up(state)
    }

    /// Like [`poll_locked`](Self::poll_locked), for a stream without deferred operations. It does not cut a step that is
    /// running.
    fn poll_caught_up(&self, state: StateGuard<'_>) -> Result<Option<Clock>> {
        let number = state.number;
        if !self.is_reachable() {
            drop(state);
            return self.poll_last_mark(number);
        }
        // SAFETY: the stream is alive: one that is not ours cannot retire while its lock is held.
        let done = unsafe { self.device.stream_query(self.raw) }?;
        if done {
            self.set_done(number);
        }
        Ok(done.then(|| state.clock.clone()))
    }

    /// Like [`poll_clock`](Self::poll_clock), for a stream that is out of reach.
    #[cold]
    fn poll_last_mark(&self, number: u64) -> Result<Option<Clock>> {
        if self.known_done(number) {
            return Ok(Some(Clock::default()));
        }
        let Some(mark) = self.last_mark().filter(|mark| mark.number >= number) else { return Ok(None) };
        Ok(self.poll_mark(&mark)?.then_some(mark.clock))
    }

    /// Returns the number of the last operation that we know is done.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Like [`poll`](Self::poll). If the stream is not done, it also looks how far it is, and calls `then` while the stream is
    /// locked, unless it is recorded or in a step.
    fn poll_marks(&self, then: impl FnOnce(&mut StreamState) -> Result<()>) -> Result<()> {
        if !self.poll()?
            && let Some(mut state) = self.try_state()
            && !state.is_recorded()
            && !state.holds_any()
        {
            self.forget_marks(&mut state);
            then(&mut state)?;
        }
        Ok(())
    }

    /// Asks how far the stream is. Makes no mark, because in a full stream even that would wait for room.
    pub(crate) fn poll_progress(&self) -> Result<()> {
        self.poll_marks(|_| Ok(()))
    }

    /// Asks how far the stream is, and marks its end, so that the next poll can tell more.
    pub(crate) fn poll_and_mark(&self) -> Result<()> {
        self.poll_marks(|state| self.mark_end(state))
    }

    /// Asks if that submission is done.
    pub(crate) fn poll_number(&self, number: u64) -> Result<bool> {
        if self.needs_no_wait(number) {
            return Ok(true);
        }
        self.mark_for(number)?.map_or(Ok(true), |mark| self.poll_event(&mark))
    }

    /// Asks if the mark has been reached.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed.
    pub fn poll_mark(&self, mark: &Mark) -> Result<bool> {
        // The number alone is not enough if the stream has waited for other streams, because that may have been after it.
        if self.known_done(mark.number) && mark.clock.len() == 0 {
            return Ok(true);
        }
        self.poll_event(mark)
    }

    /// Like [`poll_mark`](Self::poll_mark), but always asks the driver.
    ///
    /// # Errors
    /// As for [`poll_mark`](Self::poll_mark).
    pub fn poll_event(&self, mark: &Mark) -> Result<bool> {
        let reached = match self.query(&mark.cell) {
            // ROCm fails here once the stream is destroyed. Its owner did that after its work was done.
            Err(error) if self.is_retired() && error.kind() != ErrorKind::DeviceLost => true,
            answer => answer?,
        };
        if reached {
            self.set_reached(mark);
        }
        Ok(reached)
    }

    /// Reports failures that the driver does not know of: this stream's, and those on other streams that it comes after.
    ///
    /// # Errors
    /// [`ErrorKind::HostPanic`] if a host closure panicked, and what other streams have kept.
    #[inline]
    pub fn report_failures(&self) -> Result<()> {
        self.failures.report()?;
        if failures::any_placed() { self.report_others() } else { Ok(()) }
    }

    #[cold]
    fn report_others(&self) -> Result<()> {
        let clock = self.state.lock().clock.clone();
        failures::report_before(self.id, &clock)
    }

    /// Blocks until everything submitted is done, and reports failures that the driver does not know of.
    ///
    /// # Errors
    /// Those of [`check_thread`](Self::check_thread), [`mark`](Self::mark) and [`report_failures`](Self::report_failures);
    /// [`ErrorKind::DeviceLost`] if the device failed.
    #[track_caller]
    pub fn wait(&self) -> Result<()> {
        let place = Location::caller();
        self.check_thread()?;
        let mut state =
            self.running("wait for its stream; launch the graph and wait for the stream that runs it")?;
        // We wait for an event, because another thread may capture the stream before the driver hears of the wait. Also, how
        // a driver waits for a stream depends on the context, which we share with other code, but how it waits for an event
        // is our choice.
        let Mark { number, cell, clock, .. } = self.mark(&mut state)?.clone();
        drop(state);
        let end = Some(Point { stream: self.id, number });
        trace::waiting("synchronize", place, end, || self.synchronize(&cell))?;
        StreamTable::shared().set_done(&clock);
        self.pass(number, cell);
        self.report_failures()
    }

    /// Blocks until that submission is done, and reports failures that the driver does not know of.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure that does not come after the submission; otherwise as for
    /// [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_number(&self, number: u64) -> Result<()> {
        self.wait_number_at(number, Location::caller())
    }

    /// Like [`wait_number`](Self::wait_number), for the call at `place`.
    ///
    /// # Errors
    /// As for [`wait_number`](Self::wait_number).
    pub(crate) fn wait_number_at(&self, number: u64, place: &'static Location<'static>) -> Result<()> {
        if self.needs_no_wait(number) {
            // Inside a host closure, we leave the report to the next wait outside.
            return if reentrancy::is_inside() { Ok(()) } else { self.report_failures() };
        }
        let point = Some(Point { stream: self.id, number });
        let Some((number, cell)) = self.event_for(number)? else { return Ok(()) };
        trace::waiting("wait for memory", place, point, || self.synchronize(&cell))?;
        self.pass(number, cell);
        self.report_failures()
    }

    /// Blocks until nothing is pending, even if work failed. No one else may have the stream, because it must not be
    /// captured.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        if self.is_ours() {
            // SAFETY: the stream is alive.
            return unsafe { self.device.stream_synchronize(self.raw) };
        }
        self.wait_end()
    }

    /// Blocks until everything submitted so far is done. We wait for an event, because the stream may be captured meanwhile,
    /// or its owner may destroy it once the last `Stream` is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Driver`] if no event covers all of it and we cannot record one any more.
    pub(crate) fn wait_end(&self) -> Result<()> {
        let mut state = self.state.lock();
        let number = state.number;
        if self.known_done(number) {
            return Ok(());
        }
        if self.is_reachable() && !state.is_recorded() {
            self.mark_end(&mut state)?;
        }
        let mark = state.marks.back().filter(|mark| mark.number >= number).cloned();
        drop(state);
        let Some(mark) = mark else {
            return Err(Error::new(
                ErrorKind::Driver,
                "no event tells when the stream's last operations are done, and the stream cannot record one now; wait \
                 for the stream before you capture it or drop its last `Stream`",
            ));
        };
        self.synchronize(&mark.cell)?;
        self.set_done(number);
        Ok(())
    }

    /// Notes that the mark with that number and event has been reached, so it and the earlier ones can go.
    fn pass(&self, number: u64, cell: Arc<EventCell>) {
        self.set_done(number);
        let mut state = self.state.lock();
        // Not all marks of its number, because the stream may have waited for other streams between two of them.
        let Some(last) = state.marks.iter().position(|mark| Arc::ptr_eq(&mark.cell, &cell)) else { return };
        drop(cell);
        for _ in 0..=last {
            if let Some(mark) = state.marks.pop_front() {
                StreamTable::shared().set_done(&mark.clock);
                state.recycle(mark.cell);
            }
        }
    }

    /// Like [`mark_for`](Self::mark_for), for a wait by the host: returns the mark's number and event.
    fn event_for(&self, number: u64) -> Result<Option<(u64, Arc<EventCell>)>> {
        reentrancy::check_outside()?;
        let mut state = self.state.lock();
        Ok(self.covering(&mut state, number)?.map(|mark| (mark.number, mark.cell.clone())))
    }
}
