//! Counts the memory that this module has borrowed from Python. The interpreter must not end before all of it is given back,
//! because the deleters may need it.

use std::ptr::{self, NonNull};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use gpustream_dlpack::ffi::{
    DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION,
    DLPackVersion, DLTensor,
};
use gpustream_dlpack::{Form, Managed};
use pyo3::prelude::*;

use crate::device;

/// How many leases there are, and whether the interpreter is about to end. From then on nothing is given back.
struct Leases {
    count: usize,
    interpreter_ends: bool,
}

static LEASES: Mutex<Leases> = Mutex::new(Leases { count: 0, interpreter_ends: false });
static GIVEN_BACK: Condvar = Condvar::new();

/// A tensor together with the owner of its memory: another tensor, whose deleter may need the interpreter, or a Python
/// object. The tensor is the first field, because its users have a pointer to the tensor and nothing else.
#[repr(C)]
struct Lease {
    managed: DLManagedTensorVersioned,
    shape: Vec<i64>,
    strides: Vec<i64>,
    owner: Box<dyn Send>,
}

fn leased(mut lease: Lease) -> Managed<DLManagedTensorVersioned> {
    LEASES.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
    lease.managed.deleter = Some(give_back);
    let lease = NonNull::from(Box::leak(Box::new(lease)));
    // SAFETY: the tensor is the first field of the box, and `give_back`, which frees the box, may run on any thread.
    unsafe { Managed::from_raw(lease.cast()) }
}

/// Counts another library's tensor.
pub(crate) fn of_tensor<F: Form>(theirs: Managed<F>) -> gpustream::Result<Managed<DLManagedTensorVersioned>> {
    let (tensor, read_only) = (theirs.tensor()?, theirs.is_read_only()?);
    let managed = managed(tensor, read_only);
    Ok(leased(Lease { managed, shape: Vec::new(), strides: Vec::new(), owner: Box::new(theirs) }))
}

/// Makes a tensor of memory that a Python object owns. Uses `shape` and `strides` in place of the pointers in `tensor`.
pub(crate) fn of_object(
    tensor: DLTensor,
    read_only: bool,
    (mut shape, mut strides): (Vec<i64>, Vec<i64>),
    owner: Py<PyAny>,
) -> Managed<DLManagedTensorVersioned> {
    let tensor = DLTensor {
        ndim: shape.len() as i32,
        shape: shape.as_mut_ptr(),
        strides: if strides.is_empty() { ptr::null_mut() } else { strides.as_mut_ptr() },
        ..tensor
    };
    leased(Lease { managed: managed(tensor, read_only), shape, strides, owner: Box::new(Object::new(owner)) })
}

fn managed(dl_tensor: DLTensor, read_only: bool) -> DLManagedTensorVersioned {
    DLManagedTensorVersioned {
        version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
        manager_ctx: ptr::null_mut(),
        deleter: None,
        flags: if read_only { DLPACK_FLAG_BITMASK_READ_ONLY } else { 0 },
        dl_tensor,
    }
}

/// A reference to a Python object. It takes the interpreter's lock when it is dropped.
pub(crate) struct Object(Option<Py<PyAny>>);

impl Object {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(Some(object))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let object = self.0.take();
        // If the interpreter is gone, there is nothing to give back.
        Python::try_attach(move |_| drop(object));
    }
}

/// Deletes a lease. gpustream calls this on one of its own threads.
///
/// # Safety
/// The pointer is to a lease that was not given back yet.
unsafe extern "C" fn give_back(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the caller promises that this is a lease, and the tensor is the lease's first field.
    let lease = unsafe { Box::from_raw(managed.cast::<Lease>()) };
    if LEASES.lock().unwrap_or_else(PoisonError::into_inner).interpreter_ends {
        // The owner's deleter may need the interpreter, which is gone.
        std::mem::forget(lease.owner);
    } else {
        drop(lease.owner);
    }
    LEASES.lock().unwrap_or_else(PoisonError::into_inner).count -= 1;
    GIVEN_BACK.notify_all();
}

/// Waits until all memory is given back, but at most some seconds. Afterwards nothing is given back, because the interpreter
/// is about to end.
#[pyfunction]
pub(crate) fn wait_for_all(py: Python<'_>) {
    py.detach(|| {
        let healthy = device::all().iter().all(|opened| opened.device.synchronize().is_ok());
        // A failed device does not give its memory back, so do not wait for that.
        let limit = if healthy { Duration::from_secs(10) } else { Duration::ZERO };
        let leases = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = GIVEN_BACK.wait_timeout_while(leases, limit, |leases| leases.count > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.interpreter_ends = true;
    });
}
