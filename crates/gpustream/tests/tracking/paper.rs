//! A device on paper: it logs what it is asked, finishes work only when told to, and fails when told to.

use std::alloc::{self, Layout};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpustream::hal::{
    self, Backend, Buffers, Copy3d, DefaultStream, EventOptions, Events, FillPattern, Graphs, HostFn,
    HostPtr, Launch, LaunchConfig, Modules, Probe, RawBuffer, RawEvent, RawFunction, RawModule, RawStream,
    Streams,
};
use gpustream::{
    Device, DeviceInfo, DeviceOptions, Error, ErrorKind, FunctionInfo, Image, Kernel, ModuleSource,
    ParamInfo, PinnedOptions, Result, StreamOptions,
};

use crate::order::{Call, Order, Set, Touch};

/// The whole inside, behind one lock.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) log: Vec<Call>,
    pub(crate) order: Order,
    /// Rules broken so far.
    pub(crate) violations: Vec<String>,
    /// What has really finished; at least what the host knows to be done.
    done: Set,
    /// Whether what is logged was asked for by the test rather than added by the library.
    explicit: bool,
    /// Fallible calls until one fails, and how.
    fail_in: Option<(u64, ErrorKind)>,
    /// Whether work fails from here on.
    lost: bool,
    blocks: HashMap<usize, (Range<usize>, bool)>,
    pending: Vec<(usize, HostCall)>,
    next: usize,
    live: Live,
}

struct HostCall(HostFn, *mut c_void);
// SAFETY: the caller of `stream_host_fn` allows use from another thread.
unsafe impl Send for HostCall {}

/// Objects made and not destroyed.
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

    fn fallible(&mut self, call: &'static str) -> Result<()> {
        if let Some((left, kind)) = &mut self.fail_in {
            if *left == 0 {
                let kind = *kind;
                self.fail_in = None;
                return Err(Error::new(kind, "injected").with_call(call, -1));
            }
            *left -= 1;
        }
        Ok(())
    }

    fn waitable(&mut self, call: &'static str) -> Result<()> {
        if self.lost {
            return Err(Error::new(ErrorKind::DeviceLost, "a kernel failed").with_call(call, 700));
        }
        self.fallible(call)
    }
}

/// What a test does inside of a call, on the thread that makes it.
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

    /// A device of another backend, or another one of a backend. They do not reach each other.
    pub(crate) fn of(backend: &'static str, ordinal: usize) -> Arc<Self> {
        let mut info = DeviceInfo::new(backend, ordinal);
        info.name = "a device on paper".into();
        info.arch = "paper".into();
        info.concurrent_kernels = true;
        Arc::new(Self { state: Mutex::default(), inside: Mutex::default(), info })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A failed assertion may have held it, and what is dropped meanwhile still calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(self: &Arc<Self>, options: DeviceOptions) -> Device {
        Device::open_on(&PaperBackend(self.clone()), 0, options).unwrap()
    }

    /// Runs `calls`, and marks the records and waits they make as asked for.
    pub(crate) fn explicitly<T>(&self, calls: impl FnOnce() -> T) -> T {
        self.state().explicit = true;
        let result = calls();
        self.state().explicit = false;
        result
    }

    /// The calls that `work` makes.
    pub(crate) fn calls_of<T>(&self, work: impl FnOnce() -> T) -> (T, Vec<Call>) {
        let from = self.state().log.len();
        let result = work();
        let calls = self.state().log[from..].to_vec();
        (result, calls)
    }

    /// The `n`-th fallible call from now on fails, counted from 0.
    pub(crate) fn fail_in(&self, n: u64, kind: ErrorKind) {
        self.state().fail_in = Some((n, kind));
    }

    /// Takes a failure back that has not happened yet; says whether it has.
    pub(crate) fn failed(&self) -> bool {
        self.state().fail_in.take().is_none()
    }

    /// `bytes` from `start` on belong to somebody new, and what rounding adds to them where the driver gave that much.
    pub(crate) fn new_owner(&self, start: usize, bytes: usize) {
        let mut state = self.state();
        let given =
            state.blocks.values().map(|(block, _)| block).find(|block| block.contains(&start)).unwrap();
        let block = start..given.end.min(start + bytes.max(1).next_multiple_of(512));
        state.log(Call::NewOwner { block });
    }

    /// From now on each such call does this first.
    pub(crate) fn inside(&self, call: &'static str, work: impl Fn() + Send + Sync + 'static) {
        *self.inside.lock().unwrap() = Some((call, Arc::new(work)));
    }

    /// Until now.
    pub(crate) fn as_usual(&self) {
        *self.inside.lock().unwrap() = None;
    }

    fn begin(&self, call: &'static str) {
        let inside = self.inside.lock().unwrap().clone();
        if let Some((_, work)) = inside.filter(|(name, _)| *name == call) {
            work();
        }
    }

    pub(crate) fn lose(&self) {
        self.state().lost = true;
    }

    pub(crate) fn live(&self) -> Live {
        self.state().live
    }

    /// What is submitted to a stream so far finishes.
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
        let (ready, pending) =
            std::mem::take(&mut state.pending).into_iter().partition(|(op, _)| done.contains(*op));
        state.pending = pending;
        drop(state);
        let ready: Vec<(usize, HostCall)> = ready;
        for (_, HostCall(function, data)) in ready {
            // Drivers call from a thread of their own, which matters to what a closure may do.
            let call = HostCall(function, data);
            std::thread::spawn(move || {
                let HostCall(function, data) = { call };
                // SAFETY: called once, as `stream_host_fn` promises.
                unsafe { function(data) }
            })
            .join()
            .unwrap();
        }
    }

    fn op(&self, call: &'static str, stream: RawStream, touches: Vec<Touch>) -> Result<()> {
        self.begin(call);
        let mut state = self.state();
        state.fallible(call)?;
        let touches = touches.into_iter().filter(|touch| !touch.range.is_empty()).collect();
        state.log(Call::Op { stream: stream.0, touches });
        Ok(())
    }

    fn new_block(&self, call: &'static str, bytes: usize, host: bool) -> Result<usize> {
        self.begin(call);
        let mut state = self.state();
        state.fallible(call)?;
        // SAFETY: blocks are never empty.
        let start = unsafe { alloc::alloc_zeroed(layout(bytes)) } as usize;
        let block = start..start + bytes;
        state.blocks.insert(start, (block.clone(), host));
        state.live.allocations += 1;
        state.log(Call::Alloc { block });
        Ok(start)
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
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(start as *mut u8, layout(bytes)) }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).unwrap()
}

struct PaperBackend(Arc<Paper>);

// SAFETY: each opening makes a device of its own.
unsafe impl Backend for PaperBackend {
    fn name(&self) -> &'static str {
        self.0.info.backend
    }
    fn device_count(&self) -> Result<usize> {
        Ok(1)
    }
    fn open(&self, _: usize) -> Result<Arc<dyn hal::Device>> {
        Ok(self.0.clone())
    }
    fn probe(&self) -> Probe {
        Probe::default()
    }
}

// SAFETY: work is noted on paper, and answers follow from what is written there.
unsafe impl hal::Device for Paper {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn synchronize(&self) -> Result<()> {
        self.state().waitable("device_synchronize")?;
        self.finish_all();
        self.state().log(Call::DeviceSeen);
        Ok(())
    }
    fn memory(&self) -> Result<(u64, u64)> {
        Ok((0, 0))
    }
}

// SAFETY: work is noted on paper, and answers follow from what is written there.
unsafe impl Streams for Paper {
    fn stream_create(&self, _: StreamOptions) -> Result<RawStream> {
        let mut state = self.state();
        state.fallible("stream_create")?;
        state.live.streams += 1;
        Ok(RawStream(state.id()))
    }
    unsafe fn stream_destroy(&self, stream: RawStream) -> Result<()> {
        let mut state = self.state();
        state.live.streams -= 1;
        state.log(Call::StreamDestroy { stream: stream.0 });
        Ok(())
    }
    fn stream_default(&self, _: DefaultStream) -> Result<RawStream> {
        Err(Error::unsupported("a default stream"))
    }
    unsafe fn stream_query(&self, stream: RawStream) -> Result<bool> {
        let mut state = self.state();
        state.waitable("stream_query")?;
        let done = state.order.seen_by_stream(stream.0).is_subset(&state.done);
        let stream = stream.0;
        state.log(if done { Call::StreamSeen { stream } } else { Call::StreamPending { stream } });
        Ok(done)
    }
    unsafe fn stream_synchronize(&self, stream: RawStream) -> Result<()> {
        self.state().waitable("stream_synchronize")?;
        self.finish_stream(stream);
        self.state().log(Call::StreamSeen { stream: stream.0 });
        Ok(())
    }
    unsafe fn stream_wait_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let mut state = self.state();
        state.fallible("stream_wait_event")?;
        let explicit = state.explicit;
        state.log(Call::Wait { stream: stream.0, event: event.0, explicit });
        Ok(())
    }
    unsafe fn stream_host_fn(&self, stream: RawStream, function: HostFn, data: *mut c_void) -> Result<()> {
        let mut state = self.state();
        state.fallible("stream_host_fn")?;
        let op = state.order.ops();
        state.pending.push((op, HostCall(function, data)));
        state.log(Call::HostFn { stream: stream.0 });
        Ok(())
    }
}

// SAFETY: work is noted on paper, and answers follow from what is written there.
unsafe impl Events for Paper {
    fn event_create(&self, _: EventOptions) -> Result<RawEvent> {
        let mut state = self.state();
        state.fallible("event_create")?;
        state.live.events += 1;
        let event = state.id();
        state.log(Call::EventCreate { event });
        Ok(RawEvent(event))
    }
    unsafe fn event_destroy(&self, event: RawEvent) -> Result<()> {
        let mut state = self.state();
        state.live.events -= 1;
        state.log(Call::EventDestroy { event: event.0 });
        Ok(())
    }
    unsafe fn event_record(&self, event: RawEvent, stream: RawStream) -> Result<()> {
        let mut state = self.state();
        state.fallible("event_record")?;
        let explicit = state.explicit;
        state.log(Call::Record { event: event.0, stream: stream.0, explicit });
        Ok(())
    }
    unsafe fn event_query(&self, event: RawEvent) -> Result<bool> {
        let mut state = self.state();
        state.waitable("event_query")?;
        let done = state.order.seen_by_event(event.0).is_subset(&state.done);
        let event = event.0;
        state.log(if done { Call::EventSeen { event } } else { Call::EventPending { event } });
        Ok(done)
    }
    unsafe fn event_synchronize(&self, event: RawEvent) -> Result<()> {
        self.state().waitable("event_synchronize")?;
        let seen = self.state().order.seen_by_event(event.0);
        self.finish(&seen);
        self.state().log(Call::EventSeen { event: event.0 });
        Ok(())
    }
    unsafe fn event_elapsed(&self, _: RawEvent, _: RawEvent) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
}

fn read(start: usize, bytes: usize) -> Touch {
    Touch { range: start..start + bytes, write: false }
}

fn write(start: usize, bytes: usize) -> Touch {
    Touch { range: start..start + bytes, write: true }
}

// SAFETY: device memory is a number, and pinned memory the allocator's; a copy writes only what the caller vouches for.
unsafe impl Buffers for Paper {
    fn alloc(&self, bytes: usize) -> Result<RawBuffer> {
        self.new_block("alloc", bytes, false).map(RawBuffer)
    }
    unsafe fn free(&self, buffer: RawBuffer) -> Result<()> {
        self.free_block(buffer.0, false);
        Ok(())
    }
    fn pinned_alloc(&self, bytes: usize, _: PinnedOptions) -> Result<HostPtr> {
        self.new_block("pinned_alloc", bytes, true).map(|start| start as HostPtr)
    }
    unsafe fn pinned_free(&self, ptr: HostPtr) -> Result<()> {
        self.free_block(ptr as usize, true);
        Ok(())
    }
    unsafe fn pinned_device_address(&self, ptr: HostPtr) -> Result<RawBuffer> {
        self.state().fallible("pinned_device_address")?;
        Ok(RawBuffer(ptr as usize))
    }
    unsafe fn fill(
        &self,
        dst: RawBuffer,
        pattern: FillPattern,
        count: usize,
        stream: RawStream,
    ) -> Result<()> {
        self.op("fill", stream, vec![write(dst.0, count * pattern.width())])
    }
    unsafe fn copy_to_device(
        &self,
        dst: RawBuffer,
        src: *const u8,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        self.op("copy_to_device", stream, vec![read(src as usize, bytes), write(dst.0, bytes)])
    }
    unsafe fn copy_to_host(
        &self,
        dst: HostPtr,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        self.op("copy_to_host", stream, vec![read(src.0, bytes), write(dst as usize, bytes)])
    }
    unsafe fn copy_on_device(
        &self,
        dst: RawBuffer,
        src: RawBuffer,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()> {
        self.op("copy_on_device", stream, vec![read(src.0, bytes), write(dst.0, bytes)])
    }
    unsafe fn copy_3d(&self, _: &Copy3d, _: RawStream) -> Result<()> {
        Err(Error::unsupported("a strided copy"))
    }
}

// SAFETY: work is noted on paper, and answers follow from what is written there.
unsafe impl Modules for Paper {
    fn target_rank(&self, target: &str) -> Option<u32> {
        (target == "paper").then_some(1)
    }
    unsafe fn module_load(&self, _: &[u8]) -> Result<RawModule> {
        let mut state = self.state();
        state.fallible("module_load")?;
        state.live.modules += 1;
        Ok(RawModule(state.id()))
    }
    unsafe fn module_unload(&self, _: RawModule) -> Result<()> {
        self.state().live.modules -= 1;
        Ok(())
    }
    unsafe fn module_function(&self, _: RawModule, _: &str) -> Result<RawFunction> {
        self.state().fallible("module_function")?;
        Ok(RawFunction(1))
    }
    unsafe fn function_params(&self, _: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        Ok(None)
    }
    unsafe fn function_info(&self, _: RawFunction) -> Result<FunctionInfo> {
        let mut info = FunctionInfo::default();
        info.max_threads_per_block = 1024;
        Ok(info)
    }
}

// SAFETY: work is noted on paper, and answers follow from what is written there.
unsafe impl Launch for Paper {
    /// The one kernel takes triples of address, bytes and whether it writes.
    unsafe fn launch(
        &self,
        _: RawFunction,
        _: &LaunchConfig,
        args: &[*mut c_void],
        stream: RawStream,
    ) -> Result<()> {
        // SAFETY: the test passes 64-bit values alone.
        let words: Vec<usize> = args.iter().map(|arg| unsafe { arg.cast::<usize>().read() }).collect();
        let touches = words
            .chunks_exact(3)
            .map(|touch| Touch { range: touch[0]..touch[0] + touch[1], write: touch[2] == 1 });
        self.op("launch", stream, touches.collect())
    }
}

// SAFETY: nothing is implemented.
unsafe impl Graphs for Paper {}

/// The one kernel of the paper device.
pub(crate) fn kernel(device: &Device) -> Kernel {
    let images = [Image { backend: device.info().backend, targets: &["paper"], bytes: b"paper" }];
    let source = ModuleSource { name: "paper", images: &images, source: None };
    // SAFETY: the driver is a fake that runs nothing.
    unsafe { device.load_module(&source) }.unwrap().kernel("touch").unwrap()
}
