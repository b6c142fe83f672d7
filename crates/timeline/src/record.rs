//! The records of a trace.

use std::borrow::Cow;
use std::ops::Range;

/// Nanoseconds on the host's monotonic clock. The origin is arbitrary, so only differences mean something.
pub type Nanos = u64;

/// One thing that a trace tells you.
///
/// A [`Device`], [`Stream`] or [`Thread`] comes before the first record that refers to it, so you can resolve
/// the numbers in a record as it arrives. Everything else is recorded when it is over, so you may see a short
/// operation before a long one that began earlier.
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
    /// A thread waited, allocated, or was inside a span that your program has opened.
    Span(Span),
    /// A moment.
    Instant(Instant),
    /// The value of a counter from a moment on.
    Counter(Counter),
    /// This many more records were lost, because they came faster than we could keep them. What you compute
    /// from the trace may then be incomplete.
    Lost(u64),
}

/// A device that the program uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The device's number in other records.
    pub id: u32,
    /// Backend, ordinal and product: `cuda:0 NVIDIA H200`.
    pub name: String,
    /// The clock that measured when the device's operations ran.
    pub clock: Clock,
    /// How many nanoseconds this clock may differ from the host's. If two things are closer together than
    /// this, you cannot tell which came first. We measure it by comparing the clocks at the beginning. If an
    /// operation seems to run before it was submitted, we learn that the error must be larger, and a later
    /// record of the device says so.
    pub error: Nanos,
    /// Why we cannot use the vendor's library and must measure with events, in one line. Empty if times do
    /// not come from events.
    pub reason: String,
}

/// How we know when operations ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clock {
    /// The host's own clock, because the CPU backend runs operations on threads.
    Host,
    /// Activity records from NVIDIA's CUPTI.
    Cupti,
    /// Records from AMD's rocprofiler-sdk.
    Rocprofiler,
    /// Events with timestamps, recorded before and after each operation. They may delay the device a little,
    /// and they cannot see inside graphs.
    Events,
}

/// A stream of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// The stream's number in other records. It is unique in the process.
    pub id: u64,
    /// The device's number.
    pub device: u32,
    /// The name that your program gave to it (`Stream::set_name`). Otherwise `stream 3`, or `default stream`. If
    /// the program names a stream later, a later record of the stream has the new name.
    pub name: String,
    /// True if this is the legacy default stream. It waits for other streams and makes them wait, so it may
    /// explain gaps that nothing else does.
    pub legacy: bool,
}

/// A thread of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// The thread's number in other records.
    pub id: u64,
    /// Its name, or `thread 3`.
    pub name: String,
}

/// A submission to a stream. If an operation waits for another, it names the other's point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// The stream.
    pub stream: u64,
    /// The submission's number in the stream, from 1. A point stands for everything up to it. The trace may
    /// lack an operation with exactly that number; then the point means the last one before.
    pub number: u64,
}

/// A line in the program's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file, as the compiler got it.
    pub file: Cow<'static, str>,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
}

/// An operation that was submitted to a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The stream, and the number in it.
    pub point: Point,
    /// The name of the kernel or call.
    pub label: Cow<'static, str>,
    /// The line that submitted the operation.
    pub place: SourceLine,
    /// The thread that submitted the operation.
    pub thread: u64,
    /// When that thread was inside the call. A call may take long if the driver's queue is full, or if it
    /// copies ordinary memory.
    pub submitted: Range<Nanos>,
    /// When the device ran the operation. `None` if we cannot know, because the device failed or the trace
    /// ended first.
    pub ran: Option<Range<Nanos>>,
    /// What the operation does.
    pub work: WorkKind,
    /// The operations on other streams that it waited for.
    pub after: Vec<Point>,
    /// What we know about its parts: the nodes of a graph, or the kernels that another library launched. It
    /// may be empty for a graph, because not every clock can see inside.
    pub pieces: Vec<Piece>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkKind {
    /// Runs a kernel.
    Kernel {
        /// The number of blocks.
        grid: [u32; 3],
        /// The number of threads in a block.
        block: [u32; 3],
    },
    /// Copies.
    Copy {
        /// The direction.
        direction: Direction,
        /// Length in bytes.
        bytes: u64,
        /// True if the memory is not page-locked. The device cannot read such memory, so the host must first
        /// move the bytes to memory that is; `submitted` includes that.
        pageable: bool,
    },
    /// Fills memory with a value.
    Fill {
        /// Length in bytes.
        bytes: u64,
    },
    /// Calls a function on the host.
    Host,
    /// Launches a graph.
    Graph {
        /// How many nodes the graph has, as far as we know.
        operations: u32,
    },
    /// Launches the graph that replaces several operations of a replayed step.
    Step {
        /// How many operations it replaces.
        operations: u32,
    },
    /// Calls another library.
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

/// A part of an operation, as the driver reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The kernel's name, or the kind of the piece.
    pub label: Cow<'static, str>,
    /// When the device ran the piece.
    pub ran: Range<Nanos>,
    /// What the piece does.
    pub work: WorkKind,
}

/// A time that a thread spent on something.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The thread.
    pub thread: u64,
    /// The time.
    pub time: Range<Nanos>,
    /// The name of the call, or the name that your program gave to its span.
    pub label: Cow<'static, str>,
    /// The line.
    pub place: SourceLine,
    /// What the thread spent it on.
    pub kind: SpanKind,
}

/// What a thread may spend time on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SpanKind {
    /// The host waited until this operation was done.
    Wait(Option<Point>),
    /// An allocation reached the driver.
    Allocation {
        /// The device.
        device: u32,
        /// Length in bytes.
        bytes: u64,
    },
    /// A span that your program has opened.
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
    /// What happened.
    pub kind: InstantKind,
}

/// The kinds of moments.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InstantKind {
    /// You have made a future.
    Future,
    /// A future was woken because its work is done, so it can be polled.
    Woken,
    /// A host closure was called.
    HostClosure,
    /// The lint found something.
    Lint(String),
    /// An event that your program has reported.
    User {
        /// Names and values.
        fields: Vec<(Cow<'static, str>, String)>,
    },
}

/// What a counter of a device says from a moment on.
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
