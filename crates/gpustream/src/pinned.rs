//! Page-locked host memory: the device copies from and to it without the host's help, and kernels reach it.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, RangeBounds};

use gpustream_core::deferred_drop::ForeignOwner;
use gpustream_core::memory::{HostGuard, MemoryKind, Registration, byte_len, layout_of};
use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_hal::{CallSite, Error, ErrorKind, PinnedOptions, RawBuffer, Result};

use crate::buffer::Owned;
use crate::device::Device;
use crate::notify::Synchronize;
use crate::plain::Plain;
use crate::view::{AsView, AsViewMut, View, ViewMut, check_alignment, owner_methods};

/// The host's access to memory that both sides reach, through the view of the whole.
macro_rules! host_methods {
    ($owner:ident) => {
        impl<T: Plain> $owner<T> {
            /// Blocks until the device is done writing here, then gives the host access.
            ///
            /// # Errors
            /// [`ErrorKind::DeviceLost`] where the device failed before it was done.
            #[track_caller]
            pub fn read(&self) -> Result<ReadGuard<'_, T>> {
                self.view().read()
            }

            /// Blocks until the device is done with this memory, then gives the host access.
            ///
            /// # Errors
            /// As for [`read`](Self::read).
            #[track_caller]
            pub fn write(&mut self) -> Result<WriteGuard<'_, T>> {
                self.view_mut().write()
            }

            /// Gives the host access as [`read`](Self::read) does, without blocking.
            ///
            /// # Errors
            /// [`ErrorKind::WouldBlock`] while the device is still writing here.
            #[track_caller]
            pub fn try_read(&self) -> Result<ReadGuard<'_, T>> {
                self.view().try_read()
            }

            /// Gives the host access as [`write`](Self::write) does, without blocking.
            ///
            /// # Errors
            /// [`ErrorKind::WouldBlock`] while the device still uses this memory.
            #[track_caller]
            pub fn try_write(&mut self) -> Result<WriteGuard<'_, T>> {
                self.view_mut().try_write()
            }

            /// Returns whether the device is done writing here, so that [`read`](Self::read) returns at once. Never blocks.
            ///
            /// # Errors
            /// [`ErrorKind::DeviceLost`] where the device failed.
            #[track_caller]
            pub fn is_done(&self) -> Result<bool> {
                self.view().is_done()
            }

            /// Returns a future that resolves when the device is done writing here, so that [`read`](Self::read) returns at
            /// once.
            #[track_caller]
            pub fn synchronize_async(&self) -> Synchronize {
                self.view().synchronize_async()
            }
        }
    };
}
pub(crate) use host_methods;

/// A buffer of `len` elements of page-locked host memory, made by [`Device::pinned`].
///
/// The host reaches the elements through guards, which wait until the device is done:
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let mut host = device.pinned::<u32>(4)?;
/// host.write()?.copy_from_slice(&[1, 2, 3, 4]);
/// let mut on_device = stream.alloc::<u32>(4)?;
/// stream.copy(&host, &mut on_device)?;           // returns at once
/// stream.fill(&mut on_device, 7)?;
/// stream.copy(&on_device, &mut host)?;
/// assert_eq!(*host.read()?, [7; 4]);             // blocks until the last copy is done
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `Pinned` is `Send` and `Sync`. Dropping it returns at once: the memory is used again only after its last use on
/// any stream.
pub struct Pinned<T> {
    memory: Owned,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// Allocates page-locked host memory for `len` elements, all zero bytes.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] where the driver can lock no more memory.
    #[track_caller]
    pub fn pinned<T: Plain>(&self, len: usize) -> Result<Pinned<T>> {
        self.pinned_with(len, PinnedOptions::default())
    }

    /// Allocates as [`pinned`](Self::pinned) does, with options.
    ///
    /// # Errors
    /// As for [`pinned`](Self::pinned).
    #[track_caller]
    pub fn pinned_with<T: Plain>(&self, len: usize, options: PinnedOptions) -> Result<Pinned<T>> {
        let kind = if options.write_combined { MemoryKind::WriteCombined } else { MemoryKind::Pinned };
        Pinned::zeroed_for(self, len, kind, call_site("pinned"))
    }

    /// Allocates page-locked host memory and copies `values` into it, on this thread.
    ///
    /// # Errors
    /// As for [`pinned`](Self::pinned).
    #[track_caller]
    pub fn pinned_from<T: Plain>(&self, values: &[T]) -> Result<Pinned<T>> {
        Pinned::initialized(self, values.len(), MemoryKind::Pinned, call_site("pinned"), |host: *mut T| {
            // SAFETY: the memory is fresh and as long as the slice.
            unsafe { host.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        })
    }

    /// Page-locks memory that the program allocated itself, in place (`cuMemHostRegister`): nothing is copied. The call
    /// takes about as long as filling the memory would.
    ///
    /// The value owns the memory, since the device may be using the memory when the value is dropped. The memory is
    /// unlocked and freed by a later call of the library, once its last use is done. Leaking the value leaks the
    /// memory.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver cannot; [`ErrorKind::InvalidArgument`] for memory that is aligned
    /// less than kernels' vectors of the elements' size, which want up to 16 bytes; the memory is freed on any failure.
    #[track_caller]
    pub fn register<T: Plain>(&self, values: Vec<T>) -> Result<Pinned<T>> {
        named(call_site("register"), || {
            let (len, bytes) = (values.len(), size_of_val(&*values));
            if bytes == 0 {
                return self.pinned_from(&values);
            }
            reentrancy::check_outside()?;
            // Before the check, since it moves the elements if the vector has room for more.
            let values = values.into_boxed_slice();
            check_alignment::<T>(values.as_ptr().addr())?;
            let registration = Registration::of_box(&self.0.raw, values)?;
            Pinned::registered(self, registration, len)
        })
    }
}

impl<T: Plain> Pinned<T> {
    /// Allocates memory of zeros; `operation` counts as the holder.
    pub(crate) fn zeroed_for(
        device: &Device,
        len: usize,
        kind: MemoryKind,
        operation: CallSite,
    ) -> Result<Self> {
        Self::initialized(device, len, kind, operation, |host| {
            // SAFETY: the memory is fresh and `len` elements long.
            unsafe { host.write_bytes(0, len) };
        })
    }

    fn initialized(
        device: &Device,
        len: usize,
        kind: MemoryKind,
        operation: CallSite,
        fill: impl FnOnce(*mut T),
    ) -> Result<Self> {
        let layout = named(operation, || layout_of::<T>(len))?;
        let memory = Owned::alloc(device, kind, layout, operation)?;
        // An earlier owner's uses are done: without a stream, the pool hands out only such memory.
        fill(memory.block().host.cast());
        memory.block().history.lock().set_written(&(0..layout.size()));
        Ok(Self { memory, len, element: PhantomData })
    }

    fn registered(device: &Device, registration: Registration, len: usize) -> Result<Self> {
        let block = device.0.pools.register(registration, len * size_of::<T>())?;
        Ok(Self { memory: Owned::new(device, block), len, element: PhantomData })
    }

    /// Page-locks host memory of somebody else's: a mapped file, an allocator's arena, an array of another library's. From
    /// here on it is used through this value, as memory of [`Device::pinned`] is; [`Device::register`] does the same with
    /// a vector. The call takes about as long as filling the memory would.
    ///
    /// `owner` keeps the memory. Once this value is dropped and its last use is done, a later call of the library unlocks the
    /// memory, and the owner is dropped on a thread of the library's.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut owner: Vec<u32> = vec![7; 1000];
    /// // SAFETY: the vector keeps its elements where they are, and is used by nobody else until it is dropped.
    /// let pinned = unsafe { gpustream::Pinned::from_raw(&device, owner.as_mut_ptr(), owner.len(), owner) }?;
    /// let mut on_device = stream.alloc::<u32>(1000)?;
    /// stream.copy(&pinned, &mut on_device)?;
    /// assert_eq!(stream.download(&on_device)?[999], 7);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a null pointer, for zero elements, and where the memory is not aligned as kernels
    /// want it, to the size of an element up to 16 bytes. The owner is dropped then.
    ///
    /// # Safety
    /// `memory` points to `len` initialized elements. Until `owner` is dropped they stay mapped and writable, and nobody
    /// else uses them.
    #[track_caller]
    pub unsafe fn from_raw(
        device: &Device,
        memory: *mut T,
        len: usize,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        named(call_site("from_raw"), || {
            reentrancy::check_outside()?;
            let bytes = byte_len::<T>(len)?;
            if memory.is_null() || bytes == 0 {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!(
                        "{len} elements of host memory at {memory:p}; page-lock at least one, at its address"
                    ),
                ));
            }
            check_alignment::<T>(memory.addr())?;
            let owner = Box::new(ForeignOwner::new(owner));
            // SAFETY: by this function's contract.
            let registration = unsafe { Registration::new(&device.0.raw, memory.cast(), bytes, owner) }?;
            Self::registered(device, registration, len)
        })
    }
}

impl<T: Plain> AsView<T> for Pinned<T> {
    #[inline]
    fn view(&self) -> View<'_, T> {
        View::new(self.memory.block(), &self.memory.device, self.len)
    }
}

impl<T: Plain> AsViewMut<T> for Pinned<T> {
    #[inline]
    fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.view())
    }
}

owner_methods!(Pinned);
host_methods!(Pinned);

impl<T> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned<{}>({} elements at {:p})", type_name::<T>(), self.len, self.memory.block().host)
    }
}

/// Read access to pinned memory. The borrow keeps new device writers out.
///
/// A `ReadGuard` is `Send` and `Sync`. Dropping it lets the device write here again.
pub struct ReadGuard<'a, T> {
    values: &'a [T],
    _held: HostGuard<'a>,
}

impl<'a, T: Plain> ReadGuard<'a, T> {
    /// # Safety
    /// `host` points to `len` elements, which nothing writes during the guard's lifetime.
    pub(crate) unsafe fn new(host: *const T, len: usize, held: HostGuard<'a>) -> Self {
        // SAFETY: by this function's contract; any bytes are a T.
        Self { values: unsafe { std::slice::from_raw_parts(host, len) }, _held: held }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.values
    }
}

impl<T: fmt::Debug> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

/// Write access to pinned memory. The borrow keeps the device out.
///
/// A `WriteGuard` is `Send` and `Sync`. Dropping it lets the device use the memory again; nothing is copied.
pub struct WriteGuard<'a, T> {
    values: &'a mut [T],
    _held: HostGuard<'a>,
}

impl<'a, T: Plain> WriteGuard<'a, T> {
    /// # Safety
    /// `host` points to `len` elements, which nothing else touches during the guard's lifetime.
    pub(crate) unsafe fn new(host: *mut T, len: usize, held: HostGuard<'a>) -> Self {
        // SAFETY: by this function's contract; any bytes are a T.
        Self { values: unsafe { std::slice::from_raw_parts_mut(host, len) }, _held: held }
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.values
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.values
    }
}

impl<T: fmt::Debug> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}
