//! The paper device: a model that logs its calls, and only finishes work or fails when a test says so.

use std::alloc::{self, Layout};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpustream::hal::{CopyDirection, Fill, HostFn, RawEvent, RawStream, Work};
use gpustream::{
    BackendName, Device, DeviceInfo, DeviceOptions, Error, ErrorKind, Image, Kernel, ModuleSource, Result,
    Stream,
};
use gpustream_hal::noop::{Call as Asked, Model, Noop};

use crate::order::{Call, Order, Set, Touch};

/// The state of the device, which one lock protects.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) log: Vec<Call>,
    pub(crate) order: Order,
    /// The rules that were broken so far.
    pub(crate) violations: Vec<String>,
    /// The operations that have finished. If the host knows an operation to be done, it must be here.
    done: Set,
    /// True if the test asked for the calls that we log now, so that they don't count as added by the library.
    explicit: bool,
    /// How many fallible calls are left until one fails, and how that one fails.
    fail_in: Option<(u64, ErrorKind)>,
    blocks: HashMap<usize, (Range<usize>, bool)>,
    pending: Vec<(usize, HostCall)>,
    next: usize,
    live: Live,
}

struct HostCall(HostFn, *mut c_void);
// SAFETY: the caller of `stream_host_fn` allows us to use it on another thread.
unsafe impl Send for HostCall {}

/// How many objects were made and not destroyed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) streams: isize,
    pub(crate) events: isize,
    pub(crate) allocations: isize,
    pub(crate) modules: isize,
}

impl State {
    fn log(&mut self, call: Call) {
        if let Err(violation) = self.order.apply(&call) {
            self.violations.push(violation);
        }
        self.log.push(call);
    }

    fn id(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// Fails if it is this call's turn to fail.
    fn fallible(&mut self) -> Result<()> {
        if let Some((left, kind)) = &mut self.fail_in {
            if *left == 0 {
                let kind = *kind;
                self.fail_in = None;
                return Err(Error::new(kind, "injected").with_call("a call on paper", -1));
            }
            *left -= 1;
        }
        Ok(())
    }
}

/// A test's code that runs inside a driver call, on the calling thread.
type Inside = Arc<dyn Fn() + Send + Sync>;

/// A fake driver and its one device.
pub(crate) struct Paper {
    state: Mutex<State>,
    inside: Mutex<Option<(&'static str, Inside)>>,
    info: DeviceInfo,
}

impl Paper {
    pub(crate) fn new() -> Arc<Self> {
        Self::of("paper", 0)
    }

    /// Makes a device of another backend, or a second device of this one. The devices cannot reach each other.
    pub(crate) fn of(backend: &'static str, ordinal: usize) -> Arc<Self> {
        let mut info = DeviceInfo::new(BackendName::new(backend), ordinal);
        info.name = "a device on paper".into();
        info.arch = "paper".into();
        info.features.concurrent_kernels = true;
        Arc::new(Self { state: Mutex::default(), inside: Mutex::default(), info })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // We ignore that the lock is poisoned, because destructors still make calls after an assertion has failed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(self: &Arc<Self>, options: DeviceOptions) -> Device {
        Device::open_on(&Noop::new(self.clone(), self.info.clone()), 0, options).unwrap()
    }

    /// Runs `calls`, and marks the records and waits in it as wanted by the test.
    pub(crate) fn explicitly<T>(&self, calls: impl FnOnce() -> T) -> T {
        self.state().explicit = true;
        let result = calls();
        self.state().explicit = false;
        result
    }

    /// Returns the calls that `work` makes.
    pub(crate) fn calls_of<T>(&self, work: impl FnOnce() -> T) -> (T, Vec<Call>) {
        let from = self.state().log.len();
        let result = work();
        let calls = self.state().log[from..].to_vec();
        (result, calls)
    }

    /// Makes the `n`-th fallible call from now on fail, counted from 0.
    pub(crate) fn fail_in(&self, n: u64, kind: ErrorKind) {
        self.state().fail_in = Some((n, kind));
    }

    /// Cancels a failure that has not happened yet. Returns true if it had happened.
    pub(crate) fn failed(&self) -> bool {
        self.state().fail_in.take().is_none()
    }

    /// Gives `bytes` from `start` on to a new owner. If the driver gave more because of rounding, the new owner gets that too.
    pub(crate) fn new_owner(&self, start: usize, bytes: usize) {
        let mut state = self.state();
        let given =
            state.blocks.values().map(|(block, _)| block).find(|block| block.contains(&start)).unwrap();
        let block = start..given.end.min(start + bytes.max(1).next_multiple_of(512));
        state.log(Call::NewOwner { block });
    }

    /// Makes each such call run `work` first, from now on.
    pub(crate) fn inside(&self, call: &'static str, work: impl Fn() + Send + Sync + 'static) {
        *self.inside.lock().unwrap() = Some((call, Arc::new(work)));
    }

    /// Ends the effect of [`inside`](Self::inside).
    pub(crate) fn as_usual(&self) {
        *self.inside.lock().unwrap() = None;
    }

    fn begin(&self, call: &'static str) {
        let inside = self.inside.lock().unwrap().clone();
        if let Some((_, work)) = inside.filter(|(name, _)| *name == call) {
            work();
        }
    }

    pub(crate) fn live(&self) -> Live {
        self.state().live
    }

    /// Finishes the operations that were submitted to a stream so far.
    pub(crate) fn finish_stream(&self, stream: RawStream) {
        let seen = self.state().order.seen_by_stream(stream.0);
        self.finish(&seen);
    }

    pub(crate) fn finish_all(&self) {
        let mut all = Set::default();
        (0..self.state().order.ops()).for_each(|op| all.insert(op));
        self.finish(&all);
    }

    fn finish(&self, set: &Set) {
        let mut state = self.state();
        state.done.extend(set);
        let done = state.done.clone();
        let ready: Vec<_> = state.pending.extract_if(.., |(op, _)| done.contains(*op)).collect();
        drop(state);
        for (_, call) in ready {
            // Drivers call closures on their own thread, where a closure may do less.
            std::thread::spawn(move || {
                let HostCall(function, data) = { call };
                // SAFETY: the function is called once, as `stream_host_fn` promises.
                unsafe { function(data) }
            })
            .join()
            .unwrap();
        }
    }

    fn op(&self, call: &'static str, stream: RawStream, touches: Vec<Touch>) {
        self.begin(call);
        let mut state = self.state();
        let touches = touches.into_iter().filter(|touch| !touch.range.is_empty()).collect();
        state.log(Call::Op { stream: stream.0, touches });
    }

    fn new_block(&self, call: &'static str, bytes: usize, host: bool) -> usize {
        self.begin(call);
        let mut state = self.state();
        // SAFETY: blocks are never empty.
        let start = unsafe { alloc::alloc_zeroed(layout(bytes)) } as usize;
        let block = start..start + bytes;
        state.blocks.insert(start, (block.clone(), host));
        state.live.allocations += 1;
        state.log(Call::Alloc { block });
        start
    }

    fn free_block(&self, start: usize, host: bool) {
        let mut state = self.state();
        let Some((block, was_host)) = state.blocks.remove(&start) else {
            state.violations.push(format!("{start:#x} freed twice"));
            return;
        };
        assert_eq!(host, was_host, "freed by the other kind's call");
        state.live.allocations -= 1;
        let bytes = block.len();
        state.log(Call::Free { block });
        // SAFETY: the block was allocated with this layout.
        unsafe { alloc::dealloc(start as *mut u8, layout(bytes)) }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).unwrap()
}

fn read(start: usize, bytes: usize) -> Touch {
    Touch { range: start..start + bytes, write: false }
}

fn write(start: usize, bytes: usize) -> Touch {
    Touch { range: start..start + bytes, write: true }
}

// SAFETY: pinned memory comes from the allocator, and a host function is called once.
unsafe impl Model for Paper {
    fn call(&self, call: Asked<'_>) -> Result<usize> {
        use Asked::{EventDestroy, Free, ModuleUnload, PinnedFree, StreamDestroy};
        if !matches!(call, StreamDestroy(_) | EventDestroy(_) | Free(_) | PinnedFree(_) | ModuleUnload) {
            self.state().fallible()?;
        }
        match call {
            Asked::Synchronize => {
                self.finish_all();
                self.state().log(Call::DeviceSeen);
            }
            Asked::StreamCreate => {
                let mut state = self.state();
                state.live.streams += 1;
                return Ok(state.id());
            }
            Asked::StreamDestroy(RawStream(stream)) => {
                let mut state = self.state();
                state.live.streams -= 1;
                state.log(Call::StreamDestroy { stream });
            }
            Asked::StreamQuery(RawStream(stream)) => {
                let mut state = self.state();
                let done = state.order.seen_by_stream(stream).is_subset(&state.done);
                state.log(if done { Call::StreamSeen { stream } } else { Call::StreamPending { stream } });
                return Ok(usize::from(done));
            }
            Asked::StreamSynchronize(stream) => {
                self.finish_stream(stream);
                self.state().log(Call::StreamSeen { stream: stream.0 });
            }
            Asked::StreamWaitEvent(RawStream(stream), RawEvent(event)) => {
                let mut state = self.state();
                let explicit = state.explicit;
                state.log(Call::Wait { stream, event, explicit });
            }
            Asked::EventCreate => {
                let mut state = self.state();
                state.live.events += 1;
                let event = state.id();
                state.log(Call::EventCreate { event });
                return Ok(event);
            }
            Asked::EventDestroy(RawEvent(event)) => {
                let mut state = self.state();
                state.live.events -= 1;
                state.log(Call::EventDestroy { event });
            }
            Asked::EventRecord(RawEvent(event), RawStream(stream)) => {
                let mut state = self.state();
                let explicit = state.explicit;
                state.log(Call::Record { event, stream, explicit });
            }
            Asked::EventQuery(RawEvent(event)) => {
                let mut state = self.state();
                let done = state.order.seen_by_event(event).is_subset(&state.done);
                state.log(if done { Call::EventSeen { event } } else { Call::EventPending { event } });
                return Ok(usize::from(done));
            }
            Asked::EventSynchronize(RawEvent(event)) => {
                let seen = self.state().order.seen_by_event(event);
                self.finish(&seen);
                self.state().log(Call::EventSeen { event });
            }
            Asked::Alloc { bytes } => return Ok(self.new_block("alloc", bytes, false)),
            Asked::Free(buffer) => self.free_block(buffer.0, false),
            Asked::PinnedAlloc { bytes } => return Ok(self.new_block("pinned_alloc", bytes, true)),
            Asked::PinnedFree(ptr) => self.free_block(ptr as usize, true),
            Asked::PinnedDeviceAddress(ptr) => return Ok(ptr as usize),
            Asked::ModuleLoad => {
                let mut state = self.state();
                state.live.modules += 1;
                return Ok(state.id());
            }
            Asked::ModuleUnload => self.state().live.modules -= 1,
            Asked::ModuleFunction => {}
            Asked::Submit(stream, work) => self.submit(stream, work)?,
            _ => return Err(Error::unsupported("a graph")),
        }
        Ok(1)
    }
}

impl Paper {
    fn submit(&self, stream: RawStream, work: Work<'_>) -> Result<()> {
        match work {
            Work::Fill(Fill { dst, pattern, count }) => {
                self.op("fill", stream, vec![write(dst.0, count * pattern.width())]);
            }
            Work::Copy(copy) => {
                let name = match copy.direction() {
                    CopyDirection::ToDevice => "copy_to_device",
                    CopyDirection::ToHost => "copy_to_host",
                    _ => "copy_on_device",
                };
                let [from, to] = [copy.src, copy.dst].map(|end| end.address().0);
                self.op(name, stream, vec![read(from, copy.bytes), write(to, copy.bytes)]);
            }
            // The only kernel takes triples: the address, the number of bytes, and whether it writes.
            Work::Kernel { args, .. } => {
                // SAFETY: the test only passes 64-bit values.
                let words: Vec<usize> =
                    args.iter().map(|arg| unsafe { arg.cast::<usize>().read() }).collect();
                let touches = words
                    .chunks_exact(3)
                    .map(|touch| Touch { range: touch[0]..touch[0] + touch[1], write: touch[2] == 1 });
                self.op("launch", stream, touches.collect());
            }
            Work::Host { function, data } => {
                let mut state = self.state();
                let op = state.order.ops();
                state.pending.push((op, HostCall(function, data)));
                state.log(Call::HostFn { stream: stream.0 });
            }
            _ => return Err(Error::unsupported("a strided copy")),
        }
        Ok(())
    }
}

/// Makes a fake driver, opens its device, loads the kernel, and makes that many streams.
pub(crate) fn open<const STREAMS: usize>(
    options: DeviceOptions,
) -> (Arc<Paper>, Device, Kernel, [Stream; STREAMS]) {
    let paper = Paper::new();
    let device = paper.open(options);
    let kernel = kernel(&device);
    let streams = [(); STREAMS].map(|()| device.stream().unwrap());
    (paper, device, kernel, streams)
}

/// Loads the only kernel of the paper device.
pub(crate) fn kernel(device: &Device) -> Kernel {
    let images = [Image {
        backend: device.info().backend.as_str(),
        targets: &["paper"],
        bytes: b"paper",
        symbols: &[],
    }];
    let source = ModuleSource { name: "paper", images: &images, globals: &[] };
    // SAFETY: the driver is a fake that runs nothing.
    unsafe { device.load_module(&source) }.unwrap().kernel("touch").unwrap()
}
