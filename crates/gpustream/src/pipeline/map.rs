//! Pieces that come from the host and go back to it, through the pipeline's pinned memory.

use std::fmt;

use gpustream_core::copy::copy_on_host;
use gpustream_core::memory::{MemoryKind, byte_len};
use gpustream_core::operation::{call_site, named, on_behalf};
use gpustream_hal::{CallSite, Error, ErrorKind, Result};

use super::turns::take_turns;
use super::{Pipeline, report};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::pinned::Pinned;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{View, ViewMut};

/// One piece of data on the device, as `work` gets it.
///
/// A `Piece` is `Send` and `Sync`. The pipeline owns the memory, so dropping the piece frees nothing.
pub struct Piece<'a, T, U> {
    /// The piece's number, from 0.
    pub index: usize,
    /// The elements that were uploaded.
    pub input: View<'a, T>,
    /// The elements that will be downloaded. `work` must write all of them.
    pub output: ViewMut<'a, U>,
}

/// The memory of a piece that is under way.
struct PieceMemory<T, U> {
    host_input: Pinned<T>,
    input: Buffer<T>,
    output: Buffer<U>,
    host_output: Pinned<U>,
    /// How many elements went into the piece that is under way.
    taken: usize,
    /// How many elements come out of the piece that is under way.
    given: usize,
}

impl Pipeline<'_> {
    /// Runs every piece of `input` through `work` and copies the results to `output`, which must have the same length. Blocks
    /// until all results have arrived.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ, or if you have set [`results`](Self::results); otherwise as for
    /// [`run`](Self::run).
    #[track_caller]
    pub fn map<T: Plain, U: Plain>(
        &mut self,
        input: &[T],
        output: &mut [U],
        work: impl FnMut(&Stream, &mut Piece<'_, T, U>) -> Result<()>,
    ) -> Result<()> {
        if input.len() != output.len() || self.results.is_some() {
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!(
                    "a map of {} elements to {} is impossible; pass slices of one length, and if pieces return another number of \
                     elements than they get, use `run`",
                    input.len(),
                    output.len()
                ),
            )
            .with_call_site(call_site("pipeline")));
        }
        // We need at most as many places as there are pieces.
        let depth = self.depth.min(input.len().div_ceil(self.chunk_of::<T>())).max(1);
        let (mut left, mut taken) = (input, 0);
        let device = self.device.clone();
        let source = |piece: &mut [T]| {
            let (now, later) = left.split_at(piece.len().min(left.len()));
            left = later;
            copy_on_host(
                &device.0,
                bytemuck::cast_slice(now),
                bytemuck::cast_slice_mut(&mut piece[..now.len()]),
            )?;
            Ok::<_, Error>(now.len())
        };
        let sink = |_, values: &[U]| {
            copy_on_host(
                &device.0,
                bytemuck::cast_slice(values),
                bytemuck::cast_slice_mut(&mut output[taken..taken + values.len()]),
            )?;
            taken += values.len();
            Ok(())
        };
        self.run_in(depth, call_site("pipeline"), source, work, sink).map(drop)
    }

    /// Runs pieces through `work` until `source` has no more. Blocks until all are done. Returns how many elements went in. If
    /// they have no size there can be very many; the number then stays at `usize::MAX`.
    ///
    /// `source` gets a slice of pinned memory, fills it from the beginning, and returns how many elements it wrote, or 0 at the
    /// end. `sink` gets each piece's number and results, in order. Both run on your thread while the device works on other
    /// pieces, and both may use more threads.
    ///
    /// # Errors
    /// The first error of `source`, `work`, `sink` or the library; [`ErrorKind::Uninitialized`] if `work` left some of the
    /// output unwritten.
    #[track_caller]
    pub fn run<T: Plain, U: Plain, E: From<Error>>(
        &mut self,
        source: impl FnMut(&mut [T]) -> Result<usize, E>,
        work: impl FnMut(&Stream, &mut Piece<'_, T, U>) -> Result<()>,
        sink: impl FnMut(usize, &[U]) -> Result<(), E>,
    ) -> Result<usize, E> {
        self.run_in(self.depth, call_site("pipeline"), source, work, sink)
    }

    /// Like [`run`](Self::run), with `depth` places.
    fn run_in<T: Plain, U: Plain, E: From<Error>>(
        &mut self,
        depth: usize,
        call_site: CallSite,
        mut source: impl FnMut(&mut [T]) -> Result<usize, E>,
        mut work: impl FnMut(&Stream, &mut Piece<'_, T, U>) -> Result<()>,
        mut sink: impl FnMut(usize, &[U]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let (device, results) = (self.device.clone(), self.results);
        let chunk = self.chunk_of::<T>();
        let capacity = results.unwrap_or(chunk);
        // A length that overflows must be refused before anything is allocated.
        named(call_site, || byte_len::<T>(chunk).and_then(|_| byte_len::<U>(capacity)))?;
        let (lanes, progress) = self.open_running_lanes(call_site)?;
        let stream = |index: usize| &lanes[index % lanes.len()].stream;
        let (mut total, mut finished) = (0_usize, 0_usize);
        take_turns::<PieceMemory<T, U>, E>(
            depth,
            || Ok(PieceMemory::new(&device, stream(0), chunk, capacity, call_site)?),
            |index, slot| {
                let taken = source(&mut on_behalf(call_site, || slot.host_input.write())?)?.min(chunk);
                if taken > 0 {
                    slot.submit(
                        stream(index),
                        (index, call_site),
                        taken,
                        results.unwrap_or(taken),
                        &mut work,
                    )?;
                }
                total = total.saturating_add(taken);
                Ok(taken > 0)
            },
            |index, slot| {
                sink(index, &on_behalf(call_site, || slot.host_output.slice(..slot.given)?.read())?)?;
                finished = finished.saturating_add(slot.taken);
                report(progress, finished);
                Ok(())
            },
        )?;
        Ok(total)
    }
}

impl<T: Plain, U: Plain> PieceMemory<T, U> {
    fn new(
        device: &Device,
        stream: &Stream,
        chunk: usize,
        capacity: usize,
        call_site: CallSite,
    ) -> Result<Self> {
        let entry = stream.enter(call_site)?;
        Ok(Self {
            host_input: Pinned::zeroed_for(device, chunk, MemoryKind::Pinned, call_site)?,
            input: stream.alloc_for(&entry, chunk)?,
            output: stream.alloc_for(&entry, capacity)?,
            host_output: Pinned::zeroed_for(device, capacity, MemoryKind::Pinned, call_site)?,
            taken: 0,
            given: 0,
        })
    }

    fn submit(
        &mut self,
        stream: &Stream,
        (index, operation): (usize, CallSite),
        taken: usize,
        given: usize,
        work: &mut impl FnMut(&Stream, &mut Piece<'_, T, U>) -> Result<()>,
    ) -> Result<()> {
        let Self { host_input, input, output, host_output, .. } = self;
        on_behalf(operation, || stream.copy(&host_input.slice(..taken)?, &mut input.slice_mut(..taken)?))?;
        let place = on_behalf(operation, || output.slice_mut(..given))?;
        // The place still holds an earlier piece, which must not pass for this one.
        place.forget_contents();
        work(stream, &mut Piece { index, input: input.slice(..taken)?, output: place })?;
        on_behalf(operation, || stream.copy(&output.slice(..given)?, &mut host_output.slice_mut(..given)?))?;
        (self.taken, self.given) = (taken, given);
        Ok(())
    }
}

impl<T, U> fmt::Debug for Piece<'_, T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({}, {:?} -> {:?})", self.index, self.input, self.output)
    }
}
