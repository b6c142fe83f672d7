//! Managed tensors, in both forms of DLPack: a description of memory, with a deleter that gives the memory
//! back.

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

    /// The fields of a form. A tensor of another major version may lack the fields after the version, so we
    /// read fields one by one through the pointer.
    pub trait Form: Sized + 'static {
        /// Makes a tensor that may be written.
        fn new(tensor: DLTensor, deleter: Deleter<Self>) -> Self;
        /// Checks that we know the version, and therefore the fields.
        ///
        /// # Safety
        /// The pointer must be to a tensor of this form.
        unsafe fn check_version(this: NonNull<Self>) -> Result<()>;
        /// # Safety
        /// The pointer must be to a tensor of this form.
        unsafe fn deleter(this: NonNull<Self>) -> Option<Deleter<Self>>;
        /// Returns the description of the memory.
        ///
        /// # Safety
        /// The pointer must be to a tensor of this form, whose version was checked.
        unsafe fn tensor(this: NonNull<Self>) -> DLTensor;
        /// Returns true if the memory must not be written.
        ///
        /// # Safety
        /// The pointer must be to a tensor of this form, whose version was checked.
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
                "the tensor uses DLPack {}.{}, but this crate only knows 0.8 and {DLPACK_MAJOR_VERSION}.x: ask its producer for \
                 one of these (`max_version=({DLPACK_MAJOR_VERSION}, 0)`)",
                version.major, version.minor
            ),
        ))
    }

    unsafe fn deleter(this: NonNull<Self>) -> Option<Deleter<Self>> {
        // SAFETY: the caller's promise; every version has this field in the same place.
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

/// An owned managed tensor, made by another library or by [`into_dlpack`](crate::into_dlpack). Dropping it
/// calls the deleter.
pub struct Managed<F: Form>(NonNull<F>);

// SAFETY: the maker of this value promised that the deleter may run on any thread. Everything else is only read.
unsafe impl<F: Form> Send for Managed<F> {}

impl<F: Form> Managed<F> {
    /// Takes ownership of a managed tensor that another library made.
    ///
    /// # Safety
    /// `tensor` must be a managed tensor of this form that you own, so nothing else calls its deleter. Until
    /// the deleter is called, its fields must not change, and `shape` and `strides` must each point to `ndim`
    /// numbers or be null. The deleter must be callable on any thread.
    pub unsafe fn from_raw(tensor: NonNull<F>) -> Self {
        Self(tensor)
    }

    /// Hands the tensor to another library, which must call its deleter.
    pub fn into_raw(self) -> NonNull<F> {
        ManuallyDrop::new(self).0
    }

    /// Returns the description of the memory: address, device, shape and type. Its pointers point into this
    /// tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this crate does not know the tensor's version.
    pub fn tensor(&self) -> Result<DLTensor> {
        // SAFETY: the tensor is alive, and its version is checked first.
        unsafe {
            F::check_version(self.0)?;
            Ok(F::tensor(self.0))
        }
    }

    /// Returns true if the memory must not be written. Unversioned tensors cannot express that.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this crate does not know the tensor's version.
    pub fn is_read_only(&self) -> Result<bool> {
        self.tensor()?;
        // SAFETY: the tensor is alive, and its version was checked.
        Ok(unsafe { F::is_read_only(self.0) })
    }
}

impl<F: Form> Drop for Managed<F> {
    fn drop(&mut self) {
        // SAFETY: the tensor is alive and belongs to this value, so its deleter has not been called yet.
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
