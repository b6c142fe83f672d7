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

/// An owned block, which goes back to the pool when dropped.
pub(crate) struct Owned {
    block: ManuallyDrop<Arc<Block>>,
    pub(crate) device: Device,
    /// Present for memory that other processes can map. The block's owner holds it too.
    mapping: Option<Arc<Mapping>>,
}

impl Owned {
    /// Allocates memory whose earlier uses are done.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure that may not call the library, and those of the pools.
    pub(crate) fn alloc(
        device: &Device,
        kind: MemoryKind,
        layout: Layout,
        operation: CallSite,
    ) -> Result<Self> {
        let outside = named(operation, reentrancy::check_outside)?;
        Self::alloc_outside(device, kind, layout, operation, outside)
    }

    /// As [`alloc`](Self::alloc), on a thread that is outside of those closures.
    pub(crate) fn alloc_outside(
        device: &Device,
        kind: MemoryKind,
        layout: Layout,
        operation: CallSite,
        _: OutsideClosures,
    ) -> Result<Self> {
        let core: &DeviceCore = &device.0;
        let block = core.pools.alloc(core, kind, layout, None, operation)?;
        Ok(Self::new(device, block))
    }

    /// Allocates device memory for the next operations of the entry's stream, or of the recording that it takes part in.
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
    /// Gives the block back with its history. Nothing waits: the pool reuses the block once its last use is done, or
    /// orders the next use after it.
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        self.device.0.pools.release(block);
    }
}

/// A buffer of `len` elements of device memory, made by [`Stream::alloc`](crate::Stream::alloc) and its kin.
///
/// Dropping a buffer returns at once: the memory is used again only after its last use on any stream.
///
/// A `Buffer` is `Send` and `Sync`. Calls that write take it by `&mut`, and calls that read by `&`, from any thread.
pub struct Buffer<T> {
    memory: Owned,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    pub(crate) fn new(memory: Owned, len: usize) -> Self {
        Self { memory, len, element: PhantomData }
    }

    /// Takes over device memory of somebody else's: an array of another library's, an allocation of the driver's. The
    /// memory is ready for work that is submitted to `stream` from now on; work on other streams waits for what `stream`
    /// was given so far, through either library.
    ///
    /// `owner` keeps the memory, and is dropped on a thread of the library's once the buffer is dropped and its last use
    /// is done; nothing has to be called for that. Give `()` for memory that outlives all of this by itself.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut owner: Vec<f32> = vec![1.0; 1000]; // the CPU device's memory is the host's
    /// let (memory, len) = (owner.as_mut_ptr(), owner.len());
    /// // SAFETY: the vector keeps its elements where they are, and is used by nobody else until it is dropped.
    /// let mut buffer = unsafe { gpustream::Buffer::from_raw(&stream, memory, len, owner) }?;
    /// stream.fill(&mut buffer, 2.0)?;
    /// assert_eq!(stream.download(&buffer)?[999], 2.0);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] for memory of another device, where the driver knows it;
    /// [`ErrorKind::InvalidArgument`] for a null address, and for memory that is not aligned as kernels want it, to the
    /// size of an element up to 16 bytes. The owner is dropped then.
    ///
    /// # Safety
    /// * `memory` is the address of `len` elements which the device of `stream` reaches and which stay there until `owner` is
    ///   dropped. The contents count as written. Where another library gives the address as a number, its cast to a pointer
    ///   (`address as *mut f32`) says the type.
    /// * Nobody else uses the memory until then but in an order with this library's work: before this call on `stream` or
    ///   with `stream` waiting for it, and later as an [external operation](Stream::external) that names the buffer.
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

    /// Borrows device memory of somebody else's for the length of a closure. The memory is ready for work that is submitted
    /// to `stream` from now on, and work that anybody enqueues on `stream` afterwards comes after the closure's, on whatever
    /// streams that was.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut theirs = vec![1.0f32; 1000]; // the CPU device's memory is the host's
    /// let memory = theirs.as_mut_ptr();
    /// // SAFETY: the vector is used by nobody else until the stream is done.
    /// unsafe { gpustream::Buffer::with_raw(&stream, memory, theirs.len(), |x| stream.fill(x, 2.0)) }?;
    /// stream.synchronize()?;
    /// assert_eq!(theirs[999], 2.0);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`from_raw`](Self::from_raw), and those of `work`; [`ErrorKind::Hazard`] under strict tracking, where `work`
    /// used another stream and had nobody wait for that.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw), with a memory that stays until the work on `stream` is done, and is used by others
    /// in the order of `stream`.
    #[track_caller]
    pub unsafe fn with_raw<R>(
        stream: &Stream,
        memory: *mut T,
        len: usize,
        work: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        /// The way back to the stream, also where the closure panics.
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

    /// Gives the memory to somebody else: work that is enqueued on `stream` from now on, through whichever library, comes
    /// after all uses of the buffer. Never blocks.
    ///
    /// The memory comes back when the value is dropped, in the order of `stream`.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] while the stream is captured; [`ErrorKind::DeviceMismatch`] where the stream's device cannot
    /// reach the memory. The buffer is dropped then.
    #[track_caller]
    pub fn into_raw(self, stream: &Stream) -> Result<RawMemory> {
        let operation = call_site("into_raw");
        let entry = stream.enter(operation)?;
        entry.check_running("give memory to another library in it; do so around the capture")?;
        hand_over(&entry, stream, &self.view().access(Mode::Write), &self.memory.device)?;
        Ok(RawMemory::new(stream, self.memory, self.len * size_of::<T>(), operation))
    }

    /// Returns the mapping of memory that other processes can map, and the device.
    pub(crate) fn mapping(&self) -> (Option<&Mapping>, &Device) {
        (self.memory.mapping.as_deref(), &self.memory.device)
    }

    /// Has the first `bytes` bytes count as written.
    pub(crate) fn set_written(&self, bytes: usize) {
        self.memory.block().history.lock().set_written(&(0..bytes));
    }

    /// Orders `stream` after all uses of the buffer, and later uses after `stream`.
    fn hand_over(&self, stream: &Stream, operation: CallSite) -> Result<()> {
        hand_over(&stream.enter(operation)?, stream, &self.view().access(Mode::Write), &self.memory.device)
    }
}

/// Orders `stream` after all uses of the memory that `access` conflicts with, and later ones after `stream`.
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

/// Checks an address of somebody else's, as far as that can be done.
fn check_address<T: Plain>(device: &Device, address: RawBuffer, bytes: usize) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if address.0 == 0 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("{bytes} bytes at a null address; give the address that the memory's owner reports"),
        ));
    }
    check_alignment::<T>(address.0)?;
    match device.raw().ordinal_of(address)? {
        Some(ordinal) if ordinal != device.info().ordinal => Err(Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "the memory at {address} is of device {ordinal}, and the stream of {}; give a stream of that device",
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
