//! Device memory.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;
use gpustream_core::device_core::DeviceCore;
use gpustream_core::inside;
use gpustream_core::memory::{Block, Kind};
use gpustream_core::queue::StreamCore;
use gpustream_hal::{Operation, RawBuffer, Result};

use crate::device::Device;
use crate::view::{AsView, AsViewMut, View, ViewMut, owner_methods};

/// An owned block, which goes back to the pool when dropped.
pub(crate) struct Owned {
    block: ManuallyDrop<Arc<Block>>,
    pub(crate) device: Device,
}

impl Owned {
    pub(crate) fn alloc(
        device: &Device,
        kind: Kind,
        bytes: usize,
        stream: Option<&StreamCore>,
        operation: Operation,
    ) -> Result<Self> {
        inside::check_outside().map_err(|error| error.with_operation(operation))?;
        let core: &DeviceCore = &device.0;
        let block = core.pools.alloc(core, kind, bytes, stream, operation)?;
        Ok(Self::new(device, block))
    }

    /// Allocates device memory for the recording that `stream` takes part in.
    pub(crate) fn alloc_recorded(
        device: &Device,
        bytes: usize,
        stream: &StreamCore,
        operation: Operation,
    ) -> Result<Self> {
        inside::check_outside().map_err(|error| error.with_operation(operation))?;
        let core: &DeviceCore = &device.0;
        let block = core.pools.alloc_recorded(core, bytes, stream, operation)?;
        Ok(Self::new(device, block))
    }

    pub(crate) fn new(device: &Device, block: Arc<Block>) -> Self {
        Self { block: ManuallyDrop::new(block), device: device.clone() }
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

impl<T: Pod> Buffer<T> {
    pub(crate) fn new(memory: Owned, len: usize) -> Self {
        Self { memory, len, element: PhantomData }
    }
}

impl<T: Pod> AsView<T> for Buffer<T> {
    #[inline]
    fn view(&self) -> View<'_, T> {
        View::new(self.memory.block(), &self.memory.device, self.len)
    }
}

impl<T: Pod> AsViewMut<T> for Buffer<T> {
    #[inline]
    fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.view())
    }
}

owner_methods!(Buffer);

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({} elements, {:?})", type_name::<T>(), self.len, self.memory.block().address)
    }
}
