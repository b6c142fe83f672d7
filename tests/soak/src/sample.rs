//! What the process holds at one moment.

use std::fs;
use std::path::Path;

use gpustream::Device;

/// A quantity that must not grow.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// Growth up to this never counts.
    pub(crate) floor: f64,
}

const MIB: f64 = 1_048_576.0;

/// The quantities of a sample, in this order.
pub(crate) const SERIES: [Series; 8] = [
    Series { name: "resident memory", unit: "MiB", floor: 2.0 },
    Series { name: "heap in use", unit: "MiB", floor: 0.25 },
    // A thread has about seven, and the device may still start threads if it needs them.
    Series { name: "mappings", unit: "", floor: 16.0 },
    Series { name: "descriptors", unit: "", floor: 1.0 },
    Series { name: "threads", unit: "", floor: 1.0 },
    Series { name: "device memory in use", unit: "MiB", floor: 0.5 },
    Series { name: "device memory reserved", unit: "MiB", floor: 2.0 },
    Series { name: "device memory taken, by the driver", unit: "MiB", floor: 4.0 },
];

/// The quantities at one moment. One is `None` if the system or the device does not report it.
pub(crate) type Values = [Option<f64>; SERIES.len()];

/// Reads all quantities.
pub(crate) fn read(device: &Device) -> Values {
    let stats = device.memory_stats();
    let pinned = device.pinned_stats();
    // The CPU device reports the memory of the whole machine, so the figure says nothing about this process.
    let on_gpu = device.info().backend != gpustream::BackendName::CPU;
    let taken =
        device.memory().ok().filter(|_| on_gpu).map(|memory| (memory.total - memory.free) as f64 / MIB);
    [
        resident().map(|bytes| bytes / MIB),
        Some(heap() / MIB),
        fs::read_to_string("/proc/self/maps").ok().map(|maps| maps.lines().count() as f64),
        entries("/proc/self/fd"),
        entries("/proc/self/task"),
        Some((stats.used + pinned.used) as f64 / MIB),
        Some((stats.reserved + pinned.reserved) as f64 / MIB),
        taken,
    ]
}

fn entries(folder: impl AsRef<Path>) -> Option<f64> {
    Some(fs::read_dir(folder).ok()?.count() as f64)
}

/// Returns the process's resident bytes.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

/// Returns the bytes that the process has from `malloc`.
fn heap() -> f64 {
    // SAFETY: the function takes nothing, and only reads the allocator's figures.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as f64
}
