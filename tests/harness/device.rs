//! Opens the devices under test, and says what they can do.

use std::sync::LazyLock;
use std::thread;

use gpustream::{Backend, Device, DeviceOptions, ErrorKind, Result, Stream};
use gpustream_cpu::CpuOptions;

use crate::gate::is_serial;
use crate::sync;

/// What tests call the CPU device that has warps of 64 lanes.
pub(crate) const WIDE: &str = "cpu64";

/// Opens a device by the name that tests use for it.
///
/// # Errors
/// The errors of [`Device::open_with`].
pub fn open(name: &str, options: DeviceOptions) -> Result<Device> {
    /// The CPU with warps of 64 lanes, because no registered backend offers one.
    static CPU_64: LazyLock<Box<dyn Backend>> =
        LazyLock::new(|| Box::new(gpustream_cpu::backend_with(CpuOptions::from_env().warp_size(64))));
    if name == WIDE { Device::open_on(&**CPU_64, 0, options) } else { Device::open_with(name, options) }
}

/// Returns the name that tests use for the device.
pub(crate) fn name_of(device: &Device) -> String {
    let info = device.info();
    if info.backend == gpustream::BackendName::CPU && info.warp_size == 64 {
        return WIDE.to_owned();
    }
    format!("{}:{}", info.backend, info.ordinal)
}

/// Opens the device again with other options. The two handles share nothing but the driver's context.
///
/// # Errors
/// The errors of [`Device::open_with`].
pub fn open_again(device: &Device, options: DeviceOptions) -> Result<Device> {
    open(&name_of(device), options)
}

/// Makes as many streams as the caller's pattern has places.
///
/// # Errors
/// The errors of the device.
///
/// # Panics
/// Never, because the array gets as many streams as it has places.
pub fn streams<const STREAMS: usize>(device: &Device) -> Result<[Stream; STREAMS]> {
    let streams = (0..STREAMS).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    Ok(streams.try_into().expect("that many streams"))
}

/// Loads the kernels that can wait, and makes as many streams as the caller's pattern has places.
///
/// # Errors
/// The errors of the device.
pub fn kernels_and_streams<const STREAMS: usize>(
    device: &Device,
) -> Result<(sync::Kernels, [Stream; STREAMS])> {
    Ok((sync::Kernels::load(device)?, streams(device)?))
}

/// Loads kernels with `load`, and makes a stream.
///
/// # Errors
/// The errors of the device.
pub fn with_stream<K>(device: &Device, load: fn(&Device) -> Result<K>) -> Result<(K, Stream)> {
    Ok((load(device)?, device.stream()?))
}

/// Returns true if kernels of two streams can run at the same time.
pub fn overlaps(device: &Device) -> bool {
    device.info().features.concurrent_kernels && !is_serial()
}

/// Returns true if the device can run kernels whose blocks wait for each other.
pub fn has_cooperative_launches(device: &Device) -> bool {
    device.info().features.cooperative_launch
}

/// Returns true if a blocked stream can never delay another one.
pub fn streams_are_independent(device: &Device) -> bool {
    device.info().limits.hardware_queues == 0
}

/// Waits for the device. Another test on the same context may be capturing, and then the wait is refused. In that case
/// we try again.
///
/// # Errors
/// The other errors of [`Device::synchronize`].
pub fn synchronize(device: &Device) -> Result<()> {
    loop {
        match device.synchronize() {
            Err(error) if error.kind() == ErrorKind::Captured => thread::yield_now(),
            other => return other,
        }
    }
}
