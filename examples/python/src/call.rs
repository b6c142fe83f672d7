//! What every function of the module does around its work.

use gpustream::{AsViewMut as _, Result, Stream, ViewMut};
use pyo3::prelude::*;

use crate::array::{Array, Number};
use crate::device::{self, Opened, error};
use crate::input::{self, Input, Ready};
use crate::stream::Current;

/// Takes the arrays, enqueues `work` in the caller's stream, and returns the result: `out`, or a new array. `shape_of` checks the
/// inputs' shapes and returns the result's. `work` gets the inputs and the memory of the result.
pub(crate) fn call<'py, T: Number, const N: usize>(
    py: Python<'py>,
    inputs: [&Bound<'py, PyAny>; N],
    out: Option<Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    shape_of: impl FnOnce([&[usize]; N]) -> Result<Vec<usize>> + Send,
    work: impl FnOnce(&Opened, &Stream, &[Ready<T>; N], ViewMut<'_, T>) -> Result<()> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let arrays: Vec<_> = inputs.into_iter().chain(&out).collect();
    let device = device::of_all(py, &arrays)?;
    let current = Current::find(device, &arrays, stream)?;
    let mut taken = Vec::with_capacity(N);
    for input in inputs {
        taken.push(Input::<T>::take(input, &current)?);
    }
    let target = out.as_ref().map(|out| Input::<T>::take(out, &current)).transpose()?;
    let made = py.detach(|| {
        let stream = &current.stream;
        let ready = taken.into_iter().map(|input| input.ready(stream)).collect::<Result<Vec<_>>>()?;
        // There are as many as there were inputs.
        let Ok(ready) = <[Ready<T>; N]>::try_from(ready) else { return Ok(None) };
        let shape = shape_of(ready.each_ref().map(Ready::shape))?;
        let made = if let Some(target) = target {
            let mut target = target.ready(stream)?;
            if target.shape() != shape {
                return Err(input::shapes_differ(format!(
                    "`out` has shape {:?} and the result {shape:?}; give arrays of one shape",
                    target.shape()
                )));
            }
            input::check_apart(&target.view(), &ready.each_ref().map(Ready::view))?;
            work(device, stream, &ready, target.view_mut()?)?;
            None
        } else {
            let mut made = stream.alloc::<T>(shape.iter().product())?;
            work(device, stream, &ready, made.view_mut())?;
            Some((made, shape))
        };
        if device.is_cpu() {
            // The caller may change the arrays as soon as this returns.
            stream.synchronize()?;
        }
        Ok(made)
    });
    match (made.map_err(error)?, out) {
        (Some((buffer, shape)), _) => {
            Ok(Bound::new(py, Array::new(buffer, shape, device, current))?.into_any())
        }
        (None, Some(out)) => Ok(out),
        (None, None) => Err(pyo3::exceptions::PyValueError::new_err("no array was made")),
    }
}
