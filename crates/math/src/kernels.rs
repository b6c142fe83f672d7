//! Our own kernels, for what the vendors' libraries lack.

use gpustream::{Device, Result};

pub(crate) mod convolution {
    #![allow(missing_docs, unreachable_pub, dead_code, reason = "only this crate calls them")]
    gpustream::include_kernels!("convolution");
}

pub(crate) mod epilogue {
    #![allow(missing_docs, unreachable_pub, dead_code, reason = "only this crate calls them")]
    gpustream::include_kernels!("epilogue");
}

/// Loads all kernels for a device, if that is not done.
pub(crate) fn prepare(device: &Device) -> Result<()> {
    device.extension(convolution::Kernels::load)?;
    device.extension(epilogue::Kernels::load)?;
    Ok(())
}
