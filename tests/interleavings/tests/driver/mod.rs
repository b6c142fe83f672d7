//! A driver reduced to its order: streams, events and captures, and nothing is copied. Work runs when somebody waits
//! for it. A call that would break a capture, or land in one unnoticed, panics.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpustream::DeviceOptions;
use gpustream::hal::{
    Backend, Buffers, Copy3d, DefaultStream, Device, DeviceInfo, Error, EventOptions, Events, FillPattern,
    FunctionInfo, Graphs, HostFn, HostPtr, Launch, LaunchConfig, Modules, ParamInfo, PinnedOptions, Probe,
    RawBuffer, RawEvent, RawFunction, RawGraph, RawGraphExec, RawModule, RawStream, Result, StreamOptions,
    Streams,
};

/// What a stream is given, in its order.
#[derive(Clone, Debug)]
enum Work {
    /// A fill with this value, or a copy: [`COPY`].
    Step(u32),
    /// Another stream's first operations.
    After(usize, usize),
    Graph(Vec<u32>),
}

/// What a copy on the device is called among the steps.
pub(crate) const COPY: u32 = u32::MAX;

#[derive(Default)]
struct Queue {
    work: Vec<Work>,
    /// How much of it has run.
    done: usize,
    capture: Option<usize>,
}

#[derive(Clone, Copy)]
enum Recorded {
    Never,
    /// After so many operations of a stream.
    At(usize, usize),
    In(usize),
}

#[derive(Default)]
struct World {
    streams: HashMap<usize, Queue>,
    events: HashMap<usize, Recorded>,
    /// The steps of each capture, the ended ones included, which are the graphs.
    captures: HashMap<usize, Vec<u32>>,
    ended: Vec<usize>,
    /// Executables that are being launched at this moment.
    launching: HashSet<usize>,
    next: usize,
    steps: Vec<u32>,
    /// Memory of the host, which the operations here only name.
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

    /// Runs a stream's first operations, and what they come after.
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

/// One context of the driver's. Devices opened on it share its streams.
#[derive(Clone, Default)]
pub(crate) struct Driver(Arc<Mutex<World>>);

impl Driver {
    pub(crate) fn open(&self) -> gpustream::Device {
        gpustream::Device::open_on(self, 0, DeviceOptions::default()).unwrap()
    }

    /// Makes a stream that is not the library's.
    pub(crate) fn foreign_stream(&self) -> RawStream {
        let world = &mut *self.0.lock().unwrap();
        let stream = world.new_handle();
        world.streams.insert(stream, Queue::default());
        RawStream(stream)
    }

    /// Whether one of two streams waits for the other.
    pub(crate) fn are_ordered(&self, [a, b]: [RawStream; 2]) -> bool {
        let world = &*self.0.lock().unwrap();
        let waits = |stream: RawStream, other: RawStream| {
            let work = &world.streams[&stream.0].work;
            work.iter().any(|work| matches!(work, Work::After(it, _) if *it == other.0))
        };
        waits(a, b) || waits(b, a)
    }

    /// Runs everything; says in which order the steps ran.
    pub(crate) fn steps(&self) -> Vec<u32> {
        let world = &mut *self.0.lock().unwrap();
        let all: Vec<_> = world.streams.iter().map(|(&stream, queue)| (stream, queue.work.len())).collect();
        for (stream, until) in all {
            world.run(stream, until);
        }
        world.steps.clone()
    }
}

/// A device opened on a context.
struct Opened(Driver, DeviceInfo);

impl Opened {
    /// A call of the driver's. Another thread may come before it.
    #[allow(clippy::unnecessary_wraps, reason = "each caller answers with it")]
    fn call<T>(&self, call: impl FnOnce(&mut World) -> T) -> Result<T> {
        shuttle::thread::yield_now();
        Ok(call(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

// SAFETY: devices of this backend touch no memory.
unsafe impl Backend for Driver {
    fn name(&self) -> &'static str {
        "model"
    }
    fn device_count(&self) -> Result<usize> {
        Ok(1)
    }
    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(Opened(self.clone(), DeviceInfo::new("model", ordinal))))
    }
    fn probe(&self) -> Probe {
        Probe::default()
    }
}

// SAFETY: no memory is touched.
unsafe impl Streams for Opened {
    fn stream_create(&self, _: StreamOptions) -> Result<RawStream> {
        Ok(self.0.foreign_stream())
    }
    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        self.call(|world| {
            world.running(stream, "the end");
        })
    }
    fn stream_default(&self, _: DefaultStream) -> Result<RawStream> {
        Err(Error::unsupported("that"))
    }
    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool> {
        self.call(|world| {
            let queue = world.running(stream, "a question");
            queue.done == queue.work.len()
        })
    }
    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()> {
        self.call(|world| {
            let until = world.running(stream, "a wait").work.len();
            world.run(stream.0, until);
        })
    }
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        self.call(|world| match world.events[&event.0] {
            Recorded::Never => {}
            Recorded::At(other, until) => {
                world.running(stream, "a wait for what is outside").work.push(Work::After(other, until));
            }
            Recorded::In(capture) => {
                assert!(!world.ended.contains(&capture), "a wait for a capture that has ended");
                let queue = world.queue(stream);
                assert!(queue.capture.is_none_or(|old| old == capture), "a wait for another capture");
                queue.capture = Some(capture);
            }
        })
    }
    unsafe fn stream_host_fn(&self, _: RawStream, _: HostFn, _: *mut c_void) -> Result<()> {
        Err(Error::unsupported("that"))
    }
}

// SAFETY: as above.
unsafe impl Events for Opened {
    fn event_create(&self, _: EventOptions) -> Result<RawEvent> {
        self.call(|world| {
            let event = world.new_handle();
            world.events.insert(event, Recorded::Never);
            RawEvent(event)
        })
    }
    unsafe fn event_destroy(&self, _: RawEvent) -> Result<()> {
        Ok(())
    }
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()> {
        self.call(|world| {
            let queue = world.queue(stream);
            let recorded = match queue.capture {
                Some(capture) => Recorded::In(capture),
                None => Recorded::At(stream.0, queue.work.len()),
            };
            world.events.insert(event.0, recorded);
        })
    }
    unsafe fn event_query(&self, event: RawEvent) -> Result<bool> {
        self.call(|world| match world.events[&event.0] {
            Recorded::Never => true,
            Recorded::At(stream, until) => world.streams[&stream].done >= until,
            Recorded::In(_) => panic!("a question about an event inside a capture"),
        })
    }
    unsafe fn event_synchronize(&self, event: RawEvent) -> Result<()> {
        self.call(|world| match world.events[&event.0] {
            Recorded::Never => {}
            Recorded::At(stream, until) => world.run(stream, until),
            Recorded::In(_) => panic!("a wait for an event inside a capture"),
        })
    }
    unsafe fn event_elapsed(&self, _: RawEvent, _: RawEvent) -> Result<Duration> {
        Err(Error::unsupported("that"))
    }
}

// SAFETY: as above.
unsafe impl Buffers for Opened {
    fn alloc(&self, bytes: usize) -> Result<RawBuffer> {
        self.call(|world| {
            world.next += bytes;
            RawBuffer((1 << 40) + world.next)
        })
    }
    unsafe fn free(&self, _: RawBuffer) -> Result<()> {
        Ok(())
    }
    fn pinned_alloc(&self, bytes: usize, _: PinnedOptions) -> Result<HostPtr> {
        self.call(|world| {
            let mut memory = vec![0u128; bytes.div_ceil(size_of::<u128>())];
            let address = memory.as_mut_ptr().cast();
            world.pinned.push(memory);
            address
        })
    }
    unsafe fn pinned_free(&self, _: HostPtr) -> Result<()> {
        Ok(())
    }
    unsafe fn pinned_device_address(&self, ptr: HostPtr) -> Result<RawBuffer> {
        Ok(RawBuffer(ptr as usize))
    }
    unsafe fn fill(&self, _: RawBuffer, pattern: FillPattern, _: usize, stream: RawStream) -> Result<()> {
        let value = match pattern {
            FillPattern::U8(value) => u32::from(value),
            FillPattern::U16(value) => u32::from(value),
            FillPattern::U32(value) => value,
        };
        self.call(|world| world.step(stream, value))
    }
    unsafe fn copy_to_device(&self, _: RawBuffer, _: *const u8, _: usize, _: RawStream) -> Result<()> {
        Err(Error::unsupported("that"))
    }
    unsafe fn copy_to_host(&self, _: HostPtr, _: RawBuffer, _: usize, _: RawStream) -> Result<()> {
        Err(Error::unsupported("that"))
    }
    unsafe fn copy_on_device(&self, _: RawBuffer, _: RawBuffer, _: usize, stream: RawStream) -> Result<()> {
        self.call(|world| world.step(stream, COPY))
    }
    unsafe fn copy_3d(&self, _: &Copy3d, _: RawStream) -> Result<()> {
        Err(Error::unsupported("that"))
    }
}

// SAFETY: as above.
unsafe impl Modules for Opened {
    fn target_rank(&self, _: &str) -> Option<u32> {
        None
    }
    unsafe fn module_load(&self, _: &[u8]) -> Result<RawModule> {
        Err(Error::unsupported("that"))
    }
    unsafe fn module_unload(&self, _: RawModule) -> Result<()> {
        Err(Error::unsupported("that"))
    }
    unsafe fn module_function(&self, _: RawModule, _: &str) -> Result<RawFunction> {
        Err(Error::unsupported("that"))
    }
    unsafe fn function_params(&self, _: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        Err(Error::unsupported("that"))
    }
    unsafe fn function_info(&self, _: RawFunction) -> Result<FunctionInfo> {
        Err(Error::unsupported("that"))
    }
}

// SAFETY: as above.
unsafe impl Launch for Opened {
    unsafe fn launch(&self, _: RawFunction, _: &LaunchConfig, _: &[*mut c_void], _: RawStream) -> Result<()> {
        Err(Error::unsupported("that"))
    }
}

// SAFETY: as above.
unsafe impl Graphs for Opened {
    unsafe fn capture_begin(&self, stream: RawStream) -> Result<()> {
        self.call(|world| {
            let capture = world.new_handle();
            world.running(stream, "a second capture").capture = Some(capture);
            world.captures.insert(capture, Vec::new());
        })
    }
    unsafe fn capture_end(&self, stream: RawStream) -> Result<RawGraph> {
        self.call(|world| {
            let capture = world.queue(stream).capture.expect("a stream that is being captured");
            let streams = world.streams.values_mut();
            streams.filter(|it| it.capture == Some(capture)).for_each(|it| it.capture = None);
            world.ended.push(capture);
            RawGraph(capture)
        })
    }
    unsafe fn graph_size(&self, graph: RawGraph) -> Result<(usize, usize)> {
        self.call(|world| (world.captures[&graph.0].len(), 0))
    }
    unsafe fn graph_destroy(&self, _: RawGraph) -> Result<()> {
        Ok(())
    }
    unsafe fn graph_instantiate(&self, graph: RawGraph) -> Result<RawGraphExec> {
        Ok(RawGraphExec(graph.0))
    }
    unsafe fn graph_launch(&self, exec: RawGraphExec, stream: RawStream) -> Result<()> {
        self.call(|world| assert!(world.launching.insert(exec.0), "two threads launch one executable"))?;
        self.call(|world| {
            world.launching.remove(&exec.0);
            let steps = world.captures[&exec.0].clone();
            world.running(stream, "a launch").work.push(Work::Graph(steps));
        })
    }
    unsafe fn graph_exec_destroy(&self, _: RawGraphExec) -> Result<()> {
        Ok(())
    }
}

// SAFETY: as above.
unsafe impl Device for Opened {
    fn info(&self) -> &DeviceInfo {
        &self.1
    }
    fn context(&self) -> usize {
        Arc::as_ptr(&self.0.0).addr()
    }
    fn synchronize(&self) -> Result<()> {
        // A wait takes time.
        for _ in 0..2 {
            self.call(|world| {
                let captured = world.streams.values().any(|queue| queue.capture.is_some());
                assert!(!captured, "a wait for a context in which a stream is being captured");
            })?;
        }
        self.0.steps();
        Ok(())
    }
    fn memory(&self) -> Result<(u64, u64)> {
        Ok((0, 0))
    }
}
