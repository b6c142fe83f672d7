//! cudarc's safe layer, as its examples use it. Its tracking must be on, because otherwise it would not be safe either.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use crate::case::Case;
use crate::measure::{Contender, Queue, Sampler, call_time, part, rate};
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

impl Queue for Arc<CudaStream> {
    fn finish(&self) -> Result<()> {
        Ok(self.synchronize()?)
    }
}

impl Contender for CudarcSafe {
    fn name(&self) -> &'static str {
        "cudarc"
    }

    fn prepare(&self, case: Case) -> Result<Option<Sampler>> {
        // A new stream, because you need one to overlap work; it turns cudarc's tracking on.
        let stream = self.context.new_stream()?;
        let four = self.four.clone();
        Ok(Some(match case {
            Case::Launch => {
                let (x, mut y) = (stream.alloc_zeros::<f32>(FEW)?, stream.alloc_zeros::<f32>(FEW)?);
                call_time(200, stream, move |stream| launch(&four, stream, &x, &mut y))
            }
            Case::HandOver => {
                let other = self.context.new_stream()?;
                let x = stream.alloc_zeros::<f32>(FEW)?;
                let (mut y, mut z) = (stream.alloc_zeros::<f32>(FEW)?, other.alloc_zeros::<f32>(FEW)?);
                let turn = move |[stream, other]: &[_; 2]| {
                    launch(&four, stream, &x, &mut y)?;
                    launch(&four, other, &y, &mut z)
                };
                part(2, call_time(100, [stream, other], turn))
            }
            Case::Record => call_time(1000, stream, |stream| stream.record_event(None).map(drop)),
            Case::EventQuery => {
                let event = stream.record_event(None)?;
                stream.synchronize()?;
                call_time(1000, stream, move |_| event.try_is_complete().map(drop))
            }
            Case::AllocFree(bytes) => {
                // SAFETY: we never read the unwritten memory.
                call_time(1000, stream, move |stream| unsafe { stream.alloc::<u8>(bytes) }.map(drop))
            }
            Case::Upload(bytes) => {
                let (values, mut buffer) = (vec![1u8; bytes], stream.alloc_zeros::<u8>(bytes)?);
                rate(bytes, stream, move |stream| stream.memcpy_htod(&values, &mut buffer))
            }
            Case::Download(bytes) => {
                let (mut values, buffer) = (vec![1u8; bytes], stream.alloc_zeros::<u8>(bytes)?);
                rate(bytes, stream, move |stream| stream.memcpy_dtoh(&buffer, &mut values))
            }
            Case::DeviceCopy(bytes) => {
                let (from, mut to) = (stream.alloc_zeros::<u8>(bytes)?, stream.alloc_zeros::<u8>(bytes)?);
                rate(2 * bytes, stream, move |stream| stream.memcpy_dtod(&from, &mut to))
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
