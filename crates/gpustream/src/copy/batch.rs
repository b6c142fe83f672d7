//! Batches: several copies as one operation.

use std::sync::Arc;

use gpustream_core::memory::Access;
use gpustream_core::operation::{DriverCalls, call_site, named};
use gpustream_core::stream::StreamEntry;
use gpustream_core::track::Mode;
use gpustream_hal::{Copy1d, CopyEnd, Error, ErrorKind, Result};

use super::check_lengths;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, View, ViewMut};

/// Several copies, which [`Stream::copy_batch`] submits as one operation.
///
/// The batch borrows the memory of its copies, the destinations exclusively. So a copy never writes what another copy reads or
/// writes, and the copies may run in any order:
///
/// ```compile_fail,E0502
/// # use gpustream::CopyBatch;
/// # let device = gpustream::Device::open("cpu")?;
/// # let stream = device.stream()?;
/// let mut x = stream.upload(&[1, 2, 3, 4])?;
/// let mut batch = CopyBatch::new();
/// batch.add(x.slice(..2)?, x.slice_mut(1..3)?)?;   // `x` is borrowed already; use `split_at_mut`
/// stream.copy_batch(batch)?;
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `CopyBatch` is `Send` and `Sync`. If you drop it, nothing is copied.
#[derive(Debug, Default)]
#[must_use = "a batch copies nothing until `Stream::copy_batch` takes it"]
pub struct CopyBatch<'a> {
    /// Sources and destinations. Both of a pair have the same length.
    copies: Vec<(View<'a, u8>, ViewMut<'a, u8>)>,
}

impl<'a> CopyBatch<'a> {
    /// Makes an empty batch.
    pub const fn new() -> Self {
        Self { copies: Vec::new() }
    }

    /// Makes an empty batch with room for `copies` copies.
    pub fn with_capacity(copies: usize) -> Self {
        Self { copies: Vec::with_capacity(copies) }
    }

    /// Adds a copy of `src` to `dst`, which may be device or pinned memory. Different copies may have different types of
    /// elements. Does not block.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ. The batch then stays as it was.
    #[track_caller]
    pub fn add<T: Plain>(
        &mut self,
        src: impl Into<View<'a, T>>,
        dst: impl Into<ViewMut<'a, T>>,
    ) -> Result<()> {
        let (src, dst) = (src.into(), dst.into());
        named(call_site("add"), || {
            check_lengths(src.len(), dst.len()).map_err(|error| of_copy(self.len(), error))?;
            self.copies.push((src.elements()?, dst.elements()?));
            Ok(())
        })
    }

    /// Returns the number of copies, including those of zero elements.
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Returns true if there are no copies.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }
}

impl Stream {
    /// Makes the copies of a batch in the stream's order, as one operation: later work waits for all of them. Does not block.
    ///
    /// The driver gets one call for the whole batch (`cuMemcpyBatchAsync`, CUDA 12.8; `hipMemcpyBatchAsync`, HIP 7.14). If it
    /// has no such function, or this is a default stream that refuses it, the driver gets one call per copy. Inside a capture
    /// each copy is a node of the graph. On the CPU the threads share the copies.
    ///
    /// ```
    /// use gpustream::CopyBatch;
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let pages = stream.upload(&[1, 2, 3, 4, 5, 6])?;
    /// let scale = device.pinned_from(&[0.5f32])?;
    /// let (mut gathered, mut factor) = (stream.alloc::<i32>(4)?, stream.alloc::<f32>(1)?);
    /// let mut batch = CopyBatch::new();
    /// for (page, to) in [4, 0].into_iter().zip(gathered.chunks_mut(2)?) {
    ///     batch.add(pages.slice(page..page + 2)?, to)?;
    /// }
    /// batch.add(&scale, &mut factor)?;
    /// stream.copy_batch(batch)?;
    /// assert_eq!(stream.download(&gathered)?, [5, 6, 1, 2]);
    /// assert_eq!(stream.download(&factor)?, [0.5]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// Each error names the copy by its index, and then nothing was submitted. [`ErrorKind::Uninitialized`] if some of a source
    /// was never written; [`ErrorKind::DeviceMismatch`] for device memory that is not on the stream's device, for which you can
    /// use [`copy`](Self::copy); [`ErrorKind::NotANode`] if this would be a node of a [`GraphBuilder`](crate::GraphBuilder).
    #[track_caller]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "threads that shared a batch could write its memory at once"
    )]
    pub fn copy_batch(&self, batch: CopyBatch<'_>) -> Result<()> {
        let entry = self.enter(call_site("copy_batch"))?;
        let mut copies = Vec::with_capacity(batch.len());
        let (mut reads, mut writes) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for (index, (src, dst)) in batch.copies.iter().enumerate() {
            let dst = dst.view();
            let checked = self.check_batch_copy(&entry, src, &dst);
            entry.named(checked.map_err(|error| of_copy(index, error)))?;
            if src.is_empty() {
                continue;
            }
            copies.push(batch_copy(src, &dst)?);
            reads.push(src.access(Mode::Read));
            writes.push(dst.access(Mode::Write));
        }
        if copies.is_empty() {
            return Ok(());
        }
        join(&mut reads);
        join(&mut writes);
        let accesses: Vec<&Access<'_>> = reads.iter().chain(&writes).collect();
        // SAFETY: all ranges are in live blocks, which are not freed before this use is done. The borrows rule out overlap, and
        // host access waits for the use that we enter with the tracker.
        unsafe { entry.submit_call(&accesses, DriverCalls::Batch(&copies)) }
    }

    fn check_batch_copy(
        &self,
        entry: &StreamEntry<'_>,
        src: &View<'_, u8>,
        dst: &View<'_, u8>,
    ) -> Result<()> {
        let here = &self.device.0.info;
        for end in [src, dst] {
            let there = &end.device.0.info;
            if !end.block.is_host() && there.backend == here.backend && there.ordinal != here.ordinal {
                return Err(Error::new(
                    ErrorKind::DeviceMismatch,
                    format!(
                        "the memory is on {} and the stream on {}; copy between devices with `copy`, because a batch only \
                         copies on one device and to and from pinned memory",
                        end.device.place(),
                        self.device.place()
                    ),
                ));
            }
        }
        self.check_source(entry, src)?;
        self.check_memory(entry, dst)
    }
}

/// Adds to an error which copy of a batch it is about.
#[cold]
fn of_copy(index: usize, error: Error) -> Error {
    error.with_context(format!("copy {index} of the batch"))
}

fn batch_copy(src: &View<'_, u8>, dst: &View<'_, u8>) -> Result<Copy1d> {
    let device = |view: &View<'_, u8>| CopyEnd::Device(view.as_raw());
    let (to, from) = match (dst.block.is_host(), src.block.is_host()) {
        (true, false) => (CopyEnd::Host(dst.host()?), device(src)),
        (false, true) => (device(dst), CopyEnd::Host(src.host()?)),
        _ => (device(dst), device(src)),
    };
    Ok(Copy1d { dst: to, src: from, bytes: src.len() })
}

/// Sorts accesses of one mode by memory, and joins neighbours. Then the tracker has few ranges to enter, and enters them in order.
/// That is cheap, because a range that is entered before others moves all of them.
fn join(accesses: &mut Vec<Access<'_>>) {
    accesses.sort_unstable_by_key(|access| (Arc::as_ptr(access.block).addr(), access.range.start));
    accesses.dedup_by(|next, last| {
        let touch = Arc::ptr_eq(last.block, next.block) && next.range.start <= last.range.end;
        if touch {
            last.range.end = last.range.end.max(next.range.end);
        }
        touch
    });
}
