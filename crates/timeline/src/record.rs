//! The records that a trace is made of.

use std::borrow::Cow;
use std::ops::Range;

/// Nanoseconds on the host's monotonic clock. The axis begins anywhere: only differences mean something.
pub type Nanos = u64;

/// One thing that a trace says.
///
/// A [`Device`], [`Stream`] or [`Thread`] comes before the first record that refers to it. Everything else comes when
/// it is over, so that records are in no order of time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Record {
    /// A device.
    Device(Device),
    /// A stream of a device.
    Stream(Stream),
    /// A thread of the program.
    Thread(Thread),
    /// An operation that was submitted to a stream.
    Operation(Operation),
    /// A stretch of time in which a thread waited, or was in a span of the program's.
    Span(Span),
    /// A moment.
    Instant(Instant),
    /// The value of a counter from a moment on.
    Counter(Counter),
    /// So many more records were lost, because they came faster than they could be kept.
    Lost(u64),
}

/// A device of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The number by which other records refer to the device.
    pub id: u32,
    /// Backend, ordinal and product: `cuda:0 NVIDIA H200`.
    pub name: String,
    /// The clock that measured when the device's operations ran.
    pub clock: Clock,
    /// The most nanoseconds by which a time of that clock, as it stands in a record, is known to be off the host's: by the
    /// comparison of the clocks at the beginning, or by an operation that ran before it was submitted. A later record of the
    /// device has a greater value then.
    pub error: Nanos,
    /// The reason why times come from events, in one line: the obstacle that keeps the vendor's library from measuring.
    /// Empty where times come from elsewhere.
    pub reason: String,
}

/// The clock by which it is known when operations ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clock {
    /// The host's own: the CPU backend runs operations on threads.
    Host,
    /// The activity records of NVIDIA's CUPTI.
    Cupti,
    /// The records of AMD's rocprofiler-sdk.
    Rocprofiler,
    /// Events with timestamps, recorded before and after each operation. They delay the device a little, and do not see
    /// inside graphs.
    Events,
}

/// A stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// The number by which other records refer to the stream; no other stream of the process has it.
    pub id: u64,
    /// The device's number.
    pub device: u32,
    /// `stream 3`, or `default stream`.
    pub name: String,
    /// Whether the stream is the legacy default stream, which waits for other streams and makes them wait.
    pub legacy: bool,
}

/// A thread of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// The number by which other records refer to the thread.
    pub id: u64,
    /// Its name, or `thread 3`.
    pub name: String,
}

/// A submission to a stream, where arrows begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// The stream.
    pub stream: u64,
    /// The submission's number in the stream, from 1. A point stands for everything up to it: where the trace has no
    /// operation of that number, the last one before.
    pub number: u64,
}

/// A place in the program's sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file, as the compiler was given it.
    pub file: Cow<'static, str>,
    /// The line, from 1; 0 where no line is known.
    pub line: u32,
}

/// An operation that was submitted to a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The stream, and the number there.
    pub point: Point,
    /// The name of the kernel, or of the call.
    pub label: Cow<'static, str>,
    /// The line that submitted the operation.
    pub place: SourceLine,
    /// The thread that submitted the operation.
    pub thread: u64,
    /// The time that the call took on that thread.
    pub submitted: Range<Nanos>,
    /// The time in which the device ran the operation; `None` where that is not known, since the device failed or the
    /// trace ended before.
    pub ran: Option<Range<Nanos>>,
    /// The operation's work.
    pub work: WorkKind,
    /// The operations of other streams that a wait before this one was for.
    pub after: Vec<Point>,
    /// The parts that are known of the operation: the nodes of a graph, the kernels of another library.
    pub pieces: Vec<Piece>,
}

/// The work of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkKind {
    /// Runs a kernel.
    Kernel {
        /// Blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
    },
    /// Copies.
    Copy {
        /// The direction.
        direction: Direction,
        /// Length in bytes.
        bytes: u64,
        /// Whether the bytes come from memory that is not page-locked. The submission then begins when the host begins to bring
        /// them to memory that is.
        pageable: bool,
    },
    /// Fills memory with a value.
    Fill {
        /// Length in bytes.
        bytes: u64,
    },
    /// Calls a function of the host's.
    Host,
    /// Launches a graph.
    Graph {
        /// The graph's nodes, as far as they are known.
        operations: u32,
    },
    /// Launches the graph that stands for several operations of a replayed step.
    Step {
        /// The operations.
        operations: u32,
    },
    /// Calls of another library's.
    External,
    /// Anything else: a wait for a flag, a prefetch.
    Other,
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Direction {
    /// From the host to the device.
    Up,
    /// From the device to the host.
    Down,
    /// Within the device.
    Inside,
    /// From another device.
    Peer,
}

/// A part of an operation, as the driver tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The kernel's name, or the kind of the piece.
    pub label: Cow<'static, str>,
    /// The time in which the device ran the piece.
    pub ran: Range<Nanos>,
    /// The piece's work.
    pub work: WorkKind,
}

/// A stretch of time on a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The thread.
    pub thread: u64,
    /// The time.
    pub time: Range<Nanos>,
    /// The name of the call, or of the program's span.
    pub label: Cow<'static, str>,
    /// The line.
    pub place: SourceLine,
    /// The reason.
    pub kind: SpanKind,
}

/// The reasons for which a thread spends time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SpanKind {
    /// The host waited until the operation was done.
    Wait(Option<Point>),
    /// An allocation reached the driver.
    Allocation {
        /// The device.
        device: u32,
        /// Length in bytes.
        bytes: u64,
    },
    /// The program said so.
    User {
        /// Names and values.
        fields: Vec<(Cow<'static, str>, String)>,
    },
}

/// A moment on a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Instant {
    /// The thread.
    pub thread: u64,
    /// The time.
    pub time: Nanos,
    /// The name of the event.
    pub label: Cow<'static, str>,
    /// The line.
    pub place: SourceLine,
    /// The kind of the moment.
    pub kind: InstantKind,
}

/// The kinds of moments.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InstantKind {
    /// A future was made.
    Future,
    /// A future was told that its work is done.
    Woken,
    /// A host closure was called.
    HostClosure,
    /// The lint found something.
    Lint(String),
    /// The program said so.
    User {
        /// Names and values.
        fields: Vec<(Cow<'static, str>, String)>,
    },
}

/// The value of a counter of a device from a moment on.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// The device.
    pub device: u32,
    /// The counter's name: `memory in use`, `memory held`.
    pub label: Cow<'static, str>,
    /// The time.
    pub time: Nanos,
    /// The value, in bytes.
    pub bytes: u64,
}
