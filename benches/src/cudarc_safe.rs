//! cudarc's safe layer, as its examples use it, with its tracking on.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use crate::case::Case;
use crate::measure::{Contender, Sampler, gigabytes, nanoseconds};
use crate::ours::FEW;

/// A kernel with the same four parameters as the others'. It does nothing, which does not change the host's time.
const FOUR: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry four(.param .f32 a, .param .u64 x, .param .u64 y, .param .u64 n) { ret; }
";

/// cudarc on one device.
pub(crate) struct CudarcSafe {
    context: Arc<CudaContext>,
    four: Rc<CudaFunction>,
}

impl CudarcSafe {
    pub(crate) fn new(ordinal: usize) -> Result<Self> {
        let context = CudaContext::new(ordinal)?;
        let four = context.load_module(Ptx::from_src(FOUR))?.load_function("four")?;
        Ok(Self { context, four: Rc::new(four) })
    }
}

impl Contender for CudarcSafe {
    fn name(&self) -> &'static str {
        "cudarc"
    }

    fn prepare(&self, case: Case) -> Result<Option<Sampler>> {
        // A new stream, as every program needs that overlaps work; it turns cudarc's tracking on.
        let stream = self.context.new_stream()?;
        let four = self.four.clone();
        Ok(Some(match case {
            Case::Launch => {
                let (x, mut y) = (stream.alloc_zeros::<f32>(FEW)?, stream.alloc_zeros::<f32>(FEW)?);
                Box::new(move || {
                    let launch = || launch(&four, &stream, &x, &mut y);
                    nanoseconds(200, launch, || Ok(stream.synchronize()?))
                })
            }
            Case::HandOver => {
                let other = self.context.new_stream()?;
                let x = stream.alloc_zeros::<f32>(FEW)?;
                let (mut y, mut z) = (stream.alloc_zeros::<f32>(FEW)?, other.alloc_zeros::<f32>(FEW)?);
                Box::new(move || {
                    let turn = || {
                        launch(&four, &stream, &x, &mut y)?;
                        launch(&four, &other, &y, &mut z)
                    };
                    let both = nanoseconds(100, turn, || {
                        stream.synchronize()?;
                        Ok(other.synchronize()?)
                    });
                    Ok(both? / 2.0)
                })
            }
            Case::Record => Box::new(move || {
                let record = || Ok(stream.record_event(None).map(drop)?);
                nanoseconds(1000, record, || Ok(stream.synchronize()?))
            }),
            Case::EventQuery => {
                let event = stream.record_event(None)?;
                stream.synchronize()?;
                Box::new(move || {
                    // The stream must outlive its event.
                    let _keep = &stream;
                    nanoseconds(1000, || Ok(event.try_is_complete().map(drop)?), || Ok(()))
                })
            }
            Case::AllocFree(bytes) => Box::new(move || {
                // SAFETY: the unwritten memory is never read.
                let alloc_free = || Ok(unsafe { stream.alloc::<u8>(bytes) }.map(drop)?);
                nanoseconds(1000, alloc_free, || Ok(stream.synchronize()?))
            }),
            Case::Upload(bytes) => {
                let (values, mut buffer) = (vec![1u8; bytes], stream.alloc_zeros::<u8>(bytes)?);
                Box::new(move || {
                    gigabytes(bytes, |count| {
                        (0..count).try_for_each(|_| stream.memcpy_htod(&values, &mut buffer))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::Download(bytes) => {
                let (mut values, buffer) = (vec![1u8; bytes], stream.alloc_zeros::<u8>(bytes)?);
                Box::new(move || {
                    gigabytes(bytes, |count| {
                        (0..count).try_for_each(|_| stream.memcpy_dtoh(&buffer, &mut values))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            Case::DeviceCopy(bytes) => {
                let (from, mut to) = (stream.alloc_zeros::<u8>(bytes)?, stream.alloc_zeros::<u8>(bytes)?);
                Box::new(move || {
                    gigabytes(2 * bytes, |count| {
                        (0..count).try_for_each(|_| stream.memcpy_dtod(&from, &mut to))?;
                        Ok(stream.synchronize()?)
                    })
                })
            }
            _ => return Ok(None),
        }))
    }
}

type Slice = cudarc::driver::CudaSlice<f32>;

fn launch(function: &CudaFunction, stream: &Arc<CudaStream>, x: &Slice, y: &mut Slice) -> Result<()> {
    let shape = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
    let (a, n) = (3.0f32, FEW);
    let mut builder = stream.launch_builder(function);
    builder.arg(&a).arg(x).arg(y).arg(&n);
    // SAFETY: the four arguments have the kernel's types, and the kernel touches no memory.
    unsafe { builder.launch(shape) }?;
    Ok(())
}
