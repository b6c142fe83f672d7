//! Random programs: the added waits must suffice, each must be needed, and strict mode must complain exactly if a wait is
//! missing.

use gpustream::{
    Buffer, Device, DeviceOptions, ErrorKind, Event, Kernel, Pinned, PoolPolicy, Stream, Tracking, View,
    ViewMut,
};
use proptest::prelude::*;

use crate::order::{Call, Order, Touch, Violation};
use crate::paper::{self, Live, Paper};
use crate::{Mem, touch};

/// An access of a launch: which memory, the start (in 256ths of its length), the length, and whether it writes.
type Access = (u8, u8, u8, bool);

/// A step of a program. Each number chooses among the objects that exist, modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    NewStream,
    DropStream(u8),
    NewBuffer { stream: u8, size: u8 },
    NewPinned { size: u8 },
    DropMemory(u8),
    Launch(u8, Vec<Access>),
    Copy { stream: u8, from: u8, to: u8 },
    Upload { stream: u8, to: u8 },
    HostFn(u8),
    Record(u8),
    Wait { stream: u8, event: u8 },
    DropEvent(u8),
    SyncEvent(u8),
    QueryEvent(u8),
    SyncStream(u8),
    QueryStream(u8),
    SyncDevice,
    Finish(u8),
    HostAccess(Access),
    Trim,
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::NewStream),
        1 => any::<u8>().prop_map(Step::DropStream),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(stream, size)| Step::NewBuffer { stream, size }),
        2 => any::<u8>().prop_map(|size| Step::NewPinned { size }),
        3 => any::<u8>().prop_map(Step::DropMemory),
        24 => (any::<u8>(), prop::collection::vec(any::<Access>(), 1..4)).prop_map(|(s, a)| Step::Launch(s, a)),
        4 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(stream, from, to)| Step::Copy { stream, from, to }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(stream, to)| Step::Upload { stream, to }),
        1 => any::<u8>().prop_map(Step::HostFn),
        6 => any::<u8>().prop_map(Step::Record),
        6 => (any::<u8>(), any::<u8>()).prop_map(|(stream, event)| Step::Wait { stream, event }),
        2 => any::<u8>().prop_map(Step::DropEvent),
        1 => any::<u8>().prop_map(Step::SyncEvent),
        1 => any::<u8>().prop_map(Step::QueryEvent),
        1 => any::<u8>().prop_map(Step::SyncStream),
        1 => any::<u8>().prop_map(Step::QueryStream),
        1 => Just(Step::SyncDevice),
        3 => any::<u8>().prop_map(Step::Finish),
        3 => any::<Access>().prop_map(Step::HostAccess),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..most)
}

enum Memory {
    Device(Buffer<u8>),
    Pinned(Pinned<u8>),
}

impl Memory {
    fn read(&self, from: u8, len: u8) -> View<'_, u8> {
        let view = match self {
            Self::Device(buffer) => buffer.slice(..),
            Self::Pinned(pinned) => pinned.slice(..),
        };
        let view = view.unwrap();
        view.slice(range(view.len(), from, len)).unwrap()
    }

    fn write(&mut self, from: u8, len: u8) -> ViewMut<'_, u8> {
        let view = match self {
            Self::Device(buffer) => buffer.slice_mut(..),
            Self::Pinned(pinned) => pinned.slice_mut(..),
        };
        let view = view.unwrap();
        let range = range(view.len(), from, len);
        view.slice_mut(range).unwrap()
    }
}

/// Returns the whole range half of the time, otherwise a part, which may be empty.
fn range(whole: usize, from: u8, len: u8) -> std::ops::Range<usize> {
    if from < 128 {
        return 0..whole;
    }
    let start = whole * usize::from(from - 128) / 128;
    start..start + (whole - start) * usize::from(len) / 255
}

fn touched(view: &View<'_, u8>, write: bool) -> Option<Touch> {
    let start = view.as_raw().0;
    (!view.is_empty()).then(|| Touch { range: start..start + view.len(), write })
}

struct World {
    paper: std::sync::Arc<Paper>,
    device: Device,
    kernel: Kernel,
    tracking: Tracking,
    streams: Vec<Stream>,
    events: Vec<Event>,
    memory: Vec<Memory>,
}

fn pick<T>(list: &[T], choice: u8) -> Option<usize> {
    (!list.is_empty()).then(|| usize::from(choice) % list.len())
}

/// Compares the result of a submission with the model's answer.
fn judge(expected_races: bool, result: gpustream::Result<()>) -> Result<(), TestCaseError> {
    match result {
        Ok(()) => prop_assert!(!expected_races, "strict mode let a race through"),
        Err(error) => {
            prop_assert_eq!(error.kind(), ErrorKind::Hazard);
            prop_assert!(expected_races, "strict mode complains without reason: {}", error);
        }
    }
    Ok(())
}

impl World {
    fn new(tracking: Tracking, pool: PoolPolicy) -> Self {
        let options = DeviceOptions::default().tracking(tracking).pool(pool);
        let (paper, device, kernel, []) = paper::open(options);
        let streams = (0..2).map(|_| device.stream().unwrap()).collect();
        Self { paper, device, kernel, tracking, streams, events: Vec::new(), memory: Vec::new() }
    }

    fn keep(&mut self, mut memory: Memory) {
        // SAFETY: the model never reads contents.
        unsafe { memory.write(0, 0).assume_written() };
        let whole = memory.read(0, 0);
        self.paper.new_owner(whole.as_raw().0, whole.len());
        self.memory.push(memory);
    }

    fn stream(&self, choice: u8) -> &Stream {
        &self.streams[usize::from(choice) % self.streams.len()]
    }

    fn races(&self, stream: usize, touches: &[Touch]) -> bool {
        let raw = self.streams[stream].as_raw().0;
        self.tracking == Tracking::Strict && !self.paper.state().order.races_of_owner(raw, touches).is_empty()
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::NewStream => self.streams.push(self.device.stream().unwrap()),
            Step::DropStream(choice) if self.streams.len() > 1 => {
                self.streams.swap_remove(usize::from(choice) % self.streams.len());
            }
            Step::DropStream(_) => {}
            Step::NewBuffer { stream, size } => {
                let stream = self.stream(stream);
                let buffer = stream.alloc(lengths(size)).unwrap();
                self.keep(Memory::Device(buffer));
            }
            Step::NewPinned { size } => {
                let pinned = self.device.pinned(lengths(size)).unwrap();
                self.keep(Memory::Pinned(pinned));
            }
            Step::DropMemory(choice) => {
                pick(&self.memory, choice).map(|index| self.memory.swap_remove(index));
            }
            Step::Launch(stream, ref accesses) => return self.launch(stream, accesses),
            Step::Copy { stream, from, to } => return self.copy(stream, from, to),
            Step::Upload { stream, to } => {
                let stream = usize::from(stream) % self.streams.len();
                let Some(to) = pick(&self.memory, to) else { return Ok(()) };
                let target = self.memory[to].read(0, 0);
                let races = self.races(stream, touched(&target, true).as_slice());
                let values = vec![0; target.len()];
                let result = self.streams[stream].upload_into(&values, &mut self.memory[to].write(0, 0));
                // If the copy needed staging memory, the library may have asked which work is done.
                let target = touched(&self.memory[to].read(0, 0), true);
                let races = races && (result.is_err() || self.races(stream, target.as_slice()));
                return judge(races, result);
            }
            Step::HostFn(stream) => {
                self.stream(stream).host_fn(|| ()).unwrap();
            }
            Step::Record(stream) => {
                let stream = self.stream(stream);
                let event = self.paper.explicitly(|| stream.record().unwrap());
                self.events.push(event);
            }
            Step::Wait { stream, event } => {
                let Some(event) = pick(&self.events, event) else { return Ok(()) };
                let stream = self.stream(stream);
                let event = &self.events[event];
                self.paper.explicitly(|| stream.wait(event).unwrap());
            }
            Step::DropEvent(event) => {
                pick(&self.events, event).map(|index| self.events.swap_remove(index));
            }
            Step::SyncEvent(event) => {
                if let Some(index) = pick(&self.events, event) {
                    self.events[index].synchronize().unwrap();
                }
            }
            Step::QueryEvent(event) => {
                if let Some(index) = pick(&self.events, event) {
                    self.events[index].is_done().unwrap();
                }
            }
            Step::SyncStream(stream) => {
                self.stream(stream).synchronize().unwrap();
            }
            Step::QueryStream(stream) => {
                self.stream(stream).is_done().unwrap();
            }
            Step::SyncDevice => self.device.synchronize().unwrap(),
            Step::Finish(stream) => {
                self.paper.finish_stream(self.stream(stream).as_raw());
            }
            Step::HostAccess((memory, from, len, write)) => {
                return self.host_access(memory, from, len, write);
            }
            Step::Trim => {
                self.device.trim();
            }
        }
        Ok(())
    }

    fn launch(&mut self, stream: u8, accesses: &[Access]) -> Result<(), TestCaseError> {
        let stream = usize::from(stream) % self.streams.len();
        let mut chosen: Vec<(usize, Access)> = Vec::new();
        for &access in accesses {
            if let Some(index) = pick(&self.memory, access.0)
                && chosen.iter().all(|(other, _)| *other != index)
            {
                chosen.push((index, access));
            }
        }
        let touches: Vec<Touch> = chosen
            .iter()
            .filter_map(|&(index, (_, from, len, write))| touched(&self.memory[index].read(from, len), write))
            .collect();
        let races = self.races(stream, &touches);
        let mut mems = Vec::new();
        for (index, memory) in self.memory.iter_mut().enumerate() {
            if let Some(&(_, (_, from, len, write))) = chosen.iter().find(|(other, _)| *other == index) {
                mems.push(if write {
                    Mem::Write(memory.write(from, len))
                } else {
                    Mem::Read(memory.read(from, len))
                });
            }
        }
        let result = touch(&self.kernel, &self.streams[stream], &mut mems);
        drop(mems);
        judge(races, result)
    }

    fn copy(&mut self, stream: u8, from: u8, to: u8) -> Result<(), TestCaseError> {
        let stream = usize::from(stream) % self.streams.len();
        let (Some(from), Some(to)) = (pick(&self.memory, from), pick(&self.memory, to)) else {
            return Ok(());
        };
        if from == to {
            return Ok(());
        }
        let len = self.memory[from].read(0, 0).len().min(self.memory[to].read(0, 0).len());
        let source = self.memory[from].read(0, 0).slice(..len).unwrap();
        let target = self.memory[to].read(0, 0).slice(..len).unwrap();
        let touches: Vec<Touch> = touched(&source, false).into_iter().chain(touched(&target, true)).collect();
        let races = self.races(stream, &touches);
        let [source, target] = self.memory.get_disjoint_mut([from, to]).unwrap();
        let source = source.read(0, 0).slice(..len).unwrap();
        let mut target = target.write(0, 0).slice_mut(..len).unwrap();
        let result = self.streams[stream].copy(&source, &mut target);
        judge(races, result)
    }

    fn host_access(&mut self, memory: u8, from: u8, len: u8, write: bool) -> Result<(), TestCaseError> {
        let Some(index) = pick(&self.memory, memory) else { return Ok(()) };
        let Memory::Pinned(_) = self.memory[index] else { return Ok(()) };
        let touch = touched(&self.memory[index].read(from, len), write);
        if write {
            drop(self.memory[index].write(from, len).write().unwrap());
        } else {
            drop(self.memory[index].read(from, len).read().unwrap());
        }
        let checked = touch.map_or(Ok(()), |touch| self.paper.state().order.check_host(&touch));
        prop_assert_eq!(checked, Ok(()));
        Ok(())
    }

    /// Runs the program, drops everything, and returns the log.
    fn run(tracking: Tracking, pool: PoolPolicy, program: &[Step]) -> Result<Vec<Call>, TestCaseError> {
        let mut world = Self::new(tracking, pool);
        for step in program {
            world.step(step)?;
        }
        let paper = world.paper.clone();
        prop_assert!(paper.state().order.is_transitive(), "the model contradicts itself");
        let log = paper.state().log.clone();
        drop(world);
        prop_assert_eq!(&paper.state().violations, &Vec::<Violation>::new());
        prop_assert_eq!(paper.live(), Live::default());
        Ok(log)
    }
}

fn lengths(size: u8) -> usize {
    [1, 40, 512, 513, 0, 2000][usize::from(size) % 6]
}

/// Returns the first race that appears if one call is removed from the log.
fn race_without(log: &[Call], without: usize) -> Option<Violation> {
    let mut order = Order::default();
    for (index, call) in log.iter().enumerate() {
        if index == without {
            continue;
        }
        if let Err(violation) = order.apply(call)
            && matches!(call, Call::Op { .. })
        {
            return Some(violation);
        }
    }
    None
}

fn check_auto(program: &[Step]) -> Result<(), TestCaseError> {
    World::run(Tracking::Auto, PoolPolicy::Library, program)?;
    // If the pool merged ranges, the result stands for the uses of all of them, so a wait may be for a neighbour's use.
    let log = World::run(Tracking::Auto, PoolPolicy::Unpooled, program)?;
    for (index, call) in log.iter().enumerate() {
        if matches!(call, Call::Wait { explicit: false, .. }) {
            let race = race_without(&log, index);
            prop_assert!(race.is_some(), "call {} {:?} was not needed, in {:?}", index, call, log);
        }
    }
    Ok(())
}

/// Scales the number of cases by `PROPTEST_CASES`, which is 256 unless you set it.
fn cases(share: impl Fn(u32) -> u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: share(default.cases).max(1), failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(cases(|all| 3 * all))]
    #[test]
    fn added_waits_suffice_and_each_is_needed(program in steps(60)) {
        check_auto(&program)?;
    }

    #[test]
    fn strict_complains_exactly_where_a_wait_is_missing(program in steps(60)) {
        World::run(Tracking::Strict, PoolPolicy::Library, &program)?;
        World::run(Tracking::Strict, PoolPolicy::Unpooled, &program)?;
    }
}

proptest! {
    #![proptest_config(cases(|all| all / 10))]
    /// These programs are long enough to make the library drop marks, prune clocks and fill histories.
    #[test]
    fn added_waits_suffice_in_long_programs(program in steps(600)) {
        check_auto(&program)?;
    }
}

/// We count what happens here, because otherwise the checks above could pass although no program hands memory over.
#[test]
fn programs_exercise_what_they_check() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut added, mut hazards) = (0, 0);
    for _ in 0..50 {
        let program = steps(60).new_tree(&mut runner).unwrap().current();
        let log = World::run(Tracking::Auto, PoolPolicy::Library, &program).unwrap();
        added += log.iter().filter(|call| matches!(call, Call::Wait { explicit: false, .. })).count();
        let ops = |log: &[Call]| log.iter().filter(|call| matches!(call, Call::Op { .. })).count();
        hazards += ops(&log) - ops(&World::run(Tracking::Strict, PoolPolicy::Library, &program).unwrap());
    }
    assert!(added > 50 && hazards > 50, "{added} waits, {hazards} hazards");
}
