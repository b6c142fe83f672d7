//! Takes arrays from callers: the module's own, those with `__dlpack__`, and those with `__cuda_array_interface__`.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use gpustream::hal::RawStream;
use gpustream::{AsView as _, Buffer, Error, ErrorKind, Result, Stream, View, ViewMut};
use gpustream_dlpack::ffi::{DLDataType, DLDataTypeCode as Code, DLDevice, DLDeviceType as Type, DLTensor};
use gpustream_dlpack::{DLManagedTensor, DLManagedTensorVersioned, Managed, Tensor, from_dlpack};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Array, Number};
use crate::capsule;
use crate::device::error;
use crate::lease;
use crate::stream::Current;

/// An array that was taken out of Python but is not ready for work yet.
pub(crate) enum Input<T> {
    /// An array that this module made.
    Ours(Arc<Buffer<T>>, Vec<usize>),
    /// Another library's array.
    Theirs {
        tensor: Managed<DLManagedTensorVersioned>,
        /// If the producer did not make our stream wait for the array, the stream that we still have to wait for.
        after: Option<usize>,
    },
}

impl<T: Number> Input<T> {
    /// Asks an array for its memory. The producer is told the current stream, and makes it wait for the array.
    pub(crate) fn take(array: &Bound<'_, PyAny>, current: &Current) -> PyResult<Self> {
        if let Ok(ours) = array.cast::<Array>() {
            let (buffer, shape) = ours.get().share()?;
            return Ok(Self::Ours(buffer, shape));
        }
        if !array.hasattr("__dlpack__")? {
            let Some(interface) = cuda_interface(array)? else {
                return Err(PyTypeError::new_err("the array has no `__dlpack__`"));
            };
            return Ok(interface.input(array, current));
        }
        let arguments = PyDict::new(array.py());
        arguments.set_item("stream", current.number)?;
        arguments.set_item("max_version", (1, 0))?;
        let made = match array.call_method("__dlpack__", (), Some(&arguments)) {
            // The producer is older than DLPack 1.0, which added `max_version`.
            Err(error) if error.is_instance_of::<PyTypeError>(array.py()) => {
                arguments.del_item("max_version")?;
                array.call_method("__dlpack__", (), Some(&arguments))?
            }
            made => made?,
        };
        let capsule = capsule::of(&made)?;
        let tensor = if let Some(tensor) = capsule::take::<DLManagedTensorVersioned>(capsule)? {
            lease::of_tensor(tensor)
        } else if let Some(tensor) = capsule::take::<DLManagedTensor>(capsule)? {
            lease::of_tensor(tensor)
        } else {
            return Err(capsule::refused(capsule));
        };
        Ok(Self::Theirs { tensor: tensor.map_err(error)?, after: None })
    }

    /// Makes the memory ready, so that `stream` may work on it.
    pub(crate) fn ready(self, stream: &Stream) -> Result<Ready<T>> {
        match self {
            Self::Ours(buffer, shape) => Ok(Ready::Ours(buffer, shape)),
            Self::Theirs { tensor, after } => {
                if let Some(after) = after {
                    // SAFETY: the array's library says that this is a stream of the device, and the value does not outlive
                    // this call.
                    let after = unsafe { stream.device().stream_from_raw(RawStream(after)) };
                    stream.wait(&after.record()?)?;
                }
                // SAFETY: the memory is ready in the order of the stream, because the producer or the line above saw to
                // that. The module's documentation asks callers to use arrays elsewhere only in the order of that stream.
                Ok(Ready::Theirs(unsafe { from_dlpack(stream, tensor) }?))
            }
        }
    }
}

/// An array that the stream may work on.
pub(crate) enum Ready<T> {
    Ours(Arc<Buffer<T>>, Vec<usize>),
    Theirs(Tensor<T>),
}

impl<T: Number> Ready<T> {
    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::Ours(_, shape) => shape,
            Self::Theirs(tensor) => tensor.shape(),
        }
    }

    pub(crate) fn view(&self) -> View<'_, T> {
        match self {
            Self::Ours(buffer, _) => buffer.view(),
            Self::Theirs(tensor) => tensor.view(),
        }
    }

    pub(crate) fn view_mut(&mut self) -> Result<ViewMut<'_, T>> {
        match self {
            Self::Theirs(tensor) => tensor.view_mut(),
            Self::Ours(..) => Err(Error::new(
                ErrorKind::InvalidArgument,
                "`out` is one of this module's arrays, which are not written again; pass an array of another library",
            )),
        }
    }
}

/// Returns the error for arrays whose shapes do not go together.
pub(crate) fn shapes_differ(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

/// Checks that `out` does not overlap what the call reads. The library cannot see that, because it takes two arrays from
/// outside for two pieces of memory, even if they are the same one.
pub(crate) fn check_apart<T: Number>(written: &View<'_, T>, read: &[View<'_, T>]) -> Result<()> {
    let range = |view: &View<'_, T>| view.as_raw().0..view.as_raw().0 + view.len() * size_of::<T>();
    let out = range(written);
    if read.iter().map(range).any(|input| input.start < out.end && out.start < input.end) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "`out` overlaps an input; give it memory of its own",
        ));
    }
    Ok(())
}

/// An array's `__cuda_array_interface__`, of version 2 or 3.
pub(crate) struct CudaInterface {
    pub(crate) address: usize,
    read_only: bool,
    element: DLDataType,
    shape: Vec<i64>,
    /// In elements. Empty if the array is contiguous.
    strides: Vec<i64>,
    stream: Option<usize>,
}

/// Reads an array's `__cuda_array_interface__` if it has one.
pub(crate) fn cuda_interface(array: &Bound<'_, PyAny>) -> PyResult<Option<CudaInterface>> {
    let Some(interface) = array.getattr_opt("__cuda_array_interface__")? else { return Ok(None) };
    let get = |name: &str| {
        let missing = || PyValueError::new_err(format!("`__cuda_array_interface__` has no {name:?}"));
        interface.cast::<PyDict>()?.get_item(name)?.filter(|value| !value.is_none()).ok_or_else(missing)
    };
    let optional = |name: &str| {
        let item = interface.cast::<PyDict>()?.get_item(name)?;
        PyResult::Ok(item.filter(|value| !value.is_none()))
    };
    let (address, read_only) = get("data")?.extract()?;
    let kind: String = get("typestr")?.extract()?;
    let (element, size) = element(&kind)?;
    let shape: Vec<i64> = get("shape")?.extract()?;
    let strides: Vec<i64> = optional("strides")?.map_or(Ok(Vec::new()), |strides| strides.extract())?;
    if optional("mask")?.is_some() {
        return Err(PyValueError::new_err("an array with a mask cannot be used; pass its values alone"));
    }
    if (!strides.is_empty() && strides.len() != shape.len())
        || strides.iter().any(|stride| stride % size != 0)
    {
        return Err(PyValueError::new_err(format!(
            "strides {strides:?} do not fit {shape:?} elements of {size} bytes"
        )));
    }
    let strides = strides.iter().map(|stride| stride / size).collect();
    let stream = optional("stream")?.map(|stream| stream.extract()).transpose()?;
    if stream == Some(0) {
        return Err(PyValueError::new_err(
            "`__cuda_array_interface__` does not allow stream 0; use 1 for the legacy default stream",
        ));
    }
    Ok(Some(CudaInterface { address, read_only, element, shape, strides, stream }))
}

/// Reads a type such as `<f4`. Returns it with its size in bytes.
fn element(kind: &str) -> PyResult<(DLDataType, i64)> {
    let unknown = || {
        PyValueError::new_err(format!("elements of type {kind:?} cannot be used; convert the array first"))
    };
    let mut letters = kind.chars();
    let (Some('<' | '|'), Some(letter)) = (letters.next(), letters.next()) else { return Err(unknown()) };
    let code = match letter {
        'i' => Code::kDLInt,
        'u' => Code::kDLUInt,
        'f' => Code::kDLFloat,
        'c' => Code::kDLComplex,
        'b' => Code::kDLBool,
        _ => return Err(unknown()),
    };
    let size: u8 =
        letters.as_str().parse().ok().filter(|size| (1..=16).contains(size)).ok_or_else(unknown)?;
    Ok((DLDataType { code: code as u8, bits: size * 8, lanes: 1 }, i64::from(size)))
}

impl CudaInterface {
    fn input<T>(self, array: &Bound<'_, PyAny>, current: &Current) -> Input<T> {
        let Self { address, read_only, element, shape, strides, stream } = self;
        let tensor = DLTensor {
            data: ptr::with_exposed_provenance_mut::<c_void>(address),
            device: DLDevice {
                device_type: Type::kDLCUDA,
                device_id: current.stream.device().info().ordinal as i32,
            },
            ndim: 0,
            dtype: element,
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let tensor = lease::of_object(tensor, read_only, (shape, strides), array.clone().unbind());
        // If the array was made on another stream than the caller's, we have to wait for that one.
        let after = stream.filter(|stream| current.number != Some(*stream as i64));
        Input::Theirs { tensor, after }
    }
}
