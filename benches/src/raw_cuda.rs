//! The driver itself, called as a careful C programmer would: we make everything beforehand, and an operation is one
//! call. This is the baseline that we must not be much slower than.

mod handles;

use std::ffi::{c_longlong, c_void};
use std::ptr;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, ensure};
use cudarc::driver::sys::{self, CUdeviceptr, CUfunction, CUgraphNode};
use gpustream::Device;

use crate::case::{Case, PAGE, PAGES, Set, Source, Step, Together};
use crate::kernels::Kernels;
use crate::measure::{Contender, Queue, Sampler, call_time, microseconds, nanoseconds, part, rate, tail};
use crate::mix;
use crate::ours::{FEW, SPIN_TICKS};
use crate::pipeline::{PIECES, ROUNDS as PIPELINE_ROUNDS};
use crate::rounds::ROUNDS;
use crate::steps::whole;

use handles::{Event, Graph, Memory, Pinned, Stream, driver};

/// The column's title.
pub(crate) const NAME: &str = "raw";

/// The driver, with kernels that gpustream loaded: both use the same handles.
pub(crate) struct RawCuda {
    kernels: Rc<Functions>,
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Whether the driver has a call for several copies, which is also the call that copies inline.
    takes_batches: bool,
    has_conditions: bool,
}

struct Functions {
    four: CUfunction,
    saxpy_plain: CUfunction,
    spin: CUfunction,
    add_one: CUfunction,
    add_sum: CUfunction,
    begin_rounds: CUfunction,
    one_round_of_graph: CUfunction,
    multiprocessors: u32,
    /// Keeps the functions loaded.
    _module: Kernels,
}

impl RawCuda {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        // SAFETY: the function only asks whether the library opens, and it did for gpustream.
        ensure!(unsafe { sys::is_culib_present() }, "cudarc does not find the driver's library");
        let module = Kernels::load(device)?;
        let function = |name| module.module().kernel(name).map(|kernel| kernel.as_raw().0 as CUfunction);
        let kernels = Functions {
            four: function("four")?,
            saxpy_plain: function("saxpy_plain")?,
            spin: function("spin")?,
            add_one: function("add_one")?,
            add_sum: function("add_sum")?,
            begin_rounds: function("begin_rounds")?,
            one_round_of_graph: function("one_round_of_graph")?,
            multiprocessors: device.info().multiprocessors,
            _module: module,
        };
        let (mut handle, mut context) = (0, ptr::null_mut());
        driver!(cuDeviceGet(&raw mut handle, device.info().ordinal as i32))?;
        driver!(cuDevicePrimaryCtxRetain(&raw mut context, handle))?;
        driver!(cuCtxSetCurrent(context))?;
        let (takes_batches, has_conditions) =
            (device.info().limits.inline_copies > 0, device.info().features.conditional_nodes);
        Ok(Self { kernels: Rc::new(kernels), device: handle, context, takes_batches, has_conditions })
    }
}

impl Contender for RawCuda {
    fn name(&self) -> &'static str {
        NAME
    }

    fn prepare(&self, case: Case) -> Result<Option<Sampler>> {
        // Another contender may have left another context current.
        driver!(cuCtxSetCurrent(self.context))?;
        let stream = Stream::new()?;
        let kernels = self.kernels.clone();
        Ok(Some(match case {
            Case::Launch | Case::External => {
                let arrays = Memory::new(8 * FEW)?;
                let y = 4 * FEW as u64;
                call_time(200, stream, move |stream| kernels.four(stream, arrays.raw(), arrays.raw() + y))
            }
            Case::HandOver => hand_over(kernels, stream)?,
            Case::Record => {
                let event = Event::new()?;
                call_time(1000, stream, move |stream| driver!(cuEventRecord(event.raw(), stream.raw())))
            }
            Case::StreamQuery => call_time(1000, stream, |stream| driver!(cuStreamQuery(stream.raw()))),
            Case::EventQuery => {
                let event = Event::new()?;
                driver!(cuEventRecord(event.raw(), stream.raw()))?;
                stream.finish()?;
                call_time(1000, stream, move |_| driver!(cuEventQuery(event.raw())))
            }
            Case::AllocFree(bytes) => {
                keep_freed_memory(self.device)?;
                call_time(1000, stream, move |stream| {
                    let mut address = 0;
                    driver!(cuMemAllocAsync(&raw mut address, bytes, stream.raw()))?;
                    driver!(cuMemFreeAsync(address, stream.raw()))
                })
            }
            Case::AllocMix(count) => {
                keep_freed_memory(self.device)?;
                alloc_mix(count)?
            }
            Case::KernelAndWait | Case::KernelAndAwait => Box::new(move || kernels.spin_and_wait(&stream)),
            Case::KernelAndAwaitTail => Box::new(move || tail(|| kernels.spin_and_wait(&stream))),
            Case::Futures(count) => events(kernels, stream, count)?,
            Case::GraphLaunch(nodes) => graph_launch(&kernels, stream, nodes)?,
            Case::GraphSet(set) => graph_set(kernels, stream, set)?,
            Case::Round if self.has_conditions => decided(kernels, self.context, stream)?,
            Case::Step(step) => match raw_step(step, kernels, stream)? {
                Some(sampler) => sampler,
                None => return Ok(None),
            },
            Case::Upload(bytes) | Case::Download(bytes) => {
                let mut values = vec![1u8; bytes];
                copy(stream, bytes, matches!(case, Case::Upload(_)), move || values.as_mut_ptr().cast())?
            }
            Case::PinnedUpload(bytes) | Case::PinnedDownload(bytes) => {
                let memory = Pinned::new(bytes)?;
                copy(stream, bytes, matches!(case, Case::PinnedUpload(_)), move || memory.raw())?
            }
            Case::Pages(_, Together::Batch) if !self.takes_batches => return Ok(None),
            Case::Pages(Source::Pinned, together) => {
                let memory = Pinned::new(2 * PAGES * PAGE)?;
                pages(stream, together, true, move || memory.raw().addr() as CUdeviceptr)?
            }
            Case::Pages(Source::Device, together) => {
                let memory = Memory::new(2 * PAGES * PAGE)?;
                pages(stream, together, false, move || memory.raw())?
            }
            Case::DeviceCopy(bytes) => device_copy(stream, bytes)?,
            // A copy runs at the rate that a kernel with as many reads and writes could reach.
            Case::Sum(n) | Case::Dot(n) => device_copy(stream, 4 * n)?,
            Case::Transpose(side) => device_copy(stream, 4 * side * side)?,
            Case::Saxpy(n) => {
                let (x, y) = (Memory::new(4 * n)?, Memory::new(4 * n)?);
                rate(3 * 4 * n, stream, move |stream| kernels.saxpy_plain(stream, x.raw(), y.raw(), n))
            }
            Case::Pipeline(size) => pipeline(kernels, stream, size)?,
            Case::Round | Case::Add(_) | Case::Barrier | Case::Meeting(_) => return Ok(None),
        }))
    }
}

fn alloc_mix(count: usize) -> Result<Sampler> {
    let streams = (0..mix::STREAMS).map(|_| Stream::new()).collect::<Result<Vec<_>>>()?;
    let steps = mix::steps(count);
    Ok(Box::new(move || {
        // Each allocation's address, and the stream that can free it in its order.
        let mut live: Vec<Option<(CUdeviceptr, usize)>> = vec![None; mix::LIVE];
        let free = |held: Option<(CUdeviceptr, usize)>| match held {
            Some((address, stream)) => driver!(cuMemFreeAsync(address, streams[stream].raw())),
            None => Ok(()),
        };
        let start = Instant::now();
        for step in &steps {
            free(live[step.slot].take())?;
            let mut address = 0;
            driver!(cuMemAllocAsync(&raw mut address, step.bytes, streams[step.stream].raw()))?;
            live[step.slot] = Some((address, step.stream));
        }
        let time = start.elapsed();
        live.into_iter().try_for_each(free)?;
        streams.iter().try_for_each(Stream::finish)?;
        Ok(time.as_secs_f64() * 1e9 / steps.len() as f64)
    }))
}

impl Functions {
    fn launch(function: CUfunction, blocks: u32, stream: &Stream, args: &mut [*mut c_void]) -> Result<()> {
        let (stream, args, none) = (stream.raw(), args.as_mut_ptr(), ptr::null_mut());
        driver!(cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, args, none))
    }

    fn four(&self, stream: &Stream, x: CUdeviceptr, y: CUdeviceptr) -> Result<()> {
        let (mut a, mut x, mut y, mut n) = (3.0f32, x, y, FEW);
        let mut args = [any(&mut a), any(&mut x), any(&mut y), any(&mut n)];
        Self::launch(self.four, 1, stream, &mut args)
    }

    fn saxpy_plain(&self, stream: &Stream, x: CUdeviceptr, y: CUdeviceptr, n: usize) -> Result<()> {
        let (mut a, mut x, mut y, mut n) = (3.0f32, x, y, n);
        let blocks = n.div_ceil(256) as u32;
        let mut args = [any(&mut a), any(&mut x), any(&mut y), any(&mut n)];
        Self::launch(self.saxpy_plain, blocks, stream, &mut args)
    }

    fn spin(&self, stream: &Stream) -> Result<()> {
        let mut ticks: c_longlong = SPIN_TICKS;
        let (stream, mut args) = (stream.raw(), [any(&mut ticks)]);
        driver!(cuLaunchKernel(self.spin, 1, 1, 1, 1, 1, 1, 0, stream, args.as_mut_ptr(), ptr::null_mut()))
    }

    fn spin_and_wait(&self, stream: &Stream) -> Result<f64> {
        microseconds(|| {
            self.spin(stream)?;
            stream.finish()
        })
    }

    fn pipeline_step(&self, stream: &Stream, a: CUdeviceptr, b: CUdeviceptr, n: usize) -> Result<()> {
        let (mut a, mut b, mut n) = (a, b, n);
        // The kernels loop over elements that the grid does not cover.
        let blocks = (n.div_ceil(512) as u32).clamp(1, 8 * self.multiprocessors);
        Self::launch(self.add_one, blocks, stream, &mut [any(&mut a), any(&mut n)])?;
        Self::launch(self.add_sum, blocks, stream, &mut [any(&mut a), any(&mut b), any(&mut n)])
    }
}

fn any<T>(value: &mut T) -> *mut c_void {
    (&raw mut *value).cast()
}

fn hand_over(kernels: Rc<Functions>, a: Stream) -> Result<Sampler> {
    let (b, arrays) = (Stream::new()?, Memory::new(12 * FEW)?);
    let (written, read) = (Event::new()?, Event::new()?);
    let [x, y, z] = [0, 1, 2].map(|number| arrays.raw() + 4 * number * FEW as u64);
    let turn = move |[a, b]: &[Stream; 2]| {
        let _keep = &arrays;
        kernels.four(a, x, y)?;
        driver!(cuEventRecord(written.raw(), a.raw()))?;
        driver!(cuStreamWaitEvent(b.raw(), written.raw(), 0))?;
        kernels.four(b, y, z)?;
        driver!(cuEventRecord(read.raw(), b.raw()))?;
        driver!(cuStreamWaitEvent(a.raw(), read.raw(), 0))
    };
    Ok(part(2, call_time(100, [a, b], turn)))
}

fn graph_launch(kernels: &Functions, stream: Stream, nodes: usize) -> Result<Sampler> {
    let arrays = Memory::new(8 * FEW)?;
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    driver!(cuStreamBeginCapture_v2(stream.raw(), mode))?;
    for _ in 0..nodes {
        kernels.four(&stream, arrays.raw(), arrays.raw() + 4 * FEW as u64)?;
    }
    let mut graph = ptr::null_mut();
    driver!(cuStreamEndCapture(stream.raw(), &raw mut graph))?;
    let graph = Graph::instantiate(graph)?;
    driver!(cuGraphUpload(graph.exec(), stream.raw()))?;
    let launch = move |stream: &Stream| {
        // The nodes refer to the arrays.
        let _keep = &arrays;
        driver!(cuGraphLaunch(graph.exec(), stream.raw()))
    };
    Ok(part(nodes, call_time((500 / nodes).max(5), stream, launch)))
}

/// Measures `count` events, and waits for each.
fn events(kernels: Rc<Functions>, stream: Stream, count: usize) -> Result<Sampler> {
    let events = (0..count).map(|_| Event::new()).collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move || {
        for _ in 0..count.div_ceil(10) {
            kernels.spin(&stream)?;
        }
        for event in &events {
            driver!(cuEventRecord(event.raw(), stream.raw()))?;
        }
        let mut waits = events.iter().map(|event| driver!(cuEventSynchronize(event.raw())));
        waits.next().transpose()?;
        nanoseconds(count - 1, || waits.next().transpose().map(drop), || Ok(()))
    }))
}

fn graph_set(kernels: Rc<Functions>, stream: Stream, set: Set) -> Result<Sampler> {
    let arrays = [Memory::new(8 * FEW)?, Memory::new(8 * FEW)?];
    let mut graph = ptr::null_mut();
    driver!(cuGraphCreate(&raw mut graph, 0))?;
    let node = kernels.add_four(graph, &[], 3.0, &arrays[0])?;
    let graph = Graph::instantiate(graph)?;
    let mut at = 0;
    let set_and_launch = move |stream: &Stream| {
        if set == Set::Memory {
            at = 1 - at;
        }
        kernels.set_four(&graph, node, 4.0, &arrays[at])?;
        driver!(cuGraphLaunch(graph.exec(), stream.raw()))
    };
    Ok(call_time(200, stream, set_and_launch))
}

impl Functions {
    /// Calls `call` with the kernel `four` for a node.
    fn four_params(
        &self,
        a: f32,
        arrays: &Memory,
        call: impl FnOnce(*const sys::CUDA_KERNEL_NODE_PARAMS) -> Result<()>,
    ) -> Result<()> {
        let (mut a, mut x, mut y, mut n) = (a, arrays.raw(), arrays.raw() + 4 * FEW as u64, FEW);
        let mut args = [any(&mut a), any(&mut x), any(&mut y), any(&mut n)];
        let params = params(self.four, 256, &mut args);
        call(&raw const params)
    }

    fn add_four(
        &self,
        graph: sys::CUgraph,
        after: &[CUgraphNode],
        a: f32,
        arrays: &Memory,
    ) -> Result<CUgraphNode> {
        let mut node = ptr::null_mut();
        self.four_params(a, arrays, |params| {
            driver!(cuGraphAddKernelNode_v2(&raw mut node, graph, after.as_ptr(), after.len(), params))
        })?;
        Ok(node)
    }

    fn set_four(&self, graph: &Graph, node: CUgraphNode, a: f32, arrays: &Memory) -> Result<()> {
        let set = |params| driver!(cuGraphExecKernelNodeSetParams_v2(graph.exec(), node, params));
        self.four_params(a, arrays, set)
    }
}

/// Returns a node's description, which refers to `args`.
fn params(function: CUfunction, threads: u32, args: &mut [*mut c_void]) -> sys::CUDA_KERNEL_NODE_PARAMS {
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: args.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// Measures a step as a graph that we make beforehand. Steps that allocate have none, because a graph cannot contain
/// allocations of a stream.
fn raw_step(step: Step, kernels: Rc<Functions>, stream: Stream) -> Result<Option<Sampler>> {
    let mut graph = ptr::null_mut();
    driver!(cuGraphCreate(&raw mut graph, 0))?;
    match step {
        Step::Temporaries => {
            driver!(cuGraphDestroy(graph))?;
            return Ok(None);
        }
        Step::Apart => {
            for _ in 0..Step::APART {
                let (mut ticks, mut node): (c_longlong, CUgraphNode) = (SPIN_TICKS, ptr::null_mut());
                let mut args = [any(&mut ticks)];
                let params = params(kernels.spin, 1, &mut args);
                driver!(cuGraphAddKernelNode_v2(&raw mut node, graph, ptr::null(), 0, &raw const params))?;
            }
            let graph = Graph::instantiate(graph)?;
            return Ok(Some(Box::new(move || {
                // The nodes refer to the module.
                let _keep = &kernels;
                microseconds(|| {
                    driver!(cuGraphLaunch(graph.exec(), stream.raw()))?;
                    stream.finish()
                })
            })));
        }
        _ => {}
    }
    let arrays = Memory::new(8 * FEW)?;
    let mut nodes: Vec<CUgraphNode> = Vec::new();
    for _ in 0..Step::KERNELS {
        let before = nodes.last().copied();
        nodes.push(kernels.add_four(graph, before.as_slice(), 3.0, &arrays)?);
    }
    let graph = Graph::instantiate(graph)?;
    driver!(cuGraphUpload(graph.exec(), stream.raw()))?;
    let mut value = 3.0;
    let call = move |stream: &Stream| {
        if step.has_new_values() {
            value += 1.0;
            nodes.iter().try_for_each(|&node| kernels.set_four(&graph, node, value, &arrays))?;
        }
        driver!(cuGraphLaunch(graph.exec(), stream.raw()))
    };
    let sampler = if step.is_whole() { whole(stream, call) } else { call_time(Step::RUNS, stream, call) };
    Ok(Some(part(Step::KERNELS, sampler)))
}

/// Measures a round of a loop in a graph. Its kernel sets the driver's condition itself.
fn decided(kernels: Rc<Functions>, context: sys::CUcontext, stream: Stream) -> Result<Sampler> {
    let (memory, mut rounds) = (Memory::new(8)?, ROUNDS);
    let (mut left, mut go_on) = (memory.raw(), memory.raw() + 4);
    let (mut graph, mut begin, mut node, mut condition) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0);
    driver!(cuGraphCreate(&raw mut graph, 0))?;
    let mut args = [any(&mut left), any(&mut go_on), any(&mut rounds)];
    let first = params(kernels.begin_rounds, 1, &mut args);
    driver!(cuGraphAddKernelNode_v2(&raw mut begin, graph, ptr::null(), 0, &raw const first))?;
    let at_launch = sys::CU_GRAPH_COND_ASSIGN_DEFAULT;
    driver!(cuGraphConditionalHandleCreate(&raw mut condition, graph, context, 1, at_launch))?;
    // SAFETY: a C struct with integers and pointers, which can all be zero.
    let mut conditional: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
    conditional.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    conditional.__bindgen_anon_1.conditional = sys::CUDA_CONDITIONAL_NODE_PARAMS {
        handle: condition,
        type_: sys::CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
        size: 1,
        phGraph_out: ptr::null_mut(),
        ctx: context,
    };
    driver!(cuGraphAddNode(&raw mut node, graph, &raw const begin, 1, &raw mut conditional))?;
    // SAFETY: the driver has written the address of its array, which has one body.
    let body = unsafe { *conditional.__bindgen_anon_1.conditional.phGraph_out };
    let mut args = [any(&mut left), any(&mut condition)];
    let round = params(kernels.one_round_of_graph, 1, &mut args);
    driver!(cuGraphAddKernelNode_v2(&raw mut node, body, ptr::null(), 0, &raw const round))?;
    let graph = Graph::instantiate(graph)?;
    let whole = Box::new(move || {
        // The nodes refer to both.
        let _keep = (&kernels, &memory);
        microseconds(|| {
            driver!(cuGraphLaunch(graph.exec(), stream.raw()))?;
            stream.finish()
        })
    });
    Ok(part(ROUNDS as usize, whole))
}

/// Copies between the device and the host's memory at `address`, ordinary or pinned.
fn copy(
    stream: Stream,
    bytes: usize,
    to_device: bool,
    mut address: impl FnMut() -> *mut c_void + 'static,
) -> Result<Sampler> {
    let device = Memory::new(bytes)?;
    Ok(rate(bytes, stream, move |stream| {
        if to_device {
            driver!(cuMemcpyHtoDAsync_v2(device.raw(), address(), bytes, stream.raw()))
        } else {
            driver!(cuMemcpyDtoHAsync_v2(address(), device.raw(), bytes, stream.raw()))
        }
    }))
}

/// Copies every other page of the pinned or device memory at `from`.
fn pages(
    stream: Stream,
    together: Together,
    pinned: bool,
    from: impl Fn() -> CUdeviceptr + 'static,
) -> Result<Sampler> {
    let to = Memory::new(PAGES * PAGE)?;
    let mut dsts: Vec<_> = (0..PAGES).map(|page| to.raw() + (page * PAGE) as u64).collect();
    let mut srcs: Vec<_> = (0..PAGES).map(|page| from() + (2 * page * PAGE) as u64).collect();
    let mut sizes = vec![PAGE; PAGES];
    let nowhere = sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, id: 0 };
    let mut attributes = sys::CUmemcpyAttributes {
        srcAccessOrder: sys::CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        srcLocHint: nowhere,
        dstLocHint: nowhere,
        flags: 0,
    };
    Ok(rate(PAGES * PAGE, stream, move |stream| {
        // The addresses belong to this memory.
        let _keep = (&to, &from);
        if together == Together::OneByOne {
            return dsts.iter().zip(&srcs).try_for_each(|(&dst, &src)| {
                if pinned {
                    driver!(cuMemcpyHtoDAsync_v2(dst, src as *const c_void, PAGE, stream.raw()))
                } else {
                    driver!(cuMemcpyDtoDAsync_v2(dst, src, PAGE, stream.raw()))
                }
            });
        }
        let (mut first, mut failed) = (0, 0);
        driver!(cuMemcpyBatchAsync(
            dsts.as_mut_ptr(),
            srcs.as_mut_ptr(),
            sizes.as_mut_ptr(),
            PAGES,
            &raw mut attributes,
            &raw mut first,
            1,
            &raw mut failed,
            stream.raw(),
        ))
    }))
}

fn device_copy(stream: Stream, bytes: usize) -> Result<Sampler> {
    let (from, to) = (Memory::new(bytes)?, Memory::new(bytes)?);
    Ok(rate(2 * bytes, stream, move |stream| {
        driver!(cuMemcpyDtoDAsync_v2(to.raw(), from.raw(), bytes, stream.raw()))
    }))
}

fn pipeline(kernels: Rc<Functions>, stream: Stream, size: usize) -> Result<Sampler> {
    let streams = [stream, Stream::new()?];
    let host = [Pinned::new(8 * size)?, Pinned::new(8 * size)?];
    let arrays = [Memory::new(8 * size)?, Memory::new(8 * size)?];
    let piece = size.div_ceil(PIECES);
    Ok(Box::new(move || {
        let start = Instant::now();
        for _ in 0..PIPELINE_ROUNDS {
            for number in 0..PIECES {
                let stream = &streams[number % 2];
                let first = number * piece;
                let n = piece.min(size - first);
                let [a, b] = [0, 1].map(|array| arrays[array].raw() + 8 * first as u64);
                let [host_a, host_b] = [0, 1].map(|array| host[array].raw().wrapping_byte_add(8 * first));
                driver!(cuMemcpyHtoDAsync_v2(a, host_a, 8 * n, stream.raw()))?;
                driver!(cuMemcpyHtoDAsync_v2(b, host_b, 8 * n, stream.raw()))?;
                kernels.pipeline_step(stream, a, b, n)?;
                driver!(cuMemcpyDtoHAsync_v2(host_a, a, 8 * n, stream.raw()))?;
                driver!(cuMemcpyDtoHAsync_v2(host_b, b, 8 * n, stream.raw()))?;
            }
        }
        streams.iter().try_for_each(Stream::finish)?;
        Ok(start.elapsed().as_secs_f64())
    }))
}

/// Tells the driver's pool to keep freed memory, as you would if you allocate often.
fn keep_freed_memory(device: sys::CUdevice) -> Result<()> {
    let (mut pool, mut all) = (ptr::null_mut(), u64::MAX);
    driver!(cuDeviceGetDefaultMemPool(&raw mut pool, device))?;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    driver!(cuMemPoolSetAttribute(pool, attribute, (&raw mut all).cast()))
}
