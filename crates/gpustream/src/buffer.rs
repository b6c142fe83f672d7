//! Device memory.

use std::alloc::Layout;
use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::RangeBounds;
use std::sync::Arc;

use gpustream_core::deferred_drop::ForeignOwner;
use gpustream_core::device_core::DeviceCore;
use gpustream_core::memory::{Access, Block, MemoryKind, byte_len};
use gpustream_core::operation::{DriverCalls, call_site, named};
use gpustream_core::reentrancy::{self, OutsideClosures};
use gpustream_core::stream::StreamEntry;
use gpustream_core::trace;
use gpustream_core::track::Mode;
use gpustream_hal::{CallSite, Error, ErrorKind, RawBuffer, Result};

use crate::device::Device;
use crate::plain::Plain;
use crate::raw_memory::RawMemory;
use crate::shared_memory::Mapping;
use crate::stream::Stream;
use crate::view::{AsView, AsViewMut, View, ViewMut, check_alignment, owner_methods};

/// A block that returns to its pool when dropped.
pub(crate) struct Owned {
    block: ManuallyDrop<Arc<Block>>,
    pub(crate) device: Device,
    /// Set if other processes can map the memory. The block's owner holds it too.
    mapping: Option<Arc<Mapping>>,
}

impl Owned {
    /// Allocates memory whose earlier uses are done.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure that must not call the library, and the pools' errors.
    pub(crate) fn alloc(
        device: &Device,
        kind: MemoryKind,
        layout: Layout,
        call_site: CallSite,
    ) -> Result<Self> {
        let outside = named(call_site, reentrancy::check_outside)?;
        Self::alloc_outside(device, kind, layout, call_site, outside)
    }

    /// Like [`alloc`](Self::alloc), if the thread is known to be outside such closures.
    pub(crate) fn alloc_outside(
        device: &Device,
        kind: MemoryKind,
        layout: Layout,
        call_site: CallSite,
        _: OutsideClosures,
    ) -> Result<Self> {
        let core: &DeviceCore = &device.0;
        let block = core.pools.alloc(core, kind, layout, None, call_site)?;
        Ok(Self::new(device, block))
    }

    /// Allocates device memory that the entry's stream, or the recording that it takes part in, is going to use next.
    #[inline]
    pub(crate) fn alloc_on(entry: &StreamEntry<'_>, device: &Device, layout: Layout) -> Result<Self> {
        let core: &DeviceCore = &device.0;
        let block = if entry.stream.is_recorded() {
            core.pools.alloc_recorded(core, layout, entry)?
        } else {
            core.pools.alloc(core, MemoryKind::Device, layout, Some(entry), entry.caller.call_site)?
        };
        Ok(Self::new(device, block))
    }

    pub(crate) fn new(device: &Device, block: Arc<Block>) -> Self {
        Self { block: ManuallyDrop::new(block), device: device.clone(), mapping: None }
    }

    pub(crate) fn shared(device: &Device, block: Arc<Block>, mapping: Arc<Mapping>) -> Self {
        let mut owned = Self::new(device, block);
        owned.mapping = Some(mapping);
        owned
    }

    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }
}

impl Drop for Owned {
    /// Returns the block to the pool with its history. Does not block: the pool reuses the block once its last use is done, or
    /// orders the next use after it.
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        self.device.0.pools.release(block);
    }
}

/// `len` elements of device memory, allocated by [`Stream::alloc`](crate::Stream::alloc) and similar functions.
///
/// Dropping a buffer returns at once. Its memory is only used again after its last use on any stream.
///
/// A `Buffer` is `Send` and `Sync`. Calls that write take it by `&mut` and calls that read by `&`, and you can make them on any
/// thread.
pub struct Buffer<T> {
    memory: Owned,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    pub(crate) fn new(memory: Owned, len: usize) -> Self {
        Self { memory, len, element: PhantomData }
    }

    /// Takes over device memory that this library did not allocate, for example another library's array or an allocation of the
    /// driver. It is ready for work on `stream` at once. Work on other streams waits for everything that `stream` was given so
    /// far, through either library.
    ///
    /// `owner` keeps the memory. We drop it on a thread of the library once the buffer is dropped and its last use is done, so
    /// you need not call anything. If the memory outlives all of this by itself, pass `()`.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut owner: Vec<f32> = vec![1.0; 1000]; // the CPU device's memory is the host's
    /// let (memory, len) = (owner.as_mut_ptr(), owner.len());
    /// // SAFETY: the vector keeps its elements where they are, and is not used elsewhere until it is dropped.
    /// let mut buffer = unsafe { gpustream::Buffer::from_raw(&stream, memory, len, owner) }?;
    /// stream.fill(&mut buffer, 2.0)?;
    /// assert_eq!(stream.download(&buffer)?[999], 2.0);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] if the driver knows that the memory belongs to another device;
    /// [`ErrorKind::InvalidArgument`] if the address is null, or not aligned to the size of an element (at most 16 bytes), as
    /// kernels need it. The owner is then dropped.
    ///
    /// # Safety
    /// * `memory` must be the address of `len` elements that the stream's device reaches, and they must stay there until
    ///   `owner` is dropped. Their contents count as written. If another library gives you the address as a number, cast it to
    ///   a pointer (`address as *mut f32`) so that it has a type.
    /// * Until then, any other use of the memory must be in order with this library's work: before this call, on `stream` or on
    ///   a stream that `stream` waits for; after it, as an [external operation](Stream::external) that names the buffer.
    #[track_caller]
    pub unsafe fn from_raw(
        stream: &Stream,
        memory: *mut T,
        len: usize,
        owner: impl Send + 'static,
    ) -> Result<Self> {
        let operation = call_site("from_raw");
        let address = RawBuffer(memory.expose_provenance());
        let device = stream.device();
        let bytes = named(operation, || {
            reentrancy::check_outside()?;
            let bytes = byte_len::<T>(len)?;
            check_address::<T>(device, address, bytes)?;
            Ok(bytes)
        })?;
        // SAFETY: by this function's contract.
        let block = unsafe { device.0.pools.foreign(ForeignOwner::new(owner), address, bytes) };
        block.history.lock().set_written(&(0..bytes));
        let buffer = Self::new(Owned::new(device, block), len);
        buffer.hand_over(stream, operation)?;
        Ok(buffer)
    }

    /// Borrows device memory that this library did not allocate, while a closure runs. It is ready for work on `stream` at
    /// once. Work that is enqueued on `stream` after this call, through any library, comes after the closure's work, even if
    /// that used other streams.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut theirs = vec![1.0f32; 1000]; // the CPU device's memory is the host's
    /// let memory = theirs.as_mut_ptr();
    /// // SAFETY: the vector is not used elsewhere until the stream is done.
    /// unsafe { gpustream::Buffer::with_raw(&stream, memory, theirs.len(), |x| stream.fill(x, 2.0)) }?;
    /// stream.synchronize()?;
    /// assert_eq!(theirs[999], 2.0);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`from_raw`](Self::from_raw) and those of `work`; [`ErrorKind::Hazard`] under strict tracking if `work` used
    /// another stream and did not make `stream` wait for it.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw), but the memory only has to stay until the work on `stream` is done, and other uses
    /// must be in the order of `stream`.
    #[track_caller]
    pub unsafe fn with_raw<R>(
        stream: &Stream,
        memory: *mut T,
        len: usize,
        work: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        /// Returns the memory to the stream's order, even if the closure panics.
        struct Return<'a, T: Plain>(Option<Buffer<T>>, &'a Stream, CallSite);
        impl<T: Plain> Return<'_, T> {
            fn end(&mut self) -> Result<()> {
                self.0.take().map_or(Ok(()), |buffer| buffer.hand_over(self.1, self.2))
            }
        }
        impl<T: Plain> Drop for Return<'_, T> {
            fn drop(&mut self) {
                let _ = self.end();
            }
        }

        // SAFETY: passed on to the caller.
        let buffer = unsafe { Self::from_raw(stream, memory, len, ()) }?;
        let mut borrowed = Return(None, stream, call_site("with_raw"));
        let outcome = work(borrowed.0.insert(buffer));
        borrowed.end().and(outcome)
    }

    /// Gives the memory to another library. Work that is enqueued on `stream` from now on, through any library, comes after all
    /// uses of the buffer. Never blocks.
    ///
    /// When you drop the returned value, the memory comes back, in the order of `stream`.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] if the stream is being captured; [`ErrorKind::DeviceMismatch`] if the stream's device cannot
    /// reach the memory. The buffer is then dropped.
    #[track_caller]
    pub fn into_raw(self, stream: &Stream) -> Result<RawMemory> {
        let operation = call_site("into_raw");
        let entry = stream.enter(operation)?;
        entry.check_running("give memory to another library in it; do so before or after the capture")?;
        hand_over(&entry, stream, &self.view().access(Mode::Write), &self.memory.device)?;
        Ok(RawMemory::new(stream, self.memory, self.len * size_of::<T>(), operation))
    }

    /// Returns the device, and the mapping if other processes can map the memory.
    pub(crate) fn mapping(&self) -> (Option<&Mapping>, &Device) {
        (self.memory.mapping.as_deref(), &self.memory.device)
    }

    /// Marks the first `bytes` bytes as written.
    pub(crate) fn set_written(&self, bytes: usize) {
        self.memory.block().history.lock().set_written(&(0..bytes));
    }

    /// Orders `stream` after all uses of the buffer, and later uses after `stream`.
    fn hand_over(&self, stream: &Stream, call_site: CallSite) -> Result<()> {
        hand_over(&stream.enter(call_site)?, stream, &self.view().access(Mode::Write), &self.memory.device)
    }
}

/// Orders `stream` after all uses of the memory that `access` conflicts with, and later uses after `stream`.
pub(crate) fn hand_over(
    entry: &StreamEntry<'_>,
    stream: &Stream,
    access: &Access<'_>,
    device: &Device,
) -> Result<()> {
    entry.named(stream.check_reaches(device, access.block.kind, "memory that changes hands"))?;
    // SAFETY: nothing is enqueued.
    unsafe { entry.submit_call(&[access], DriverCalls::Several(trace::WorkKind::Other, &mut |_, _| Ok(()))) }
}

/// Checks a foreign address as far as we can.
fn check_address<T: Plain>(device: &Device, address: RawBuffer, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if address.0 == 0 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "{bytes} bytes were given at a null address; pass the address that the memory's owner reports"
            ),
        ));
    }
    check_alignment::<T>(address.0)?;
    match device.raw().ordinal_of(address)? {
        Some(ordinal) if ordinal != device.info().ordinal => Err(Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "the memory at {address} belongs to device {ordinal}, and the stream to {}; pass a stream of that device",
                device.place()
            ),
        )),
        _ => Ok(()),
    }
}

impl<T: Plain> AsView<T> for Buffer<T> {
    #[inline]
    fn view(&self) -> View<'_, T> {
        View::new(self.memory.block(), &self.memory.device, self.len)
    }
}

impl<T: Plain> AsViewMut<T> for Buffer<T> {
    #[inline]
    fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.view())
    }
}

owner_methods!(Buffer);

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({} elements at {})", type_name::<T>(), self.len, self.memory.block().address)
    }
}
