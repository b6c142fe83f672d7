//! gpustream, used through its public interface alone.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use anyhow::{Result, ensure};
use gpustream::{Buffer, Device, Launch, Stream, Synchronize};
use gpustream_kernels::reduce::Reduce;
use gpustream_kernels::{elementwise, matrix};

use crate::case::Case;
use crate::kernels::Kernels;
use crate::measure::{Contender, Sampler, gigabytes, nanoseconds, tail};
use crate::mix;
use crate::pipeline::{PIECES, ROUNDS};
use crate::report::OURS;

/// The clock ticks of about 10 µs on a data-centre device.
pub(crate) const SPIN_TICKS: i64 = 18_000;

/// Elements of the arrays in cases in which only the launch counts.
pub(crate) const FEW: usize = 256;

/// gpustream on one device.
pub(crate) struct Ours {
    device: Device,
    kernels: Rc<Kernels>,
    elementwise: Rc<elementwise::Kernels>,
    matrix: Rc<matrix::Kernels>,
    reduce: Rc<Reduce>,
}

impl Ours {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            kernels: Rc::new(Kernels::load(device)?),
            elementwise: Rc::new(elementwise::Kernels::load(device)?),
            matrix: Rc::new(matrix::Kernels::load(device)?),
            reduce: Rc::new(Reduce::load(device)?),
        })
    }
}

impl Contender for Ours {
    fn name(&self) -> &'static str {
        OURS
    }

    fn prepare(&self, case: Case) -> Result<Option<Sampler>> {
        let stream = self.device.stream()?;
        Ok(Some(match case {
            Case::Launch => launch(self.kernels.clone(), stream)?,
            Case::HandOver => hand_over(self.kernels.clone(), stream, self.device.stream()?)?,
            Case::Record => Box::new(move || {
                let record = || Ok(stream.record().map(drop)?);
                nanoseconds(1000, record, || Ok(stream.synchronize()?))
            }),
            Case::StreamQuery => {
                stream.zeros::<f32>(FEW)?;
                stream.synchronize()?;
                Box::new(move || nanoseconds(1000, || Ok(stream.is_done().map(drop)?), || Ok(())))
            }
            Case::EventQuery => {
                stream.zeros::<f32>(FEW)?;
                let event = stream.record()?;
                event.synchronize()?;
                Box::new(move || nanoseconds(1000, || Ok(event.is_done().map(drop)?), || Ok(())))
            }
            Case::AllocFree(bytes) => Box::new(move || {
                let alloc_free = || Ok(stream.alloc::<u8>(bytes).map(drop)?);
                nanoseconds(1000, alloc_free, || Ok(stream.synchronize()?))
            }),
            Case::AllocMix(count) => alloc_mix(&self.device, count)?,
            Case::KernelAndWait => {
                let kernels = self.kernels.clone();
                Box::new(move || {
                    microseconds(|| {
                        kernels.spin(&stream, &Launch::new([1, 1, 1], [1, 1, 1]), SPIN_TICKS)?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::KernelAndAwait => {
                let kernels = self.kernels.clone();
                Box::new(move || {
                    microseconds(|| {
                        kernels.spin(&stream, &Launch::new([1, 1, 1], [1, 1, 1]), SPIN_TICKS)?;
                        Ok(block_on(stream.synchronize_async())?)
                    })
                })
            }
            Case::KernelAndAwaitTail => {
                let kernels = self.kernels.clone();
                Box::new(move || {
                    tail(|| {
                        microseconds(|| {
                            kernels.spin(&stream, &Launch::new([1, 1, 1], [1, 1, 1]), SPIN_TICKS)?;
                            Ok(block_on(stream.synchronize_async())?)
                        })
                    })
                })
            }
            Case::Futures(count) => futures(self.kernels.clone(), stream, count),
            Case::GraphLaunch(nodes) => graph_launch(&self.kernels, stream, nodes)?,
            Case::GraphSet => graph_set(&self.device, self.kernels.clone(), stream)?,
            Case::Upload(bytes) => {
                let (values, mut buffer) = (vec![1u8; bytes], stream.alloc::<u8>(bytes)?);
                Box::new(move || {
                    gigabytes(bytes, |count| {
                        for _ in 0..count {
                            stream.upload_into(&values, &mut buffer)?;
                        }
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::Download(bytes) => {
                let (mut values, buffer) = (vec![1u8; bytes], stream.zeros::<u8>(bytes)?);
                Box::new(move || {
                    gigabytes(bytes, |count| {
                        (0..count).try_for_each(|_| Ok(stream.download_into(&buffer, &mut values)?))
                    })
                })
            }
            Case::PinnedUpload(bytes) => {
                let (pinned, mut buffer) = (self.device.pinned::<u8>(bytes)?, stream.alloc::<u8>(bytes)?);
                Box::new(move || {
                    gigabytes(bytes, |count| {
                        (0..count).try_for_each(|_| stream.copy(&pinned, &mut buffer))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::PinnedDownload(bytes) => {
                let (mut pinned, buffer) = (self.device.pinned::<u8>(bytes)?, stream.zeros::<u8>(bytes)?);
                Box::new(move || {
                    gigabytes(bytes, |count| {
                        (0..count).try_for_each(|_| stream.copy(&buffer, &mut pinned))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::DeviceCopy(bytes) => {
                let (from, mut to) = (stream.zeros::<u8>(bytes)?, stream.alloc::<u8>(bytes)?);
                Box::new(move || {
                    gigabytes(2 * bytes, |count| {
                        (0..count).try_for_each(|_| stream.copy(&from, &mut to))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::Saxpy(n) => {
                let (kernels, x, mut y) =
                    (self.elementwise.clone(), stream.full(n, 1.0f32)?, stream.full(n, 2.0f32)?);
                Box::new(move || {
                    gigabytes(3 * 4 * n, |count| {
                        (0..count).try_for_each(|_| kernels.axpy_f32(&stream, 3.0, &x, &mut y, n))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::Add(n) => {
                let kernels = self.elementwise.clone();
                let (x, y, mut z) =
                    (stream.full(n, 1.0f32)?, stream.full(n, 2.0f32)?, stream.zeros::<f32>(n)?);
                Box::new(move || {
                    gigabytes(3 * 4 * n, |count| {
                        (0..count).try_for_each(|_| kernels.add_f32(&stream, &x, &y, &mut z, n))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::Sum(n) => {
                let (reduce, x) = (self.reduce.clone(), stream.full(n, 1.0f32)?);
                Box::new(move || {
                    gigabytes(4 * n, |count| {
                        (0..count).try_for_each(|_| reduce.sum(&stream, &x).map(drop))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::Dot(n) => {
                let (reduce, x, y) = (self.reduce.clone(), stream.full(n, 1.0f32)?, stream.full(n, 2.0f32)?);
                Box::new(move || {
                    gigabytes(2 * 4 * n, |count| {
                        (0..count).try_for_each(|_| reduce.dot(&stream, &x, &y).map(drop))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::Transpose(side) => {
                let n = side * side;
                let (kernels, x, mut y) =
                    (self.matrix.clone(), stream.full(n, 1.0f32)?, stream.alloc::<f32>(n)?);
                Box::new(move || {
                    gigabytes(2 * 4 * n, |count| {
                        let transpose = || kernels.transpose_f32(&stream, &x, &mut y, side, side);
                        std::iter::repeat_with(transpose).take(count).collect::<gpustream::Result<()>>()?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::Pipeline(size) => pipeline(&self.device, self.kernels.clone(), size)?,
            Case::Barrier => {
                let (kernels, mut out) = (self.kernels.clone(), stream.zeros::<u32>(256)?);
                let count = 2000u32;
                Box::new(move || {
                    let start = Instant::now();
                    kernels.barriers(&stream, &Launch::new([1, 1, 1], [256, 1, 1]), &mut out, count)?;
                    stream.synchronize()?;
                    Ok(start.elapsed().as_secs_f64() * 1e9 / (256.0 * f64::from(count)))
                })
            }
        }))
    }
}

fn launch(kernels: Rc<Kernels>, stream: Stream) -> Result<Sampler> {
    let (x, mut y) = (stream.zeros::<f32>(FEW)?, stream.zeros::<f32>(FEW)?);
    Ok(Box::new(move || {
        let launch = || Ok(kernels.four(&stream, 3.0, &x, &mut y, FEW)?);
        nanoseconds(200, launch, || Ok(stream.synchronize()?))
    }))
}

/// Measures hand-overs: one stream writes memory that the other reads, and may write again after that. Each turn has
/// two hand-overs, and the program orders neither.
fn hand_over(kernels: Rc<Kernels>, a: Stream, b: Stream) -> Result<Sampler> {
    let x = a.zeros::<f32>(FEW)?;
    let (mut y, mut z) = (a.zeros::<f32>(FEW)?, b.zeros::<f32>(FEW)?);
    Ok(Box::new(move || {
        let turn = || {
            kernels.four(&a, 3.0, &x, &mut y, FEW)?;
            Ok(kernels.four(&b, 3.0, &y, &mut z, FEW)?)
        };
        let both = nanoseconds(100, turn, || {
            a.synchronize()?;
            Ok(b.synchronize()?)
        });
        Ok(both? / 2.0)
    }))
}

fn graph_launch(kernels: &Kernels, stream: Stream, nodes: usize) -> Result<Sampler> {
    let (x, mut y) = (stream.zeros::<f32>(FEW)?, stream.zeros::<f32>(FEW)?);
    let graph =
        stream.capture(|stream| (0..nodes).try_for_each(|_| kernels.four(stream, 3.0, &x, &mut y, FEW)))?;
    graph.prepare(&stream)?;
    let count = (500 / nodes).max(5);
    Ok(Box::new(move || {
        let launch = || Ok(graph.launch(&stream)?);
        Ok(nanoseconds(count, launch, || Ok(stream.synchronize()?))? / nodes as f64)
    }))
}

fn futures(kernels: Rc<Kernels>, stream: Stream, count: usize) -> Sampler {
    Box::new(move || {
        // The kernels run for longer than it takes to make the futures.
        for _ in 0..count.div_ceil(10) {
            kernels.spin(&stream, &Launch::new([1, 1, 1], [1, 1, 1]), SPIN_TICKS)?;
        }
        let mut futures: Vec<Synchronize> = (0..count).map(|_| stream.synchronize_async()).collect();
        // The reactor has all futures before the first is waited for.
        for future in &mut futures {
            let _ = Pin::new(future).poll(&mut Context::from_waker(Waker::noop()));
        }
        let mut waits = futures.into_iter().map(|future| Ok(block_on(future)?));
        waits.next().transpose()?;
        nanoseconds(count - 1, || waits.next().transpose().map(drop), || Ok(()))
    })
}

fn graph_set(device: &Device, kernels: Rc<Kernels>, stream: Stream) -> Result<Sampler> {
    let (x, mut y) = (stream.zeros::<f32>(FEW)?, stream.zeros::<f32>(FEW)?);
    let mut builder = device.graph_builder()?;
    let node = builder.node(&[], |stream| kernels.four(stream, 3.0, &x, &mut y, FEW))?;
    let mut graph = builder.build()?;
    Ok(Box::new(move || {
        let set = || Ok(graph.set_node(node, |stream| kernels.four(stream, 4.0, &x, &mut y, FEW))?);
        nanoseconds(200, set, || Ok(stream.synchronize()?))
    }))
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

/// Measures the mix on a device of its own, whose reserved memory is then the mix's alone.
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

pub(crate) fn microseconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// Runs a future in a minimal executor, which polls, and sleeps until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
