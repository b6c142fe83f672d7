//! Finds the caller's current stream, and the streams that DLPack's numbers stand for.

use gpustream::hal::RawStream;
use gpustream::{DefaultStream, Stream};
use gpustream_dlpack::ffi::DLDeviceType as Type;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::array::Array;
use crate::device::{Opened, error};

/// The stream that a call works in.
pub(crate) struct Current {
    pub(crate) stream: Stream,
    /// The number that we give producers. `None` on the CPU.
    pub(crate) number: Option<i64>,
    /// The Python object that owns the stream, if there is one. It keeps the stream alive.
    pub(crate) owner: Option<Py<PyAny>>,
}

impl Current {
    /// Finds the caller's stream: `given`, or else the current stream of the first array's library that has one, or else the
    /// stream that one of our own arrays was made in, or else the legacy default stream.
    pub(crate) fn find(
        device: &'static Opened,
        arrays: &[&Bound<'_, PyAny>],
        given: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = arrays[0].py();
        if device.is_cpu() {
            if given.is_some() {
                return Err(PyValueError::new_err("arrays on the CPU have no stream; leave `stream` out"));
            }
            let stream = py.detach(|| device.device.stream()).map_err(error)?;
            return Ok(Self { stream, number: None, owner: None });
        }
        let mut owner = given.cloned();
        for array in arrays {
            if owner.is_none() {
                owner = current_of(array, device.name.device_id)?;
            }
        }
        let handle = match &owner {
            Some(owner) => handle(owner)?,
            None => {
                arrays.iter().find_map(|array| Some(array.cast::<Array>().ok()?.get().handle())).unwrap_or(0)
            }
        };
        // SAFETY: this is a stream of the device, because the documentation of `stream` asks for that or the arrays' library
        // says so. We keep its owner next to the value.
        let stream = py.detach(|| unsafe { device.device.stream_from_raw(RawStream(handle)) });
        // On CUDA, 0 would be ambiguous, so the legacy default stream is 1.
        let number = if device.name.device_type == Type::kDLCUDA { handle.max(1) } else { handle } as i64;
        Ok(Self { stream, number: Some(number), owner: owner.map(Bound::unbind) })
    }
}

/// Returns the stream that is current for the array's library, if we know how to ask that library.
fn current_of<'py>(array: &Bound<'py, PyAny>, device: i32) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, module) = (array.py(), array.get_type().module()?);
    let module = module.to_string_lossy();
    let library = module.split('.').next().unwrap_or_default();
    match library {
        "torch" => py.import("torch.cuda")?.call_method1("current_stream", (device,)).map(Some),
        "cupy" => py.import("cupy.cuda")?.call_method1("get_current_stream", (device,)).map(Some),
        _ => Ok(None),
    }
}

/// Returns the driver's handle of a stream. You may pass a number, or a stream object of PyTorch, CuPy or CUDA's own Python
/// library.
fn handle(stream: &Bound<'_, PyAny>) -> PyResult<usize> {
    if let Ok(handle) = stream.extract() {
        return Ok(handle);
    }
    for attribute in ["cuda_stream", "ptr"] {
        if let Some(handle) = stream.getattr_opt(attribute)? {
            return handle.extract();
        }
    }
    if let Some(protocol) = stream.getattr_opt("__cuda_stream__")? {
        let (_version, handle): (i64, usize) = protocol.call0()?.extract()?;
        return Ok(handle);
    }
    Err(PyTypeError::new_err(format!(
        "`{}` is not a stream; pass the driver's handle",
        stream.get_type().name()?
    )))
}

/// A consumer's stream, with the Python object that owns it if we know one.
pub(crate) struct Consumer {
    pub(crate) stream: Stream,
    pub(crate) owner: Option<Py<PyAny>>,
}

impl Consumer {
    /// Finds the stream that a consumer works on. Returns `None` if the consumer wants no order, or works on the CPU.
    pub(crate) fn find(
        py: Python<'_>,
        device: &'static Opened,
        number: Option<i64>,
    ) -> PyResult<Option<Self>> {
        let default = |which| {
            let stream = py.detach(|| device.device.default_stream(which)).map_err(error)?;
            Ok(Some(Self { stream, owner: None }))
        };
        match (device.name.device_type, number) {
            (_, Some(-1)) | (Type::kDLCPU, None) => Ok(None),
            (Type::kDLCUDA, None | Some(1)) | (Type::kDLROCM, None | Some(0)) => {
                default(DefaultStream::Legacy)
            }
            (Type::kDLCUDA, Some(2)) => default(DefaultStream::PerThread),
            (Type::kDLCUDA | Type::kDLROCM, Some(number @ 3..)) => {
                let owner = owner_of(py, device.name.device_id, number as usize)?;
                // SAFETY: by the protocol, this is the consumer's stream. It must last until the array is deleted. PyTorch's
                // and JAX's streams are never destroyed, and CuPy's lasts as long as its owner, which we keep.
                let stream =
                    py.detach(|| unsafe { device.device.stream_from_raw(RawStream(number as usize)) });
                Ok(Some(Self { stream, owner }))
            }
            (_, Some(number)) => Err(PyValueError::new_err(format!(
                "`stream={number}` does not stand for a stream: DLPack has no such number for this device"
            ))),
            (_, None) => Ok(None),
        }
    }
}

/// Returns the object that owns this stream and will destroy it, if the stream is CuPy's current one.
fn owner_of(py: Python<'_>, device: i32, handle: usize) -> PyResult<Option<Py<PyAny>>> {
    let loaded = py.import("sys")?.getattr("modules")?;
    if !loaded.contains("cupy")? {
        return Ok(None);
    }
    let current = py.import("cupy.cuda")?.call_method1("get_current_stream", (device,))?;
    Ok((self::handle(&current)? == handle).then(|| current.unbind()))
}
