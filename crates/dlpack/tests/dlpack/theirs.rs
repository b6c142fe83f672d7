//! Tensors as another library would make them.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::mpsc::{Receiver, Sender, channel};

use gpustream::{Pod, Result, Stream};
use gpustream_dlpack::ffi::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use gpustream_dlpack::{Element, Form, Managed, Tensor, from_dlpack};

pub(crate) const CPU: DLDevice = DLDevice { device_type: 1, device_id: 0 };
pub(crate) const F32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };

/// A form that tests can make by hand.
pub(crate) trait Make: Form {
    fn make(tensor: DLTensor, context: *mut c_void, read_only: bool) -> Self;
    fn context(&self) -> *mut c_void;
}

impl Make for DLManagedTensor {
    fn make(dl_tensor: DLTensor, manager_ctx: *mut c_void, _read_only: bool) -> Self {
        Self { dl_tensor, manager_ctx, deleter: Some(delete::<Self>) }
    }

    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }
}

impl Make for DLManagedTensorVersioned {
    fn make(dl_tensor: DLTensor, manager_ctx: *mut c_void, read_only: bool) -> Self {
        let version = DLPackVersion { major: 1, minor: 0 };
        Self { version, manager_ctx, deleter: Some(delete::<Self>), flags: u64::from(read_only), dl_tensor }
    }

    fn context(&self) -> *mut c_void {
        self.manager_ctx
    }
}

/// The other library's own part of a tensor: the values at the tensor's address, shape and strides.
struct Context {
    values: Box<[u64]>,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    deleted: Sender<()>,
}

/// Leaks the tensor's header, so that we notice a second call and it does no harm.
unsafe extern "C" fn delete<F: Make>(managed: *mut F) {
    // SAFETY: the pointer is to a header from `Theirs::managed`, which is never freed.
    let context = unsafe { (*managed).context().cast::<Context>() };
    // SAFETY: the sender may be used repeatedly. The arrays are freed on the first call, and the tests check
    // that there is no other.
    unsafe {
        // The receiver may be gone.
        let _ = (*context).deleted.send(());
        drop(ptr::read(context));
    }
}

/// Describes a tensor to make.
#[derive(Clone)]
pub(crate) struct Theirs {
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) device: DLDevice,
    pub(crate) element: DLDataType,
    pub(crate) byte_offset: u64,
    pub(crate) has_address: bool,
    pub(crate) read_only: bool,
}

impl Theirs {
    pub(crate) fn f32(shape: &[i64]) -> Self {
        Self {
            shape: shape.to_vec(),
            strides: None,
            device: CPU,
            element: F32,
            byte_offset: 0,
            has_address: true,
            read_only: false,
        }
    }

    pub(crate) fn strides(self, strides: &[i64]) -> Self {
        Self { strides: Some(strides.to_vec()), ..self }
    }

    /// Makes the tensor over these bytes, together with a channel that reports its deletions. The channel
    /// closes after the first.
    pub(crate) fn managed<F: Make, T: Pod>(&self, values: &[T]) -> Made<F> {
        let bytes: &[u8] = gpustream::bytemuck::cast_slice(values);
        let mut words = vec![0u64; bytes.len().div_ceil(8)].into_boxed_slice();
        gpustream::bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        let (deleted, deletions) = channel();
        let context =
            Context { values: words, shape: self.shape.clone(), strides: self.strides.clone(), deleted };
        let context = Box::leak(Box::new(context));
        let address = context.values.as_mut_ptr();
        let tensor = DLTensor {
            data: if self.has_address { address.cast() } else { ptr::null_mut() },
            device: self.device,
            ndim: self.shape.len() as i32,
            dtype: self.element,
            shape: context.shape.as_mut_ptr(),
            strides: context.strides.as_mut().map_or(ptr::null_mut(), Vec::as_mut_ptr),
            byte_offset: self.byte_offset,
        };
        let context = ptr::from_mut(context).cast();
        let header = NonNull::from(Box::leak(Box::new(F::make(tensor, context, self.read_only))));
        Made { header, address: address.cast(), deletions }
    }
}

pub(crate) struct Made<F> {
    pub(crate) header: NonNull<F>,
    pub(crate) address: *mut f32,
    pub(crate) deletions: Receiver<()>,
}

impl<F: Make> Made<F> {
    /// Hands the tensor over.
    pub(crate) fn managed(&self) -> Managed<F> {
        // SAFETY: `delete` may run on any thread, and each test hands a tensor over once.
        unsafe { Managed::from_raw(self.header) }
    }

    /// Imports the tensor. Nothing is enqueued on it.
    pub(crate) fn taken<T: Element>(&self, stream: &Stream) -> Result<Tensor<T>> {
        // SAFETY: these tensors are not shared.
        unsafe { from_dlpack(stream, self.managed()) }
    }

    /// Waits for the deleter, and returns how often it was called.
    pub(crate) fn count(&self) -> usize {
        self.deletions.iter().count()
    }
}
