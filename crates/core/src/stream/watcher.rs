//! Stream watchers: operations that follow each other in a stream, and the points that tell a watcher how far they are.
//!
//! We record a point's event late: before the next submission, or when you ask. So if operations follow each other directly,
//! they cost no event between them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use gpustream_hal::Result;

use super::mark::Owed;
use super::{Mark, StreamCore, StreamEntry, StreamState};
use crate::memory::Access;
use crate::operation::{Operation, call_site, named};
use crate::reentrancy;

const RECORDED: &str = "watch an operation in a graph; watch the stream that runs the graph";

/// A point in a stream. We may not have recorded its mark yet. Once we have, it stays where it is.
pub(super) type LatePoint = Arc<OnceLock<Mark>>;

/// Operations that follow each other in a stream, so that you can watch how far they are. `Stream::external_watched` of
/// `gpustream` returns it.
///
/// If you drop a watcher, nothing waits. It keeps the stream alive, and is `Send` and `Sync`.
pub struct StreamWatcher {
    stream: Arc<StreamCore>,
    begin: LatePoint,
    end: LatePoint,
}

impl StreamWatcher {
    /// Returns true if the stream has come to the first operation. Never blocks.
    ///
    /// # Errors
    /// [`DeviceLost`](gpustream_hal::ErrorKind::DeviceLost) if the device failed;
    /// [`InHostClosure`](gpustream_hal::ErrorKind::InHostClosure) inside a closure that the library runs.
    #[track_caller]
    pub fn has_begun(&self) -> Result<bool> {
        named(call_site("has_begun"), || self.stream.poll_late(&self.begin))
    }

    /// Returns true if the last operation is done, as far as we can know without waiting: it is also `false` while another
    /// thread submits to the stream and we have not recorded an event after the operation yet. Never blocks. From here on,
    /// nothing is added to the watcher.
    ///
    /// # Errors
    /// Those of [`has_begun`](Self::has_begun).
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || self.stream.poll_late(&self.end))
    }
}

impl Drop for StreamWatcher {
    /// Gives the events back to the stream, unless others hold them or the stream is locked.
    fn drop(&mut self) {
        for point in [&mut self.begin, &mut self.end] {
            let Some(mark) = Arc::get_mut(point).and_then(OnceLock::take) else { continue };
            if let Some(mut state) = self.stream.try_state() {
                state.recycle(mark.cell);
            }
        }
    }
}

impl fmt::Debug for StreamWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWatcher").field("stream", &self.stream.id).finish_non_exhaustive()
    }
}

impl StreamEntry<'_> {
    /// Runs one operation. If `grown` ends at the stream's end and no one has asked for it yet, the operation is added
    /// there; otherwise it makes a new watcher, which we return. `stream` must be the entry's.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit), and [`Captured`](gpustream_hal::ErrorKind::Captured) if the stream is recorded. In
    /// either case `grown` stays valid, grown or not. Some of these errors do not name the operation yet.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    pub unsafe fn submit_watched(
        &self,
        stream: &Arc<StreamCore>,
        submission: &mut Operation<'_>,
        grown: Option<&StreamWatcher>,
    ) -> Result<Option<StreamWatcher>> {
        let mut state = stream.running(RECORDED)?;
        if !stream.is_exclusive() || state.step.is_some() {
            // If others submit too, or a step has deferred operations, only an event that we record now has the right place.
            drop(state);
            // SAFETY: handed on.
            return stream.watched(|| unsafe { self.submit(submission) }).map(Some);
        }
        // If others have used the memory, the stream may have to wait before the operation.
        let is_own = |access: &&Access<'_>| access.block.history.hint() == Some(stream.id.get());
        let is_own = submission.accesses.iter().all(is_own);
        let grown = grown.filter(|grown| is_own && state.withdraw(&grown.end));
        let end = grown.map_or_else(LatePoint::default, |grown| grown.end.clone());
        let last = state.watched_point().cloned();
        let mut begun = self
            .prepare(state, submission.accesses.iter().copied(), submission.waited)
            .inspect_err(|_| {
                if grown.is_some() {
                    stream.state.lock().owed.push(Owed::Point(end.clone()));
                }
            })?;
        let begin = match grown {
            Some(_) => None,
            None => Some(stream.point_in_front(&mut begun.state, last)?),
        };
        begun.state.owed.push(Owed::Point(end.clone()));
        // SAFETY: handed on.
        unsafe { self.call(begun, submission) }?;
        Ok(begin.map(|begin| StreamWatcher { stream: stream.clone(), begin, end }))
    }
}

impl StreamCore {
    /// Returns the point before the operation that has its place: `last`, the one after the previous operation, or the last
    /// mark, unless the stream has waited for other streams since.
    fn point_in_front(&self, state: &mut StreamState, last: Option<LatePoint>) -> Result<LatePoint> {
        let number = state.number - 1;
        let is_in_front = |mark: &Mark| (mark.number, &mark.clock) == (number, &state.clock);
        if let Some(last) = last
            && last.get().is_some_and(is_in_front)
        {
            return Ok(last);
        }
        let mark = match state.marks.back().filter(|mark| is_in_front(mark)) {
            Some(mark) => mark.clone(),
            None => self.record_mark(state, self.raw, number)?,
        };
        Ok(LatePoint::new(mark.into()))
    }

    /// Runs `work`, which submits to this stream, with a watcher of its own, between events that we record now.
    ///
    /// # Errors
    /// The errors of `work` and of recording events; [`Captured`](gpustream_hal::ErrorKind::Captured) if the stream is
    /// recorded.
    pub fn watched(self: &Arc<Self>, work: impl FnOnce() -> Result<()>) -> Result<StreamWatcher> {
        let begin = self.marked_point()?;
        work()?;
        Ok(StreamWatcher { stream: self.clone(), begin, end: self.marked_point()? })
    }

    /// Records an event at the stream's end.
    fn marked_point(&self) -> Result<LatePoint> {
        let mut state = self.running(RECORDED)?;
        Ok(LatePoint::new(self.mark(&mut state)?.clone().into()))
    }

    /// Asks if a point has been reached. If its mark is not recorded yet, we record it now.
    fn poll_late(&self, point: &LatePoint) -> Result<bool> {
        reentrancy::check_outside()?;
        if point.get().is_none() {
            // Another thread may hold the lock while it waits for room in the stream.
            let Some(mut state) = self.try_state() else { return Ok(false) };
            if state.is_recorded() {
                return Ok(self.known_done(state.number));
            }
            self.pay_all(&mut state)?;
        }
        point.get().map_or(Ok(false), |mark| self.poll_event(mark))
    }
}

impl StreamState {
    /// Returns true if the last operation has a watcher and we have not recorded an event after it.
    pub(super) fn is_watched(&self) -> bool {
        self.watched_point().is_some()
    }

    /// Cancels the event that a point is owed. Returns true if it was owed one.
    fn withdraw(&mut self, point: &LatePoint) -> bool {
        let is_owed = |owed: &Owed| matches!(owed, Owed::Point(owed) if Arc::ptr_eq(owed, point));
        let at = self.owed.iter().position(is_owed);
        at.map(|at| self.owed.remove(at)).is_some()
    }

    /// If the last operation has a watcher, returns the point after it.
    fn watched_point(&self) -> Option<&LatePoint> {
        self.owed.iter().find_map(|owed| match owed {
            Owed::Point(point) => Some(point),
            Owed::Use(_) | Owed::Any => None,
        })
    }
}
