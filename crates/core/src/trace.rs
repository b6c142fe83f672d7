//! Traces: notes about your threads and devices for listeners. If no one listens, they cost one load.
//!
//! | module | knows |
//! |---|---|
//! | `submission` | one operation on its way to the driver, and how we time it |
//! | `ranges` | ranges for the vendors' profilers |
//! | `device` | a traced device: its clock, and the events that we time with |
//! | `devices` | which devices are traced |
//! | `ends` | when operations ended, and so when the next ones could start |
//! | `notes` | the notes of your threads, until we collect them |
//! | `measured` | operations that a backend measures |
//! | `collector` | the listeners, and what we tell them |
//! | `listening` | how a listener begins and ends |
//! | `thread` | the threads' numbers, the line that each works for, and our thread that collects |
//!
//! A thread that submits puts a note into a bounded queue. If the queue is full, we lose the note and count it. One thread
//! of our own asks the drivers which operations have run, and when, and tells the listeners. So your threads never wait for
//! a listener.
//!
//! This layer knows the backends' devices and the numbers of streams and submissions, but neither streams nor memory.

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

use gpustream_hal::{self as hal, CopyDirection};
use gpustream_timeline::{Counter, Instant, Nanos, Record, SourceLine, Span};

use crate::track::Point;

pub use collector::Listener;
pub use gpustream_hal::trace::now;
pub use gpustream_timeline::{Direction, InstantKind, SpanKind, WorkKind};
pub use listening::Listening;
pub use ranges::show_ranges;
pub use submission::StreamName;
pub(crate) use submission::{InStream, submission};

/// The number of listeners, and [`RANGES`].
static LISTENERS: AtomicUsize = AtomicUsize::new(0);

/// This bit of [`LISTENERS`] says that operations are ranges in a vendor's profiler.
const RANGES: usize = !(usize::MAX >> 1);

/// Returns true if there is a listener, or a profiler that shows ranges. If you don't trace, this is all that tracing costs
/// you.
#[inline]
pub fn is_on() -> bool {
    LISTENERS.load(Ordering::Relaxed) != 0
}

/// Returns the kind of an operation as a timeline has it.
pub fn timeline_kind(kind: hal::WorkKind) -> WorkKind {
    match kind {
        hal::WorkKind::Kernel { grid, block } => WorkKind::Kernel { grid, block },
        hal::WorkKind::Copy { direction, bytes } => {
            let direction = match direction {
                CopyDirection::ToDevice => Direction::Up,
                CopyDirection::ToHost => Direction::Down,
                CopyDirection::OnDevice => Direction::Inside,
                CopyDirection::FromPeer => Direction::Peer,
            };
            WorkKind::Copy { direction, bytes, pageable: false }
        }
        hal::WorkKind::Fill { bytes } => WorkKind::Fill { bytes },
        hal::WorkKind::Host => WorkKind::Host,
        _ => WorkKind::Other,
    }
}

/// Returns true if there is a listener.
#[inline]
pub fn is_heard() -> bool {
    LISTENERS.load(Ordering::Relaxed) & !RANGES != 0
}

/// Runs `wait` and notes how long it took. This thread waits there for `point`, or for something else.
#[inline]
pub fn waiting<T>(
    label: &'static str,
    place: &'static Location<'static>,
    point: Option<Point>,
    wait: impl FnOnce() -> T,
) -> T {
    if is_on() { span(label, place, SpanKind::Wait(point.map(timeline_point)), wait) } else { wait() }
}

/// Runs `work` and notes how long it took.
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

/// Runs `work`, which makes calls for the call at `location`. We note what they do at that line.
#[inline]
pub fn on_behalf<T>(location: &'static Location<'static>, work: impl FnOnce() -> T) -> T {
    if is_on() { thread::on_behalf(location, work) } else { work() }
}

/// Notes that this thread begins to fill pinned memory, because your own memory is pageable. The next operation that the
/// thread submits copies from there, and the trace shows it from this moment.
#[inline]
pub fn stage() {
    if is_on() {
        thread::stage();
    }
}

/// Names and values that you give to a span or an event of your own.
pub type Fields = Vec<(Cow<'static, str>, String)>;

/// Runs `work`, which asks the driver for memory, and notes how long it took. The caller is [`on_behalf`] of your line.
#[cold]
#[track_caller]
pub(crate) fn allocation<T>(device: &Arc<dyn hal::Device>, bytes: u64, work: impl FnOnce() -> T) -> T {
    let Some(device) = devices::find(device) else { return work() };
    span("allocation", Location::caller(), SpanKind::Allocation { device: device.id, bytes }, work)
}

/// Notes a moment on this thread. `place` is your line, if we know it.
#[cold]
pub fn instant(label: &'static str, place: Option<&'static Location<'static>>, kind: InstantKind) {
    note_instant(Cow::Borrowed(label), place.map(self::place).unwrap_or_default(), kind);
}

/// Notes how many bytes of device memory are in use, and how many the pool holds.
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
    let location = thread::line(location);
    SourceLine { file: Cow::Borrowed(location.file()), line: location.line() }
}

fn timeline_point(point: Point) -> gpustream_timeline::Point {
    gpustream_timeline::Point { stream: point.stream.get().get(), number: point.number }
}

/// Notes a span on this thread. `time` is on the clock of [`now`].
#[cold]
pub fn note_span(time: Range<Nanos>, label: Cow<'static, str>, place: SourceLine, kind: SpanKind) {
    notes::note(Record::Span(Span { thread: thread::current(), time, label, place, kind }));
}

/// Notes the current moment on this thread.
#[cold]
pub fn note_instant(label: Cow<'static, str>, place: SourceLine, kind: InstantKind) {
    let (thread, time) = (thread::current(), now());
    notes::note(Record::Instant(Instant { thread, time, label, place, kind }));
}

/// Makes up an operation with that number, for tests.
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
