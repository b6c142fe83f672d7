//! Imports tensors from other libraries.

use std::fmt;
use std::ptr;

use gpustream::{AsView as _, AsViewMut as _, Buffer, Error, ErrorKind, Result, Stream, View, ViewMut};

use crate::call::in_call;
use crate::element::{self, Element};
use crate::managed::{Form, Managed};
use crate::place;
use crate::shape::Shape;

/// Another library's device memory, with a shape. The elements are contiguous, in row-major order.
///
/// Dropping the tensor returns at once. The deleter runs after the last use of the memory.
pub struct Tensor<T> {
    memory: Buffer<T>,
    shape: Box<[usize]>,
    read_only: bool,
}

impl<T: Element> Tensor<T> {
    /// Returns the number of elements in each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Returns true if the other library forbids writing.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns a view of all elements.
    pub fn view(&self) -> View<'_, T> {
        self.memory.view()
    }

    /// Returns an exclusive view of all elements.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the tensor is read-only.
    #[track_caller]
    pub fn view_mut(&mut self) -> Result<ViewMut<'_, T>> {
        if self.read_only {
            let message = "the tensor is read-only: write to a copy, or let its producer export memory that may be written";
            return in_call("view_mut", || Err(Error::new(ErrorKind::InvalidArgument, message)));
        }
        Ok(self.memory.view_mut())
    }
}

impl<T> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.read_only { ", read-only" } else { "" };
        write!(f, "Tensor({:?} of {:?}{mode})", self.shape, self.memory)
    }
}

/// Imports another library's memory without a copy. It is ready for work that you enqueue on `stream` from
/// now on.
///
/// The deleter runs on a thread of the library, after you have dropped the tensor and its last use is done. If there is
/// an error, it runs before the call returns. The call does not block.
///
/// # Safety
/// * The tensor must describe its memory correctly until the deleter is called.
/// * Work that others have enqueued on the memory must come before the work that you enqueue on `stream` from
///   now on. If you told the producer the stream (`__dlpack__(stream=…)`), it has made sure of that. On the
///   CPU such work must be done.
/// * Until your uses of the tensor are done, others must not write memory that you read, nor touch memory
///   that you write. They may enqueue work on `stream`, because it comes after the uses that were enqueued
///   there before. For the same reason you must not import the same memory twice: we cannot know that two
///   tensors overlap.
///
/// # Errors
/// * [`ErrorKind::DeviceMismatch`] if the tensor is on another device than the stream.
/// * [`ErrorKind::InvalidArgument`] if the elements have another type, if the strides have gaps or are not
///   row-major, or if the shape, offset or address makes no sense.
/// * [`ErrorKind::Unsupported`] if the tensor has another major version of DLPack.
#[track_caller]
pub unsafe fn from_dlpack<T: Element, F: Form>(stream: &Stream, managed: Managed<F>) -> Result<Tensor<T>> {
    // SAFETY: handed on.
    in_call("from_dlpack", || unsafe { import(stream, managed) })
}

/// Imports a tensor, without naming the call in errors.
///
/// # Safety
/// As for [`from_dlpack`].
unsafe fn import<T: Element, F: Form>(stream: &Stream, managed: Managed<F>) -> Result<Tensor<T>> {
    let (tensor, read_only) = (managed.tensor()?, managed.is_read_only()?);
    place::check(tensor.device, stream.device())?;
    element::check::<T>(tensor.dtype)?;
    // SAFETY: the promise that `Managed::from_raw` asked for.
    let Shape { extents: shape, len } = unsafe { Shape::of(&tensor, size_of::<T>()) }?;
    let start =
        usize::try_from(tensor.byte_offset).ok().and_then(|offset| tensor.data.addr().checked_add(offset));
    let start = start.filter(|start| start.checked_add(len * size_of::<T>()).is_some());
    let start = match start {
        // If there are no elements, the address does not matter.
        _ if len == 0 => 0,
        Some(start) if !tensor.data.is_null() => start,
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a tensor of shape {shape:?} cannot be at address {:?} with an offset of {} bytes: report this bug to the \
                     library that made the tensor",
                    tensor.data, tensor.byte_offset
                ),
            ));
        }
    };
    // SAFETY: the caller's promise; the managed tensor keeps the memory until it is dropped.
    let memory = unsafe { Buffer::from_raw(stream, ptr::with_exposed_provenance_mut(start), len, managed) }?;
    Ok(Tensor { memory, shape, read_only })
}
