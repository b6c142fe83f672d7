//! Capsules: how Python hands managed tensors over. A capsule is used once, and renamed then.

use std::ffi::CStr;
use std::ptr::NonNull;

use gpustream_dlpack::{DLManagedTensor, DLManagedTensorVersioned, Form, Managed};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// A form with the names of its capsules.
pub(crate) trait Named: Form {
    const FRESH: &CStr;
    const USED: &CStr;
}

impl Named for DLManagedTensor {
    const FRESH: &CStr = c"dltensor";
    const USED: &CStr = c"used_dltensor";
}

impl Named for DLManagedTensorVersioned {
    const FRESH: &CStr = c"dltensor_versioned";
    const USED: &CStr = c"used_dltensor_versioned";
}

/// Takes the tensor out of a capsule of this form; `None` where the capsule is of another.
pub(crate) fn take<F: Named>(capsule: &Bound<'_, PyCapsule>) -> PyResult<Option<Managed<F>>> {
    if !capsule.is_valid_checked(Some(F::FRESH)) {
        return Ok(None);
    }
    let tensor = capsule.pointer_checked(Some(F::FRESH))?.cast();
    // SAFETY: the capsule is alive, and the name is a constant.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), F::USED.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    // SAFETY: the protocol: a capsule of this name has such a tensor, whose deleter is left to us with the new name.
    Ok(Some(unsafe { Managed::from_raw(tensor) }))
}

/// Returns the error of a capsule that is of no form.
pub(crate) fn refused(capsule: &Bound<'_, PyCapsule>) -> PyErr {
    let is = |name| capsule.is_valid_checked(Some(name));
    PyValueError::new_err(if is(DLManagedTensor::USED) || is(DLManagedTensorVersioned::USED) {
        "the capsule was used already; ask the array for a new one (`__dlpack__()`)"
    } else {
        "the capsule has no tensor of DLPack's"
    })
}

/// Makes a capsule of a tensor.
pub(crate) fn give<F: Named>(py: Python<'_>, managed: Managed<F>) -> PyResult<Bound<'_, PyAny>> {
    let tensor = managed.into_raw();
    // SAFETY: the name is a constant, and the destructor is one for capsules of this name.
    let capsule =
        unsafe { ffi::PyCapsule_New(tensor.as_ptr().cast(), F::FRESH.as_ptr(), Some(destroy::<F>)) };
    // SAFETY: a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.inspect_err(|_| {
        // SAFETY: nobody was given the tensor.
        drop(unsafe { Managed::from_raw(tensor) });
    })
}

/// Deletes the tensor of a capsule that nobody used.
///
/// # Safety
/// Python calls this with a capsule that `give` made, once.
unsafe extern "C" fn destroy<F: Named>(capsule: *mut ffi::PyObject) {
    // SAFETY: the caller's promise; a used capsule has another name, and its tensor another owner.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, F::FRESH.as_ptr()) == 1
            && let Some(tensor) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, F::FRESH.as_ptr()))
        {
            drop(Managed::<F>::from_raw(tensor.cast()));
        }
    }
}

/// Returns an object as a capsule.
pub(crate) fn of<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyCapsule>> {
    object.cast::<PyCapsule>().map_err(|_| PyValueError::new_err("`__dlpack__` returned no capsule"))
}
