//! What the examples share: the `--device` option, how they end, and aligned tables.

mod table;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use gpustream::{Device, backends};

pub use table::Table;

/// The kernels of `overlap.cu`.
pub mod overlap {
    gpustream::include_kernels!("overlap");
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
        let opened = match &self.device {
            Some(name) => Device::open(name),
            None => Device::best(),
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
