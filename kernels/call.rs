//! What the functions of all families share: which kernels suit the device, and errors.

use std::panic::Location;
use std::sync::LazyLock;

use gpustream::hal::{BackendName, LaunchConfig};
use gpustream::{AsView, AsViewMut, CallSite, Device, Error, ErrorKind, Launch, Plain, Result, Stream};

/// How many elements a thread must have to be worth starting.
const PER_THREAD: usize = 16;

/// Returns how many blocks fill the device if they share `n` elements, and makes launches with a given number of such blocks.
pub(crate) fn filling(stream: &Stream, n: usize) -> Result<(usize, impl Fn(usize) -> Launch)> {
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
    /// Returns the form for a device. To test the kernels of GPUs, a CPU with 64 lanes runs them too, and with
    /// `GPUSTREAM_KERNELS_FORM=blocks` every CPU does. That is slow.
    pub(crate) fn of(device: &Device) -> Self {
        static TESTED: LazyLock<bool> =
            LazyLock::new(|| std::env::var_os("GPUSTREAM_KERNELS_FORM").is_some_and(|form| form == "blocks"));
        let info = device.info();
        let is_cpu = info.backend == BackendName::CPU && info.warp_size == 32;
        if is_cpu && !*TESTED { Self::Shares } else { Self::Blocks }
    }
}

/// Makes the error for arguments that do not fit together.
#[cold]
#[track_caller]
pub(crate) fn mismatch(label: &'static str, text: String) -> Error {
    refusal(ErrorKind::ArgumentMismatch, label, text)
}

/// Makes the error for an argument that has no meaning.
#[cold]
#[track_caller]
pub(crate) fn unusable(label: &'static str, text: impl Into<String>) -> Error {
    refusal(ErrorKind::InvalidArgument, label, text.into())
}

#[cold]
#[track_caller]
fn refusal(kind: ErrorKind, label: &'static str, text: String) -> Error {
    Error::new(kind, text).with_call_site(CallSite { label, location: Location::caller() })
}

/// Passes memory that may be missing to a launcher.
pub(crate) fn optional<T: Plain, M: AsView<T>>(memory: Option<&M>) -> Option<&dyn AsView<T>> {
    memory.map(|memory| memory as &dyn AsView<T>)
}

/// Passes memory that may be missing to a launcher that writes it.
pub(crate) fn optional_mut<T: Plain, M: AsViewMut<T>>(
    memory: Option<&mut M>,
) -> Option<&mut dyn AsViewMut<T>> {
    memory.map(|memory| memory as &mut dyn AsViewMut<T>)
}

/// Evaluates an expression with the unsigned integer of the same size as `T`.
#[cfg(any(feature = "select", feature = "transform"))]
macro_rules! by_size {
    ($t:ty, $bits:ident => $call:expr) => {{
        const { assert!(matches!(size_of::<$t>(), 1 | 2 | 4 | 8), "elements must have 1, 2, 4 or 8 bytes") };
        match size_of::<$t>() {
            1 => {
                type $bits = u8;
                $call
            }
            2 => {
                type $bits = u16;
                $call
            }
            4 => {
                type $bits = u32;
                $call
            }
            _ => {
                type $bits = u64;
                $call
            }
        }
    }};
}
#[cfg(any(feature = "select", feature = "transform"))]
pub(crate) use by_size;
