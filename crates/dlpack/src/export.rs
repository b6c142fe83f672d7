//! Exports tensors to other libraries.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use dlpack_rs::ffi::{DLDeviceType, DLTensor};
use gpustream::{Buffer, Error, ErrorKind, RawMemory, Result, Stream};

use crate::call::in_call;
use crate::element::{Element, data_type};
use crate::managed::{Form, Managed};
use crate::place;
use crate::shape::Shape;

/// A managed tensor with everything that it points to. The consumer has a pointer to the first field.
#[repr(C)]
struct Exported<F> {
    managed: F,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Given back when the deleter is called.
    memory: RawMemory,
    /// Dropped after the memory.
    owner: Box<dyn Send>,
}

/// Makes a managed tensor from the buffer, for a consumer that works on `stream`. Work that is enqueued there
/// from now on comes after all earlier uses of the buffer.
///
/// When the deleter is called, gpustream gets the memory back, and uses it again only after everything that
/// `stream` has been given by then. The deleter may be called on any thread, and does not block. It uses
/// `stream`, so if someone else may destroy that stream, call [`into_dlpack_with_owner`], which keeps its
/// owner alive.
///
/// On the CPU, DLPack has no streams, so this call **blocks** until the buffer's uses are done. On other
/// devices it does not block.
///
/// # Errors
/// * [`ErrorKind::InvalidArgument`] if the shape does not have as many elements as the buffer.
/// * [`ErrorKind::DeviceMismatch`] if the stream belongs to another device.
/// * [`ErrorKind::Unsupported`] if DLPack does not know the device's backend.
#[track_caller]
pub fn into_dlpack<F: Form, T: Element>(
    buffer: Buffer<T>,
    shape: &[usize],
    stream: &Stream,
) -> Result<Managed<F>> {
    in_call("into_dlpack", || export(buffer, shape, stream, ()))
}

/// Like [`into_dlpack`], but the deleter also drops `owner`, after it has given the memory back and the
/// tensor no longer uses `stream`. Pass, for example, the object of another library that destroys the stream.
///
/// # Errors
/// Those of [`into_dlpack`]. `owner` is dropped then, too.
#[track_caller]
pub fn into_dlpack_with_owner<F: Form, T: Element>(
    buffer: Buffer<T>,
    shape: &[usize],
    stream: &Stream,
    owner: impl Send + 'static,
) -> Result<Managed<F>> {
    in_call("into_dlpack_with_owner", || export(buffer, shape, stream, owner))
}

fn export<F: Form, T: Element>(
    buffer: Buffer<T>,
    shape: &[usize],
    stream: &Stream,
    owner: impl Send + 'static,
) -> Result<Managed<F>> {
    let device = place::device_of(buffer.device())?;
    let shape = Shape::new(shape, size_of::<T>())?;
    if shape.len != buffer.len() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "a tensor of shape {:?} has {} elements, but the buffer has {}: give a shape for all of them",
                shape.extents,
                shape.len,
                buffer.len()
            ),
        ));
    }
    let Ok(ndim) = i32::try_from(shape.extents.len()) else {
        let dimensions = shape.extents.len();
        return Err(Error::unsupported(format!("a tensor of {dimensions} dimensions")));
    };
    let memory = buffer.into_raw(stream)?;
    if device.device_type == DLDeviceType::kDLCPU {
        stream.synchronize()?;
    }
    let mut strides = shape.strides();
    let mut extents: Vec<i64> = shape.extents.iter().map(|extent| *extent as i64).collect();
    let tensor = DLTensor {
        // DLPack requires a null address for a tensor without elements.
        data: ptr::with_exposed_provenance_mut(if shape.len == 0 { 0 } else { memory.as_raw().0 }),
        device,
        ndim,
        dtype: data_type::<T>(),
        shape: extents.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let managed = F::new(tensor, delete::<F>);
    let exported = NonNull::from(Box::leak(Box::new(Exported {
        managed,
        shape: extents,
        strides,
        memory,
        owner: Box::new(owner),
    })));
    // SAFETY: the tensor is the first field of the box, which `delete` frees. Its arrays are on the heap and
    // stay there until then.
    Ok(unsafe { Managed::from_raw(exported.cast()) })
}

/// The deleter of the tensors that we export.
///
/// # Safety
/// The pointer must be to a tensor from [`into_dlpack`] that has not been deleted.
unsafe extern "C" fn delete<F: Form>(managed: *mut F) {
    // SAFETY: the caller's promise; the tensor is the first field of this box.
    let Exported { memory, owner, .. } = *unsafe { Box::from_raw(managed.cast::<Exported<F>>()) };
    // Dropping an owner may panic, and dropping the panic's payload may panic again. But C cannot unwind.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(memory))).map_err(mem::forget);
    let _ = catch_unwind(AssertUnwindSafe(|| drop(owner))).map_err(mem::forget);
}
