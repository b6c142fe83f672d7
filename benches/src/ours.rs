//! gpustream, used only through its public interface, so you can get what we measure.

use std::ffi::c_void;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

use anyhow::{Result, ensure};
use gpustream::{AsView, Buffer, CopyBatch, Device, Launch, Stream, Synchronize};
use gpustream_kernels::reduce::Reduce as _;
use gpustream_kernels::{elementwise, matrix};
use smol::future::block_on;

use crate::case::{Case, PAGE, PAGES, Set, Source, Together};
use crate::kernels::Kernels;
use crate::measure::{Contender, Queue, Sampler, call_time, microseconds, nanoseconds, part, rate, tail};
use crate::pipeline::{PIECES, ROUNDS};
use crate::report::OURS;
use crate::{meetings, mix};
use crate::{rounds, steps};

/// The clock ticks of about 10 µs on a data-centre device.
pub(crate) const SPIN_TICKS: i64 = 18_000;

/// Elements in the arrays if only the launch counts.
pub(crate) const FEW: usize = 256;

/// gpustream on one device.
pub(crate) struct Ours {
    device: Device,
    kernels: Rc<Kernels>,
    elementwise: Rc<elementwise::Kernels>,
    matrix: Rc<matrix::Kernels>,
}

impl Ours {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            kernels: Rc::new(Kernels::load(device)?),
            elementwise: Rc::new(elementwise::Kernels::load(device)?),
            matrix: Rc::new(matrix::Kernels::load(device)?),
        })
    }
}

impl Queue for Stream {
    fn finish(&self) -> Result<()> {
        Ok(self.synchronize()?)
    }
}

impl Contender for Ours {
    fn name(&self) -> &'static str {
        OURS
    }

    fn prepare(&self, case: Case) -> Result<Option<Sampler>> {
        let (stream, kernels) = (self.device.stream()?, self.kernels.clone());
        Ok(Some(match case {
            Case::Launch => {
                let (x, mut y) = (stream.zeros::<f32>(FEW)?, stream.zeros::<f32>(FEW)?);
                call_time(200, stream, move |stream| kernels.four(stream, 3.0, &x, &mut y, FEW))
            }
            Case::External => external(&self.device, &kernels, stream)?,
            Case::HandOver => hand_over(kernels, stream, self.device.stream()?)?,
            Case::Record => call_time(1000, stream, |stream| stream.record().map(drop)),
            Case::StreamQuery => {
                stream.zeros::<f32>(FEW)?;
                stream.synchronize()?;
                call_time(1000, stream, |stream| stream.is_done().map(drop))
            }
            Case::EventQuery => {
                stream.zeros::<f32>(FEW)?;
                let event = stream.record()?;
                event.synchronize()?;
                call_time(1000, stream, move |_| event.is_done().map(drop))
            }
            Case::AllocFree(bytes) => {
                call_time(1000, stream, move |stream| stream.alloc::<u8>(bytes).map(drop))
            }
            Case::AllocMix(count) => alloc_mix(&self.device, count)?,
            Case::KernelAndWait => Box::new(move || {
                microseconds(|| {
                    spin(&kernels, &stream)?;
                    stream.finish()
                })
            }),
            Case::KernelAndAwait => Box::new(move || spin_and_await(&kernels, &stream)),
            Case::KernelAndAwaitTail => Box::new(move || tail(|| spin_and_await(&kernels, &stream))),
            Case::Futures(count) => futures(kernels, stream, count),
            Case::GraphLaunch(nodes) => graph_launch(&kernels, stream, nodes)?,
            Case::GraphSet(set) => graph_set(&self.device, kernels, stream, set)?,
            Case::Step(step) => {
                let mut replay = self.device.replay();
                steps::sampler(step, kernels, stream, move |stream, work| replay.run(stream, work))?
            }
            Case::Meeting(meeting) => meetings::on_device(&self.device, meeting)?,
            Case::Round => match rounds::decided(&self.device, kernels, stream)? {
                Some(sampler) => sampler,
                None => return Ok(None),
            },
            Case::Upload(bytes) => {
                let (values, mut buffer) = (vec![1u8; bytes], stream.alloc::<u8>(bytes)?);
                rate(bytes, stream, move |stream| stream.upload_into(&values, &mut buffer))
            }
            Case::Download(bytes) => {
                let (mut values, buffer) = (vec![1u8; bytes], stream.zeros::<u8>(bytes)?);
                rate(bytes, stream, move |stream| stream.download_into(&buffer, &mut values))
            }
            Case::PinnedUpload(bytes) => {
                let (pinned, mut buffer) = (self.device.pinned::<u8>(bytes)?, stream.alloc::<u8>(bytes)?);
                rate(bytes, stream, move |stream| stream.copy(&pinned, &mut buffer))
            }
            Case::PinnedDownload(bytes) => {
                let (mut pinned, buffer) = (self.device.pinned::<u8>(bytes)?, stream.zeros::<u8>(bytes)?);
                rate(bytes, stream, move |stream| stream.copy(&buffer, &mut pinned))
            }
            Case::Pages(source, together) => pages(&self.device, stream, source, together)?,
            Case::DeviceCopy(bytes) => {
                let (from, mut to) = (stream.zeros::<u8>(bytes)?, stream.alloc::<u8>(bytes)?);
                rate(2 * bytes, stream, move |stream| stream.copy(&from, &mut to))
            }
            Case::Saxpy(n) => {
                let (x, mut y) = (stream.full(n, 1.0f32)?, stream.full(n, 2.0f32)?);
                let kernels = self.elementwise.clone();
                rate(3 * 4 * n, stream, move |stream| kernels.axpy(stream, 3.0, &x, &mut y, n))
            }
            Case::Add(n) => {
                let (x, y, mut z) =
                    (stream.full(n, 1.0f32)?, stream.full(n, 2.0f32)?, stream.zeros::<f32>(n)?);
                let kernels = self.elementwise.clone();
                rate(3 * 4 * n, stream, move |stream| kernels.add(stream, &x, &y, &mut z, n))
            }
            Case::Sum(n) => {
                let x = stream.full(n, 1.0f32)?;
                rate(4 * n, stream, move |stream| stream.sum(&x).map(drop))
            }
            Case::Dot(n) => {
                let (x, y) = (stream.full(n, 1.0f32)?, stream.full(n, 2.0f32)?);
                rate(2 * 4 * n, stream, move |stream| stream.dot(&x, &y).map(drop))
            }
            Case::Transpose(side) => {
                let n = side * side;
                let (x, mut y) = (stream.full(n, 1.0f32)?, stream.alloc::<f32>(n)?);
                let kernels = self.matrix.clone();
                rate(2 * 4 * n, stream, move |stream| kernels.transpose(stream, &x, &mut y, side, side))
            }
            Case::Pipeline(size) => pipeline(&self.device, kernels, size)?,
            Case::Barrier => {
                let (mut out, count) = (stream.zeros::<u32>(256)?, 2000u32);
                let launch = Launch::new([1, 1, 1], [256, 1, 1]);
                let all = call_time(1, (), move |()| {
                    kernels.barriers(&stream, &launch, &mut out, count)?;
                    stream.synchronize()
                });
                part(256 * count as usize, all)
            }
        }))
    }
}

pub(crate) fn spin(kernels: &Kernels, stream: &Stream) -> gpustream::Result<()> {
    kernels.spin(stream, &Launch::new([1, 1, 1], [1, 1, 1]), SPIN_TICKS)
}

fn spin_and_await(kernels: &Kernels, stream: &Stream) -> Result<f64> {
    microseconds(|| {
        spin(kernels, stream)?;
        Ok(block_on(stream.synchronize_async())?)
    })
}

/// A launch that goes past this library's own, to the backend.
fn external(device: &Device, kernels: &Kernels, stream: Stream) -> Result<Sampler> {
    let four = kernels.module().kernel("four")?;
    let (x, mut y) = (stream.zeros::<f32>(FEW)?, stream.zeros::<f32>(FEW)?);
    let config = Launch::covering(FEW).resolve(device.info())?;
    let device = device.clone();
    Ok(call_time(200, stream, move |stream| {
        let (a, from, to, n) = (3.0f32, x.as_raw().0, y.as_raw().0, FEW);
        let args = [
            (&raw const a).cast::<c_void>().cast_mut(),
            (&raw const from).cast_mut().cast(),
            (&raw const to).cast_mut().cast(),
            (&raw const n).cast_mut().cast(),
        ];
        // SAFETY: the kernel gets the four arguments that it takes, reads `x` and writes `y`.
        unsafe {
            stream.external("four", (&x, &mut y), |raw, _| {
                device.raw().launch(four.as_raw(), &config, &args, raw)
            })
        }
    }))
}

/// Measures hand-overs: one stream writes memory that the other reads, and can write again after that. Each turn has
/// two hand-overs. The program orders neither, so the library must.
fn hand_over(kernels: Rc<Kernels>, a: Stream, b: Stream) -> Result<Sampler> {
    let x = a.zeros::<f32>(FEW)?;
    let (mut y, mut z) = (a.zeros::<f32>(FEW)?, b.zeros::<f32>(FEW)?);
    let turn = move |[a, b]: &[Stream; 2]| {
        kernels.four(a, 3.0, &x, &mut y, FEW)?;
        kernels.four(b, 3.0, &y, &mut z, FEW)
    };
    Ok(part(2, call_time(100, [a, b], turn)))
}

fn pages(device: &Device, stream: Stream, source: Source, together: Together) -> Result<Sampler> {
    let bytes = 2 * PAGES * PAGE;
    Ok(match source {
        Source::Device => gather(stream.zeros::<u8>(bytes)?, stream, together)?,
        Source::Pinned => gather(device.pinned::<u8>(bytes)?, stream, together)?,
    })
}

/// Copies every other page of `from`.
fn gather(from: impl AsView<u8> + 'static, stream: Stream, together: Together) -> Result<Sampler> {
    let mut to = stream.alloc::<u8>(PAGES * PAGE)?;
    Ok(rate(PAGES * PAGE, stream, move |stream| {
        let mut pages = from.view().chunks(PAGE)?.step_by(2).zip(to.chunks_mut(PAGE)?);
        if together == Together::OneByOne {
            return pages.try_for_each(|(from, mut to)| stream.copy(&from, &mut to));
        }
        let mut batch = CopyBatch::with_capacity(PAGES);
        pages.try_for_each(|(from, to)| batch.add(from, to))?;
        stream.copy_batch(batch)
    }))
}

fn graph_launch(kernels: &Kernels, stream: Stream, nodes: usize) -> Result<Sampler> {
    let (x, mut y) = (stream.zeros::<f32>(FEW)?, stream.zeros::<f32>(FEW)?);
    let graph =
        stream.capture(|stream| (0..nodes).try_for_each(|_| kernels.four(stream, 3.0, &x, &mut y, FEW)))?;
    graph.prepare(&stream)?;
    Ok(part(nodes, call_time((500 / nodes).max(5), stream, move |stream| graph.launch(stream))))
}

fn futures(kernels: Rc<Kernels>, stream: Stream, count: usize) -> Sampler {
    Box::new(move || {
        // The kernels run for longer than it takes to make the futures.
        for _ in 0..count.div_ceil(10) {
            spin(&kernels, &stream)?;
        }
        let mut futures: Vec<Synchronize> = (0..count).map(|_| stream.synchronize_async()).collect();
        // The reactor has all futures before we wait for the first.
        for future in &mut futures {
            let _ = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
        }
        let mut waits = futures.into_iter().map(|future| Ok(block_on(future)?));
        waits.next().transpose()?;
        nanoseconds(count - 1, || waits.next().transpose().map(drop), || Ok(()))
    })
}

fn graph_set(device: &Device, kernels: Rc<Kernels>, stream: Stream, set: Set) -> Result<Sampler> {
    let x = stream.zeros::<f32>(FEW)?;
    let mut y = [stream.zeros::<f32>(FEW)?, stream.zeros::<f32>(FEW)?];
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |stream| kernels.four(stream, 3.0, &x, &mut y[0], FEW))?;
    let mut graph = builder.build()?;
    let set_and_launch = move |stream: &Stream| {
        if set == Set::Memory {
            y.swap(0, 1);
        }
        graph.set_node(node, |stream| kernels.four(stream, 4.0, &x, &mut y[0], FEW))?;
        graph.launch(stream)
    };
    Ok(call_time(200, stream, set_and_launch))
}

fn pipeline(device: &Device, kernels: Rc<Kernels>, size: usize) -> Result<Sampler> {
    let (mut a, mut b) = (device.pinned::<f64>(size)?, device.pinned::<f64>(size)?);
    let mut pipeline = device.pipeline().chunks(size.div_ceil(PIECES));
    Ok(Box::new(move || {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            pipeline.in_place([&mut a, &mut b], |stream, [a, b]| {
                let n = a.len();
                kernels.add_one(stream, a, n)?;
                kernels.add_sum(stream, a, b, n)
            })?;
        }
        pipeline.streams()?.try_for_each(Stream::synchronize)?;
        Ok(start.elapsed().as_secs_f64())
    }))
}

/// Measures the mix on its own device, because then nothing else can reserve memory there.
fn alloc_mix(device: &Device, count: usize) -> Result<Sampler> {
    let info = device.info();
    let device = Device::open(&format!("{}:{}", info.backend, info.ordinal))?;
    let streams: Vec<Stream> = (0..mix::STREAMS).map(|_| device.stream()).collect::<Result<_, _>>()?;
    let steps = mix::steps(count);
    Ok(Box::new(move || {
        let mut live: Vec<Option<Buffer<u8>>> = (0..mix::LIVE).map(|_| None).collect();
        let start = Instant::now();
        for step in &steps {
            live[step.slot] = None;
            live[step.slot] = Some(streams[step.stream].alloc(step.bytes)?);
        }
        let time = start.elapsed();
        let stats = device.memory_stats();
        let reserved = stats.peak_reserved as f64 / stats.peak as f64;
        // A short mix does not fill the first slab.
        ensure!(steps.len() < 10_000 || reserved <= 1.25, "{reserved:.3} of the peak was reserved");
        Ok(time.as_secs_f64() * 1e9 / steps.len() as f64)
    }))
}
