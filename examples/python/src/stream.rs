//! Streams: the caller's current one, and the numbers that DLPack has for them.

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
    /// The number that a producer is given; none on the CPU.
    pub(crate) number: Option<i64>,
    /// Keeps the stream alive, where an object of Python's owns it.
    pub(crate) owner: Option<Py<PyAny>>,
}

impl Current {
    /// Finds the caller's stream: the one that he gives, or the current one of a library whose array is among these.
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
        // SAFETY: the stream is one of the device's, by the documentation of the `stream` argument or by the library that
        // says so; its owner is kept beside the value.
        let stream = py.detach(|| unsafe { device.device.stream_from_raw(RawStream(handle)) });
        // On CUDA, 0 is ambiguous and 1 is the legacy default stream.
        let number = if device.name.device_type == Type::kDLCUDA { handle.max(1) } else { handle } as i64;
        Ok(Self { stream, number: Some(number), owner: owner.map(Bound::unbind) })
    }
}

/// Returns the current stream of the array's library, where that is one whose streams are known.
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

/// Returns the driver's handle of a stream: a number, or an object of PyTorch's, CuPy's or CUDA's own Python library.
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
        "`{}` is no stream; give the driver's handle",
        stream.get_type().name()?
    )))
}

/// A consumer's stream, with the object of Python's that owns it, where that is known.
pub(crate) struct Consumer {
    pub(crate) stream: Stream,
    pub(crate) owner: Option<Py<PyAny>>,
}

impl Consumer {
    /// Finds the stream that a consumer works on; none where he wants no order, or is the CPU.
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
                // SAFETY: the consumer's stream, by the protocol. It must last until the array is deleted: PyTorch's
                // and JAX's last for good, CuPy's for as long as its owner, which is kept.
                let stream =
                    py.detach(|| unsafe { device.device.stream_from_raw(RawStream(number as usize)) });
                Ok(Some(Self { stream, owner }))
            }
            (_, Some(number)) => Err(PyValueError::new_err(format!(
                "`stream={number}` is none of the numbers that DLPack has for the streams of this device"
            ))),
            (_, None) => Ok(None),
        }
    }
}

/// Returns the object that destroys this stream in the end, where that is CuPy's current one.
fn owner_of(py: Python<'_>, device: i32, handle: usize) -> PyResult<Option<Py<PyAny>>> {
    let loaded = py.import("sys")?.getattr("modules")?;
    if !loaded.contains("cupy")? {
        return Ok(None);
    }
    let current = py.import("cupy.cuda")?.call_method1("get_current_stream", (device,))?;
    Ok((self::handle(&current)? == handle).then(|| current.unbind()))
}
