//! The options of a device, by value or by environment.

use gpustream_hal::{ErrorKind, Result};

use crate::error::error;

/// The options of a CPU device. [`Default`] reads the environment, once per opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuOptions {
    /// Number of threads that run kernels and copies, 1 to 1024; more are added while some are stuck in kernels that
    /// wait. `GPUSTREAM_CPU_THREADS`; by default one per core.
    pub workers: usize,
    /// Lanes of a warp: 32 or 64. `GPUSTREAM_CPU_WARP`; by default 32.
    pub warp_size: u32,
    /// Whether the device looks for writes out of bounds and other errors that a GPU would not notice, at a cost.
    /// `GPUSTREAM_CHECK=1`; by default off.
    pub check: bool,
}

/// The most workers that can be asked for.
const MOST_WORKERS: usize = 1024;
/// The most devices that the machine can be presented as.
const MOST_DEVICES: usize = 64;

impl CpuOptions {
    /// Reads the environment; by default one worker per core, warps of 32 and no checks. A variable whose value is not
    /// allowed counts as not set here; a device that is opened by the backend refuses such a value.
    pub fn from_env() -> Self {
        Self {
            workers: workers().unwrap_or_else(|_| cores()),
            warp_size: warp_size().unwrap_or(32),
            check: check().unwrap_or(false),
        }
    }

    /// Reads the environment as [`from_env`](Self::from_env) does.
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

    /// Sets the lanes of a warp: 32, or 64. Opening a device refuses any other number.
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

/// Returns how many devices the machine's cores are presented as: `GPUSTREAM_CPU_DEVICES`, else 1.
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

/// Returns the value of an environment variable: `default` where the variable is not set or empty.
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
