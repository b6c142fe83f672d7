//! A device that takes everything and does nothing, at once.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpustream::hal::{
    Backend, Buffers, Copy3d, DefaultStream, Device, DeviceInfo, Error, EventOptions, Events, FillPattern,
    FunctionInfo, GraphNode, Graphs, HostFn, HostPtr, Image, Launch, LaunchConfig, Modules, ParamInfo,
    PinnedOptions, Probe, RawBuffer, RawEvent, RawFunction, RawGraph, RawGraphExec, RawGraphNode, RawModule,
    RawStream, Result, StreamOptions, Streams, Work,
};
use gpustream::{DeviceOptions, Kernel, ModuleSource};

struct Null(DeviceInfo);

struct NullBackend;

// SAFETY: each opening makes a device of its own.
unsafe impl Backend for NullBackend {
    fn name(&self) -> &'static str {
        "null"
    }
    fn device_count(&self) -> Result<usize> {
        Ok(1)
    }
    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(Null(DeviceInfo::new("null", ordinal))))
    }
    fn probe(&self) -> Probe {
        Probe::default()
    }
}

pub(crate) fn device() -> gpustream::Device {
    gpustream::Device::open_on(&NullBackend, 0, DeviceOptions::default()).unwrap()
}

/// A kernel that takes what it is given.
pub(crate) fn kernel(device: &gpustream::Device) -> Kernel {
    let images = &[Image { backend: "null", targets: &["any"], bytes: &[] }];
    let source = ModuleSource { name: "null", images, source: None };
    // SAFETY: the driver is a fake that runs nothing.
    unsafe { device.load_module(&source) }.unwrap().kernel("any").unwrap()
}

// SAFETY: nothing ever runs, so everything is done and nothing touches memory.
unsafe impl Streams for Null {
    fn stream_create(&self, _: StreamOptions) -> Result<RawStream> {
        Ok(RawStream(1))
    }
    unsafe fn stream_destroy(&self, _: RawStream) -> Result<()> {
        Ok(())
    }
    fn stream_default(&self, _: DefaultStream) -> Result<RawStream> {
        Err(Error::unsupported("that"))
    }
    unsafe fn stream_query(&self, _: RawStream) -> Result<bool> {
        Ok(true)
    }
    unsafe fn stream_synchronize(&self, _: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn stream_wait_event(&self, _: RawStream, _: RawEvent) -> Result<()> {
        Ok(())
    }
    unsafe fn stream_host_fn(&self, _: RawStream, _: HostFn, _: *mut c_void) -> Result<()> {
        Ok(())
    }
}

// SAFETY: nothing ever runs, so everything is done and nothing touches memory.
unsafe impl Events for Null {
    fn event_create(&self, _: EventOptions) -> Result<RawEvent> {
        Ok(RawEvent(1))
    }
    unsafe fn event_destroy(&self, _: RawEvent) -> Result<()> {
        Ok(())
    }
    unsafe fn event_record(&self, _: RawEvent, _: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn event_query(&self, _: RawEvent) -> Result<bool> {
        Ok(true)
    }
    unsafe fn event_synchronize(&self, _: RawEvent) -> Result<()> {
        Ok(())
    }
    unsafe fn event_elapsed(&self, _: RawEvent, _: RawEvent) -> Result<Duration> {
        Err(Error::unsupported("that"))
    }
}

// SAFETY: the memory it hands out is there for good, and nothing ever runs that would touch it.
unsafe impl Buffers for Null {
    fn alloc(&self, _: usize) -> Result<RawBuffer> {
        static NEXT: AtomicUsize = AtomicUsize::new(4096);
        Ok(RawBuffer(NEXT.fetch_add(1 << 30, Ordering::Relaxed)))
    }
    unsafe fn free(&self, _: RawBuffer) -> Result<()> {
        Ok(())
    }
    fn pinned_alloc(&self, _: usize, _: PinnedOptions) -> Result<HostPtr> {
        Err(Error::unsupported("that"))
    }
    unsafe fn pinned_free(&self, _: HostPtr) -> Result<()> {
        Err(Error::unsupported("that"))
    }
    unsafe fn pinned_device_address(&self, _: HostPtr) -> Result<RawBuffer> {
        Err(Error::unsupported("that"))
    }
    unsafe fn fill(&self, _: RawBuffer, _: FillPattern, _: usize, _: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn copy_to_device(&self, _: RawBuffer, _: *const u8, _: usize, _: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn copy_to_host(&self, _: HostPtr, _: RawBuffer, _: usize, _: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn copy_on_device(&self, _: RawBuffer, _: RawBuffer, _: usize, _: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn copy_3d(&self, _: &Copy3d, _: RawStream) -> Result<()> {
        Ok(())
    }
}

// SAFETY: nothing ever runs, so everything is done and nothing touches memory.
unsafe impl Modules for Null {
    fn target_rank(&self, _: &str) -> Option<u32> {
        Some(1)
    }
    unsafe fn module_load(&self, _: &[u8]) -> Result<RawModule> {
        Ok(RawModule(1))
    }
    unsafe fn module_unload(&self, _: RawModule) -> Result<()> {
        Ok(())
    }
    unsafe fn module_function(&self, _: RawModule, _: &str) -> Result<RawFunction> {
        Ok(RawFunction(1))
    }
    unsafe fn function_params(&self, _: RawFunction) -> Result<Option<Vec<ParamInfo>>> {
        Ok(None)
    }
    unsafe fn function_info(&self, _: RawFunction) -> Result<FunctionInfo> {
        Ok(FunctionInfo::default())
    }
}

// SAFETY: nothing ever runs, so everything is done and nothing touches memory.
unsafe impl Launch for Null {
    unsafe fn launch(&self, _: RawFunction, _: &LaunchConfig, _: &[*mut c_void], _: RawStream) -> Result<()> {
        Ok(())
    }
}

// SAFETY: no graph ever runs.
unsafe impl Graphs for Null {
    unsafe fn capture_begin(&self, _: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn capture_end(&self, _: RawStream) -> Result<RawGraph> {
        Ok(RawGraph(1))
    }
    fn graph_create(&self) -> Result<RawGraph> {
        Ok(RawGraph(1))
    }
    unsafe fn graph_add_node(
        &self,
        _: RawGraph,
        _: &[RawGraphNode],
        _: &GraphNode<'_>,
    ) -> Result<RawGraphNode> {
        Ok(RawGraphNode(1))
    }
    unsafe fn graph_size(&self, _: RawGraph) -> Result<(usize, usize)> {
        Ok((1, 0))
    }
    unsafe fn graph_destroy(&self, _: RawGraph) -> Result<()> {
        Ok(())
    }
    unsafe fn graph_instantiate(&self, _: RawGraph) -> Result<RawGraphExec> {
        Ok(RawGraphExec(1))
    }
    unsafe fn graph_launch(&self, _: RawGraphExec, _: RawStream) -> Result<()> {
        Ok(())
    }
    unsafe fn graph_set_node(&self, _: RawGraphExec, _: RawGraphNode, _: &Work<'_>) -> Result<()> {
        Ok(())
    }
    unsafe fn graph_exec_destroy(&self, _: RawGraphExec) -> Result<()> {
        Ok(())
    }
}

// SAFETY: the facts are constant, and nothing ever runs that would have to be waited for.
unsafe impl Device for Null {
    fn info(&self) -> &DeviceInfo {
        &self.0
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
    fn memory(&self) -> Result<(u64, u64)> {
        Ok((0, 0))
    }
}
