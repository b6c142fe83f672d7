//! Memory that migrates between host and device.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use gpustream_core::memory::{MemoryKind, layout_of};
use gpustream_core::operation::{DriverCalls, call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::track::Mode;
use gpustream_hal::{Error, ErrorKind, ManagedAdvice, RawBuffer, Result, Work};

use crate::buffer::Owned;
use crate::device::Device;
use crate::notify::Synchronize;
use crate::pinned::{ReadGuard, WriteGuard, host_methods};
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, AsViewMut, View, ViewMut, owner_methods};

/// `len` elements that host and device reach under the same address. Allocated by [`Device::managed`]. Pages move to the side
/// that touches them, and you can move them ahead of time with [`Stream::prefetch`].
///
/// On the host you access the elements through guards, as with [`Pinned`](crate::Pinned) memory.
///
/// ```
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let mut table = device.managed::<u32>(1000)?;
/// table.write()?[7] = 1;
/// stream.prefetch(&table, gpustream::Location::Device)?;
/// // launch kernels on it
/// stream.prefetch(&table, gpustream::Location::Host)?;
/// assert_eq!(table.read()?[7], 1);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `Managed` is `Send` and `Sync`. Dropping it returns at once. The memory goes back to the driver later, after its last use.
pub struct Managed<T> {
    memory: Owned,
    len: usize,
    element: PhantomData<T>,
}

/// A side of the bus, where managed memory can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The device's own memory.
    Device,
    /// The host's memory.
    Host,
}

impl Device {
    /// Allocates managed memory for `len` elements (`cuMemAllocManaged`). All bytes are zero.
    ///
    /// We don't pool managed memory, because allocations that share a page would be advised and moved together. So dropped
    /// memory goes back to the driver, at the next such allocation or at [`trim`](Device::trim). Either may block until the
    /// device is idle, because drivers wait before they free memory.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no managed memory, or none that the host may touch while a kernel runs.
    #[track_caller]
    pub fn managed<T: Plain>(&self, len: usize) -> Result<Managed<T>> {
        let operation = call_site("managed");
        if !self.info().features.managed_memory {
            let message = "managed memory that the host may touch while kernels run is not supported here; use pinned memory, \
                           or copy between the host and a buffer";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_backend(self.info().backend)
                .with_call_site(operation));
        }
        let layout = named(operation, || layout_of::<T>(len))?;
        let (memory, bytes) = (Owned::alloc(self, MemoryKind::Managed, layout, operation)?, layout.size());
        // SAFETY: the memory is fresh and at least that long, and the host may touch it.
        unsafe { memory.block().host.write_bytes(0, bytes) };
        memory.block().history.lock().set_written(&(0..bytes));
        Ok(Managed { memory, len, element: PhantomData })
    }
}

impl<T: Plain> Managed<T> {
    /// Tells the driver how you will use the memory (`cuMemAdvise`). This can change the speed, but never the contents.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the driver does not know the advice.
    #[track_caller]
    pub fn advise(&self, advice: ManagedAdvice) -> Result<()> {
        named(call_site("advise"), || {
            reentrancy::check_outside()?;
            let view = self.view();
            if view.is_empty() {
                return Ok(());
            }
            // SAFETY: the range is managed memory.
            unsafe { self.memory.device.raw().managed_advise(view.as_raw(), view.bytes().len(), advice) }
        })
    }
}

impl Stream {
    /// Moves managed memory to `place`, in the stream's order (`cuMemPrefetchAsync`).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if this is not managed memory.
    #[track_caller]
    pub fn prefetch<T: Plain>(&self, memory: &(impl AsView<T> + ?Sized), place: Location) -> Result<()> {
        let entry = self.enter(call_site("prefetch"))?;
        let view = memory.view();
        self.check_memory(&entry, &view)?;
        if view.block.kind != MemoryKind::Managed {
            let message = "only managed memory can be prefetched; allocate it with `Device::managed`, or copy the memory";
            return entry.named(Err(Error::new(ErrorKind::InvalidArgument, message)));
        }
        let bytes = view.bytes().len();
        if bytes == 0 {
            return Ok(());
        }
        // Moving pages does not use their contents. But they must not be freed meanwhile, so this counts as a read.
        let prefetch = Work::Prefetch { buffer: view.as_raw(), bytes, to_device: place == Location::Device };
        // SAFETY: the range is managed memory, which is not freed before this use is done.
        unsafe { entry.submit_call(&[&view.access(Mode::Read)], DriverCalls::Work(prefetch)) }
    }
}

impl<T: Plain> AsView<T> for Managed<T> {
    #[inline]
    fn view(&self) -> View<'_, T> {
        View::new(self.memory.block(), &self.memory.device, self.len)
    }
}

impl<T: Plain> AsViewMut<T> for Managed<T> {
    #[inline]
    fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.view())
    }
}

owner_methods!(Managed);
host_methods!(Managed);

impl<T> fmt::Debug for Managed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Managed<{}>({} elements at {:p})", type_name::<T>(), self.len, self.memory.block().host)
    }
}
