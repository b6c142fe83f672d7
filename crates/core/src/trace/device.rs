//! A traced device: its clock, and the events that it takes times with.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpustream_hal::trace::now;
use gpustream_hal::{self as hal, EventOptions, Ran, RawEvent, RawStream, Result, StreamOptions, TraceClock};
use gpustream_timeline::{Clock, Device, Nanos};

use super::submission::InStream;
use crate::reentrancy;
use crate::sync::{Mutex, lock};
use crate::track::{Point, StreamId};

/// The age at which an anchor makes room for the next: elapsed times are single-precision numbers of milliseconds, and those
/// of a second are exact to 60 ns.
const ANCHOR_AGE: Nanos = 1_000_000_000;

/// The most events that wait for their next use.
const SPARE: usize = 4096;

/// The number of streams above which those are forgotten whose operations have ended.
const MOST_STREAMS: usize = 256;

/// A device that somebody traces.
pub(super) struct TracedDevice {
    pub(super) id: u32,
    pub(super) raw: Arc<dyn hal::Device>,
    source: TimeSource,
}

/// The source of a device's times.
#[cfg_attr(shuttle, allow(clippy::large_enum_variant, reason = "locks of shuttle are large"))]
enum TimeSource {
    /// The backend, or a library of the vendor's.
    Backend,
    Events(Events),
}

struct Events {
    /// Events that wait for their next use.
    free: Mutex<Vec<RawEvent>>,
    streams: Mutex<HashMap<StreamId, Seen>>,
    anchor: Mutex<Anchor>,
}

/// A stream whose operations have events.
struct Seen {
    /// The number of the first such operation. All later ones have events, too.
    first: u64,
    /// The end of the last one.
    end: SharedEvent,
}

/// The event whose time on the host's clock is known, and from which other events' times are reckoned.
struct Anchor {
    event: RawEvent,
    time: Nanos,
    /// The next anchor, with the time of its record.
    next: Option<(RawEvent, Nanos)>,
    stream: RawStream,
}

/// An event that goes back to its device when nobody needs it any more.
pub(super) type SharedEvent = Arc<RawEvent>;

/// The source of one operation's times.
pub(super) enum Times {
    Unknown,
    /// The number under which the backend knows it.
    Numbered(u64),
    /// From the start to an event that is still to be recorded.
    From(Start),
    Between(Start, SharedEvent),
}

/// The start of an operation.
pub(super) enum Start {
    At(SharedEvent),
    /// The end of everything that the operation waits for. An event would be one more thing to wait for: engines serve
    /// several streams in turn, and an event's turn may come after another stream's copies.
    Inferred,
}

impl TracedDevice {
    /// Begins to trace a device. Blocks until an event on a stream of its own has been reached, where times come from events.
    pub(super) fn new(id: u32, raw: Arc<dyn hal::Device>) -> Result<(Self, Device)> {
        let (source, (clock, error), reason) = match raw.trace_begin() {
            Ok(clock) => (TimeSource::Backend, clock_of(clock), String::new()),
            Err(refused) => {
                let (anchor, error) = Anchor::new(&*raw)?;
                let events =
                    Events { free: Mutex::default(), streams: Mutex::default(), anchor: Mutex::new(anchor) };
                (TimeSource::Events(events), (Clock::Events, error), refused.to_string().replace('\n', " "))
            }
        };
        let info = raw.info();
        let name = format!("{}:{} {}", info.backend, info.ordinal, info.name);
        let record = Device { id, name, clock, error, reason };
        Ok((Self { id, raw, source }, record))
    }

    /// Prepares for the operation that this thread submits next.
    pub(super) fn before(&self, at: &InStream) -> Times {
        static LAST: AtomicU64 = AtomicU64::new(0);
        match &self.source {
            TimeSource::Backend => {
                let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
                self.raw.trace_enter(number);
                Times::Numbered(number)
            }
            TimeSource::Events(events) if self.is_inferred(events, at) => Times::From(Start::Inferred),
            TimeSource::Events(events) => match self.record(events, at.stream) {
                Some(event) => Times::From(Start::At(event)),
                None => Times::Unknown,
            },
        }
    }

    /// Whether the operations that this one waits for have events, and hold it up.
    fn is_inferred(&self, events: &Events, at: &InStream) -> bool {
        let streams = lock(&events.streams);
        let has_event =
            |point: &Point| streams.get(&point.stream).is_some_and(|seen| seen.first <= point.number);
        let Some(Seen { end, .. }) = streams.get(&at.point.stream) else { return false };
        if !at.is_exclusive || !at.after.iter().all(has_event) {
            return false;
        }
        let end = end.clone();
        drop(streams);
        let is_held_up = !at.after.is_empty() || self.is_pending(&end);
        self.give_back(end);
        is_held_up
    }

    fn is_pending(&self, event: &SharedEvent) -> bool {
        // SAFETY: the event is alive, and has been recorded.
        matches!(unsafe { self.raw.event_query(**event) }, Ok(false))
    }

    /// Notes the end of a stream's last operation, or that it has no event.
    fn note_end(&self, events: &Events, point: Point, end: Option<&SharedEvent>) {
        let mut streams = lock(&events.streams);
        let first = streams.get(&point.stream).map_or(point.number, |seen| seen.first);
        let old = match end {
            Some(end) => streams.insert(point.stream, Seen { first, end: end.clone() }),
            None => streams.remove(&point.stream),
        };
        let is_crowded = streams.len() > MOST_STREAMS;
        let ended: Vec<_> = if is_crowded {
            streams.extract_if(|_, seen| !self.is_pending(&seen.end)).map(|(_, seen)| seen).collect()
        } else {
            Vec::new()
        };
        drop(streams);
        for seen in ended.into_iter().chain(old) {
            self.give_back(seen.end);
        }
    }

    /// Ends what [`before`](Self::before) began.
    pub(super) fn after(&self, stream: RawStream, point: Point, times: Times, submitted: bool) -> Times {
        match (times, &self.source) {
            (Times::Numbered(number), _) => {
                self.raw.trace_leave();
                if submitted { Times::Numbered(number) } else { Times::Unknown }
            }
            (Times::From(start), TimeSource::Events(events)) => {
                let end = if submitted { self.record(events, stream) } else { None };
                self.note_end(events, point, end.as_ref());
                if let Some(end) = end {
                    return Times::Between(start, end);
                }
                self.give_back_times(Times::From(start));
                Times::Unknown
            }
            (times, _) => times,
        }
    }

    fn record(&self, events: &Events, stream: RawStream) -> Option<SharedEvent> {
        let free = lock(&events.free).pop();
        let event = Arc::new(match free {
            Some(event) => event,
            None => self.raw.event_create(EventOptions::default().timing(true)).ok()?,
        });
        // SAFETY: both are alive and of this device.
        if unsafe { self.raw.event_record(*event, stream) }.is_err() {
            self.give_back(event);
            return None;
        }
        Some(event)
    }

    /// Keeps the events of an operation for the next use.
    pub(super) fn give_back_times(&self, times: Times) {
        let (start, end) = match times {
            Times::Unknown | Times::Numbered(_) => return,
            Times::From(start) => (start, None),
            Times::Between(start, end) => (start, Some(end)),
        };
        let start = if let Start::At(event) = start { Some(event) } else { None };
        for event in start.into_iter().chain(end) {
            self.give_back(event);
        }
    }

    /// Keeps an event for the next use, once nobody else has it.
    fn give_back(&self, event: SharedEvent) {
        let Some(event) = Arc::into_inner(event) else { return };
        if let TimeSource::Events(events) = &self.source {
            let mut free = lock(&events.free);
            if free.len() < SPARE {
                return free.push(event);
            }
        }
        // SAFETY: nobody else has the event, and the work of the stream of its last record is done, or the stream alive.
        let _ = unsafe { self.raw.event_destroy(event) };
    }

    /// Returns when an operation ran, once it has: `Ok(None)` before. An error says that this will never be known. `held_up` is
    /// the end of what the operation waited for.
    pub(super) fn ran(
        &self,
        start: &Start,
        end: &SharedEvent,
        held_up: impl FnOnce() -> Nanos,
    ) -> Result<Option<Range<Nanos>>> {
        // SAFETY: both are alive and have been recorded, on a stream that is alive or whose work is done.
        unsafe {
            if !self.raw.event_query(**end)? {
                return Ok(None);
            }
            let end = self.time(**end)?;
            let start = match start {
                Start::At(event) => self.time(**event)?,
                Start::Inferred => held_up(),
            };
            Ok(Some(start.min(end)..end))
        }
    }

    /// Returns when an event was reached.
    ///
    /// # Safety
    /// It has been, and has timing.
    unsafe fn time(&self, event: RawEvent) -> Result<Nanos> {
        // SAFETY: by this function's contract; the anchor has been reached.
        unsafe {
            let TimeSource::Events(events) = &self.source else { return Ok(0) };
            let anchor = lock(&events.anchor);
            let since = self.raw.event_elapsed(anchor.event, event)?.as_nanos() as Nanos;
            if since > 0 {
                return Ok(anchor.time + since);
            }
            // Reached before the anchor.
            let before = self.raw.event_elapsed(event, anchor.event)?.as_nanos() as Nanos;
            Ok(anchor.time.saturating_sub(before))
        }
    }

    /// Looks after the anchor: the device's clock drifts, and long times lose digits.
    pub(super) fn keep_time(&self) {
        let TimeSource::Events(events) = &self.source else { return };
        let anchor = &mut *lock(&events.anchor);
        // SAFETY: the events and the stream are this anchor's own and alive; `next` has been recorded.
        unsafe {
            if let Some((next, recorded)) = anchor.next {
                if !matches!(self.raw.event_query(next), Ok(true)) {
                    return;
                }
                let seen = now();
                if let Ok(elapsed) = self.raw.event_elapsed(anchor.event, next) {
                    let time = anchor.time + elapsed.as_nanos() as Nanos;
                    // The event was reached between its record and this look.
                    anchor.time = time.clamp(recorded, seen);
                    let old = mem::replace(&mut anchor.event, next);
                    let _ = self.raw.event_destroy(old);
                } else {
                    let _ = self.raw.event_destroy(next);
                }
                anchor.next = None;
            } else if now().saturating_sub(anchor.time) > ANCHOR_AGE
                && let Ok(event) = self.raw.event_create(EventOptions::default().timing(true))
            {
                let recorded = now();
                if self.raw.event_record(event, anchor.stream).is_ok() {
                    anchor.next = Some((event, recorded));
                } else {
                    let _ = self.raw.event_destroy(event);
                }
            }
        }
    }

    /// Calls `each` with what the backend measured. Returns how many measurements were lost.
    pub(super) fn take(&self, flush: bool, each: &mut dyn FnMut(&Ran<'_>)) -> u64 {
        match &self.source {
            TimeSource::Backend => self.raw.trace_take(flush, each).unwrap_or(0),
            TimeSource::Events(_) => 0,
        }
    }
}

impl Drop for TracedDevice {
    fn drop(&mut self) {
        let raw = self.raw.clone();
        match &self.source {
            TimeSource::Backend => reentrancy::outside(move || raw.trace_end()),
            TimeSource::Events(events) => {
                // Operations hold the device, so that their events came back before.
                let streams = mem::take(&mut *lock(&events.streams));
                let last: Vec<_> =
                    streams.into_values().filter_map(|seen| Arc::into_inner(seen.end)).collect();
                let free = mem::take(&mut *lock(&events.free));
                let Anchor { event, next, stream, .. } = &*lock(&events.anchor);
                let (event, next, stream) = (*event, next.map(|(event, _)| event), *stream);
                reentrancy::outside(move || {
                    for event in free.into_iter().chain(last).chain([event]).chain(next) {
                        // SAFETY: nobody else has the event; the stream of its last record is alive, or that stream's work is
                        // done.
                        let _ = unsafe { raw.event_destroy(event) };
                    }
                    // SAFETY: nobody else has the stream, which was given events alone.
                    let _ = unsafe { raw.stream_destroy(stream) };
                });
            }
        }
    }
}

impl Anchor {
    /// Makes an anchor, and returns by how much its time may be off. Blocks until it is reached.
    fn new(device: &dyn hal::Device) -> Result<(Self, Nanos)> {
        let stream = device.stream_create(StreamOptions::default())?;
        let event = device.event_create(EventOptions::default().timing(true)).inspect_err(|_| {
            // SAFETY: nothing has used the stream.
            let _ = unsafe { device.stream_destroy(stream) };
        })?;
        let mut anchor = Self { event, time: 0, next: None, stream };
        let mut error = Nanos::MAX;
        // The first record of a device takes long; the shortest of a few says most.
        for _ in 0..5 {
            let before = now();
            // SAFETY: both are alive and of this device.
            let reached =
                unsafe { device.event_record(event, stream).and_then(|()| device.event_synchronize(event)) };
            reached.inspect_err(|_| {
                // SAFETY: nobody else has them.
                unsafe {
                    let _ = device.event_destroy(event);
                    let _ = device.stream_destroy(stream);
                }
            })?;
            let after = now();
            // The event holds the last record, so that its time is that one's.
            (anchor.time, error) = (before.midpoint(after), (after - before) / 2);
        }
        Ok((anchor, error))
    }
}

/// Returns the clock of a backend's times, and by how much the times may be off.
fn clock_of(clock: TraceClock) -> (Clock, Nanos) {
    match clock {
        TraceClock::Cupti => (Clock::Cupti, 0),
        TraceClock::Rocprofiler { error } => (Clock::Rocprofiler, error),
        _ => (Clock::Host, 0),
    }
}
