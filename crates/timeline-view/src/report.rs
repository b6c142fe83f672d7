//! Figures about a timeline: how busy everything was, what overlapped, and why anything waited.

mod cause;
mod device;
mod gap;
mod label;
mod path;
mod print;
mod thread;

use crate::lookup::{Lookup, extent, ran};
use gpustream_timeline::{Nanos, Timeline};

pub use cause::{Cause, Culprit};
pub(crate) use device::bytes;
pub use device::{CauseReport, DeviceReport, Engine, EngineReport, Overlap};
pub use gap::{Gap, GapOf, StreamReport};
pub use label::LabelReport;
pub use path::{Link, Path, PathLabel, PathStep};
pub use thread::ThreadReport;

/// Figures about a timeline, from [`Report::of`]. [`Display`](std::fmt::Display) prints them as tables.
///
/// All times are in nanoseconds. If several operations ran at the same time, that time counts only once,
/// unless the documentation says *sum*. Figures may be off by [`Device::error`](gpustream_timeline::Device),
/// because we cannot compare clocks more precisely.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// From the first to the last thing in the timeline: operations, their submission, spans and instants.
    pub total: Nanos,
    /// How long the host was busy. A thread is busy from the first to the last thing on it, except while it
    /// waits. Host functions count too. If your thread polls futures or sleeps, it counts as busy, because
    /// the trace cannot see that.
    pub host: Nanos,
    /// How long at least one device ran a kernel, a copy or a fill.
    pub device: Nanos,
    /// What you could still gain from more overlap: the total minus the longer of `host` and `device`. It is
    /// zero if one of the two was never idle, because then you can only gain by giving that one less to do.
    pub remaining: Nanos,
    /// The devices, in the timeline's order.
    pub devices: Vec<DeviceReport>,
    /// The streams, in the timeline's order.
    pub streams: Vec<StreamReport>,
    /// The threads that did something, in the timeline's order.
    pub threads: Vec<ThreadReport>,
    /// The longest gaps of each device, followed by those of each stream, each list longest first. A gap is
    /// between two operations, so the time before the first and after the last is not one.
    pub gaps: Vec<Gap>,
    /// The chain of operations that ended last.
    pub path: Path,
    /// The time that each label's operations took, longest first.
    pub labels: Vec<LabelReport>,
    /// How many operations have no times, because the device failed or the trace ended first. They only count
    /// in bytes.
    pub unknown: u64,
    /// How many records were lost. If this is not zero, the other figures may be wrong.
    pub lost: u64,
}

impl Report {
    /// Computes a timeline's figures: busy and idle time, overlap, the longest gaps with their causes, the
    /// critical path, and the time of each label.
    ///
    /// For n operations this takes O(n log n) time.
    ///
    /// ```
    /// use gpustream_timeline::*;
    /// use gpustream_timeline_view::{Overlap, Report};
    ///
    /// let mut timeline = Timeline::default();
    /// let name = "cpu:0".to_owned();
    /// timeline.add(Record::Device(Device { id: 0, name, clock: Clock::Host, error: 0, reason: String::new() }));
    /// for id in [1, 2] {
    ///     let name = format!("stream {id}");
    ///     timeline.add(Record::Stream(Stream { id, device: 0, name, legacy: false }));
    /// }
    /// let copy = WorkKind::Copy { direction: Direction::Up, bytes: 4096, pageable: false };
    /// let kernel = WorkKind::Kernel { grid: [16, 1, 1], block: [256, 1, 1] };
    /// for (stream, label, work, ran) in [(1, "copy", copy, 100..300), (2, "saxpy", kernel, 150..350)] {
    ///     timeline.add(Record::Operation(Operation {
    ///         point: Point { stream, number: 1 },
    ///         label: label.into(),
    ///         place: SourceLine { file: "src/main.rs".into(), line: 12 },
    ///         thread: 1,
    ///         submitted: 0..50,
    ///         ran: Some(ran),
    ///         work,
    ///         after: vec![],
    ///         pieces: vec![],
    ///     }));
    /// }
    ///
    /// let report = Report::of(&timeline);
    /// assert_eq!((report.total, report.device), (350, 250));
    /// // Of the copy's 200 ns, a kernel ran in 150.
    /// assert_eq!(report.devices[0].copies_with_kernels, Overlap { time: 150, of: 200 });
    /// println!("{report}");
    /// ```
    pub fn of(timeline: &Timeline) -> Self {
        let lookup = Lookup::new(timeline);
        let extent = extent(timeline);
        let total = extent.end.saturating_sub(extent.start);
        let threads = thread::Threads::new(timeline);
        let devices = device::Devices::new(timeline, &lookup);
        let host = threads.busy(timeline).length();
        let device = devices.busy().length();
        let gaps = gap::Gaps::new(timeline, &lookup, &threads, &devices);
        Self {
            total,
            host,
            device,
            remaining: total - host.max(device).min(total),
            devices: devices.reports(total, &gaps),
            streams: gap::streams(timeline, &lookup, total),
            threads: threads.reports(&lookup),
            path: path::path(timeline, &lookup, &threads, &devices),
            labels: label::labels(timeline),
            unknown: timeline.operations.iter().filter(|operation| ran(operation).is_none()).count() as u64,
            lost: timeline.lost,
            gaps: gaps.longest(),
        }
    }
}
