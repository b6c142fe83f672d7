//! A model of a driver that knows streams, events and captures. It copies nothing, because these tests only ask about
//! order. Work runs only when a thread waits for it, so that you see if a wait is missing. The model panics at a call
//! that would break a capture or would be recorded by mistake.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use gpustream::DeviceOptions;
use gpustream::hal::{
    DeviceInfo, Error, ErrorKind, GraphNode, RawEvent, RawStream, Result, Work as Operation,
};
use gpustream_hal::noop::{Call, Model, Noop};
use shuttle::sync as model;

#[derive(Clone, Debug)]
enum Work {
    /// A fill with this value, or a copy if the value is [`COPY`].
    Step(u32),
    /// A wait for another stream: its key, and how many of its operations must have run.
    After(usize, usize),
    Graph(Vec<u32>),
}

/// The value that stands for a copy.
pub(crate) const COPY: u32 = u32::MAX;

/// Returns the value that stands for an operation.
fn step_of(work: &Operation<'_>) -> u32 {
    match work {
        Operation::Fill(fill) => fill.pattern.value(),
        Operation::Copy(_) => COPY,
        // SAFETY: the model has only one kernel, and its second argument is a `u32`.
        Operation::Kernel { args, .. } => unsafe { args[1].cast::<u32>().read() },
        _ => panic!("{work:?}"),
    }
}

#[derive(Default)]
struct Queue {
    work: Vec<Work>,
    /// How many operations have run.
    done: usize,
    capture: Option<usize>,
}

#[derive(Clone, Copy)]
enum Recorded {
    Never,
    /// The event is reached after this many operations of this stream.
    At(usize, usize),
    In(usize),
}

#[derive(Default)]
struct World {
    streams: HashMap<usize, Queue>,
    events: HashMap<usize, Recorded>,
    /// The steps of each capture. When a capture has ended it is a graph.
    captures: HashMap<usize, Vec<u32>>,
    ended: Vec<usize>,
    /// Executables that a thread is launching at this moment, so that we see if two threads launch the same one.
    launching: HashSet<usize>,
    next: usize,
    steps: Vec<u32>,
    /// As on HIP, a capture breaks if you use events that were recorded on its streams before.
    closes_events: bool,
    /// Host memory that the library allocated. The operations of the model never touch its contents.
    pinned: Vec<Vec<u128>>,
}

impl World {
    fn new_handle(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    fn queue(&mut self, stream: RawStream) -> &mut Queue {
        self.streams.get_mut(&stream.0).expect("a live stream")
    }

    /// Returns true if a capture forbids the use of an event.
    fn is_closed(&self, event: RawEvent) -> bool {
        self.closes_events
            && matches!(self.events[&event.0], Recorded::At(stream, _) if self.streams[&stream].capture.is_some())
    }

    fn running(&mut self, stream: RawStream, what: &str) -> &mut Queue {
        let queue = self.queue(stream);
        assert!(queue.capture.is_none(), "{what} of a stream that is being captured");
        queue
    }

    fn step(&mut self, stream: RawStream, step: u32) {
        match self.queue(stream).capture {
            Some(capture) => self.captures.get_mut(&capture).expect("a capture").push(step),
            None => self.queue(stream).work.push(Work::Step(step)),
        }
    }

    /// Runs the first `until` operations of a stream, and whatever they wait for.
    fn run(&mut self, stream: usize, until: usize) {
        while let Some(queue) = self.streams.get_mut(&stream).filter(|queue| queue.done < until) {
            let work = queue.work[queue.done].clone();
            queue.done += 1;
            match work {
                Work::Step(step) => self.steps.push(step),
                Work::After(other, until) => self.run(other, until),
                Work::Graph(steps) => self.steps.extend(steps),
            }
        }
    }
}

/// The driver's room for launches of graphs. If it is full, a launch blocks.
#[derive(Default)]
struct Room {
    is_full: bool,
    /// A launch is blocked.
    is_waited_for: bool,
}

/// A context of the driver. Devices that are opened on it share its streams.
#[derive(Clone, Default)]
pub(crate) struct Driver(Arc<Mutex<World>>, Arc<(model::Mutex<Room>, model::Condvar)>);

impl Driver {
    /// Makes a driver whose captures forbid the use of events that were recorded on their streams before.
    pub(crate) fn closing_events() -> Self {
        Self(Arc::new(Mutex::new(World { closes_events: true, ..World::default() })), Arc::default())
    }

    pub(crate) fn open(&self) -> gpustream::Device {
        let mut info = DeviceInfo::new(gpustream::BackendName::new("model"), 0);
        info.features.textures = true;
        info.quirks.capture_closes_events =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).closes_events;
        let backend = Noop::new(self.clone(), info);
        gpustream::Device::open_on(&backend, 0, DeviceOptions::default()).unwrap()
    }

    /// Makes a stream that the library does not own.
    pub(crate) fn foreign_stream(&self) -> RawStream {
        let world = &mut *self.0.lock().unwrap();
        let stream = world.new_handle();
        world.streams.insert(stream, Queue::default());
        RawStream(stream)
    }

    /// Returns true if each operation of one stream is ordered with each operation of the other, because of waits
    /// between them.
    pub(crate) fn are_ordered(&self, [a, b]: [RawStream; 2]) -> bool {
        let world = &*self.0.lock().unwrap();
        let operations = |stream: RawStream| {
            let work = world.streams[&stream.0].work.iter().enumerate();
            work.filter(|(_, work)| !matches!(work, Work::After(..))).map(|(place, _)| place)
        };
        // Returns true if `stream`'s operation at `place` comes after `other`'s operation at `before`.
        let follows = |(stream, place): (RawStream, usize), (other, before): (RawStream, usize)| {
            let earlier = &world.streams[&stream.0].work[..place];
            earlier
                .iter()
                .any(|work| matches!(work, Work::After(it, until) if *it == other.0 && *until > before))
        };
        operations(a).all(|x| operations(b).all(|y| follows((a, x), (b, y)) || follows((b, y), (a, x))))
    }

    /// Returns how many operations have not run.
    pub(crate) fn pending(&self) -> usize {
        let world = &*self.0.lock().unwrap();
        world.streams.values().map(|queue| queue.work.len() - queue.done).sum()
    }

    /// Takes away the room for launches of graphs, or gives it back.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.change_room(|room| room.is_full = is_full);
    }

    /// Waits until a launch is blocked.
    pub(crate) fn until_waited_for(&self) {
        self.wait_for_room(|room| room.is_waited_for);
    }

    fn change_room(&self, change: impl FnOnce(&mut Room)) {
        change(&mut self.1.0.lock().unwrap());
        self.1.1.notify_all();
    }

    fn wait_for_room(&self, is_so: impl Fn(&Room) -> bool) {
        let (room, changed) = &*self.1;
        drop(changed.wait_while(room.lock().unwrap(), |room| !is_so(room)).unwrap());
    }

    /// Returns the steps that have run so far, in their order.
    pub(crate) fn ran(&self) -> Vec<u32> {
        self.0.lock().unwrap().steps.clone()
    }

    /// Runs all operations, and returns all steps in the order of their runs.
    pub(crate) fn steps(&self) -> Vec<u32> {
        let world = &mut *self.0.lock().unwrap();
        let all: Vec<_> = world.streams.iter().map(|(&stream, queue)| (stream, queue.work.len())).collect();
        for (stream, until) in all {
            world.run(stream, until);
        }
        world.steps.clone()
    }
}

impl Driver {
    /// Makes a call of the driver. Another thread may run before it.
    #[allow(clippy::unnecessary_wraps, reason = "each caller answers with it")]
    fn call<T>(&self, call: impl FnOnce(&mut World) -> T) -> Result<T> {
        shuttle::thread::yield_now();
        Ok(call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Makes a call that returns no value.
    fn tell(&self, call: impl FnOnce(&mut World)) -> Result<usize> {
        self.call(call).map(|()| 0)
    }
}

// SAFETY: pinned memory stays as long as the driver, and no host function is called.
unsafe impl Model for Driver {
    fn context(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.0).addr())
    }

    fn call(&self, call: Call<'_>) -> Result<usize> {
        match call {
            Call::Synchronize => {
                // Other threads may run during the wait.
                for _ in 0..2 {
                    self.call(|world| {
                        let captured = world.streams.values().any(|queue| queue.capture.is_some());
                        assert!(!captured, "a wait for a context in which a stream is being captured");
                    })?;
                }
                self.steps();
                Ok(0)
            }
            Call::StreamCreate => Ok(self.foreign_stream().0),
            Call::StreamDestroy(stream) => self.tell(|world| {
                world.running(stream, "the end");
            }),
            Call::StreamQuery(stream) => self.call(|world| {
                let queue = world.running(stream, "a question");
                usize::from(queue.done == queue.work.len())
            }),
            Call::StreamSynchronize(stream) => self.tell(|world| {
                let until = world.running(stream, "a wait").work.len();
                world.run(stream.0, until);
            }),
            Call::StreamWaitEvent(stream, event) => self.call(|world| {
                if world.is_closed(event) {
                    return Err(Error::new(ErrorKind::Captured, "a wait for an event of a captured stream"));
                }
                match world.events[&event.0] {
                    Recorded::Never => {}
                    Recorded::At(other, until) => {
                        world
                            .running(stream, "a wait for work outside of the capture")
                            .work
                            .push(Work::After(other, until));
                    }
                    Recorded::In(capture) => {
                        assert!(!world.ended.contains(&capture), "a wait for a capture that has ended");
                        let queue = world.queue(stream);
                        assert!(queue.capture.is_none_or(|old| old == capture), "a wait for another capture");
                        queue.capture = Some(capture);
                    }
                }
                Ok(0)
            })?,
            Call::EventCreate => self.call(|world| {
                let event = world.new_handle();
                world.events.insert(event, Recorded::Never);
                event
            }),
            Call::EventRecord(event, stream) => self.tell(|world| {
                let queue = world.queue(stream);
                let recorded = match queue.capture {
                    Some(capture) => Recorded::In(capture),
                    None => Recorded::At(stream.0, queue.work.len()),
                };
                world.events.insert(event.0, recorded);
            }),
            Call::EventQuery(event) => self.call(|world| match world.events[&event.0] {
                _ if world.is_closed(event) => panic!("a question that breaks a capture"),
                Recorded::Never => 1,
                Recorded::At(stream, until) => {
                    let is_reached = world.streams[&stream].done >= until;
                    if world.closes_events {
                        // On such a driver the library may wait by asking again and again, so the work has to run here.
                        world.run(stream, until);
                    }
                    usize::from(is_reached)
                }
                Recorded::In(_) => panic!("a question about an event inside a capture"),
            }),
            Call::EventSynchronize(event) => self.tell(|world| match world.events[&event.0] {
                _ if world.is_closed(event) => panic!("a wait that breaks a capture"),
                Recorded::Never => {}
                Recorded::At(stream, until) => world.run(stream, until),
                Recorded::In(_) => panic!("a wait for an event inside a capture"),
            }),
            Call::Alloc { bytes } => self.call(|world| {
                let address = world.next.next_multiple_of(256);
                world.next = address + bytes;
                (1 << 40) + address
            }),
            Call::PinnedAlloc { bytes } => self.call(|world| {
                let mut memory = vec![0u128; (bytes + 256).div_ceil(size_of::<u128>())];
                let address = memory.as_mut_ptr().addr().next_multiple_of(256);
                world.pinned.push(memory);
                address
            }),
            Call::PinnedDeviceAddress(address) => Ok(address.addr()),
            Call::ModuleLoad | Call::ModuleFunction | Call::TextureCreate => self.call(World::new_handle),
            Call::Submit(stream, work) => self.tell(|world| world.step(stream, step_of(&work))),
            Call::GraphCreate => self.call(|world| {
                let graph = world.new_handle();
                world.captures.insert(graph, Vec::new());
                graph
            }),
            Call::GraphAddNode(graph, GraphNode::Work(work)) => self.tell(|world| {
                world.captures.get_mut(&graph.0).expect("a graph").push(step_of(&work));
            }),
            Call::CaptureBegin(stream) => self.tell(|world| {
                let capture = world.new_handle();
                world.running(stream, "a second capture").capture = Some(capture);
                world.captures.insert(capture, Vec::new());
            }),
            Call::CaptureEnd(stream) => self.call(|world| {
                let capture = world.queue(stream).capture.expect("a stream that is being captured");
                let streams = world.streams.values_mut();
                streams.filter(|it| it.capture == Some(capture)).for_each(|it| it.capture = None);
                world.ended.push(capture);
                capture
            }),
            Call::GraphSize(graph) => self.call(|world| world.captures[&graph.0].len()),
            Call::GraphInstantiate(graph) => Ok(graph.0),
            Call::GraphLaunch(exec, stream) => {
                self.change_room(|room| room.is_waited_for = room.is_full);
                self.wait_for_room(|room| !room.is_full);
                self.tell(|world| {
                    assert!(world.launching.insert(exec.0), "two threads launch one executable");
                })?;
                self.tell(|world| {
                    world.launching.remove(&exec.0);
                    let steps = world.captures[&exec.0].clone();
                    world.running(stream, "a launch").work.push(Work::Graph(steps));
                })
            }
            Call::EventDestroy(_)
            | Call::ModuleUnload
            | Call::TextureDestroy
            | Call::Free(_)
            | Call::PinnedFree(_)
            | Call::GraphDestroy
            | Call::GraphExecDestroy => Ok(0),
            _ => Err(Error::unsupported("that")),
        }
    }
}
