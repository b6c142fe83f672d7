//! The words in a file that tell a reader what it is looking at. They are public for
//! `gpustream-timeline-view` of the same version, and may change with any version.

use crate::{Clock, Device, Direction, Point, SourceLine, Stream, Thread, WorkKind};

pub use super::packets::first;

/// The first string in every file, and the number of its format. If older readers would misread a change,
/// increase the number.
pub const FORMAT: &str = "gpustream timeline, format ";
pub const VERSION: u32 = 1;

/// `Trace.packet`, the only field of a file (`trace.proto`), and its tag.
pub(super) const PACKET: u32 = 1;
pub const PACKET_TAG: u8 = 0x0a;
/// `TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED`: readers must forget the strings before this
/// packet.
pub const CLEARED: u64 = 1;

/// The kinds of strings. Each kind has its own numbers in a file.
#[derive(Clone, Copy)]
pub enum Kind {
    Category,
    Event,
    Annotation,
    Value,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Category, Self::Event, Self::Annotation, Self::Value];
}

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$about_word:meta])* $variant:ident: $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$about_word])* $variant,)*
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The word's number in every table of strings.
            pub(super) fn number(self) -> u64 {
                self as u64 + 1
            }
        }
    };
}

words! {
    /// What an event is. This is its category in the file.
    Category {
        /// An operation, at the time when the device ran it.
        Operation: "operation",
        /// An operation at the time of its submission, because we do not know when the device ran it.
        Unfinished: "unfinished",
        /// The submission of a [`Category::Operation`].
        Submission: "submission",
        /// A part of the operation around it in the file.
        Piece: "piece",
        /// The end of an arrow that is neither at a slice's beginning nor at its end.
        Arrow: "arrow",
        Wait: "wait",
        Allocation: "allocation",
        User: "user",
        Future: "future",
        Woken: "woken",
        HostClosure: "host closure",
        Lint: "lint",
        Event: "event",
        Lost: "lost",
    }
}

words! {
    /// The name of a debug annotation. In SQL it is `debug.NAME`.
    Key {
        Stream: "stream",
        Number: "number",
        Source: "source",
        Thread: "thread",
        SubmittedBy: "submitted_by",
        Submitted: "submitted",
        CallNs: "call_ns",
        StartDelayNs: "start_delay_ns",
        Work: "work",
        Grid: "grid",
        Block: "block",
        Bytes: "bytes",
        Rate: "GB_per_s",
        Direction: "direction",
        Pageable: "pageable",
        Operations: "operations",
        After: "after",
        Device: "device",
        Fields: "fields",
        Finding: "finding",
        Count: "count",
    }
}

pub const CLOCKS: [(Clock, &str); 4] = [
    (Clock::Host, "host"),
    (Clock::Cupti, "CUPTI"),
    (Clock::Rocprofiler, "rocprofiler-sdk"),
    (Clock::Events, "events"),
];

pub const DIRECTIONS: [(Direction, &str); 4] = [
    (Direction::Up, "up"),
    (Direction::Down, "down"),
    (Direction::Inside, "inside"),
    (Direction::Peer, "peer"),
];

pub(super) fn direction_word(direction: Direction) -> &'static str {
    word(&DIRECTIONS, direction)
}

pub(super) fn work_word(work: WorkKind) -> &'static str {
    match work {
        WorkKind::Kernel { .. } => "kernel",
        WorkKind::Copy { .. } => "copy",
        WorkKind::Fill { .. } => "fill",
        WorkKind::Host => "host",
        WorkKind::Graph { .. } => "graph",
        WorkKind::Step { .. } => "step",
        WorkKind::External => "external",
        WorkKind::Other => "other",
    }
}

fn word<T: Copy + PartialEq>(words: &[(T, &'static str)], meaning: T) -> &'static str {
    words.iter().find(|(known, _)| *known == meaning).map_or("", |(_, word)| word)
}

/// Returns `FILE:LINE`, or nothing if both are unknown.
pub(super) fn source(place: &SourceLine) -> Option<String> {
    (*place != SourceLine::default()).then(|| format!("{}:{}", place.file, place.line))
}

/// Returns `X x Y x Z`.
pub(super) fn extent([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

/// Returns `stream STREAM #NUMBER`.
pub(super) fn point(point: Point) -> String {
    format!("stream {} #{}", point.stream, point.number)
}

/// Returns a device track's help text, with one `NAME: VALUE` per line.
pub(super) fn device_description(device: &Device) -> String {
    let clock = word(&CLOCKS, device.clock);
    let reason =
        if device.reason.is_empty() { String::new() } else { format!("\nreason: {}", device.reason) };
    format!("device: {}\nclock: {clock}\nerror: {} ns{reason}", device.id, device.error)
}

/// Returns a stream track's help text.
pub(super) fn stream_description(stream: &Stream) -> String {
    let kind = if stream.legacy { "legacy default stream" } else { "stream" };
    format!("stream: {}\ndevice: {}\nkind: {kind}", stream.id, stream.device)
}

/// Returns a thread track's help text.
pub(super) fn thread_description(thread: &Thread) -> String {
    format!("thread: {}", thread.id)
}

/// Returns a counter track's help text.
pub(super) fn counter_description(device: u32) -> String {
    format!("device: {device}")
}
