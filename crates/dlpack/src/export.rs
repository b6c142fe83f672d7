//! Tensors for other libraries.

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
    /// Dropped after that.
    owner: Box<dyn Send>,
}

/// Makes a managed tensor of the buffer, for a consumer that works on `stream`: work that is enqueued there from now on
/// comes after all uses of the buffer.
///
/// The memory is gpustream's again once the deleter is called, and is used again after everything that `stream` has been
/// given by then. The deleter may be called on any thread, and does not block. It uses `stream`, so a stream that somebody
/// else destroys must last until then: [`into_dlpack_with_owner`] keeps its owner.
///
/// On the CPU the protocol has no streams, so the call **blocks** until the buffer's uses are done. Otherwise the call does
/// not block.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] where the shape has more or fewer elements than the buffer,
/// [`ErrorKind::DeviceMismatch`] for a stream of another device, [`ErrorKind::Unsupported`] for a device of a backend
/// that the protocol does not know.
#[track_caller]
pub fn into_dlpack<F: Form, T: Element>(
    buffer: Buffer<T>,
    shape: &[usize],
    stream: &Stream,
) -> Result<Managed<F>> {
    in_call("into_dlpack", export(buffer, shape, stream, ()))
}

/// As [`into_dlpack`]. The deleter drops `owner` once the memory has been given back and the tensor no longer uses `stream`:
/// the object of another library that destroys the stream, say.
///
/// # Errors
/// As for [`into_dlpack`]. `owner` is dropped.
#[track_caller]
pub fn into_dlpack_with_owner<F: Form, T: Element>(
    buffer: Buffer<T>,
    shape: &[usize],
    stream: &Stream,
    owner: impl Send + 'static,
) -> Result<Managed<F>> {
    in_call("into_dlpack_with_owner", export(buffer, shape, stream, owner))
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
                "a tensor of shape {:?} has {} elements, and the buffer has {}; give the shape of all its elements",
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
        // The protocol wants no address of a tensor without elements.
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
    // SAFETY: the tensor is the first field of the box, which `delete` frees; its arrays are on the heap and lie there until then.
    Ok(unsafe { Managed::from_raw(exported.cast()) })
}

/// The deleter of the tensors that are made here.
///
/// # Safety
/// The pointer is to a tensor of [`into_dlpack`]'s that was not deleted.
unsafe extern "C" fn delete<F: Form>(managed: *mut F) {
    // SAFETY: the caller's promise; the tensor is the first field of this box.
    let Exported { memory, owner, .. } = *unsafe { Box::from_raw(managed.cast::<Exported<F>>()) };
    // Owners may panic when they are dropped, and so may what they panic with; C cannot unwind.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(memory))).map_err(mem::forget);
    let _ = catch_unwind(AssertUnwindSafe(|| drop(owner))).map_err(mem::forget);
}
