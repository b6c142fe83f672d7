//! What the functions of all families share: which kernels suit the device, and errors.

use std::panic::Location;

use gpustream::hal::{BackendName, LaunchConfig};
use gpustream::{CallSite, Device, Error, ErrorKind, Launch, Result, Stream};

/// How many elements a thread must have to be worth starting.
const PER_THREAD: usize = 16;

/// Returns how many blocks share `n` elements, and makes launches with a given number of such blocks.
pub(crate) fn shares(stream: &Stream, n: usize) -> Result<(usize, impl Fn(usize) -> Launch)> {
    let LaunchConfig { grid, block, .. } = Launch::filling(n.max(1)).resolve(stream.device().info())?;
    let blocks = n.div_ceil(PER_THREAD * block[0] as usize).clamp(1, grid[0] as usize);
    Ok((blocks, move |blocks: usize| Launch::new([blocks as u32, 1, 1], block)))
}

/// Which kernels of an algorithm suit a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Blocks of many threads, which work together in shared memory: for GPUs.
    Blocks,
    /// One thread per worker with a contiguous share of the elements: for the CPU.
    Shares,
}

impl Form {
    /// Returns the form for a device. With `GPUSTREAM_KERNELS_FORM=blocks` the CPU runs the kernels of GPUs too, which is slow, but
    /// tests them.
    pub(crate) fn of(device: &Device) -> Self {
        let is_cpu = device.info().backend == BackendName::CPU;
        let tested = || std::env::var_os("GPUSTREAM_KERNELS_FORM").is_some_and(|form| form == "blocks");
        if is_cpu && !tested() { Self::Shares } else { Self::Blocks }
    }
}

/// Makes the error for arguments that do not fit together.
#[cold]
#[track_caller]
pub(crate) fn mismatch(label: &'static str, text: String) -> Error {
    let call_site = CallSite { label, location: Location::caller() };
    Error::new(ErrorKind::ArgumentMismatch, text).with_call_site(call_site)
}
