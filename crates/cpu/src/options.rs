//! How a device is set up, by value or by environment.

/// How to open a CPU device. [`Default`] reads the environment, once per opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuOptions {
    /// Threads that run kernels and copies; more are added while some are stuck in kernels that wait.
    /// `GPUSTREAM_CPU_THREADS`; by default one per core.
    pub workers: usize,
    /// Lanes of a warp: 32 or 64. `GPUSTREAM_CPU_WARP`; by default 32.
    pub warp_size: u32,
    /// Look for writes out of bounds and other errors a GPU would not notice, at a cost.
    /// `GPUSTREAM_CHECK=1`; by default off.
    pub check: bool,
}

impl CpuOptions {
    /// What the environment says, else one worker per core, warps of 32 and no checks.
    pub fn from_env() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = number("GPUSTREAM_CPU_THREADS").filter(|&n| n > 0).unwrap_or(cores).min(1024);
        let warp_size = if number("GPUSTREAM_CPU_WARP") == Some(64) { 64 } else { 32 };
        let check = std::env::var("GPUSTREAM_CHECK").is_ok_and(|v| !v.is_empty() && v != "0");
        Self { workers, warp_size, check }
    }

    /// Another number of workers; 0 counts as 1.
    #[must_use]
    pub const fn with_workers(mut self, workers: usize) -> Self {
        self.workers = if workers == 0 { 1 } else { workers };
        self
    }

    /// Warps of 64 lanes, or of 32.
    #[must_use]
    pub const fn with_warp_64(mut self, wide: bool) -> Self {
        self.warp_size = if wide { 64 } else { 32 };
        self
    }

    /// Checked mode on or off.
    #[must_use]
    pub const fn with_check(mut self, check: bool) -> Self {
        self.check = check;
        self
    }
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self::from_env()
    }
}

/// How many devices the machine's cores are presented as: `GPUSTREAM_CPU_DEVICES`, else 1.
pub(crate) fn device_count() -> usize {
    number("GPUSTREAM_CPU_DEVICES").map_or(1, |n| n.clamp(1, 64))
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.trim().parse().ok()
}
