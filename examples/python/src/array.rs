//! The arrays that this module makes. The caller turns them into arrays of another library.

use std::sync::{Arc, Mutex, PoisonError};

use gpustream::{Buffer, Stream};
use gpustream_dlpack::{DLManagedTensor, DLManagedTensorVersioned, Element, Managed, into_dlpack_with_owner};
use gpustream_math::Complex;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::capsule::{self, Named};
use crate::device::{Opened, error};
use crate::lease::Object;
use crate::stream::{Consumer, Current};

/// The memory of an array, which several calls of this module may use at once.
#[derive(Clone)]
pub(crate) enum Memory {
    Float32(Arc<Buffer<f32>>),
    Complex64(Arc<Buffer<Complex<f32>>>),
}

/// The types that arrays can have.
pub(crate) trait Number: Element {
    /// What Python calls the type.
    const NAME: &'static str;

    fn memory(buffer: Arc<Buffer<Self>>) -> Memory;

    /// Returns the buffer if it has this type.
    fn buffer(memory: Memory) -> Option<Arc<Buffer<Self>>>;
}

macro_rules! numbers {
    ($($type:ty, $variant:ident, $name:literal;)*) => {$(
        impl Number for $type {
            const NAME: &'static str = $name;

            fn memory(buffer: Arc<Buffer<Self>>) -> Memory {
                Memory::$variant(buffer)
            }

            fn buffer(memory: Memory) -> Option<Arc<Buffer<Self>>> {
                if let Memory::$variant(buffer) = memory { Some(buffer) } else { None }
            }
        }
    )*};
}
numbers! {
    f32, Float32, "float32";
    Complex<f32>, Complex64, "complex64";
}

/// An array of float32 or complex64 in memory that this module allocated. `torch.from_dlpack`, `cupy.from_dlpack` and
/// `numpy.from_dlpack` can turn it into an array of their library without a copy. You can do that once, because the library then
/// owns the memory.
#[pyclass(frozen)]
pub(crate) struct Array {
    /// `None` once the array was given to a library.
    memory: Mutex<Option<Memory>>,
    shape: Vec<usize>,
    device: &'static Opened,
    /// The stream in which the array was made.
    made_in: Current,
}

impl Array {
    pub(crate) fn new<T: Number>(
        buffer: Buffer<T>,
        shape: Vec<usize>,
        device: &'static Opened,
        made_in: Current,
    ) -> Self {
        Self { memory: Mutex::new(Some(T::memory(Arc::new(buffer)))), shape, device, made_in }
    }

    /// Returns the handle of the stream that the array was made in.
    pub(crate) fn handle(&self) -> usize {
        self.made_in.stream.as_raw().0
    }

    /// Shares the memory with a call of this module.
    pub(crate) fn share<T: Number>(&self) -> PyResult<(Arc<Buffer<T>>, Vec<usize>)> {
        let memory =
            self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(given_away)?;
        let other =
            || PyValueError::new_err(format!("the array's elements are not {}; convert it first", T::NAME));
        Ok((T::buffer(memory).ok_or_else(other)?, self.shape.clone()))
    }

    /// Gives the memory to a consumer that works on the stream with this number.
    fn export<'py, F: Named>(&self, py: Python<'py>, number: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
        let consumer = Consumer::find(py, self.device, number)?;
        let (stream, owner) = match &consumer {
            Some(consumer) => (&consumer.stream, &consumer.owner),
            None => (&self.made_in.stream, &self.made_in.owner),
        };
        let owner = owner.as_ref().map(|owner| Object::new(owner.clone_ref(py)));
        let managed = py.detach(|| {
            let mut kept = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            match kept.take().ok_or_else(given_away)? {
                Memory::Float32(buffer) => self.give::<_, F>(&mut kept, buffer, stream, owner),
                Memory::Complex64(buffer) => self.give::<_, F>(&mut kept, buffer, stream, owner),
            }
        })?;
        capsule::give(py, managed)
    }

    /// Makes a tensor of the memory, or keeps the memory if a call of this module uses it.
    fn give<T: Number, F: Named>(
        &self,
        kept: &mut Option<Memory>,
        buffer: Arc<Buffer<T>>,
        stream: &Stream,
        owner: Option<Object>,
    ) -> PyResult<Managed<F>> {
        match Arc::try_unwrap(buffer) {
            Ok(buffer) => into_dlpack_with_owner(buffer, &self.shape, stream, owner).map_err(error),
            Err(shared) => {
                *kept = Some(T::memory(shared));
                Err(PyBufferError::new_err(
                    "another thread is using the array; call `__dlpack__` again afterwards",
                ))
            }
        }
    }
}

#[pymethods]
impl Array {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn __dlpack_device__(&self) -> (u32, i32) {
        (self.device.name.device_type, self.device.name.device_id)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(true) || dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            return Err(PyBufferError::new_err(
                "`__dlpack__` neither copies nor moves the array; copy it afterwards",
            ));
        }
        match max_version {
            Some((1.., _)) => self.export::<DLManagedTensorVersioned>(py, stream),
            _ => self.export::<DLManagedTensor>(py, stream),
        }
    }

    fn __repr__(&self) -> String {
        format!("<array of shape {:?} on {:?}>", self.shape, self.device.device)
    }
}

fn given_away() -> PyErr {
    PyBufferError::new_err(
        "the array was already given to a library; use the array that the library made of it",
    )
}
