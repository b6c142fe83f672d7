//! What pieces take turns on.

use std::array;

use bytemuck::Pod;
use gpustream_hal::{Operation, Result};

use crate::buffer::Buffer;
use crate::device::Device;
use crate::memory::byte_len;
use crate::stream::Stream;
use crate::view::{AsView, View};

/// A stream, and device memory for the piece that it works on. Both stay from run to run.
pub(super) struct Lane {
    pub(super) stream: Stream,
    /// Of any type, since the next run may have another.
    memory: Vec<Buffer<u8>>,
}

impl Lane {
    pub(super) fn new(device: &Device) -> Result<Self> {
        Ok(Self { stream: device.stream()?, memory: Vec::new() })
    }

    /// The stream, and the places of `N` arrays of `len` elements. Allocates where there was none so long yet.
    pub(super) fn places<T: Pod, const N: usize>(
        &mut self,
        len: usize,
        operation: Operation,
    ) -> Result<(&Stream, [View<'_, T>; N])> {
        let bytes = byte_len::<T>(len)?;
        let Self { stream, memory } = self;
        memory.retain(|place| place.len() >= bytes);
        while memory.len() < N {
            memory.push(stream.alloc_for(bytes, operation)?);
        }
        let places = array::from_fn(|index| {
            let place = memory[index].view();
            View::new(place.block, place.device, len)
        });
        Ok((stream, places))
    }
}
