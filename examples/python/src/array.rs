//! The arrays that this module makes. The caller turns them into arrays of another library.

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

/// An array of float32 in memory that this module allocated. `torch.from_dlpack`, `cupy.from_dlpack` and `numpy.from_dlpack`
/// can turn it into an array of their library without a copy. You can do that once, because the library then owns the
/// memory.
#[pyclass(frozen)]
pub(crate) struct Array {
    /// `None` once the array was given to a library.
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

    /// Returns the handle of the stream that the array was made in.
    pub(crate) fn handle(&self) -> usize {
        self.made_in.stream.as_raw().0
    }

    /// Shares the memory with a call of this module.
    pub(crate) fn share(&self) -> PyResult<Input> {
        let buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.clone().map(|buffer| Input::Ours(buffer, self.shape.clone())).ok_or_else(given_away)
    }

    /// Takes the memory, to give it to another library.
    fn take(&self) -> PyResult<Buffer<f32>> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = buffer.take().ok_or_else(given_away)?;
        Arc::try_unwrap(taken).map_err(|shared| {
            *buffer = Some(shared);
            PyBufferError::new_err("another thread is using the array; call `__dlpack__` again afterwards")
        })
    }

    /// Gives the memory to a consumer that works on the stream with this number.
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
