//! Captures: the driver records what we submit to its streams.
//!
//! The members of a capture are the stream that it began on, and every stream that joined later because it waited for an
//! event recorded inside. The driver orders the operations of one member. Between members we order them as outside captures:
//! we record an event on one, and let the other wait for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::{CallSite, Error, ErrorKind, EventOptions, NodePlace, RawGraph, RawStream, Result};
use smallvec::SmallVec;

use super::capture_order::CaptureTree;
use super::{ContextHold, EventCell, Recording, StreamCore, StreamEntry};
use crate::memory::Access;
use crate::operation::{Caller, DriverCalls, Operation, no_node, refused};
use crate::record::condition::{Body, Condition};
use crate::record::nodes::AROUND_BODY;
use crate::record::scope::{Needs, Operations, Scope, add};
use crate::record::{Contents, Keep, NodeAdder};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Mutex, lock};
use crate::track::{Clock, Point, StreamId};

/// A point of a capture. An event that was recorded inside it holds one.
#[derive(Clone)]
pub struct CapturedPoint {
    pub capture: Arc<Capture>,
    point: Point,
    clock: Clock,
    frontier: Operations,
}

struct CapturedStream {
    stream: Arc<StreamCore>,
    /// The driver's stream that we capture: see [`StreamCore::handle_to_capture`].
    raw: RawStream,
    /// The number of its last operation.
    number: u64,
    clock: Clock,
    /// The operations that the member's next one follows directly.
    frontier: Operations,
}

#[derive(Default)]
struct CaptureState {
    members: HashMap<StreamId, CapturedStream>,
    scope: Scope,
    /// Keeps other threads from waiting for the context while the driver records.
    context: Option<ContextHold>,
    /// True while the body of a conditional node is being filled. The streams around it must wait until then.
    in_body: bool,
    /// The failure that left part of a conditional node in the driver's graph.
    broken: Option<Error>,
    /// The waits so far, if we must not give the driver a circle of them.
    tree: Option<CaptureTree>,
}

/// A driver's capture. The streams that take part in it share it with the events recorded inside.
pub struct Capture {
    origin: StreamId,
    /// The only thread that may submit.
    thread: ThreadId,
    inner: Mutex<CaptureState>,
    /// True once the driver's recording is over.
    ended: AtomicBool,
}

impl StreamEntry<'_> {
    /// Makes the graph that is being recorded keep a value, and tell it of its launches. If you give a value twice, it is
    /// kept once.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if nothing is being recorded; [`ErrorKind::Captured`] if another thread captures the
    /// stream.
    pub fn keep_watcher(&self, watcher: Keep) -> Result<()> {
        let kept = self.in_scope(|scope, _| {
            scope.contents.keep(watcher);
            scope.contents.watched = true;
        })?;
        kept.ok_or_else(|| {
            let message = "there is no graph to watch, because the stream is not recorded; call this in `Stream::capture`";
            Error::new(ErrorKind::InvalidArgument, message)
        })
    }
}

impl Capture {
    /// Begins recording on `stream`.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] if the stream is captured already, or while a host thread waits for the whole context; those
    /// of [`check_thread`](StreamCore::check_thread).
    pub fn begin(stream: &Arc<StreamCore>) -> Result<Arc<Self>> {
        stream.check_thread()?;
        let context = Some(ContextHold::for_capture(&*stream.device)?);
        let quirks = &stream.device.info().quirks;
        let tree = quirks.capture_follows_waits.then(|| CaptureTree::new(stream.id));
        let capture = Arc::new(Self {
            origin: stream.id,
            thread: thread::current().id(),
            inner: Mutex::new(CaptureState { context, tree, ..CaptureState::default() }),
            ended: AtomicBool::new(false),
        });
        let mut state = stream.state.lock();
        if state.is_recorded() {
            return Err(refused("capture its stream again; end this capture first"));
        }
        stream.mark_end(&mut state)?;
        let raw = stream.handle_to_capture(&mut state)?;
        // SAFETY: the stream is alive and, as we just saw, not being captured.
        unsafe { stream.device.capture_begin(raw) }?;
        stream.set_recording(&mut state, Recording::Capture(capture.clone(), raw));
        drop(state);
        lock(&capture.inner).add_member(stream, raw);
        Ok(capture)
    }

    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Refuses every thread but the capturing one.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] on another thread.
    pub fn check_thread(&self) -> Result<()> {
        if self.thread == thread::current().id() {
            return Ok(());
        }
        Err(refused("use its stream from another thread; submit from the thread that captures"))
    }

    /// Records one operation, after the captured operations that its accesses conflict with.
    ///
    /// # Safety
    /// As for [`StreamEntry::submit`].
    pub(crate) unsafe fn submit(&self, stream: &StreamCore, submission: &mut Operation<'_>) -> Result<()> {
        self.check_thread()?;
        let &mut Operation { caller, accesses, ref mut call, kept, .. } = submission;
        let inner = &mut *lock(&self.inner);
        let raw = inner.check(stream.id)?;
        let needs = Needs { accesses, whole_device: call.is_cooperative() };
        inner.order(caller, stream.id, needs)?;
        // We enter this before the call, even if the call fails, because a driver may have recorded part of it, and then the
        // graph must own the memory that the part uses.
        inner.enter(stream.id, caller.call_site, needs);
        inner.scope.keep(kept);
        inner.scope.contents.several |= !matches!(call, DriverCalls::Work(_));
        // SAFETY: the stream is alive, and the graph keeps what the operation refers to; the rest is handed on.
        unsafe { call.record(&*stream.device, raw) }
    }

    /// Calls `work` with the tracker, and with a closure that tells which points come before the next operation of `stream`.
    pub(crate) fn in_scope<T>(
        &self,
        stream: &StreamCore,
        work: impl FnOnce(&mut Scope, &dyn Fn(Point) -> bool) -> T,
    ) -> Result<T> {
        self.check_thread()?;
        let CaptureState { members, scope, .. } = &mut *lock(&self.inner);
        let Some(member) = members.get(&stream.id) else { return Err(has_left()) };
        Ok(work(scope, &|point| point.stream == stream.id || member.clock.covers(point)))
    }

    /// Records a conditional node, after the captured operations that conflict with the word or the body. `fill` fills the
    /// body.
    ///
    /// # Safety
    /// As for [`StreamEntry::submit`], for the word and for each operation of the body.
    pub(super) unsafe fn condition(
        &self,
        StreamEntry { stream, caller }: &StreamEntry<'_>,
        condition: &Condition<'_>,
        fill: impl FnOnce(&Arc<NodeAdder>) -> Result<()>,
    ) -> Result<()> {
        /// Lets the streams go on, even if the body's closure panics.
        struct Reopening<'a>(&'a Capture);
        impl Drop for Reopening<'_> {
            fn drop(&mut self) {
                lock(&self.0.inner).in_body = false;
            }
        }

        self.check_thread()?;
        let (place, body) = {
            let inner = &mut *lock(&self.inner);
            let place = NodePlace::EndOf(inner.check(stream.id)?);
            // SAFETY: the stream is alive, and captured on this thread.
            let body = unsafe { Body::begin(&stream.device, place, condition.repeat, 1) }?;
            inner.in_body = true;
            (place, body)
        };
        let reopening = Reopening(self);
        let keep = |contents| lock(&self.inner).scope.contents.merge(contents);
        let (conditional, body, last) = body.fill(condition.word, fill, keep)?;
        drop(reopening);
        let inner = &mut *lock(&self.inner);
        let accesses: Vec<Access<'_>> = body.uses.accesses().collect();
        let accesses: Vec<&Access<'_>> = accesses.iter().collect();
        let needs = Needs { accesses: &accesses, whole_device: body.uses.whole_device };
        let ordered = inner.order(caller, stream.id, needs);
        // Before the call, even if it fails, as for every operation.
        inner.enter(stream.id, caller.call_site, needs);
        drop(accesses);
        inner.scope.take_body(body);
        ordered?;
        // SAFETY: the graph keeps what the body refers to and the word; the rest is this function's contract.
        unsafe { stream.device.conditional_end(place, &conditional, condition.address, last) }
            .inspect_err(|error| inner.broken = Some(error.clone()))
    }

    /// Records `event` on a member.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] on another thread, on a stream that does not take part, and while a body is being filled.
    pub fn record(self: &Arc<Self>, stream: &StreamCore, event: &EventCell) -> Result<CapturedPoint> {
        self.check_thread()?;
        let inner = lock(&self.inner);
        inner.check(stream.id)?;
        let Some(member) = inner.members.get(&stream.id) else { return Err(has_left()) };
        // SAFETY: both are alive.
        unsafe { stream.device.event_record(event.raw, member.raw) }?;
        let point = Point { stream: stream.id, number: member.number };
        Ok(CapturedPoint {
            capture: self.clone(),
            point,
            clock: member.clock.clone(),
            frontier: member.frontier.clone(),
        })
    }

    /// Makes `stream` wait for a point of this capture. If the stream is not part of the capture yet, it joins.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] on another thread, after the capture's end, for a stream of another capture, and while a body
    /// is being filled.
    pub fn wait(
        self: &Arc<Self>,
        stream: &Arc<StreamCore>,
        event: &EventCell,
        point: &CapturedPoint,
    ) -> Result<()> {
        self.check_thread()?;
        if self.is_over() {
            return Err(Error::new(
                ErrorKind::Captured,
                "the event was recorded inside a capture that has ended, so it only happens while that graph runs; wait for \
                 the stream that launches the graph instead",
            ));
        }
        let inner = &mut *lock(&self.inner);
        inner.check_around()?;
        let mut state = stream.state.lock();
        let raw = match &state.recording {
            Recording::Capture(other, raw) if Arc::ptr_eq(other, self) => *raw,
            Recording::Capture(..) => {
                return Err(refused(
                    "wait inside it for an event of another capture; capture both streams together, or wait outside",
                ));
            }
            Recording::Node => return Err(no_node()),
            Recording::None => {
                stream.mark_end(&mut state)?;
                stream.handle_to_capture(&mut state)?
            }
        };
        let from = point.point.stream;
        // A stream comes after its own past.
        if from == stream.id {
            return Ok(());
        }
        if inner.way_round(from, stream.id).is_none() {
            // SAFETY: both are alive, and the event was recorded in this capture.
            unsafe { stream.device.stream_wait_event(raw, event.raw) }?;
            stream.set_recording(&mut state, Recording::Capture(self.clone(), raw));
            drop(state);
        } else {
            drop(state);
            inner.join(from, stream.id)?;
        }
        let member = inner.add_member(stream, raw);
        member.clock.merge(&point.clock);
        member.clock.advance(point.point);
        add(&mut member.frontier, &point.frontier);
        Ok(())
    }

    /// Ends the recording. We join all members to the first, because the driver refuses a capture that leaves any of them
    /// behind. Even if this fails, their streams are free again.
    ///
    /// # Errors
    /// The driver's failure. Then the recording has failed, and you get no graph.
    pub fn end(&self) -> Result<(RawGraph, Contents)> {
        /// Frees the streams even if a backend panics.
        struct Members<'a>(&'a Capture, &'a mut CaptureState);
        impl Drop for Members<'_> {
            fn drop(&mut self) {
                self.0.ended.store(true, Ordering::Release);
                self.1.context = None;
                for (_, member) in self.1.members.drain() {
                    member.stream.set_recording(&mut member.stream.state.lock(), Recording::None);
                }
            }
        }

        let mut inner = lock(&self.inner);
        // We drop this only after the driver has let go of the streams. Until then other threads are refused.
        let members = Members(self, &mut inner);
        let ended = members.1.end(self.origin);
        members.1.keep_parts();
        let contents = members.1.scope.finish();
        drop(members);
        // We drop the contents of a failed graph after that, because they own your closures.
        drop(inner);
        Ok((ended?, contents))
    }
}

#[cold]
fn has_left() -> Error {
    Error::new(
        ErrorKind::Captured,
        "the stream took part in a capture that has just ended; make this call again",
    )
}

impl CaptureState {
    /// Refuses operations around a body that is being filled.
    fn check_around(&self) -> Result<()> {
        if self.in_body { Err(refused(AROUND_BODY)) } else { Ok(()) }
    }

    /// Checks that a stream takes part in the capture and can go on. Returns the driver's stream that we capture.
    fn check(&self, stream: StreamId) -> Result<RawStream> {
        let member = self.members.get(&stream).ok_or_else(has_left)?;
        self.check_around()?;
        Ok(member.raw)
    }

    /// Enters the next operation of a member.
    fn enter(&mut self, id: StreamId, call_site: CallSite, needs: Needs<'_>) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.number += 1;
        let point = Point { stream: id, number: member.number };
        let next = SmallVec::from_slice(&[self.scope.len()]);
        self.scope.enter(point, call_site, needs, std::mem::replace(&mut member.frontier, next));
    }

    /// Returns the member of a stream, and adds it if it is new.
    fn add_member(&mut self, stream: &Arc<StreamCore>, raw: RawStream) -> &mut CapturedStream {
        self.members.entry(stream.id).or_insert_with(|| CapturedStream {
            stream: stream.clone(),
            raw,
            number: 0,
            clock: Clock::default(),
            frontier: Operations::new(),
        })
    }

    /// Makes a member wait for everything on other members that an operation with these needs must follow.
    fn order(&mut self, caller: &Caller, id: StreamId, needs: Needs<'_>) -> Result<()> {
        for access in needs.accesses {
            let Some(member) = self.members.get(&id) else { return Ok(()) };
            let missing = self.scope.missing(caller, (id, &member.clock), access)?;
            missing.into_iter().try_for_each(|point| self.join(point.stream, id))?;
        }
        let Some(member) = self.members.get(&id).filter(|_| needs.whole_device) else { return Ok(()) };
        let missing = self.scope.missing_device((id, &member.clock));
        missing.map_or(Ok(()), |point| self.join(point.stream, id))
    }

    /// If a member's stream is on a part of the device, the graph keeps that stream, because the graph's nodes run on that
    /// part, and the part goes with the stream.
    fn keep_parts(&mut self) {
        for member in self.members.values().filter(|member| member.stream.part().is_some()) {
            self.scope.contents.keep(member.stream.clone());
        }
    }

    /// If we must not tell the driver that member `to` waits for an event of member `from`, returns a stream that we can
    /// route the wait through instead.
    fn way_round(&mut self, from: StreamId, to: StreamId) -> Option<StreamId> {
        self.tree.as_mut()?.enter(from, to)
    }

    /// Makes member `to` wait for everything that member `from` has so far.
    fn join(&mut self, from: StreamId, to: StreamId) -> Result<()> {
        if let Some(between) = self.way_round(from, to) {
            self.join(from, between)?;
            return self.join(between, to);
        }
        let Some(source) = self.members.get(&from) else { return Ok(()) };
        let end = Point { stream: from, number: source.number };
        let (clock, frontier) = (source.clock.clone(), source.frontier.clone());
        let event = EventCell::new(&source.stream.device, EventOptions::default())?;
        // SAFETY: both are alive.
        unsafe { source.stream.device.event_record(event.raw, source.raw) }?;
        let Some(target) = self.members.get_mut(&to) else { return Ok(()) };
        // SAFETY: both are alive, and the event has been recorded.
        unsafe { target.stream.device.stream_wait_event(target.raw, event.raw) }?;
        self.scope.contents.keep.push(event);
        target.clock.merge(&clock);
        target.clock.advance(end);
        add(&mut target.frontier, &frontier);
        Ok(())
    }

    /// Joins all members to the first, and makes the driver end its recording.
    fn end(&mut self, origin: StreamId) -> Result<RawGraph> {
        let others: Vec<StreamId> = self.members.keys().copied().filter(|&id| id != origin).collect();
        let joined = others.iter().try_for_each(|&id| {
            let is_covered = |(origin, member): (&CapturedStream, &CapturedStream)| {
                member.number > 0 && origin.clock.covers(Point { stream: id, number: member.number })
            };
            let covered = self.members.get(&origin).zip(self.members.get(&id)).is_some_and(is_covered);
            if covered { Ok(()) } else { self.join(id, origin) }
        });
        let Some(&CapturedStream { ref stream, raw, .. }) = self.members.get(&origin) else {
            return Err(refused("end it twice; end each capture once"));
        };
        // SAFETY: the stream is alive and being captured, on this thread.
        let graph = unsafe { stream.device.capture_end(raw) };
        if graph.is_err() {
            // SAFETY: the stream is alive, and its recording has just ended without success, on this thread. If this fails,
            // the next use of the stream says so.
            let _ = unsafe { stream.device.capture_abandon(raw) };
        }
        let joined = joined.and(self.broken.take().map_or(Ok(()), Err));
        if let (Ok(raw), Err(_)) = (&graph, &joined) {
            // SAFETY: no one else has the graph.
            let _ = unsafe { stream.device.graph_destroy(*raw) };
        }
        joined.and(graph)
    }
}
