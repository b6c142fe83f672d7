//! Page-locked host memory. The device copies from and to it without the host's help, and kernels can use it.

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

/// How the host accesses memory that both sides can reach, through a view of the whole.
macro_rules! host_methods {
    ($owner:ident) => {
        impl<T: Plain> $owner<T> {
            /// Blocks until the device has finished writing here, then lets the host read.
            ///
            /// # Errors
            /// [`ErrorKind::DeviceLost`] if the device failed before that.
            #[track_caller]
            pub fn read(&self) -> Result<ReadGuard<'_, T>> {
                self.view().read()
            }

            /// Blocks until the device has finished with this memory, then lets the host write.
            ///
            /// # Errors
            /// As for [`read`](Self::read).
            #[track_caller]
            pub fn write(&mut self) -> Result<WriteGuard<'_, T>> {
                self.view_mut().write()
            }

            /// Lets the host read like [`read`](Self::read), but never blocks.
            ///
            /// # Errors
            /// [`ErrorKind::WouldBlock`] if the device is still writing here.
            #[track_caller]
            pub fn try_read(&self) -> Result<ReadGuard<'_, T>> {
                self.view().try_read()
            }

            /// Lets the host write like [`write`](Self::write), but never blocks.
            ///
            /// # Errors
            /// [`ErrorKind::WouldBlock`] if the device still uses this memory.
            #[track_caller]
            pub fn try_write(&mut self) -> Result<WriteGuard<'_, T>> {
                self.view_mut().try_write()
            }

            /// Returns true if the device has finished writing here, so that [`read`](Self::read) would return at once. Never
            /// blocks.
            ///
            /// # Errors
            /// [`ErrorKind::DeviceLost`] if the device failed.
            #[track_caller]
            pub fn is_done(&self) -> Result<bool> {
                self.view().is_done()
            }

            /// Returns a future that resolves when the device has finished writing here, so that [`read`](Self::read) then
            /// returns at once.
            #[track_caller]
            pub fn synchronize_async(&self) -> Synchronize {
                self.view().synchronize_async()
            }
        }
    };
}
pub(crate) use host_methods;

/// `len` elements of page-locked host memory, allocated by [`Device::pinned`].
///
/// You access the elements through guards, and getting one waits until the device has finished with the memory:
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
/// A `Pinned` is `Send` and `Sync`. Dropping it returns at once. Its memory is only used again after its last use on any
/// stream.
pub struct Pinned<T> {
    memory: Owned,
    len: usize,
    element: PhantomData<T>,
}

impl Device {
    /// Allocates page-locked host memory for `len` elements. All bytes are zero. Normally does not wait for the device. If the
    /// driver cannot lock more memory, we return cached memory to it and wait for pending frees before we give up.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the driver cannot lock more memory.
    #[track_caller]
    pub fn pinned<T: Plain>(&self, len: usize) -> Result<Pinned<T>> {
        self.pinned_with(len, PinnedOptions::default())
    }

    /// Like [`pinned`](Self::pinned), with options.
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

    /// Page-locks a vector's memory in place, without copying it (`cuMemHostRegister`). Blocks about as long as it would take
    /// to fill the memory.
    ///
    /// The returned value owns the memory, because the device may still be using it when you drop the value. A later call of
    /// the library unlocks and frees the memory once its last use is done. If you leak the value, you leak the memory.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the driver cannot do this; [`ErrorKind::InvalidArgument`] if the memory is not aligned to
    /// the size of an element (at most 16 bytes), because kernels may read elements as vectors. The memory is freed after any
    /// error.
    #[track_caller]
    pub fn register<T: Plain>(&self, values: Vec<T>) -> Result<Pinned<T>> {
        named(call_site("register"), || {
            let (len, bytes) = (values.len(), size_of_val(&*values));
            if bytes == 0 {
                return self.pinned_from(&values);
            }
            reentrancy::check_outside()?;
            // We do this before the check, because it moves the elements if the vector has spare capacity.
            let values = values.into_boxed_slice();
            check_alignment::<T>(values.as_ptr().addr())?;
            let registration = Registration::of_box(&self.0.raw, values)?;
            Pinned::registered(self, registration, len)
        })
    }
}

impl<T: Plain> Pinned<T> {
    /// Allocates memory of zeros. `call_site` counts as its holder.
    pub(crate) fn zeroed_for(
        device: &Device,
        len: usize,
        kind: MemoryKind,
        call_site: CallSite,
    ) -> Result<Self> {
        Self::initialized(device, len, kind, call_site, |host| {
            // SAFETY: the memory is fresh and `len` elements long.
            unsafe { host.write_bytes(0, len) };
        })
    }

    fn initialized(
        device: &Device,
        len: usize,
        kind: MemoryKind,
        call_site: CallSite,
        fill: impl FnOnce(*mut T),
    ) -> Result<Self> {
        let layout = named(call_site, || layout_of::<T>(len))?;
        let memory = Owned::alloc(device, kind, layout, call_site)?;
        // Earlier uses of this memory are done, because the pool only gives out such memory if there is no stream.
        fill(memory.block().host.cast());
        memory.block().history.lock().set_written(&(0..layout.size()));
        Ok(Self { memory, len, element: PhantomData })
    }

    fn registered(device: &Device, registration: Registration, len: usize) -> Result<Self> {
        let block = device.0.pools.register(registration, len * size_of::<T>())?;
        Ok(Self { memory: Owned::new(device, block), len, element: PhantomData })
    }

    /// Page-locks host memory that this library did not allocate: a mapped file, an allocator's arena, another library's array.
    /// From here on you must use it through this value, like memory from [`Device::pinned`]. If you have a vector, use
    /// [`Device::register`]. Blocks about as long as it would take to fill the memory.
    ///
    /// `owner` keeps the memory. Once you have dropped this value and its last use is done, a later call of the library unlocks
    /// the memory, and `owner` is dropped on a thread of the library.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut owner: Vec<u32> = vec![7; 1000];
    /// // SAFETY: the vector keeps its elements where they are, and is not used elsewhere until it is dropped.
    /// let pinned = unsafe { gpustream::Pinned::from_raw(&device, owner.as_mut_ptr(), owner.len(), owner) }?;
    /// let mut on_device = stream.alloc::<u32>(1000)?;
    /// stream.copy(&pinned, &mut on_device)?;
    /// assert_eq!(stream.download(&on_device)?[999], 7);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the pointer is null, if there are zero elements, or if the memory is not aligned to
    /// the size of an element (at most 16 bytes), as kernels need it. The owner is then dropped.
    ///
    /// # Safety
    /// `memory` must point to `len` initialized elements. Until `owner` is dropped, they must stay mapped, writable and unused
    /// by anything else.
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
                        "{len} elements of host memory at {memory:p} cannot be page-locked; pass the address of at least one element"
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

/// Read access to pinned memory. As long as you hold it, the device cannot start to write there.
///
/// A `ReadGuard` is `Send` and `Sync`. When you drop it, the device may write here again.
pub struct ReadGuard<'a, T> {
    values: &'a [T],
    _held: HostGuard<'a>,
}

impl<'a, T: Plain> ReadGuard<'a, T> {
    /// # Safety
    /// `host` must point to `len` elements, which must not be written while the guard lives.
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

/// Write access to pinned memory. As long as you hold it, the device cannot use the memory.
///
/// A `WriteGuard` is `Send` and `Sync`. When you drop it, the device may use the memory again. Nothing is copied.
pub struct WriteGuard<'a, T> {
    values: &'a mut [T],
    _held: HostGuard<'a>,
}

impl<'a, T: Plain> WriteGuard<'a, T> {
    /// # Safety
    /// `host` must point to `len` elements, which must not be used by anything else while the guard lives.
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
