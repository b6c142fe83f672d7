//! Makes every call that a program can make. Tests use it at places where the calls must be refused.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use gpustream::hal::{RawEvent, RawGraph, RawModule};
use gpustream::{
    Array, ArrayShape, Buffer, CopyBatch, DefaultStream, Device, Error, ErrorKind, Event, Flag, Graph,
    GraphBuilder, Kernel, Location, Managed, ManagedAdvice, ModuleSource, Node, Piece, Pinned, Pitched,
    Result, Stream, Synchronize, TextureOptions, TimedEvent, ViewMut, WaitValue,
};

use crate::executor::{is_pending, poll};
use crate::sync;

const N: usize = 1000;

/// The objects whose methods a test calls. Their work is pending on `stream`.
pub struct Toolbox {
    device: Device,
    stream: Arc<Stream>,
    other: Stream,
    x: Buffer<u32>,
    y: Buffer<u32>,
    host: Pinned<u32>,
    flag: Flag,
    graph: Graph,
    builder: Option<GraphBuilder>,
    built: (Graph, Node),
    managed: Option<Managed<u32>>,
    arrays: Option<[Array<u32>; 2]>,
    kernels: Option<(sync::Kernels, Kernel)>,
    behind: Option<Behind>,
}

/// Events and futures of the pending work.
#[derive(Debug)]
struct Behind {
    event: Event,
    timed: TimedEvent,
    finished: Synchronize,
    polled: Synchronize,
}

/// Names of calls. If a call failed, its error's kind comes with it.
pub type Answers = Vec<(&'static str, Option<ErrorKind>)>;

impl Toolbox {
    /// Makes the objects.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn new(device: &Device, stream: &Arc<Stream>) -> Result<Self> {
        let mut x = stream.full(N, 1u32)?;
        let y = stream.full(N, 2u32)?;
        let graph = stream.capture(|s| s.fill(&mut x, 3))?;
        let mut builder = device.graph_builder()?;
        let node = builder.node(&[], |s| s.fill(&mut x, 3))?;
        Ok(Self {
            builder: Some(device.graph_builder()?),
            built: (builder.build()?, node),
            managed: device.info().features.managed_memory.then(|| device.managed(N)).transpose()?,
            arrays: (device.info().features.textures)
                .then(|| {
                    let shape = ArrayShape::new_1d(N);
                    Ok::<_, Error>([stream.upload_array(&[1; N], shape)?, device.array(shape)?])
                })
                .transpose()?,
            kernels: None,
            other: device.stream()?,
            x,
            y,
            host: device.pinned(N)?,
            flag: device.flag()?,
            graph,
            behind: None,
            device: device.clone(),
            stream: stream.clone(),
        })
    }

    /// Adds kernels. Only a real device can load them, so tests on fake drivers leave this out.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn load_kernels(&mut self) -> Result<()> {
        let kernels = sync::Kernels::load(&self.device)?;
        let step = kernels.module().kernel("step")?;
        self.kernels = Some((kernels, step));
        Ok(())
    }

    /// Submits work that uses all the objects. Call it after you have submitted the closure that calls
    /// [`Self::call_everything`], so that the work is still pending when the closure runs.
    ///
    /// # Errors
    /// The errors of the device.
    ///
    /// # Panics
    /// If the work is done at once.
    pub fn submit(&mut self) -> Result<()> {
        self.stream.copy(&self.y, &mut self.host)?;
        self.graph.launch(&self.stream)?;
        let mut polled = self.stream.synchronize_async();
        assert!(is_pending(&mut polled), "the work is not pending");
        self.behind = Some(Behind {
            event: self.stream.record()?,
            timed: self.stream.record_timed()?,
            finished: self.stream.synchronize_async(),
            polled,
        });
        Ok(())
    }

    /// Makes every call that would need the driver or would wait. The library must refuse each of them.
    ///
    /// # Panics
    /// If no work was submitted, or if the calls were made before.
    pub fn call_everything(&mut self) -> Answers {
        let Self { device, stream, other, x, y, host, graph, behind, .. } = self;
        let (built, node) = &mut self.built;
        let mut answers = Answers::new();
        let mut note = |what, outcome: Result<()>| answers.push((what, outcome.err().map(|e| e.kind())));
        note("Stream::synchronize", stream.synchronize());
        note("Stream::synchronize of another", other.synchronize());
        note("Stream::is_done", stream.is_done().map(drop));
        note("Stream::record", stream.record().map(drop));
        note("Stream::record_with", stream.record_with(gpustream::WaitPolicy::Block).map(drop));
        note("Stream::record_timed", stream.record_timed().map(drop));
        note("Stream::wait_for", other.wait_for(stream));
        note("Stream::wait_for itself", stream.wait_for(stream));
        note("Stream::alloc", stream.alloc::<u32>(N).map(drop));
        note("Stream::zeros", stream.zeros::<u32>(N).map(drop));
        note("Stream::upload", stream.upload(&[1u32; N]).map(drop));
        note("Stream::upload_into", stream.upload_into(&[1u32; N], x));
        note("Stream::room_async", finish(&mut stream.room_async()));
        note("Stream::upload_async", finish(&mut Box::pin(stream.upload_async(&[1u32; N]))));
        note("Stream::upload_into_async", finish(&mut Box::pin(stream.upload_into_async(&[1u32; N], x))));
        note("Synchronize::wait_timeout", stream.synchronize_async().wait_timeout(Duration::ZERO).map(drop));
        note("Stream::download", stream.download(y).map(drop));
        note("Stream::download_into", stream.download_into(y, &mut [0; N]));
        note("Stream::download_async", finish(&mut stream.download_async(y)));
        note("Stream::copy", other.copy(y, x));
        note("Stream::copy to pinned memory", other.copy(y, host));
        let mut batch = CopyBatch::new();
        note("Stream::copy_batch", batch.add(&*y, &mut *x).and_then(|()| other.copy_batch(batch)));
        note("Stream::fill", other.fill(x, 1));
        note("Stream::wait_flag", stream.wait_flag(&self.flag, WaitValue::Equal(0)));
        note("Stream::set_flag", stream.set_flag(&self.flag, 7));
        note("Stream::host_fn", stream.host_fn(|| ()));
        note("Stream::host_fn_repeat", stream.host_fn_repeat(|| ()));
        // SAFETY: nothing is enqueued, and the closure is not called.
        unsafe {
            note("Stream::external", stream.external("external", (), |_, ()| Ok(())));
            note("Stream::external_host", stream.external_host("external", (), |()| ()));
            note("Stream::external_parallel", stream.external_parallel("parts", (), 2, |_, ()| ()));
            note("Stream::wait_raw", stream.wait_raw(RawEvent(0)));
            note(
                "Buffer::from_raw",
                Buffer::<u32>::from_raw(stream, x.as_raw().as_mut_ptr(), N, ()).map(drop),
            );
            note(
                "Pinned::from_raw",
                Pinned::from_raw(device, std::ptr::dangling_mut::<u32>(), N, ()).map(drop),
            );
            note("Device::module_from_raw", device.module_from_raw(RawModule(0), "theirs", ()).map(drop));
        }
        note("Stream::capture", other.capture(|_| Ok(())).map(drop));
        note("Graph::launch", graph.launch(other));
        note("Graph::prepare", graph.prepare(other));
        note("Graph::update", graph.update(other, |_| Ok(())).map(drop));
        note("Device::stream", device.stream().map(drop));
        note("Device::default_stream", device.default_stream(DefaultStream::Legacy).map(drop));
        note("Device::pinned", device.pinned::<u32>(N).map(drop));
        note("Device::pinned_from", device.pinned_from(&[1u32; N]).map(drop));
        note("Device::flag", device.flag().map(drop));
        note("Device::register", device.register(vec![1u32; N]).map(drop));
        note("Device::synchronize", device.synchronize());
        note("Device::extension", device.extension(|_| Ok(())).map(drop));
        note("Device::memory", device.memory().map(drop));
        note("Device::open", Device::open(device.info().backend.as_str()).map(drop));
        note("Device::best", Device::best().map(drop));
        note("Device::all_of", Device::all_of(device.info().backend.as_str()).map(drop));
        note("Device::all", Device::all().into_iter().collect::<Result<Vec<_>>>().map(drop));
        let source = ModuleSource { name: "test", images: &[], globals: &[] };
        // SAFETY: the source has no image.
        note("Device::load_module", unsafe { device.load_module(&source) }.map(drop));
        let compile = device.compile("");
        note("Compile::build", compile.build().map(drop));
        note("Compile::build_async", finish(&mut compile.build_async()));
        note("Device::graph_builder", device.graph_builder().map(drop));
        let mut builder = self.builder.take().expect("the builder");
        note("GraphBuilder::node", builder.node(&[], |s| s.fill(x, 1)).map(drop));
        note("GraphBuilder::join", builder.join(&[]).map(drop));
        note("GraphBuilder::child", builder.child(&[], graph).map(drop));
        // SAFETY: the library refuses the call before it looks at the graph.
        let theirs = unsafe { builder.child_from_raw(&[], "theirs", &[], RawGraph(0)) };
        note("GraphBuilder::child_from_raw", theirs.map(drop));
        note("GraphBuilder::build", builder.build().map(drop));
        note("Graph::set_node", built.set_node(*node, |s| s.fill(x, 1)));
        let rows = Pitched::new_2d(10);
        note("Stream::copy_box", other.copy_box(y, rows, x, rows, [10, 10, 1]));
        let mut pipeline = device.pipeline().chunks(N / 10);
        note("Pipeline::streams", pipeline.streams().map(drop));
        note("Pipeline::in_place", pipeline.in_place([&mut *host], |_, _| Ok(())));
        let fill = |s: &Stream, piece: &mut Piece<'_, u32, u32>| s.copy(&piece.input, &mut piece.output);
        note("Pipeline::map", pipeline.map(&[1u32; N], &mut [0u32; N], fill));
        let source = |_: &mut [u32]| Ok::<_, Error>(1);
        note("Pipeline::run", pipeline.run(source, fill, |_, _| Ok(())).map(drop));
        let fill = |s: &Stream, piece: &mut ViewMut<'_, u32>| s.fill(piece, 1);
        note("Pipeline::generate", pipeline.generate(1, fill, |_, _| Ok::<_, Error>(())));
        if let Some(managed) = &self.managed {
            note("Device::managed", device.managed::<u32>(N).map(drop));
            note("Managed::advise", managed.advise(ManagedAdvice::ReadMostly));
            note("Stream::prefetch", other.prefetch(managed, Location::Device));
        }
        if let Some([array, second]) = &mut self.arrays {
            let shape = array.shape();
            note("Device::array", device.array::<u32>(shape).map(drop));
            note("Device::texel_buffer", device.texel_buffer::<u32>(N).map(drop));
            note("Array::texture", array.texture(TextureOptions::default()).map(drop));
            note("Array::surface", array.surface().map(drop));
            note("Stream::upload_array", stream.upload_array(&[1u32; N], shape).map(drop));
            note("Stream::copy_to_array", other.copy_to_array(y, array));
            note("Stream::copy_array", other.copy_array(array, second));
            note("Stream::copy_from_array", other.copy_from_array(array, x));
            note("Stream::download_array", stream.download_array(array).map(drop));
        }
        if let Some((kernels, step)) = &self.kernels {
            note("Kernel::launch", kernels.step(other, x, 1, N));
            note("Module::kernel", kernels.module().kernel("step").map(drop));
            note("Kernel::occupancy", step.occupancy(128, 0).map(drop));
            note("Kernel::suggested_launch", step.suggested_launch(0).map(drop));
        }
        note("Pinned::read", host.read().map(drop));
        note("Pinned::write", host.write().map(drop));
        note("Pinned::try_read", host.try_read().map(drop));
        note("Pinned::is_done", host.is_done().map(drop));
        note("Pinned::synchronize_async", finish(&mut host.synchronize_async()));
        let Behind { event, timed, finished, polled } = behind.as_mut().expect("submitted work");
        note("Event::synchronize", event.synchronize());
        note("Event::is_done", event.is_done().map(drop));
        note("Event::synchronize_async", finish(&mut event.synchronize_async()));
        note("TimedEvent::elapsed_since", timed.elapsed_since(timed).map(drop));
        note("Stream::wait", other.wait(event));
        note("Synchronize, made before", finish(finished));
        note("Synchronize, polled before", finish(polled));
        note("Stream::synchronize_async", finish(&mut stream.synchronize_async()));
        answers
    }

    /// Makes the calls that need neither the driver nor a wait. They must succeed everywhere.
    ///
    /// # Panics
    /// If one of the calls fails.
    pub fn call_the_harmless(&mut self) {
        let Self { device, flag, graph, x, .. } = self;
        flag.set(flag.get() + 1);
        assert_eq!(flag.get(), 1);
        assert!(device.memory_stats().used > 0);
        let _ = device.memory_snapshot().to_string();
        assert!(graph.dot().contains("fill"));
        assert!(x.slice(1..).is_ok_and(|part| part.len() == N - 1));
        device.trim();
    }
}

/// Polls once. If the future is pending we count that as success, because a wait for it might never end.
fn finish<T>(future: &mut (impl Future<Output = Result<T>> + Unpin)) -> Result<()> {
    match poll(future) {
        Poll::Ready(outcome) => outcome.map(drop),
        Poll::Pending => Ok(()),
    }
}
