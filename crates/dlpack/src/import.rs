//! Tensors of other libraries.

use std::fmt;
use std::ptr;

use gpustream::{AsView as _, AsViewMut as _, Buffer, Error, ErrorKind, Result, Stream, View, ViewMut};

use crate::call::in_call;
use crate::element::{self, Element};
use crate::managed::{Form, Managed};
use crate::place;
use crate::shape::Shape;

/// Device memory of another library's, with a shape. The elements are one run, in row-major order.
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

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Returns whether the other library forbids writing.
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
    /// [`ErrorKind::InvalidArgument`] for a tensor that is read-only.
    #[track_caller]
    pub fn view_mut(&mut self) -> Result<ViewMut<'_, T>> {
        if self.read_only {
            let message =
                "the tensor is read-only; write to a copy, or export it from memory that may be written";
            return in_call("view_mut", Err(Error::new(ErrorKind::InvalidArgument, message)));
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

/// Takes memory of another library's in, without a copy, ready for work that is enqueued on `stream` from now on.
///
/// The deleter runs once the tensor is dropped and its last use is done, on a thread of the library's; on an error, before
/// the call returns. The call does not block.
///
/// # Safety
/// * The tensor's memory is as it says, until the deleter is called.
/// * The work on the memory that others have enqueued comes before work that is enqueued on `stream` from now on. A
///   producer that was told the stream (`__dlpack__(stream=…)`) has seen to it; on the CPU, such work is done.
/// * Until the tensor's uses are done, the others do not write memory that is read here, and do not touch memory that
///   is written here. Work that they enqueue on `stream` comes after the uses that were enqueued there before, and may.
///   Such memory is not taken in a second time either, since two tensors are not known to be one.
///
/// # Errors
/// [`ErrorKind::DeviceMismatch`] for a tensor of another device than the stream's; [`ErrorKind::InvalidArgument`] for
/// elements of another type, for strides with gaps or in another order than row-major, and for a shape, an offset or an
/// address that makes no sense; [`ErrorKind::Unsupported`] for another major version of the protocol.
#[track_caller]
pub unsafe fn from_dlpack<T: Element, F: Form>(stream: &Stream, managed: Managed<F>) -> Result<Tensor<T>> {
    // SAFETY: handed on.
    in_call("from_dlpack", unsafe { import(stream, managed) })
}

/// Takes memory in, without naming the call.
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
        // An address of nothing means nothing.
        _ if len == 0 => 0,
        Some(start) if !tensor.data.is_null() => start,
        _ => {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a tensor of shape {shape:?} cannot be at address {:?} with an offset of {} bytes; its producer is wrong",
                    tensor.data, tensor.byte_offset
                ),
            ));
        }
    };
    // SAFETY: the caller's promise; the managed tensor keeps the memory until it is dropped.
    let memory = unsafe { Buffer::from_raw(stream, ptr::with_exposed_provenance_mut(start), len, managed) }?;
    Ok(Tensor { memory, shape, read_only })
}
