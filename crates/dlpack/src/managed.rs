//! Managed tensors: a description of memory with the deleter that gives the memory back, in the two forms of the protocol.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use dlpack_rs::ffi::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
};
use gpustream::{Error, ErrorKind, Result};

/// The function that gives a tensor back.
pub(crate) type Deleter<F> = unsafe extern "C" fn(*mut F);

/// A form of managed tensor: [`DLManagedTensor`] or [`DLManagedTensorVersioned`].
pub trait Form: sealed::Form {}

impl Form for DLManagedTensor {}
impl Form for DLManagedTensorVersioned {}

pub(crate) mod sealed {
    use super::{DLTensor, Deleter, NonNull, Result};

    /// The fields of a form. Fields behind the version may be missing in a tensor of another major version, so fields
    /// are read through the pointer, one by one.
    pub trait Form: Sized + 'static {
        /// Makes a tensor that may be written.
        fn new(tensor: DLTensor, deleter: Deleter<Self>) -> Self;
        /// Checks that the fields are those of the version that this crate knows.
        ///
        /// # Safety
        /// The pointer is to a tensor of this form.
        unsafe fn check_version(this: NonNull<Self>) -> Result<()>;
        /// Returns the deleter.
        ///
        /// # Safety
        /// The pointer is to a tensor of this form.
        unsafe fn deleter(this: NonNull<Self>) -> Option<Deleter<Self>>;
        /// Returns the description of the memory.
        ///
        /// # Safety
        /// The pointer is to a tensor of this form, whose version was checked.
        unsafe fn tensor(this: NonNull<Self>) -> DLTensor;
        /// Returns whether the memory may not be written.
        ///
        /// # Safety
        /// The pointer is to a tensor of this form, whose version was checked.
        unsafe fn is_read_only(this: NonNull<Self>) -> bool;
    }
}

impl sealed::Form for DLManagedTensor {
    fn new(dl_tensor: DLTensor, deleter: Deleter<Self>) -> Self {
        Self { dl_tensor, manager_ctx: ptr::null_mut(), deleter: Some(deleter) }
    }

    unsafe fn check_version(_this: NonNull<Self>) -> Result<()> {
        Ok(())
    }

    unsafe fn deleter(this: NonNull<Self>) -> Option<Deleter<Self>> {
        // SAFETY: the caller's promise.
        unsafe { (&raw const (*this.as_ptr()).deleter).read() }
    }

    unsafe fn tensor(this: NonNull<Self>) -> DLTensor {
        // SAFETY: the caller's promise.
        unsafe { (&raw const (*this.as_ptr()).dl_tensor).read() }
    }

    unsafe fn is_read_only(_this: NonNull<Self>) -> bool {
        false
    }
}

impl sealed::Form for DLManagedTensorVersioned {
    fn new(dl_tensor: DLTensor, deleter: Deleter<Self>) -> Self {
        let version = DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION };
        Self { version, manager_ctx: ptr::null_mut(), deleter: Some(deleter), flags: 0, dl_tensor }
    }

    unsafe fn check_version(this: NonNull<Self>) -> Result<()> {
        // SAFETY: the caller's promise; every version begins with this field.
        let version = unsafe { (&raw const (*this.as_ptr()).version).read() };
        if version.major == DLPACK_MAJOR_VERSION {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the tensor is of DLPack {}.{}, and this crate knows 0.8 and {DLPACK_MAJOR_VERSION}.x; ask its producer for \
                 one of these (`max_version=({DLPACK_MAJOR_VERSION}, 0)`)",
                version.major, version.minor
            ),
        ))
    }

    unsafe fn deleter(this: NonNull<Self>) -> Option<Deleter<Self>> {
        // SAFETY: the caller's promise; this field has its place in every version.
        unsafe { (&raw const (*this.as_ptr()).deleter).read() }
    }

    unsafe fn tensor(this: NonNull<Self>) -> DLTensor {
        // SAFETY: the caller's promise.
        unsafe { (&raw const (*this.as_ptr()).dl_tensor).read() }
    }

    unsafe fn is_read_only(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise.
        let flags = unsafe { (&raw const (*this.as_ptr()).flags).read() };
        flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0
    }
}

/// An owned managed tensor, of another library's or made by [`into_dlpack`](crate::into_dlpack). Dropping it calls the
/// deleter.
pub struct Managed<F: Form>(NonNull<F>);

// SAFETY: the maker of the value vouches for a deleter that may run on any thread; the rest is only read.
unsafe impl<F: Form> Send for Managed<F> {}

impl<F: Form> Managed<F> {
    /// Takes a managed tensor that another library made.
    ///
    /// # Safety
    /// `tensor` is a managed tensor of this form that belongs to the caller: nobody else calls its deleter. Until then its
    /// fields stay as they are, and `shape` and `strides` have `ndim` numbers, or are null. The deleter may be called on any
    /// thread.
    pub unsafe fn from_raw(tensor: NonNull<F>) -> Self {
        Self(tensor)
    }

    /// Gives the tensor to another library, which calls its deleter.
    pub fn into_raw(self) -> NonNull<F> {
        ManuallyDrop::new(self).0
    }

    /// Returns the description of the memory: its address, device, shape and type, with pointers into this tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a version that this crate does not know.
    pub fn tensor(&self) -> Result<DLTensor> {
        // SAFETY: the tensor is alive, and its version is checked first.
        unsafe {
            F::check_version(self.0)?;
            Ok(F::tensor(self.0))
        }
    }

    /// Returns whether the memory may not be written. Unversioned tensors cannot say so.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a version that this crate does not know.
    pub fn is_read_only(&self) -> Result<bool> {
        self.tensor()?;
        // SAFETY: the tensor is alive, and its version was checked.
        Ok(unsafe { F::is_read_only(self.0) })
    }
}

impl<F: Form> Drop for Managed<F> {
    fn drop(&mut self) {
        // SAFETY: the tensor is alive and belongs to this value, so its deleter was not called yet.
        unsafe {
            if let Some(deleter) = F::deleter(self.0) {
                deleter(self.0.as_ptr());
            }
        }
    }
}

impl<F: Form> fmt::Debug for Managed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Managed({:?})", self.0)
    }
}
