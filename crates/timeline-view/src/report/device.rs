//! Devices and their engines: busy and idle time, bytes, and overlap.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use super::cause::Cause;
use super::gap::Gaps;
use crate::intervals::Intervals;
use crate::lookup::{Lookup, is_its_pieces, ran};
use gpustream_timeline::{Direction, Nanos, Operation, Timeline, WorkKind};

/// A part of a device that can work at the same time as the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Kernels, calls of other libraries, and graphs whose nodes we do not know.
    Kernels,
    /// Copies from the host to the device.
    Up,
    /// Copies from the device to the host.
    Down,
    /// Copies within the device or from another one, and fills.
    Inside,
    /// Functions on the host that the device waits for.
    Host,
}

impl Engine {
    /// Returns the engine that some work keeps busy. A wait for a flag or a prefetch has none.
    pub fn of(work: &WorkKind) -> Option<Self> {
        Some(match work {
            WorkKind::Kernel { .. } | WorkKind::Graph { .. } | WorkKind::Step { .. } | WorkKind::External => {
                Self::Kernels
            }
            WorkKind::Copy { direction: Direction::Up, .. } => Self::Up,
            WorkKind::Copy { direction: Direction::Down, .. } => Self::Down,
            WorkKind::Copy { .. } | WorkKind::Fill { .. } => Self::Inside,
            WorkKind::Host => Self::Host,
            _ => return None,
        })
    }

    /// Returns the engine's name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Up => "copies up",
            Self::Down => "copies down",
            Self::Inside => "copies inside",
            Self::Host => "host functions",
        }
    }
}

/// What a device did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// The device's number.
    pub id: u32,
    /// The device's name.
    pub name: String,
    /// How long at least one engine of the device was busy. Host functions do not count.
    pub busy: Nanos,
    /// The rest of [`Report::total`](crate::Report::total).
    pub idle: Nanos,
    /// The engines that did something.
    pub engines: Vec<EngineReport>,
    /// How long a copy (up, down or inside) and a kernel ran at the same time, out of the time that copies
    /// ran. If this is small, you may be able to hide copies behind kernels on another stream.
    pub copies_with_kernels: Overlap,
    /// How long copies went up and down at the same time, out of the time that any went up or down.
    pub both_directions: Overlap,
    /// How long engines worked while another one was busy too: the busy times of all engines added up, minus the
    /// device's busy time. The whole is that sum, so if three engines are always busy at once, the share is two
    /// thirds.
    pub hidden: Overlap,
    /// The device's idle time between its first and last operation by cause, longest first.
    pub causes: Vec<CauseReport>,
}

impl DeviceReport {
    /// Returns how much time this run saved compared with `alone`, which is a run of the same operations one
    /// after another. Operations that run at the same time slow each other down, and [`hidden`](Self::hidden)
    /// uses the longer times that they took in this run. This method uses the times that they take by
    /// themselves, so it tells you what the overlap saved.
    ///
    /// ```
    /// # use gpustream_timeline_view::Report;
    /// # use gpustream_timeline::{Clock, Device, Direction, Operation, Point, SourceLine, Stream, Timeline, WorkKind};
    /// # fn run(stream: u64, up: std::ops::Range<u64>, down: std::ops::Range<u64>) -> Timeline {
    /// #     let mut timeline = Timeline::default();
    /// #     let (name, reason) = ("made up".to_owned(), String::new());
    /// #     timeline.devices.push(Device { id: 0, name, clock: Clock::Host, error: 0, reason });
    /// #     for (number, direction, ran) in [(1, Direction::Up, up), (2, Direction::Down, down)] {
    /// #         let id = if number == 1 { 1 } else { stream };
    /// #         timeline.streams.push(Stream { id, device: 0, name: "made up".into(), legacy: false });
    /// #         timeline.operations.push(Operation {
    /// #             point: Point { stream: id, number }, label: "copy".into(), place: SourceLine::default(), thread: 1,
    /// #             submitted: 0..1, ran: Some(ran), work: WorkKind::Copy { direction, bytes: 8, pageable: false },
    /// #             after: Vec::new(), pieces: Vec::new(),
    /// #         });
    /// #     }
    /// #     timeline
    /// # }
    /// // Two copies of 100 ns each by themselves, which take 120 together.
    /// let (one_by_one, together) = (run(1, 0..100, 100..200), run(2, 0..120, 0..120));
    /// let (alone, report) = (&Report::of(&one_by_one).devices[0], &Report::of(&together).devices[0]);
    /// assert_eq!(report.hidden.share(), 0.5);
    /// assert_eq!(report.hidden_of(alone).share(), 0.4);
    /// ```
    #[must_use]
    pub fn hidden_of(&self, alone: &Self) -> Overlap {
        let all = alone.hidden.of;
        Overlap { time: all.saturating_sub(self.busy), of: all }
    }
}

/// What an engine did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EngineReport {
    /// The engine.
    pub engine: Engine,
    /// How many operations there were. If we can see a graph's nodes, they count instead of the graph.
    pub operations: u64,
    /// The sum of the bytes of all copies and fills, even if their times are unknown.
    pub bytes: u64,
    /// How long the engine did something.
    pub busy: Nanos,
    /// The rest of [`Report::total`](crate::Report::total).
    pub idle: Nanos,
}

/// A time, and the whole that it is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// The time.
    pub time: Nanos,
    /// The whole.
    pub of: Nanos,
}

impl Overlap {
    /// Returns the part of the whole, from 0 to 1. If the whole is 0, returns 0.
    pub fn share(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.time as f64 / self.of as f64 }
    }
}

/// How much idle time of a device one cause explains.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CauseReport {
    /// The cause.
    pub cause: Cause,
    /// How many gaps it explains.
    pub gaps: u64,
    /// The sum of their lengths.
    pub time: Nanos,
}

pub(crate) struct Devices(BTreeMap<u32, Load>);

#[derive(Default)]
pub(crate) struct Load {
    name: String,
    engines: BTreeMap<Engine, EngineWork>,
    /// When at least one engine was busy, except for host functions.
    pub(crate) busy: Intervals,
    /// Start and index of every operation that kept the device busy, sorted by start.
    pub(crate) starts: Vec<(Nanos, usize)>,
}

#[derive(Default)]
struct EngineWork {
    operations: u64,
    bytes: u64,
    times: Vec<Range<Nanos>>,
    busy: Intervals,
    /// End and index of each operation, sorted by end.
    ends: Vec<(Nanos, usize)>,
}

impl Devices {
    pub(crate) fn new(timeline: &Timeline, lookup: &Lookup<'_>) -> Self {
        let mut devices: BTreeMap<u32, Load> = BTreeMap::new();
        for device in &timeline.devices {
            devices.entry(device.id).or_default().name.clone_from(&device.name);
        }
        for (at, operation) in timeline.operations.iter().enumerate() {
            let Some(device) = lookup.device_of(operation) else { continue };
            let work = devices.entry(device).or_default();
            each_part(operation, |_, part, time| work.add(at, part, time));
        }
        for (id, device) in &mut devices {
            if device.name.is_empty() {
                device.name = format!("device {id}");
            }
            for engine in device.engines.values_mut() {
                engine.busy = engine.times.drain(..).collect();
                engine.ends.sort_unstable();
            }
            let engines = device.engines.iter().filter(|(engine, _)| **engine != Engine::Host);
            device.busy = Intervals::union(engines.map(|(_, work)| &work.busy));
            device.starts.sort_unstable();
        }
        Self(devices)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (u32, &str, &Load)> {
        self.0.iter().map(|(id, device)| (*id, &*device.name, device))
    }

    /// Returns when at least one device was busy.
    pub(crate) fn busy(&self) -> Intervals {
        Intervals::union(self.0.values().map(|device| &device.busy))
    }

    /// Returns the last operation that an engine had finished at `time`, if it ended after `ready` and the
    /// engine was busy for at least half of the time in between. Then an operation that was ready had to wait
    /// for this one.
    pub(crate) fn kept_busy(&self, device: u32, engine: Engine, ready: Nanos, time: Nanos) -> Option<usize> {
        let work = self.0.get(&device)?.engines.get(&engine)?;
        let at = work.ends.partition_point(|&(end, _)| end <= time);
        let &(end, operation) = work.ends.get(at.checked_sub(1)?)?;
        let waited = ready..time;
        (end > ready && is_most(work.busy.within(&waited), &waited)).then_some(operation)
    }

    pub(crate) fn reports(&self, total: Nanos, gaps: &Gaps) -> Vec<DeviceReport> {
        let report = |(&id, device): (&u32, &Load)| {
            let busy = |wanted: &[Engine]| {
                let engines = device.engines.iter().filter(|(engine, _)| wanted.contains(engine));
                Intervals::union(engines.map(|(_, work)| &work.busy))
            };
            let [kernels, up, down] =
                [Engine::Kernels, Engine::Up, Engine::Down].map(|engine| busy(&[engine]));
            let copies = busy(&[Engine::Up, Engine::Down, Engine::Inside]);
            let directions = busy(&[Engine::Up, Engine::Down]);
            let engines = device.engines.iter().filter(|(engine, _)| **engine != Engine::Host);
            let sum = engines.map(|(_, work)| work.busy.length()).fold(0, Nanos::saturating_add);
            DeviceReport {
                id,
                name: device.name.clone(),
                busy: device.busy.length(),
                idle: total.saturating_sub(device.busy.length()),
                engines: device.engines.iter().map(|(engine, work)| work.report(*engine, total)).collect(),
                copies_with_kernels: Overlap { time: copies.overlap(&kernels), of: copies.length() },
                both_directions: Overlap { time: up.overlap(&down), of: directions.length() },
                hidden: Overlap { time: sum.saturating_sub(device.busy.length()), of: sum },
                causes: gaps.causes(id),
            }
        };
        self.0.iter().map(report).collect()
    }
}

impl Load {
    fn add(&mut self, operation: usize, part: &WorkKind, time: Option<Range<Nanos>>) {
        let Some(engine) = Engine::of(part) else { return };
        let work = self.engines.entry(engine).or_default();
        work.operations += 1;
        work.bytes = work.bytes.saturating_add(bytes(part));
        if let Some(time) = time {
            if engine != Engine::Host {
                self.starts.push((time.start, operation));
            }
            work.ends.push((time.end, operation));
            work.times.push(time);
        }
    }
}

impl EngineWork {
    fn report(&self, engine: Engine, total: Nanos) -> EngineReport {
        let busy = self.busy.length();
        EngineReport {
            engine,
            operations: self.operations,
            bytes: self.bytes,
            busy,
            idle: total.saturating_sub(busy),
        }
    }
}

/// Returns how many bytes some work copies or fills.
pub(crate) fn bytes(work: &WorkKind) -> u64 {
    match *work {
        WorkKind::Copy { bytes, .. } | WorkKind::Fill { bytes } => bytes,
        _ => 0,
    }
}

/// Calls `each` for the pieces that stand for an operation, or else for the operation itself.
pub(super) fn each_part<'a>(
    operation: &'a Operation,
    mut each: impl FnMut(&'a Cow<'static, str>, &WorkKind, Option<Range<Nanos>>),
) {
    if is_its_pieces(operation) {
        operation.pieces.iter().for_each(|piece| each(&piece.label, &piece.work, Some(piece.ran.clone())));
    } else {
        each(&operation.label, &operation.work, ran(operation));
    }
}

/// Returns true if a time is at least half of an interval, and not zero.
pub(crate) fn is_most(time: Nanos, of: &Range<Nanos>) -> bool {
    time > 0 && time >= of.end.saturating_sub(of.start).div_ceil(2)
}
