//! Capsules are how Python hands managed tensors over. A capsule can be used once, and gets another name then.

use std::ffi::CStr;
use std::ptr::NonNull;

use gpustream_dlpack::{DLManagedTensor, DLManagedTensorVersioned, Form, Managed};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// A DLPack version's tensor, with the names of its capsules before and after use.
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

/// Takes the tensor out of a capsule. Returns `None` if the capsule has another form.
pub(crate) fn take<F: Named>(capsule: &Bound<'_, PyCapsule>) -> PyResult<Option<Managed<F>>> {
    if !capsule.is_valid_checked(Some(F::FRESH)) {
        return Ok(None);
    }
    let tensor = capsule.pointer_checked(Some(F::FRESH))?.cast();
    // SAFETY: the capsule is alive, and the name is a constant.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), F::USED.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()));
    }
    // SAFETY: by the protocol, a capsule with this name holds such a tensor. We have just renamed the capsule, which makes
    // us responsible for calling the tensor's deleter.
    Ok(Some(unsafe { Managed::from_raw(tensor) }))
}

/// Returns the error for a capsule that we cannot take a tensor from.
pub(crate) fn refused(capsule: &Bound<'_, PyCapsule>) -> PyErr {
    let is = |name| capsule.is_valid_checked(Some(name));
    PyValueError::new_err(if is(DLManagedTensor::USED) || is(DLManagedTensorVersioned::USED) {
        "the capsule was already used; call the array's `__dlpack__()` again for a new one"
    } else {
        "the capsule contains no DLPack tensor"
    })
}

/// Puts a tensor into a capsule.
pub(crate) fn give<F: Named>(py: Python<'_>, managed: Managed<F>) -> PyResult<Bound<'_, PyAny>> {
    let tensor = managed.into_raw();
    // SAFETY: the name is a constant, and the destructor is made for capsules with this name.
    let capsule =
        unsafe { ffi::PyCapsule_New(tensor.as_ptr().cast(), F::FRESH.as_ptr(), Some(destroy::<F>)) };
    // SAFETY: `capsule` is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.inspect_err(|_| {
        // SAFETY: no capsule was made, so the tensor is still ours.
        drop(unsafe { Managed::from_raw(tensor) });
    })
}

/// Deletes the tensor if the capsule was not used.
///
/// # Safety
/// Python calls this with a capsule that `give` made, once.
unsafe extern "C" fn destroy<F: Named>(capsule: *mut ffi::PyObject) {
    // SAFETY: the caller promises that `give` made the capsule. If it was used, it has another name and the tensor has
    // another owner, and then we leave the tensor alone.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, F::FRESH.as_ptr()) == 1
            && let Some(tensor) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, F::FRESH.as_ptr()))
        {
            drop(Managed::<F>::from_raw(tensor.cast()));
        }
    }
}

/// Returns the object as a capsule, or an error if it is something else.
pub(crate) fn of<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyCapsule>> {
    object.cast::<PyCapsule>().map_err(|_| PyValueError::new_err("`__dlpack__` did not return a capsule"))
}
