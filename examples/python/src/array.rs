//! Arrays that the module makes, for the caller to turn into his own kind.

use std::sync::{Arc, Mutex, PoisonError};

use gpustream::Buffer;
use gpustream_dlpack::{DLManagedTensor, DLManagedTensorVersioned, Managed, into_dlpack_with_owner};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::capsule::{self, Named};
use crate::device::{Opened, error};
use crate::input::Input;
use crate::lease::Object;
use crate::stream::{Consumer, Current};

/// An array of float32 in memory of the module's. `torch.from_dlpack`, `cupy.from_dlpack` and `numpy.from_dlpack` make an
/// array of theirs out of it, once and without a copy.
#[pyclass(frozen)]
pub(crate) struct Array {
    /// Taken by the library that the array is given to.
    buffer: Mutex<Option<Arc<Buffer<f32>>>>,
    shape: Vec<usize>,
    device: &'static Opened,
    /// The stream in which the array was made.
    made_in: Current,
}

impl Array {
    pub(crate) fn new(
        buffer: Buffer<f32>,
        shape: Vec<usize>,
        device: &'static Opened,
        made_in: Current,
    ) -> Self {
        Self { buffer: Mutex::new(Some(Arc::new(buffer))), shape, device, made_in }
    }

    /// Returns the handle of the stream in which the array was made.
    pub(crate) fn handle(&self) -> usize {
        self.made_in.stream.as_raw().0
    }

    /// Returns the memory, for a call of this module's.
    pub(crate) fn share(&self) -> PyResult<Input> {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.clone().map(|buffer| Input::Ours(buffer, self.shape.clone())).ok_or_else(given_away)
    }

    /// Takes the memory, for another library.
    fn take(&self) -> PyResult<Buffer<f32>> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = buffer.take().ok_or_else(given_away)?;
        Arc::try_unwrap(taken).map_err(|shared| {
            *buffer = Some(shared);
            PyBufferError::new_err("another thread is using the array; give it away afterwards")
        })
    }

    /// Gives the memory to a consumer who works on the stream that has this number.
    fn export<'py, F: Named>(&self, py: Python<'py>, number: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
        let consumer = Consumer::find(py, self.device, number)?;
        let (stream, owner) = match &consumer {
            Some(consumer) => (&consumer.stream, &consumer.owner),
            None => (&self.made_in.stream, &self.made_in.owner),
        };
        let owner = owner.as_ref().map(|owner| Object::new(owner.clone_ref(py)));
        let managed: Managed<F> =
            py.detach(|| into_dlpack_with_owner(self.take()?, &self.shape, stream, owner).map_err(error))?;
        capsule::give(py, managed)
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
            return Err(PyBufferError::new_err("the array is given away where it is; copy it afterwards"));
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
    PyBufferError::new_err("the array was given to a library already; use the array that it made")
}
