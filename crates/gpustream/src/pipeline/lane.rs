//! Lanes: the streams that pieces take turns on, each with memory.

use std::array;

use gpustream_core::memory::layout_of;
use gpustream_core::stream::StreamEntry;
use gpustream_hal::{CallSite, Result};

use crate::buffer::{Buffer, Owned};
use crate::device::Device;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, View};

/// A stream, and device memory for the piece that it works on. We keep both from run to run.
pub(super) struct Lane {
    pub(super) stream: Stream,
    /// One place for each array. We keep them as bytes, because the next run may have elements of another type.
    memory: Vec<Buffer<u8>>,
}

impl Lane {
    pub(super) fn new(device: &Device) -> Result<Self> {
        Ok(Self { stream: device.stream()?, memory: Vec::new() })
    }

    /// Returns the stream, and places for `N` arrays of `len` elements. If places are missing or too short, allocates them.
    pub(super) fn places<T: Plain, const N: usize>(
        &mut self,
        len: usize,
        call_site: CallSite,
    ) -> Result<(&Stream, StreamEntry<'_>, [View<'_, T>; N])> {
        let layout = layout_of::<T>(len)?;
        let Self { stream, memory } = self;
        let entry = stream.enter(call_site)?;
        memory
            .retain(|place| place.len() >= layout.size() && place.as_raw().0.is_multiple_of(layout.align()));
        while memory.len() < N {
            let place = Owned::alloc_on(&entry, stream.device(), layout)?;
            memory.push(Buffer::new(place, layout.size()));
        }
        let places = array::from_fn(|index| {
            let place = memory[index].view();
            View::new(place.block, place.device, len)
        });
        Ok((stream, entry, places))
    }
}
