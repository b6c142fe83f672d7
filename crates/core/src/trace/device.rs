//! A traced device: its clock, and the events that we time its operations with.

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

/// When an anchor is this old, we replace it. The driver returns elapsed times as `f32` milliseconds, and over one second
/// these are exact to 60 ns. Over longer times they lose digits.
const ANCHOR_AGE: Nanos = 1_000_000_000;

/// How many unused events we keep.
const SPARE: usize = 4096;

/// If there are more streams than this, we forget those whose operations have ended.
const MOST_STREAMS: usize = 256;

/// A device with at least one listener.
pub(super) struct TracedDevice {
    pub(super) id: u32,
    pub(super) raw: Arc<dyn hal::Device>,
    source: TimeSource,
}

/// Where a device's times come from.
#[cfg_attr(shuttle, allow(clippy::large_enum_variant, reason = "locks of shuttle are large"))]
enum TimeSource {
    /// The backend measures them, perhaps with a library from the vendor.
    Backend,
    Events(Events),
}

struct Events {
    /// Unused events, kept for the next operations.
    free: Mutex<Vec<RawEvent>>,
    streams: Mutex<HashMap<StreamId, Seen>>,
    anchor: Mutex<Anchor>,
}

/// A stream with operations that we time with events.
struct Seen {
    /// The number of the first such operation. All later operations have events too.
    first: u64,
    /// The event at the end of the last one.
    end: SharedEvent,
}

/// An event whose time on the host's clock is known. We compute the times of other events from it.
struct Anchor {
    event: RawEvent,
    time: Nanos,
    /// The next anchor, with the host's time when we recorded it.
    next: Option<(RawEvent, Nanos)>,
    stream: RawStream,
}

/// An event that two operations may share: the end of one can be the start of the next. The last owner gives it back.
pub(super) type SharedEvent = Arc<RawEvent>;

/// Where one operation's times come from.
pub(super) enum Times {
    Unknown,
    /// The backend measures the operation under this number.
    Numbered(u64),
    /// The start is known, and the event at the end is still to be recorded.
    From(Start),
    Between(Start, SharedEvent),
}

/// When an operation starts.
pub(super) enum Start {
    At(SharedEvent),
    /// When everything that it waits for has ended. We don't record an event there, because the operation would have to
    /// wait for that too: an engine serves several streams in turn, and the event's turn may come only after the copies of
    /// another stream.
    Inferred,
}

impl TracedDevice {
    /// Begins to trace a device. If its times come from events, this blocks until a few events on a new stream have been
    /// reached.
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

    /// Prepares to time the operation that this thread submits next.
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

    /// Returns true if we can infer when the operation starts. For that, everything it waits for must have an event, and it
    /// must wait for another stream or for an operation of its own stream that still runs.
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

    /// Notes the event after the last operation on a stream, or that there is none.
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

    /// Completes what [`before`](Self::before) prepared.
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

    /// Takes back an operation's events.
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

    /// Keeps an event for a later operation, if this was its last owner.
    fn give_back(&self, event: SharedEvent) {
        let Some(event) = Arc::into_inner(event) else { return };
        if let TimeSource::Events(events) = &self.source {
            let mut free = lock(&events.free);
            if free.len() < SPARE {
                return free.push(event);
            }
        }
        // SAFETY: this was the event's last owner. The stream that last recorded it is alive, or its work is done.
        let _ = unsafe { self.raw.event_destroy(event) };
    }

    /// Returns when an operation ran, or `None` if it has not ended. After an error we can never know. `held_up` returns
    /// when the operations that this one waited for had ended.
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
    /// The event has been reached, and it was created with timing.
    unsafe fn time(&self, event: RawEvent) -> Result<Nanos> {
        // SAFETY: by this function's contract, and the anchor has been reached too.
        unsafe {
            let TimeSource::Events(events) = &self.source else { return Ok(0) };
            let anchor = lock(&events.anchor);
            let since = self.raw.event_elapsed(anchor.event, event)?.as_nanos() as Nanos;
            if since > 0 {
                return Ok(anchor.time + since);
            }
            // The event was reached before the anchor.
            let before = self.raw.event_elapsed(event, anchor.event)?.as_nanos() as Nanos;
            Ok(anchor.time.saturating_sub(before))
        }
    }

    /// Replaces the anchor if it is old, because the device's clock drifts and long elapsed times lose digits.
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
                    // The event was reached after we recorded it, and before now.
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
                // Every operation holds the device, so all their events have come back.
                let streams = mem::take(&mut *lock(&events.streams));
                let last: Vec<_> =
                    streams.into_values().filter_map(|seen| Arc::into_inner(seen.end)).collect();
                let free = mem::take(&mut *lock(&events.free));
                let Anchor { event, next, stream, .. } = &*lock(&events.anchor);
                let (event, next, stream) = (*event, next.map(|(event, _)| event), *stream);
                reentrancy::outside(move || {
                    for event in free.into_iter().chain(last).chain([event]).chain(next) {
                        // SAFETY: this was the event's last owner. The stream that last recorded it is alive, or its work
                        // is done.
                        let _ = unsafe { raw.event_destroy(event) };
                    }
                    // SAFETY: the anchor owns the stream, and only events were recorded on it.
                    let _ = unsafe { raw.stream_destroy(stream) };
                });
            }
        }
    }
}

impl Anchor {
    /// Makes an anchor, and returns by how much its time may be off. Blocks until the device has reached it.
    fn new(device: &dyn hal::Device) -> Result<(Self, Nanos)> {
        let stream = device.stream_create(StreamOptions::default())?;
        let event = device.event_create(EventOptions::default().timing(true)).inspect_err(|_| {
            // SAFETY: nothing has used the stream.
            let _ = unsafe { device.stream_destroy(stream) };
        })?;
        let mut anchor = Self { event, time: 0, next: None, stream };
        let mut error = Nanos::MAX;
        // The first record on a device takes long, so we record a few times and use the shortest.
        for _ in 0..5 {
            let before = now();
            // SAFETY: both are alive and of this device.
            let reached =
                unsafe { device.event_record(event, stream).and_then(|()| device.event_synchronize(event)) };
            reached.inspect_err(|_| {
                // SAFETY: both were created above and have no other owner.
                unsafe {
                    let _ = device.event_destroy(event);
                    let _ = device.stream_destroy(stream);
                }
            })?;
            let after = now();
            // The event holds its last record, so we use the time of that one.
            (anchor.time, error) = (before.midpoint(after), (after - before) / 2);
        }
        Ok((anchor, error))
    }
}

/// Returns which clock a backend's times are on, and by how much they may be off.
fn clock_of(clock: TraceClock) -> (Clock, Nanos) {
    match clock {
        TraceClock::Cupti => (Clock::Cupti, 0),
        TraceClock::Rocprofiler { error } => (Clock::Rocprofiler, error),
        _ => (Clock::Host, 0),
    }
}
