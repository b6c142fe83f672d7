//! The options of a device, from values or from the environment.

use gpustream_hal::{ErrorKind, Result};

use crate::error::error;

/// The options of a CPU device. [`Default`] reads the environment, each time a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuOptions {
    /// How many threads run kernels and copies, 1 to 1024. We add more while some are stuck in kernels that
    /// wait. `GPUSTREAM_CPU_THREADS`; one per core by default.
    pub workers: usize,
    /// How many lanes a warp has: 32 or 64. `GPUSTREAM_CPU_WARP`; 32 by default.
    pub warp_size: u32,
    /// True if the device looks for out-of-bounds writes and other errors that a GPU would not notice. This
    /// costs time, so use it in tests. `GPUSTREAM_CHECK=1`; off by default.
    pub check: bool,
}

/// The largest number of workers that you can ask for.
const MOST_WORKERS: usize = 1024;
/// The largest number of devices that the machine can be presented as.
const MOST_DEVICES: usize = 64;

impl CpuOptions {
    /// Reads the environment. The defaults are one worker per core, warps of 32 and no checks. Here, a
    /// variable with a value that is not allowed counts as not set. If the backend opens a device, it refuses
    /// such a value instead.
    pub fn from_env() -> Self {
        Self {
            workers: workers().unwrap_or_else(|_| cores()),
            warp_size: warp_size().unwrap_or(32),
            check: check().unwrap_or(false),
        }
    }

    /// Reads the environment like [`from_env`](Self::from_env).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] names the variable whose value is not allowed, and the values that are.
    pub(crate) fn try_from_env() -> Result<Self> {
        Ok(Self { workers: workers()?, warp_size: warp_size()?, check: check()? })
    }

    /// Sets the number of workers; 0 counts as 1.
    #[must_use]
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = if workers == 0 { 1 } else { workers };
        self
    }

    /// Sets how many lanes a warp has: 32 or 64. If you set another number, opening a device fails.
    #[must_use]
    pub const fn warp_size(mut self, lanes: u32) -> Self {
        self.warp_size = lanes;
        self
    }

    /// Sets whether the device looks for errors that a GPU would not notice.
    #[must_use]
    pub const fn check(mut self, check: bool) -> Self {
        self.check = check;
        self
    }
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self::from_env()
    }
}

/// Returns how many devices the machine's cores are presented as: `GPUSTREAM_CPU_DEVICES`, or 1.
pub(crate) fn device_count() -> Result<usize> {
    variable("GPUSTREAM_CPU_DEVICES", 1, "a number from 1 to 64", |text| {
        text.parse().ok().filter(|number| (1..=MOST_DEVICES).contains(number))
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS)
}

fn workers() -> Result<usize> {
    variable("GPUSTREAM_CPU_THREADS", cores(), "a number from 1 to 1024", |text| {
        text.parse().ok().filter(|number| (1..=MOST_WORKERS).contains(number))
    })
}

fn warp_size() -> Result<u32> {
    variable("GPUSTREAM_CPU_WARP", 32, "32 or 64", |text| match text {
        "32" => Some(32),
        "64" => Some(64),
        _ => None,
    })
}

fn check() -> Result<bool> {
    variable("GPUSTREAM_CHECK", false, "0 or 1", |text| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })
}

/// Returns the value of an environment variable, or `default` if it is not set or empty.
fn variable<T>(name: &str, default: T, allowed: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    let Some(value) = std::env::var_os(name) else { return Ok(default) };
    let text = value.to_string_lossy();
    let text = text.trim();
    if text.is_empty() {
        return Ok(default);
    }
    parse(text).ok_or_else(|| {
        error(ErrorKind::InvalidArgument, format!("{name}={text}: allowed is {allowed}; correct or unset it"))
    })
}
