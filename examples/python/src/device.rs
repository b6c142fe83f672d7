//! Finds devices by DLPack's names, and opens each of them once.

use std::sync::{Mutex, PoisonError};

use gpustream::hal::RawBuffer;
use gpustream::{Device, Error, ErrorKind};
use gpustream_dlpack::DLDevice;
use gpustream_dlpack::ffi::DLDeviceType as Type;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::input;
use crate::scale_add::Kernels;

/// A device with this module's kernels. It stays open until the process ends.
pub(crate) struct Opened {
    pub(crate) name: DLDevice,
    pub(crate) device: Device,
    pub(crate) kernels: Kernels,
}

static OPENED: Mutex<Vec<&'static Opened>> = Mutex::new(Vec::new());

impl Opened {
    pub(crate) fn is_cpu(&self) -> bool {
        self.name.device_type == Type::kDLCPU
    }
}

/// Returns all open devices.
pub(crate) fn all() -> Vec<&'static Opened> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Returns the device that all these arrays are on.
pub(crate) fn of_all(py: Python<'_>, arrays: &[&Bound<'_, PyAny>]) -> PyResult<&'static Opened> {
    let mut devices = Vec::new();
    for array in arrays {
        devices.push(of(array)?);
    }
    if let Some(other) = devices.iter().find(|device| **device != devices[0]) {
        return Err(PyValueError::new_err(format!(
            "one array is on {} and another on {}; copy one of them first",
            name(devices[0])?,
            name(*other)?
        )));
    }
    let (device_type, device_id) = devices[0];
    let name = name(devices[0])?;
    // Release the interpreter's lock, because the first call opens the device, which takes a while. While another thread
    // does that, this one waits for `OPENED` without stopping Python.
    py.detach(|| open(DLDevice { device_type, device_id }, &name)).map_err(error)
}

/// Asks an array which device it is on.
fn of(array: &Bound<'_, PyAny>) -> PyResult<(u32, i32)> {
    if array.hasattr("__dlpack_device__")? {
        return array.call_method0("__dlpack_device__")?.extract();
    }
    let Some(interface) = input::cuda_interface(array)? else {
        let kind = array.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "`{kind}` is not an array: it has neither `__dlpack__` nor `__cuda_array_interface__`"
        )));
    };
    // The interface does not say which device, but the driver knows.
    let first = DLDevice { device_type: Type::kDLCUDA, device_id: 0 };
    let address = RawBuffer(interface.address);
    let ordinal =
        array.py().detach(|| open(first, "cuda:0")?.device.raw().ordinal_of(address)).map_err(error)?;
    Ok((Type::kDLCUDA, i32::try_from(ordinal.unwrap_or(0))?))
}

fn name((device_type, id): (u32, i32)) -> PyResult<String> {
    match device_type {
        Type::kDLCPU => Ok("cpu".to_owned()),
        Type::kDLCUDA => Ok(format!("cuda:{id}")),
        Type::kDLROCM => Ok(format!("hip:{id}")),
        _ => Err(PyValueError::new_err(format!(
            "the array is on device {id} of DLPack's type {device_type}; copy it to the CPU, to CUDA or to ROCm first"
        ))),
    }
}

fn open(name: DLDevice, device: &str) -> gpustream::Result<&'static Opened> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |other: &DLDevice| (other.device_type, other.device_id) == (name.device_type, name.device_id);
    if let Some(found) = opened.iter().find(|opened| same(&opened.name)) {
        return Ok(found);
    }
    let device = Device::open(device)?;
    let kernels = Kernels::load(&device)?;
    let found = Box::leak(Box::new(Opened { name, device, kernels }));
    opened.push(found);
    Ok(found)
}

/// Turns gpustream's error into an exception.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(crate) fn error(error: Error) -> PyErr {
    match error.kind() {
        ErrorKind::InvalidArgument
        | ErrorKind::ArgumentMismatch
        | ErrorKind::DeviceMismatch
        | ErrorKind::ContractViolated => PyValueError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}
