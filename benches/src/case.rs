//! The measured operations, their units, and their targets. A target is a promise: if a row misses it, the run says so,
//! and you must find out why.

use std::fmt;

use gpustream::hal::Bytes;

use crate::meetings::Meeting;
use crate::{host_loop, plain, raw_cuda};

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Enqueueing a kernel of four arguments.
    Launch,
    /// The same by another library's call, as an external operation. You may mix libraries, so this must not cost much
    /// more.
    External,
    /// A launch on another stream than the one that wrote its input, including the calls that must order the two.
    HandOver,
    /// Marking a point of a stream.
    Record,
    /// Asking whether a stream is done, as you may do in a loop.
    StreamQuery,
    /// Asking whether an event is done.
    EventQuery,
    /// Allocating and freeing this many bytes.
    AllocFree(usize),
    /// This many allocations of random sizes over eight streams, each freed when its slot is needed; per allocation. A
    /// pool can be fast for one size and still fail here.
    AllocMix(usize),
    /// A kernel of about 10 µs and a blocking wait for it. Anything much shorter could end before the wait begins.
    KernelAndWait,
    /// A kernel of about 10 µs, awaited. Compared with the blocking wait, because that is the best that a future can
    /// do.
    KernelAndAwait,
    /// The slowest hundredth of 200 awaits of such a kernel. A reactor that sleeps too long could hide in a median.
    KernelAndAwaitTail,
    /// This many futures that become ready at once: the time from the first that resolves to the last, per future.
    Futures(usize),
    /// Launching a graph of this many kernels; per node.
    GraphLaunch(usize),
    /// Replacing one kernel's arguments in a graph, and launching the graph.
    GraphSet(Set),
    /// A step that is run again and again.
    Step(Step),
    /// One round of a loop whose end only the device can know.
    Round,
    /// Copying an ordinary slice of this many bytes to the device. The bytes must first go to page-locked memory.
    Upload(usize),
    /// Copying this many bytes of the device to an ordinary slice.
    Download(usize),
    /// Copying this many bytes of pinned memory to the device.
    PinnedUpload(usize),
    /// Copying this many bytes of the device to pinned memory.
    PinnedDownload(usize),
    /// Gathering pages of pinned or device memory in device memory. You can do that one by one or as a batch.
    Pages(Source, Together),
    /// Copying this many bytes of device memory to device memory, with read and write counted.
    DeviceCopy(usize),
    /// `y += a x` over this many floats. The raw kernel has one element per thread, as you may have written it.
    Saxpy(usize),
    /// `z = x + y` over this many floats.
    Add(usize),
    /// The sum of this many floats; raw is the rate of a copy, because a sum cannot read faster than that.
    Sum(usize),
    /// The dot product of this many floats; raw is the rate of a copy.
    Dot(usize),
    /// Transposing a matrix of this many rows and columns; raw is the rate of a copy.
    Transpose(usize),
    /// Copying two arrays of this many doubles to the device and back, with kernels in between, fifty times.
    Pipeline(usize),
    /// A barrier of 256 threads, per barrier and thread.
    Barrier,
    /// A kernel whose threads meet. The loop runs on one thread, so we can see what meeting costs.
    Meeting(Meeting),
}

/// The steps; raw is a graph that the program made beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A chain of [`KERNELS`](Self::KERNELS) small kernels, unchanged: the host's time for each.
    Host,
    /// The same from the first run to the end of the last.
    Whole,
    /// A scalar changes in every kernel: the host's time for each.
    ValuesHost,
    /// The same from the first run to the end of the last.
    ValuesWhole,
    /// [`APART`](Self::APART) kernels of about 10 µs that have nothing to do with each other, and a wait for all. A
    /// graph may run them at the same time.
    Apart,
    /// A chain of as many kernels; each allocates three arrays: the host's time for each.
    Temporaries,
}

impl Step {
    /// Kernels of a chain.
    pub(crate) const KERNELS: usize = 20;
    /// Kernels that have nothing to do with each other.
    pub(crate) const APART: usize = 16;
    /// Runs in one sample. There may only be so few that the driver can take them without waiting.
    pub(crate) const RUNS: usize = 25;

    pub(crate) const ALL: [Self; 6] =
        [Self::Host, Self::Whole, Self::ValuesHost, Self::ValuesWhole, Self::Apart, Self::Temporaries];

    /// Returns true if the device's time counts.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::Whole | Self::ValuesWhole)
    }

    /// Returns true if a scalar of every kernel changes from run to run.
    pub(crate) fn has_new_values(self) -> bool {
        matches!(self, Self::ValuesHost | Self::ValuesWhole)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = Self::KERNELS;
        match self {
            Self::Host => write!(f, "step of {count} kernels, host, per kernel"),
            Self::Whole => write!(f, "step of {count} kernels, end to end, per kernel"),
            Self::ValuesHost => write!(f, "step of {count} with new scalars, host, per kernel"),
            Self::ValuesWhole => write!(f, "step of {count} with new scalars, end to end, per kernel"),
            Self::Apart => write!(f, "step of {} independent 10 us kernels, and wait", Self::APART),
            Self::Temporaries => write!(f, "step of {count} with 3 temporaries each, host, per kernel"),
        }
    }
}

/// The memory that we copy pages from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Pinned,
    Device,
}

/// The arguments that we replace in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// A scalar.
    Scalar,
    /// Memory too: of two buffers in turn.
    Memory,
}

/// How we copy the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// A call for each page.
    OneByOne,
    /// One call for all pages.
    Batch,
}

/// How many pages a row copies, and how many bytes each has; between two pages of the source lie as many bytes again.
pub(crate) const PAGES: usize = 256;
pub(crate) const PAGE: usize = 4 << 10;

/// A target for a median.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::enum_variant_names, reason = "they read as what they mean")]
pub(crate) enum Target {
    /// At most this many times the baseline's median.
    AtMostOf(f64),
    /// At least this many times the baseline's median.
    AtLeastOf(f64),
    /// At most the baseline's median and this much more.
    AtMostOver(f64),
    /// At most this value.
    AtMost(f64),
    /// At least this value.
    AtLeast(f64),
}

impl Target {
    /// Returns true if `ours` meets the target. `None` if the target needs a baseline and it is missing.
    pub(crate) fn is_met(self, ours: f64, baseline: Option<f64>) -> Option<bool> {
        Some(match self {
            Self::AtMostOf(factor) => ours <= factor * baseline?,
            Self::AtLeastOf(factor) => ours >= factor * baseline?,
            Self::AtMostOver(more) => ours <= baseline? + more,
            Self::AtMost(limit) => ours <= limit,
            Self::AtLeast(limit) => ours >= limit,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMostOf(factor) => write!(f, "<= {factor} x"),
            Self::AtLeastOf(factor) => write!(f, ">= {factor} x"),
            Self::AtMostOver(more) => write!(f, "<= + {more}"),
            Self::AtMost(limit) => write!(f, "<= {limit}"),
            Self::AtLeast(limit) => write!(f, ">= {limit}"),
        }
    }
}

impl Case {
    /// Returns the length of the slice, for a row of a curve.
    pub(crate) fn slice(self) -> Option<usize> {
        match self {
            Self::Upload(bytes) | Self::Download(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the rows for a device. They may use `memory` bytes of it, and sizes are smaller if `quick`.
    pub(crate) fn all(is_cpu: bool, memory: u64, quick: bool) -> Vec<Self> {
        let mut cases = vec![
            Self::Launch,
            Self::External,
            Self::HandOver,
            Self::Record,
            Self::StreamQuery,
            Self::EventQuery,
        ];
        cases.extend([1 << 10, 1 << 20, 64 << 20].map(Self::AllocFree));
        cases.push(Self::AllocMix(if quick { 2000 } else { 1_000_000 }));
        cases.extend([Self::GraphLaunch(1), Self::GraphLaunch(1000)]);
        cases.extend([Set::Scalar, Set::Memory].map(Self::GraphSet));
        cases.extend(Step::ALL.into_iter().filter(|step| !is_cpu || *step != Step::Apart).map(Self::Step));
        cases.push(Self::Round);
        for source in [Source::Pinned, Source::Device] {
            cases.extend([Together::OneByOne, Together::Batch].map(|together| Self::Pages(source, together)));
        }
        if is_cpu {
            let floats = if quick { 1 << 20 } else { 1 << 24 };
            cases.extend([Self::Barrier, Self::Add(floats), Self::Saxpy(floats)]);
            cases.extend(Meeting::all(quick).map(Self::Meeting));
            return cases;
        }
        cases.extend([Self::KernelAndWait, Self::KernelAndAwait, Self::KernelAndAwaitTail]);
        cases.push(Self::Futures(if quick { 100 } else { 10_000 }));
        // Four arrays of this size take half of the memory.
        let most = (memory / 8).min(4 << 30) as usize;
        let array = if quick { most.min(64 << 20) } else { most };
        let largest = array.min(1 << 30);
        let sizes = [0, 6, 10, 12, 14, 15, 16, 18, 19, 20, 21, 22, 24, 26, 28].map(|log| 1 << log);
        let sizes: Vec<usize> = sizes.into_iter().filter(|&size| size < largest).chain([largest]).collect();
        cases.extend(sizes.iter().copied().map(Self::Upload));
        cases.extend(sizes.into_iter().map(Self::Download));
        let pinned = [64, 64 << 10, 1 << 20, largest.min(256 << 20)];
        cases.extend(pinned.map(Self::PinnedUpload));
        cases.extend(pinned.map(Self::PinnedDownload));
        let floats = array / 4;
        let side = (floats as f64).sqrt() as usize / 32 * 32;
        cases.extend([Self::DeviceCopy(array), Self::Saxpy(floats), Self::Sum(floats), Self::Dot(floats)]);
        cases.extend([Self::Transpose(side), Self::Pipeline(if quick { 1 << 20 } else { 1 << 25 })]);
        cases
    }

    /// Returns the row's unit.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Launch
            | Self::External
            | Self::HandOver
            | Self::Record
            | Self::StreamQuery
            | Self::EventQuery
            | Self::AllocFree(_)
            | Self::AllocMix(_)
            | Self::GraphLaunch(_)
            | Self::GraphSet(_)
            | Self::Futures(_)
            | Self::Barrier => "ns",
            Self::Step(step) if step != Step::Apart => "ns",
            Self::KernelAndWait
            | Self::KernelAndAwait
            | Self::KernelAndAwaitTail
            | Self::Step(_)
            | Self::Meeting(_)
            | Self::Round => "us",
            Self::Pipeline(_) => "s",
            _ => "GB/s",
        }
    }

    /// Returns the contender that the ratio and the target refer to.
    pub(crate) fn baseline(self, is_cpu: bool) -> &'static str {
        match self {
            Self::Step(_) | Self::Round if is_cpu => plain::NAME,
            _ if is_cpu => host_loop::NAME,
            _ => raw_cuda::NAME,
        }
    }

    /// Returns the target for gpustream's median.
    pub(crate) fn target(self, is_cpu: bool) -> Option<Target> {
        if is_cpu {
            return match self {
                Self::Launch => Some(Target::AtMost(1000.0)),
                Self::Barrier => Some(Target::AtMost(12.0)),
                Self::Step(Step::Whole) | Self::Meeting(Meeting::Product(_)) => Some(Target::AtMostOf(0.5)),
                Self::Add(_) | Self::Saxpy(_) => Some(Target::AtLeastOf(0.95)),
                Self::Meeting(_) => Some(Target::AtMostOf(1.0)),
                _ => None,
            };
        }
        match self {
            Self::Launch => Some(Target::AtMostOf(1.03)),
            Self::Record => Some(Target::AtMostOf(1.3)),
            Self::AllocFree(_) => Some(Target::AtMost(150.0)),
            // A third of the time is three times the rate.
            Self::AllocMix(_) => Some(Target::AtMostOf(0.333)),
            Self::KernelAndAwait => Some(Target::AtMostOver(3.0)),
            Self::KernelAndAwaitTail => Some(Target::AtMostOver(30.0)),
            Self::GraphLaunch(_) | Self::Step(Step::Whole) => Some(Target::AtMostOf(1.05)),
            Self::GraphSet(_) => Some(Target::AtMostOf(1.15)),
            Self::Step(Step::Host | Step::ValuesHost) => Some(Target::AtMostOver(60.0)),
            Self::Step(Step::ValuesWhole) => Some(Target::AtMostOf(1.1)),
            Self::Upload(size) if size >= 1 << 30 => Some(Target::AtLeast(45.0)),
            Self::Download(size) if size >= 1 << 30 => Some(Target::AtLeast(42.0)),
            Self::Upload(_) | Self::Download(_) => Some(Target::AtLeastOf(1.0)),
            Self::Pages(..) => Some(Target::AtLeastOf(0.95)),
            Self::Saxpy(floats) if floats >= 1 << 30 => Some(Target::AtLeast(4300.0)),
            Self::Sum(_) | Self::Dot(_) => Some(Target::AtLeastOf(0.9)),
            Self::Transpose(_) => Some(Target::AtLeastOf(0.85)),
            Self::Pipeline(size) if size >= 1 << 25 => Some(Target::AtMost(0.55)),
            _ => None,
        }
    }

    /// Returns true if one sample takes so long that we can only take few.
    pub(crate) fn is_heavy(self) -> bool {
        match self {
            Self::Upload(size) | Self::Download(size) => size >= 16 << 20,
            Self::AllocMix(_) | Self::Pipeline(_) => true,
            _ => self.unit() == "GB/s",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Launch => f.write_str("launch, 4 arguments"),
            Self::External => f.write_str("external launch, 4 arguments"),
            Self::HandOver => f.write_str("launch after a hand-over"),
            Self::Record => f.write_str("record"),
            Self::StreamQuery => f.write_str("stream query"),
            Self::EventQuery => f.write_str("event query"),
            Self::AllocFree(size) => write!(f, "alloc + free {}", Bytes(size as u64)),
            Self::AllocMix(count) => write!(f, "random mix of {count} alloc + free, 8 streams"),
            Self::KernelAndWait => f.write_str("10 us kernel and wait"),
            Self::KernelAndAwait => f.write_str("10 us kernel and await"),
            Self::KernelAndAwaitTail => f.write_str("10 us kernel and await, 99th percentile"),
            Self::Futures(count) => write!(f, "{count} futures ready at once, per future"),
            Self::GraphLaunch(1) => f.write_str("graph launch, 1 node"),
            Self::GraphLaunch(nodes) => write!(f, "graph launch, {nodes} nodes, per node"),
            Self::GraphSet(Set::Scalar) => f.write_str("graph: set a kernel's scalar, launch"),
            Self::GraphSet(Set::Memory) => f.write_str("graph: set a kernel's memory, launch"),
            Self::Step(step) => step.fmt(f),
            Self::Round => f.write_str("round of a loop that the device ends"),
            Self::Upload(size) => write!(f, "upload curve, slice of {}", Bytes(size as u64)),
            Self::Download(size) => write!(f, "download curve, slice of {}", Bytes(size as u64)),
            Self::PinnedUpload(size) => write!(f, "copy from pinned, {}", Bytes(size as u64)),
            Self::PinnedDownload(size) => write!(f, "copy to pinned, {}", Bytes(size as u64)),
            Self::Pages(source, together) => {
                let batch = if together == Together::Batch { "batch of " } else { "" };
                let from = if source == Source::Pinned { "copies from pinned" } else { "device copies" };
                write!(f, "{batch}{PAGES} {from}, {}", Bytes(PAGE as u64))
            }
            Self::DeviceCopy(size) => write!(f, "device copy, {}", Bytes(size as u64)),
            Self::Saxpy(floats) => write!(f, "saxpy, arrays of {}", Bytes((4 * floats) as u64)),
            Self::Add(floats) => write!(f, "vector add, arrays of {}", Bytes((4 * floats) as u64)),
            Self::Sum(floats) => write!(f, "sum, {} (raw: copy)", Bytes((4 * floats) as u64)),
            Self::Dot(floats) => write!(f, "dot, 2 x {} (raw: copy)", Bytes((4 * floats) as u64)),
            Self::Transpose(side) => write!(f, "transpose, {side} x {side} (raw: copy)"),
            Self::Pipeline(size) => write!(f, "two-array pipeline, 2 x {size} f64"),
            Self::Barrier => f.write_str("barrier of 256 threads, per thread"),
            Self::Meeting(meeting) => meeting.fmt(f),
        }
    }
}
