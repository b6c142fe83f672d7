//! The words in a file by which the reader knows again what the writer wrote.

use crate::{Clock, Device, Direction, Place, Point, Stream, Thread, Work};

/// The first string of every file, and the number of its format. A change that older readers would misread takes the
/// next number.
pub(super) const FORMAT: &str = "gpustream timeline, format ";
pub(super) const VERSION: u32 = 1;

/// `Trace.packet`, the only field of a file (`trace.proto`), and its tag.
pub(super) const PACKET: u32 = 1;
pub(super) const PACKET_TAG: u8 = 0x0a;
/// `TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED`: strings that were interned before this packet are forgotten.
pub(super) const CLEARED: u64 = 1;

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$about_word:meta])* $variant:ident: $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name {
            $($(#[$about_word])* $variant,)*
        }

        impl $name {
            pub(super) const ALL: &[Self] = &[$(Self::$variant,)*];

            pub(super) fn word(self) -> &'static str {
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
    /// The kind of an event: its category in the file.
    Category {
        /// An operation, in the time in which the device ran it.
        Operation: "operation",
        /// An operation of which no time on the device is known, in the time of its submission.
        Unfinished: "unfinished",
        /// The submission of an [`Category::Operation`].
        Submission: "submission",
        /// A part of the operation around it in the file.
        Piece: "piece",
        /// The end of an arrow that ends neither at a slice's beginning nor at its end.
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

impl Category {
    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|category| category.word() == word)
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

const CLOCKS: [(Clock, &str); 4] = [
    (Clock::Host, "host"),
    (Clock::Cupti, "CUPTI"),
    (Clock::Rocprofiler, "rocprofiler-sdk"),
    (Clock::Events, "events"),
];

const DIRECTIONS: [(Direction, &str); 4] = [
    (Direction::Up, "up"),
    (Direction::Down, "down"),
    (Direction::Inside, "inside"),
    (Direction::Peer, "peer"),
];

pub(super) fn direction_word(direction: Direction) -> &'static str {
    word(&DIRECTIONS, direction)
}

pub(super) fn direction(word: &str) -> Option<Direction> {
    meaning(&DIRECTIONS, word)
}

pub(super) fn work_word(work: Work) -> &'static str {
    match work {
        Work::Kernel { .. } => "kernel",
        Work::Copy { .. } => "copy",
        Work::Fill { .. } => "fill",
        Work::Host => "host",
        Work::Graph { .. } => "graph",
        Work::Step { .. } => "step",
        Work::External => "external",
        Work::Other => "other",
    }
}

fn word<T: Copy + PartialEq>(words: &[(T, &'static str)], meaning: T) -> &'static str {
    words.iter().find(|(known, _)| *known == meaning).map_or("", |(_, word)| word)
}

fn meaning<T: Copy>(words: &[(T, &'static str)], word: &str) -> Option<T> {
    words.iter().find(|(_, known)| *known == word).map(|(meaning, _)| *meaning)
}

/// Returns `FILE:LINE`, or nothing where neither is known.
pub(super) fn source(place: &Place) -> Option<String> {
    (*place != Place::default()).then(|| format!("{}:{}", place.file, place.line))
}

pub(super) fn place(source: &str) -> Option<Place> {
    let (file, line) = source.rsplit_once(':')?;
    Some(Place { file: file.to_owned().into(), line: line.parse().ok()? })
}

/// Returns `X x Y x Z`.
pub(super) fn extent([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

pub(super) fn extent_of(text: &str) -> Option<[u32; 3]> {
    let mut numbers = text.split(" x ").map(str::parse);
    let extent = [numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?];
    numbers.next().is_none().then_some(extent)
}

/// Returns `stream STREAM #NUMBER`.
pub(super) fn point(point: Point) -> String {
    format!("stream {} #{}", point.stream, point.number)
}

pub(super) fn point_of(text: &str) -> Option<Point> {
    let (stream, number) = text.strip_prefix("stream ")?.split_once(" #")?;
    Some(Point { stream: stream.parse().ok()?, number: number.parse().ok()? })
}

/// Returns what the help of the device's track says, one `NAME: VALUE` a line.
pub(super) fn device_description(device: &Device) -> String {
    let clock = word(&CLOCKS, device.clock);
    let reason =
        if device.reason.is_empty() { String::new() } else { format!("\nreason: {}", device.reason) };
    format!("device: {}\nclock: {clock}\nerror: {} ns{reason}", device.id, device.error)
}

/// Returns what the help of the stream's track says.
pub(super) fn stream_description(stream: &Stream) -> String {
    let kind = if stream.legacy { "legacy default stream" } else { "stream" };
    format!("stream: {}\ndevice: {}\nkind: {kind}", stream.id, stream.device)
}

/// Returns what the help of the thread's track says.
pub(super) fn thread_description(thread: &Thread) -> String {
    format!("thread: {}", thread.id)
}

/// Returns what the help of a counter's track says.
pub(super) fn counter_description(device: u32) -> String {
    format!("device: {device}")
}

pub(super) fn counter_device_of(description: &str) -> Option<u32> {
    value(description, "device")?.parse().ok()
}

pub(super) fn device_of(name: &str, description: &str) -> Option<Device> {
    let error = value(description, "error")?.strip_suffix(" ns")?;
    Some(Device {
        id: value(description, "device")?.parse().ok()?,
        name: name.to_owned(),
        clock: meaning(&CLOCKS, value(description, "clock")?)?,
        error: error.parse().ok()?,
        reason: value(description, "reason").unwrap_or_default().to_owned(),
    })
}

pub(super) fn stream_of(name: &str, description: &str) -> Option<Stream> {
    Some(Stream {
        id: value(description, "stream")?.parse().ok()?,
        device: value(description, "device")?.parse().ok()?,
        name: name.to_owned(),
        legacy: value(description, "kind")? == "legacy default stream",
    })
}

pub(super) fn thread_of(name: &str, description: &str) -> Option<Thread> {
    Some(Thread { id: value(description, "thread")?.parse().ok()?, name: name.to_owned() })
}

fn value<'a>(description: &'a str, name: &str) -> Option<&'a str> {
    description.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
