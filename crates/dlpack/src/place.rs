//! Devices, and what DLPack calls them.

use dlpack_rs::ffi::{DLDevice, DLDeviceType as Type};
use gpustream::{BackendName, Device, Error, ErrorKind, Result};

/// Returns DLPack's name for a device, as `__dlpack_device__` must return it.
///
/// ```
/// let device = gpustream_dlpack::device_of(&gpustream::Device::open("cpu")?)?;
/// assert_eq!((device.device_type, device.device_id), (1, 0));
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Unsupported`] if DLPack does not know the device's backend.
pub fn device_of(device: &Device) -> Result<DLDevice> {
    let info = device.info();
    let (device_type, device_id) = match info.backend {
        BackendName::CPU => (Type::kDLCPU, Some(0)),
        BackendName::CUDA => (Type::kDLCUDA, i32::try_from(info.ordinal).ok()),
        BackendName::HIP => (Type::kDLROCM, i32::try_from(info.ordinal).ok()),
        _ => (0, None),
    };
    device_id.map(|device_id| DLDevice { device_type, device_id }).ok_or_else(|| {
        let (backend, ordinal) = (info.backend, info.ordinal);
        Error::unsupported(format!(
            "a tensor on {backend}:{ordinal}, because DLPack only knows CPU, CUDA and ROCm devices,"
        ))
    })
}

/// Checks that a tensor's memory is on `device`.
pub(crate) fn check(theirs: DLDevice, device: &Device) -> Result<()> {
    let ours = device_of(device)?;
    // There is only one CPU, whatever number a tensor gives it.
    let is_cpu = ours.device_type == Type::kDLCPU && theirs.device_type == Type::kDLCPU;
    if is_cpu || (theirs.device_type, theirs.device_id) == (ours.device_type, ours.device_id) {
        return Ok(());
    }
    let info = device.info();
    let advice = match theirs.device_type {
        Type::kDLCPU | Type::kDLCUDA | Type::kDLROCM => {
            "copy it there first, or use a stream of the tensor's device"
        }
        Type::kDLCUDAHost | Type::kDLROCMHost => "copy it to the device, or to ordinary host memory, first",
        _ => "copy it to the device first",
    };
    Err(Error::new(
        ErrorKind::DeviceMismatch,
        format!(
            "the tensor is in memory of {}, but the stream belongs to {}:{}: {advice}",
            name(theirs),
            info.backend,
            info.ordinal
        ),
    ))
}

fn name(of: DLDevice) -> String {
    let id = of.device_id;
    match of.device_type {
        Type::kDLCPU => "the CPU".to_owned(),
        Type::kDLCUDA => format!("cuda:{id}"),
        Type::kDLROCM => format!("hip:{id}"),
        Type::kDLCUDAHost => "the host, pinned by CUDA".to_owned(),
        Type::kDLROCMHost => "the host, pinned by ROCm".to_owned(),
        Type::kDLCUDAManaged => "CUDA that migrates between devices".to_owned(),
        code => format!("device {id} of DLPack type {code}"),
    }
}
