//! The calls that the backend makes to HIP alone, and the answers that it makes of HIP's. Run once under each version.

mod device;
mod errors;
mod graph;
mod hiprtc;
mod launch;

use gpustream_hal::{Copy3d, CopyEnd, Device, RawModule};

pub(crate) use crate::backends::{add_one, assert_call, start, stream};

/// Two planes of three rows of four bytes, out of a wider and higher block.
pub(crate) fn strided(dst: CopyEnd, src: CopyEnd) -> Copy3d {
    Copy3d { dst, dst_pitch: 8, dst_rows: 4, src, src_pitch: 16, src_rows: 5, width: 4, height: 3, depth: 2 }
}

/// A module with a kernel `scale(float*, float, size_t)`.
pub(crate) fn module(device: &dyn Device) -> RawModule {
    // SAFETY: the driver is a fake, which reads images safely.
    unsafe { device.module_load(&fake_hip::image(&[("scale", &[8, 4, 8])])) }.unwrap()
}
