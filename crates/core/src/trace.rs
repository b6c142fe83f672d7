//! Traces: notes about your threads and devices for listeners. If no one listens, they cost one load.
//!
//! | module | knows |
//! |---|---|
//! | `submission` | one operation on its way to the driver, with what tells when it ran |
//! | `ranges` | ranges for the profilers of vendors |
//! | `device` | a traced device: its clock, and the events that it takes times with |
//! | `devices` | the devices that are traced |
//! | `ends` | when operations ended, and so when those that waited for them began |
//! | `notes` | what the program's threads note, until it is collected |
//! | `measured` | operations that a backend measures |
//! | `collector` | the listeners, and what they are told |
//! | `listening` | its beginning and its end |
//! | `thread` | the threads' numbers, and the library's thread that collects |
//!
//! Threads that submit put a note into a bounded queue; a note that does not fit is lost, and counted. A thread of the
//! library's asks the drivers which operations have run, and when, and tells the listeners.
//!
//! This layer knows the backends' devices, and the numbers of streams and submissions. It knows neither streams nor memory.

mod collector;
mod device;
mod devices;
mod ends;
mod listening;
mod measured;
mod notes;
mod ranges;
mod submission;
mod thread;

use std::borrow::Cow;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpustream_hal as hal;
use gpustream_timeline::{Counter, Instant, Nanos, Record, SourceLine, Span};

use crate::track::Point;

pub use collector::Listener;
pub use gpustream_hal::trace::now;
pub use gpustream_timeline::{Direction, InstantKind, SpanKind, WorkKind};
pub use listening::Listening;
pub use ranges::show_ranges;
pub(crate) use submission::{InStream, submission};

/// The number of listeners, and [`RANGES`].
static LISTENERS: AtomicUsize = AtomicUsize::new(0);

/// The bit that says that operations are ranges in a vendor's profiler.
const RANGES: usize = !(usize::MAX >> 1);

/// Returns whether anybody listens, or watches ranges. A program that is not traced pays for this alone.
#[inline]
pub fn is_on() -> bool {
    LISTENERS.load(Ordering::Relaxed) != 0
}

/// Returns whether anybody listens.
#[inline]
pub fn is_heard() -> bool {
    LISTENERS.load(Ordering::Relaxed) & !RANGES != 0
}

/// Runs `wait`, in which this thread waits for `point`, or for something else, and notes the time that it took.
#[inline]
pub fn waiting<T>(
    label: &'static str,
    place: &'static Location<'static>,
    point: Option<Point>,
    wait: impl FnOnce() -> T,
) -> T {
    if is_on() { span(label, place, SpanKind::Wait(point.map(timeline_point)), wait) } else { wait() }
}

/// Runs `work`, and notes the time that it took.
#[cold]
pub fn span<T>(
    label: &'static str,
    place: &'static Location<'static>,
    kind: SpanKind,
    work: impl FnOnce() -> T,
) -> T {
    let start = now();
    let value = work();
    note_span(start..now(), Cow::Borrowed(label), self::place(place), kind);
    value
}

/// Notes that this thread begins to fill the pinned memory from which the next operation that it submits copies: the program's
/// own memory is pageable, and the thread is kept as long.
#[inline]
pub fn stage() {
    if is_on() {
        thread::stage();
    }
}

/// Names and values that the program gives to a span or an event of its own.
pub type Fields = Vec<(Cow<'static, str>, String)>;

/// Runs `work`, which asks the driver for memory, and notes the time that it took.
#[cold]
#[track_caller]
pub(crate) fn allocation<T>(device: &Arc<dyn hal::Device>, bytes: u64, work: impl FnOnce() -> T) -> T {
    let Some(device) = devices::find(device) else { return work() };
    span("allocation", Location::caller(), SpanKind::Allocation { device: device.id, bytes }, work)
}

/// Notes a moment on this thread; `place` is the program's line, where one is known.
#[cold]
pub fn instant(label: &'static str, place: Option<&'static Location<'static>>, kind: InstantKind) {
    note_instant(Cow::Borrowed(label), place.map(self::place).unwrap_or_default(), kind);
}

/// Notes how much of a device's memory is in use, and how much the pool holds.
#[cold]
pub(crate) fn memory(device: &Arc<dyn hal::Device>, used: u64, held: u64) {
    let Some(device) = devices::find(device) else { return };
    let time = now();
    for (label, bytes) in [("memory in use", used), ("memory held", held)] {
        let label = Cow::Borrowed(label);
        notes::note(Record::Counter(Counter { device: device.id, label, time, bytes }));
    }
}

fn place(location: &'static Location<'static>) -> SourceLine {
    SourceLine { file: Cow::Borrowed(location.file()), line: location.line() }
}

fn timeline_point(point: Point) -> gpustream_timeline::Point {
    gpustream_timeline::Point { stream: point.stream.get().get(), number: point.number }
}

/// Notes a span on this thread, with its `time` on the clock of [`now`].
#[cold]
pub fn note_span(time: Range<Nanos>, label: Cow<'static, str>, place: SourceLine, kind: SpanKind) {
    notes::note(Record::Span(Span { thread: thread::current(), time, label, place, kind }));
}

/// Notes a moment on this thread, which is now.
#[cold]
pub fn note_instant(label: Cow<'static, str>, place: SourceLine, kind: InstantKind) {
    let (thread, time) = (thread::current(), now());
    notes::note(Record::Instant(Instant { thread, time, label, place, kind }));
}

/// Makes up the operation of that number, for tests.
#[cfg(test)]
fn made_up(number: u64, work: WorkKind) -> gpustream_timeline::Operation {
    gpustream_timeline::Operation {
        point: gpustream_timeline::Point { stream: 1, number },
        label: Cow::Borrowed("made up"),
        place: SourceLine::default(),
        thread: 1,
        submitted: 0..1,
        ran: None,
        work,
        after: Vec::new(),
        pieces: Vec::new(),
    }
}
