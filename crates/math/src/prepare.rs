//! Opens the vendors' libraries ahead of time.

use gpustream::{Device, ErrorKind, Result};

/// Opens the vendor's libraries and loads our kernels for this device, so that no later call needs to.
///
/// Programs call this before their first capture, because libraries cannot be opened while a stream is captured. Blocks until the
/// libraries have made their handles, which takes up to a second. Does nothing on the CPU device.
///
/// A library that is not installed is no error here, because you may not need it. The calls that do will say so.
///
/// ```
/// let device = gpustream::Device::open("cpu")?;
/// gpustream_math::prepare(&device)?;
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// [`DriverUnusable`](gpustream::ErrorKind::DriverUnusable) if a library is installed and cannot be used; the library's own errors.
#[track_caller]
pub fn prepare(device: &Device) -> Result<()> {
    #[cfg(feature = "blas")]
    if_installed(crate::blas::prepare(device))?;
    #[cfg(feature = "fft")]
    if_installed(crate::fft::prepare(device))?;
    #[cfg(feature = "kernels")]
    if_built(crate::kernels::prepare(device))?;
    let _ = device;
    Ok(())
}

/// A build may have no kernels for this device. The calls that need them say so.
#[cfg(feature = "kernels")]
fn if_built(loaded: Result<()>) -> Result<()> {
    match loaded {
        Err(error) if error.kind() == ErrorKind::NoImageForDevice => Ok(()),
        loaded => loaded,
    }
}

fn if_installed(opened: Result<()>) -> Result<()> {
    match opened {
        Err(error) if error.kind() == ErrorKind::DriverMissing => Ok(()),
        opened => opened,
    }
}
