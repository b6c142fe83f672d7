//! What the examples share: the `--device` option, how they end, and aligned tables.

mod table;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use gpustream::{Device, DeviceOptions, backends};

pub use table::Table;

/// The kernels of `overlap.cu`.
pub mod overlap {
    gpustream::include_kernels!("overlap");
}

/// The kernels of `async.cu`.
pub mod asynchronous {
    gpustream::include_kernels!("async");

    /// What `churn` makes of `x`.
    #[must_use]
    pub fn churned(x: u32, value: u32, rounds: u32) -> u32 {
        (0..rounds).fold(x, |x, _| x.wrapping_mul(5).wrapping_add(value))
    }
}

/// Which device to run on.
#[derive(clap::Args, Clone, Debug)]
pub struct DeviceArg {
    /// Where to run: cpu, cuda:0, hip:1, … [default: the best there is, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

impl DeviceArg {
    /// Opens the device.
    ///
    /// # Errors
    /// What stands in the way, and which devices there are instead.
    pub fn open(&self) -> Result<Device> {
        self.open_with(DeviceOptions::default())
    }

    /// Opens the device with options.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(&self, options: DeviceOptions) -> Result<Device> {
        let opened = match &self.device {
            Some(name) => Device::open_with(name, options),
            None => Device::best_with(options),
        };
        opened.map_err(|error| anyhow!("{error}\n\nDevices of this machine: {}", present()))
    }
}

/// Runs an example and turns its result into the exit code: 0, or 1 after a message. A backtrace would bury the
/// message, so there is none.
pub fn main(run: impl FnOnce() -> Result<()>) -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether this is the CPU backend, where the examples choose smaller sizes.
pub fn is_cpu(device: &Device) -> bool {
    device.info().backend == "cpu"
}

/// The names of the devices that are there.
fn present() -> String {
    let names: Vec<String> = backends()
        .iter()
        .flat_map(|backend| {
            (0..backend.device_count().unwrap_or(0)).map(|ordinal| format!("{}:{ordinal}", backend.name()))
        })
        .collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
