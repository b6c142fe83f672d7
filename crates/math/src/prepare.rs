//! Opens the vendors' libraries ahead of time.

use gpustream::{Device, Result};

/// Opens the vendor's libraries for this device, so that no later call needs to.
///
/// Programs call this before their first capture, because libraries cannot be opened while a stream is captured. Blocks until the
/// libraries have made their handles, which takes up to a second. Does nothing on the CPU device.
///
/// ```
/// let device = gpustream::Device::open("cpu")?;
/// gpustream_math::prepare(&device)?;
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// [`DriverMissing`](gpustream::ErrorKind::DriverMissing) if a library is not installed, [`DriverUnusable`](gpustream::ErrorKind::DriverUnusable) if it cannot be used; the
/// library's own errors.
#[track_caller]
pub fn prepare(device: &Device) -> Result<()> {
    #[cfg(feature = "blas")]
    crate::blas::prepare(device)?;
    #[cfg(feature = "fft")]
    crate::fft::prepare(device)?;
    let _ = device;
    Ok(())
}
