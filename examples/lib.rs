//! What the examples share: options, exit codes, values in host memory, and aligned tables. If you are here to learn, you
//! can begin with `hello.rs`.

use std::iter;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::builder::RangedU64ValueParser;
use gpustream::{Device, DeviceOptions, Replay, backends};

pub use gpustream_timeline_view::text::Table;

pub mod ranks;

/// The kernels of `overlap.cu`.
pub mod overlap {
    gpustream::include_kernels!("overlap");
}

/// The kernels of `async.cu`.
pub mod asynchronous {
    gpustream::include_kernels!("async");

    /// Computes on the host what the kernel `churn` makes of one number, so that an example can check its result.
    #[must_use]
    pub fn churned(x: u32, value: u32, rounds: u32) -> u32 {
        (0..rounds).fold(x, |x, _| x.wrapping_mul(5).wrapping_add(value))
    }
}

/// The kernels of `conjugate_gradient.cu`.
pub mod conjugate_gradient {
    gpustream::include_kernels!("conjugate_gradient");
}

/// The kernels of `data_parallel.cu`.
pub mod data_parallel {
    gpustream::include_kernels!("data_parallel");
}

/// The kernels of `lattice_boltzmann.cu`, and the simulation that uses them: `beside_cudarc` runs it too.
pub mod lattice_boltzmann {
    gpustream::include_kernels!("lattice_boltzmann");

    pub mod simulation;
    pub mod tunnel;
}

/// The kernels of `four_products.cu`.
pub mod matrix_cores {
    gpustream::include_kernels!("four_products");
}

/// The kernels of `nbody.cu`.
pub mod nbody {
    gpustream::include_kernels!("nbody");
}

/// The kernels of `poisson.cu`.
pub mod poisson {
    gpustream::include_kernels!("poisson");
}

/// The option that names the device.
#[derive(clap::Args, Clone, Debug)]
pub struct DeviceArg {
    /// Device to run on: cpu, gpu, cuda:0, hip:1, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl DeviceArg {
    /// Returns the device's name if the option names one.
    fn given(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Opens the device.
    ///
    /// # Errors
    /// The device cannot be opened. The message also lists the devices of this machine, so that you can pick one.
    pub fn open(&self) -> Result<Device> {
        self.open_with(DeviceOptions::default())
    }

    /// Opens the device with options.
    ///
    /// # Errors
    /// Same as [`open`](Self::open).
    pub fn open_with(&self, options: DeviceOptions) -> Result<Device> {
        let opened = match &self.device {
            Some(name) => Device::open_with(name, options),
            None => Device::best_with(options),
        };
        opened.map_err(|error| anyhow!("{error}\n\nDevices of this machine: {}", present()))
    }

    /// Opens all devices of the named device's backend, and returns one for each part of the work, beginning with the named
    /// one. `parts` gets the number of devices. If there are more parts, some of them share a device.
    ///
    /// # Errors
    /// Same as [`open`](Self::open).
    pub fn open_parts(&self, parts: impl FnOnce(usize) -> usize) -> Result<Vec<Device>> {
        let first = self.open()?; // because its error lists the devices
        let mut devices = Device::all_of(first.info().backend.as_str())?;
        devices.rotate_left(first.info().ordinal);
        let parts = parts(devices.len());
        Ok(iter::repeat_n(devices, parts).flatten().take(parts).collect())
    }
}

/// Returns a parser for a number of elements. It accepts at least 1, and at most so many that their bytes can still be
/// counted.
pub fn size() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1 << 40)
}

/// Makes `len` values in host memory, each from its index.
///
/// # Errors
/// Host memory has no room for the values. `collect` would abort the program instead, because `Vec` cannot report that.
pub fn values<T>(len: usize, value: impl FnMut(usize) -> T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| {
        let bytes = len as f64 * size_of::<T>() as f64;
        anyhow!("host memory has no room for {len} values ({bytes:.1e} bytes): give a smaller --size")
    })?;
    values.extend((0..len).map(value));
    Ok(values)
}

/// Runs an example and turns its result into the exit code: 0, or 1 after an error message. Prints no backtrace, because it
/// would hide the message.
pub fn main(run: impl FnOnce() -> Result<()>) -> ExitCode {
    // SAFETY: no other thread runs yet, and the default action calls no function of this program. We do this because Rust
    // programs ignore the signal: if you pipe the output into `head`, they would panic as soon as it closes the pipe.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns true on the CPU backend. The examples then choose smaller sizes.
pub fn is_cpu(device: &Device) -> bool {
    device.info().backend == gpustream::BackendName::CPU
}

/// Says in one line what a replay did.
pub fn summary(replay: &Replay) -> String {
    let stats = replay.stats();
    format!(
        "replay: {} runs were {} graph launches; {} nodes were set, and {} operations submitted one by one",
        stats.runs, stats.launches, stats.nodes_set, stats.plain
    )
}

/// Returns the names of the devices that this machine has.
fn present() -> String {
    let names: Vec<String> = backends()
        .iter()
        .flat_map(|backend| {
            (0..backend.device_count().unwrap_or(0)).map(|ordinal| format!("{}:{ordinal}", backend.name()))
        })
        .collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::values;

    #[test]
    fn values_without_room_are_an_error() {
        assert_eq!(values(3, |i| i * 2).ok(), Some(vec![0, 2, 4]));
        for len in [usize::MAX / 8, usize::MAX] {
            let error = values(len, |i| i as u64).err().map(|error| error.to_string());
            assert!(error.is_some_and(|text| text.contains("--size")));
        }
    }
}
