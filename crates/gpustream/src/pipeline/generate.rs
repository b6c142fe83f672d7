//! Pieces that the device generates, without input.

use gpustream_core::memory::{MemoryKind, byte_len};
use gpustream_core::operation::{call_site, named, on_behalf};
use gpustream_hal::{Error, Result};

use super::turns::take_turns;
use super::{Pipeline, report};
use crate::buffer::Buffer;
use crate::pinned::Pinned;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsViewMut, ViewMut};

impl Pipeline<'_> {
    /// Lets `work` fill `pieces` pieces of device memory, and passes each piece's number and elements to `sink`. Blocks until
    /// all pieces are done.
    ///
    /// Use this if you have state on the device that goes on from piece to piece, such as a simulation. We call `work` for one
    /// piece after another, always with the same stream. Another stream copies the pieces to the host, so your state can go on
    /// meanwhile. `work` must write the whole piece. `sink` is called in order on your thread, while the device is up to
    /// [`depth`](Self::depth) pieces ahead.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// let mut value = 0u32;
    /// let mut sums = Vec::new();
    /// device.pipeline().chunks(1000).generate(
    ///     5,
    ///     |stream, frame| {
    ///         value += 1;
    ///         stream.fill(frame, value)                   // or launch kernels, and copy from their state
    ///     },
    ///     |_, frame: &[u32]| {
    ///         sums.push(frame.iter().sum::<u32>());
    ///         Ok::<_, gpustream::Error>(())
    ///     },
    /// )?;
    /// assert_eq!(sums, [1000, 2000, 3000, 4000, 5000]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of `work`, `sink` or the library; [`ErrorKind::Uninitialized`](crate::ErrorKind::Uninitialized) if
    /// `work` did not write the whole piece.
    #[track_caller]
    pub fn generate<U: Plain, E: From<Error>>(
        &mut self,
        pieces: usize,
        mut work: impl FnMut(&Stream, &mut ViewMut<'_, U>) -> Result<()>,
        mut sink: impl FnMut(usize, &[U]) -> Result<(), E>,
    ) -> Result<(), E> {
        let operation = call_site("pipeline");
        if pieces == 0 {
            return Ok(());
        }
        let (device, depth) = (self.device.clone(), self.depth.min(pieces));
        let len = self.results.unwrap_or(self.chunk_of::<U>());
        // A length that overflows must be refused before anything is allocated.
        named(operation, || byte_len::<U>(len))?;
        let (lanes, progress) = self.open_running_lanes(operation)?;
        let compute = &lanes[0].stream;
        let copies = lanes.get(1).map_or(compute, |lane| &lane.stream);
        let mut finished = 0_usize;
        take_turns::<(Buffer<U>, Pinned<U>), E>(
            depth,
            || {
                let piece = compute.alloc_for(&compute.enter(operation)?, len)?;
                Ok((piece, Pinned::zeroed_for(&device, len, MemoryKind::Pinned, operation)?))
            },
            |index, (piece, host)| {
                if index == pieces {
                    return Ok(false);
                }
                let mut place = piece.view_mut();
                // The place still holds an earlier piece, which must not pass for this one.
                place.forget_contents();
                work(compute, &mut place)?;
                if lanes.len() > 1 {
                    // We wait explicitly, because strict tracking adds no waits.
                    on_behalf(operation, || copies.wait(&compute.record()?))?;
                }
                on_behalf(operation, || copies.copy(piece, host))?;
                Ok(true)
            },
            |index, (_, host)| {
                sink(index, &on_behalf(operation, || host.read())?)?;
                finished = finished.saturating_add(len);
                report(progress, finished);
                Ok(())
            },
        )
    }
}
