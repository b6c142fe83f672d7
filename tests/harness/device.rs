//! Opening the devices under test, and what can be expected of them.

use std::sync::Arc;
use std::thread;

use gpustream::hal::{self, Probe};
use gpustream::{Backend, Device, DeviceOptions, ErrorKind, Result};
use gpustream_cpu::CpuOptions;

use crate::gate::is_serial;

/// The CPU with warps of 64 lanes.
pub(crate) const WIDE: &str = "cpu64";

/// The CPU as a device with warps of 64 lanes, which the driver's own list does not have.
struct Wide;

// SAFETY: the CPU backend makes a device of its own at each opening.
unsafe impl Backend for Wide {
    fn name(&self) -> &'static str {
        "cpu"
    }
    fn device_count(&self) -> Result<usize> {
        Ok(1)
    }
    fn open(&self, _: usize) -> Result<Arc<dyn hal::Device>> {
        // A value of its own each time, as the trait promises.
        gpustream_cpu::open_with(CpuOptions::from_env().warp_size(64))
    }
    fn probe(&self) -> Probe {
        Probe::default()
    }
}

/// Opens a device by the name it has in tests.
///
/// # Errors
/// Those of [`Device::open_with`].
pub fn open(name: &str, options: DeviceOptions) -> Result<Device> {
    if name == WIDE { Device::open_on(&Wide, 0, options) } else { Device::open_with(name, options) }
}

/// The device again, with nothing shared but the driver's context, and other options.
///
/// # Errors
/// Those of [`Device::open_with`].
pub fn open_again(device: &Device, options: DeviceOptions) -> Result<Device> {
    let info = device.info();
    if info.backend == "cpu" && info.warp_size == 64 {
        return open(WIDE, options);
    }
    open(&format!("{}:{}", info.backend, info.ordinal), options)
}

/// Whether kernels of two streams run at once.
pub fn overlaps(device: &Device) -> bool {
    device.info().concurrent_kernels && !is_serial()
}

/// Whether a stream that is blocked holds up itself alone.
pub fn streams_are_independent(device: &Device) -> bool {
    device.info().hardware_queues == 0
}

/// Waits for the device, which is refused while another test of the same context captures.
///
/// # Errors
/// Those of [`Device::synchronize`].
pub fn synchronize(device: &Device) -> Result<()> {
    loop {
        match device.synchronize() {
            Err(error) if error.kind() == ErrorKind::Captured => thread::yield_now(),
            other => return other,
        }
    }
}
