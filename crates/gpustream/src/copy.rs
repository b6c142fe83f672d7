//! Allocation, copies and fills, in the stream's order.

pub(crate) mod batch;
mod upload_async;

use gpustream_core::memory::{Access, layout_of};
use gpustream_core::operation::{DriverCalls, HostWait, Operation, call_site, not_a_node};
use gpustream_core::stream::StreamEntry;
use gpustream_core::trace;
use gpustream_core::track::Mode;
use gpustream_core::{copy, lint};
use gpustream_hal::{self as hal, Copy1d, Error, ErrorKind, Fill, FillPattern, RawStream, Result, Work};
use smallvec::SmallVec;

use crate::buffer::{Buffer, Owned};
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, AsViewMut, View, ViewMut};

/// The longest copy, in bytes, that may share the event that the host waits for with other such copies. Even the slowest bus
/// takes no longer for it than a driver takes to begin it.
const SHORT: usize = 16 << 10;

impl Stream {
    /// Allocates `len` elements of device memory. Their contents are unspecified: you may find what an earlier allocation left
    /// there.
    ///
    /// If you download elements or copy from them before they were written, you get [`ErrorKind::Uninitialized`]. A fill, an
    /// upload or a copy counts as writing exactly the elements that it writes. **A kernel counts as writing all elements that
    /// you pass it for writing**, because only its source says which ones it really writes. So if a kernel leaves some elements
    /// out, a download returns them as they were. We don't check what a kernel reads either. If your kernel only writes a part,
    /// pass it a view of that part. If it may leave out any element, allocate with [`zeros`](Self::zeros) or
    /// [`full`](Self::full).
    ///
    /// ```
    /// # use gpustream::ErrorKind;
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.alloc::<u32>(4)?;
    /// stream.fill(&mut x.slice_mut(..3)?, 7)?;
    /// assert_eq!(stream.download(&x.slice(..3)?)?, [7; 3]);
    /// assert_eq!(stream.download(&x).unwrap_err().kind(), ErrorKind::Uninitialized);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// Inside a [capture](Self::capture) and in a [node](crate::GraphBuilder::node) the memory belongs to the graph.
    ///
    /// Normally does not block. But if the driver has no room left, we return cached memory to it and wait for pending frees
    /// before we give up, and that may take as long as the work that still uses the memory.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if that was not enough. The message names the lines of your program that hold the memory.
    #[track_caller]
    #[inline]
    pub fn alloc<T: Plain>(&self, len: usize) -> Result<Buffer<T>> {
        self.alloc_for(&self.enter(call_site("alloc"))?, len)
    }

    #[inline]
    pub(crate) fn alloc_for<T: Plain>(&self, entry: &StreamEntry<'_>, len: usize) -> Result<Buffer<T>> {
        let memory = Owned::alloc_on(entry, &self.device, entry.named(layout_of::<T>(len))?)?;
        Ok(Buffer::new(memory, len))
    }

    /// Allocates `len` elements and sets their bytes to zero, in the stream's order.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc).
    #[track_caller]
    pub fn zeros<T: Plain>(&self, len: usize) -> Result<Buffer<T>> {
        self.full_for(&self.enter(call_site("zeros"))?, len, T::zeroed())
    }

    /// Allocates `len` elements and sets each to `value`, in the stream's order.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc) and [`fill`](Self::fill).
    #[track_caller]
    pub fn full<T: Plain>(&self, len: usize, value: T) -> Result<Buffer<T>> {
        self.full_for(&self.enter(call_site("full"))?, len, value)
    }

    fn full_for<T: Plain>(&self, entry: &StreamEntry<'_>, len: usize, value: T) -> Result<Buffer<T>> {
        let mut buffer = self.alloc_for(entry, len)?;
        self.fill_for(entry, &mut buffer.view_mut(), value)?;
        Ok(buffer)
    }

    /// Allocates as many elements as `src` has and copies them there, in the stream's order, like `clone` for a vector.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.upload(&[1, 2, 3])?;
    /// let before = stream.duplicate(&x)?;
    /// stream.fill(&mut x, 0)?;
    /// assert_eq!(stream.download(&before)?, [1, 2, 3]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc) and [`copy`](Self::copy).
    #[track_caller]
    pub fn duplicate<T: Plain>(&self, src: &(impl AsView<T> + ?Sized)) -> Result<Buffer<T>> {
        let entry = self.enter(call_site("duplicate"))?;
        let src = src.view();
        let mut buffer = self.alloc_for(&entry, src.len())?;
        self.copy_for(&entry, &src, &buffer.view_mut().view())?;
        Ok(buffer)
    }

    /// Allocates device memory and copies `values` into it. The host copies the slice to pinned memory before this call
    /// returns, so you may change the slice afterwards. The device copies from there, in the stream's order.
    ///
    /// Blocks if the stream has more uploads under way than [`DeviceOptions::staging_ring`](crate::DeviceOptions::staging_ring)
    /// allows, until the device has copied enough of them.
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc).
    #[track_caller]
    pub fn upload<T: Plain>(&self, values: &[T]) -> Result<Buffer<T>> {
        let entry = self.enter(call_site("upload"))?;
        // We check before we allocate, because a recording would keep the memory.
        entry.check_running(copy::CAPTURED)?;
        let mut buffer = self.alloc_for(&entry, values.len())?;
        self.upload_for(&entry, values, &mut buffer.view_mut())?;
        Ok(buffer)
    }

    /// Like [`upload`](Self::upload), into memory that you already have. Blocks as `upload` does.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ.
    #[track_caller]
    pub fn upload_into<T: Plain>(&self, values: &[T], dst: &mut (impl AsViewMut<T> + ?Sized)) -> Result<()> {
        let entry = self.enter(call_site("upload"))?;
        let mut dst = dst.view_mut();
        entry.named(check_lengths(values.len(), dst.len()))?;
        self.check_memory(&entry, &dst.view())?;
        self.upload_for(&entry, values, &mut dst)
    }

    /// Copies `values` to memory of the same length that the stream can reach.
    #[inline]
    fn upload_for<T: Plain>(
        &self,
        entry: &StreamEntry<'_>,
        values: &[T],
        dst: &mut ViewMut<'_, T>,
    ) -> Result<()> {
        lint::serialises_at(
            "the host copies an ordinary slice before this call returns, and if the staging ring is full it waits for the \
             device; copy from pinned memory",
            entry.caller.call_site.location,
        );
        let dst = dst.view();
        copy::upload(&self.device.0, entry, bytemuck::cast_slice(values), dst.block, dst.bytes().start)
    }

    /// Copies `src` to the host. Blocks until this copy is done, including the work that it depends on. It does not wait for
    /// anything else.
    ///
    /// # Errors
    /// [`ErrorKind::Uninitialized`] if some of `src` was never written.
    #[track_caller]
    pub fn download<T: Plain>(&self, src: &(impl AsView<T> + ?Sized)) -> Result<Vec<T>> {
        let entry = self.enter(call_site("download"))?;
        let src = src.view();
        entry.check_running("wait for a download; copy to pinned memory instead")?;
        let mut values = Vec::<T>::new();
        entry.named(values.try_reserve_exact(src.len()).map_err(|_| no_host_memory::<T>(src.len())))?;
        self.check_source(&entry, &src)?;
        // SAFETY: the spare capacity holds `src.len()` elements, and on success all of it has been written.
        unsafe {
            entry.named(copy::download(
                &self.device.0,
                &entry,
                src.block,
                src.bytes(),
                values.as_mut_ptr().cast(),
            ))?;
            values.set_len(src.len());
        }
        Ok(values)
    }

    /// Like [`download`](Self::download), into a slice of the same length. Blocks as `download` does.
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ; [`ErrorKind::Uninitialized`] if some of `src` was never written;
    /// [`ErrorKind::DeviceMismatch`] if the stream's device cannot reach the memory.
    #[track_caller]
    pub fn download_into<T: Plain>(&self, src: &(impl AsView<T> + ?Sized), dst: &mut [T]) -> Result<()> {
        let entry = self.enter(call_site("download"))?;
        let src = src.view();
        entry.check_running("wait for a download; copy to pinned memory instead")?;
        entry.named(check_lengths(src.len(), dst.len()))?;
        self.check_source(&entry, &src)?;
        // SAFETY: `dst` has room for `src.len()` elements and is borrowed exclusively.
        entry.named(unsafe {
            copy::download(&self.device.0, &entry, src.block, src.bytes(), dst.as_mut_ptr().cast())
        })
    }

    /// Copies between device and pinned memory in any combination, in the stream's order. If you have many copies, submit them
    /// as one operation with [`copy_batch`](Self::copy_batch).
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ; [`ErrorKind::Uninitialized`] if some of `src` was never written.
    #[track_caller]
    pub fn copy<T: Plain>(
        &self,
        src: &(impl AsView<T> + ?Sized),
        dst: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let entry = self.enter(call_site("copy"))?;
        let (src, dst) = (src.view(), dst.view_mut());
        entry.named(check_lengths(src.len(), dst.len()))?;
        self.copy_for(&entry, &src, &dst.view())
    }

    /// Copies between memory of the same length. The caller has `dst` exclusively.
    #[inline]
    pub(crate) fn copy_for<T: Plain>(
        &self,
        entry: &StreamEntry<'_>,
        src: &View<'_, T>,
        dst: &View<'_, T>,
    ) -> Result<()> {
        if self.is_peer_copy(src, dst) {
            return self.copy_from_peer(entry, src, dst);
        }
        self.check_source(entry, src)?;
        self.check_memory(entry, dst)?;
        self.submit_copy(entry, src, dst)
    }

    #[cold]
    fn copy_from_peer<T: Plain>(
        &self,
        entry: &StreamEntry<'_>,
        src: &View<'_, T>,
        dst: &View<'_, T>,
    ) -> Result<()> {
        self.check_written(entry, src)?;
        self.submit_copy(entry, src, dst).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => {
                self.foreign("the memory", src.device).with_call_site(entry.caller.call_site)
            }
            _ => error,
        })
    }

    /// Copies without checks: the lengths agree, the stream's device can reach both, and the caller has `dst` exclusively.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    pub(crate) fn submit_copy<T: Plain>(
        &self,
        entry: &StreamEntry<'_>,
        src: &View<'_, T>,
        dst: &View<'_, T>,
    ) -> Result<()> {
        if src.bytes().is_empty() {
            return Ok(());
        }
        let copy = self.copy_work(src, dst)?;
        let waited = if src.bytes().len() <= SHORT { HostWait::WithShortCopies } else { HostWait::Alone };
        let accesses = [&src.access(Mode::Read), &dst.access(Mode::Write)];
        let call = DriverCalls::Work(copy);
        // SAFETY: both ranges are in live blocks, which are not freed before this use is done. The borrows rule out overlap,
        // and host access waits for the use that we enter with the tracker.
        unsafe { entry.submit(&mut Operation { waited, ..Operation::new(&entry.caller, &accesses, call) }) }
    }

    /// Like [`submit_copy`](Self::submit_copy), for several pairs as one operation.
    pub(crate) fn submit_copies<T: Plain, const N: usize>(
        &self,
        entry: &StreamEntry<'_>,
        src: &[View<'_, T>; N],
        dst: &[View<'_, T>; N],
        waited: HostWait,
    ) -> Result<()> {
        if src.iter().all(|src| src.bytes().is_empty()) {
            return Ok(());
        }
        let reads = src.map(|src| src.access(Mode::Read));
        let writes = dst.map(|dst| dst.access(Mode::Write));
        let accesses: SmallVec<[&Access<'_>; 4]> = reads.iter().chain(&writes).collect();
        let mut several = |device: &dyn hal::Device, stream| {
            src.iter().zip(dst).try_for_each(|(src, dst)| {
                let copy = self.copy_work(src, dst)?;
                // SAFETY: each pair is in live blocks, which are not freed before this use is done, and does not overlap.
                unsafe { copy.enqueue(device, stream) }
            })
        };
        let work = if trace::is_on() {
            traced_together(&self.copy_work(&src[0], &dst[0])?, src)
        } else {
            trace::WorkKind::Other
        };
        let call = DriverCalls::Several(work, &mut several);
        let mut submission = Operation { waited, ..Operation::new(&entry.caller, &accesses, call) };
        // SAFETY: all ranges are in live blocks, which are not freed before this use is done. The borrows rule out overlap, and
        // host access waits for the use that we enter with the tracker.
        unsafe { entry.submit(&mut submission) }
    }

    /// Returns the driver's copy from one place to another.
    #[inline]
    fn copy_work<T: Plain>(&self, src: &View<'_, T>, dst: &View<'_, T>) -> Result<Work<'static>> {
        let bytes = src.bytes().len();
        Ok(match (src.block.is_host(), dst.block.is_host()) {
            (true, false) => Work::Copy(Copy1d::to_device(dst.as_raw(), src.host()?, bytes)),
            (false, true) => Work::Copy(Copy1d::to_host(dst.host()?, src.as_raw(), bytes)),
            (false, false) if self.is_peer_copy(src, dst) => {
                let from = &src.device.0;
                from.visit();
                let src_ordinal = from.info.ordinal;
                Work::CopyFromPeer { dst: dst.as_raw(), src: src.as_raw(), src_ordinal, bytes }
            }
            _ => Work::Copy(Copy1d::on_device(dst.as_raw(), src.as_raw(), bytes)),
        })
    }

    /// Sets every element of `dst` to `value`, in the stream's order.
    ///
    /// If the value repeats a pattern of 1, 2 or 4 bytes, this is one driver call. Otherwise we upload a few copies of the
    /// value and double them until the memory is full, because drivers have no fill for wider patterns.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] if the stream's device cannot reach the memory. If the value is wider than four bytes and
    /// not such a pattern: [`ErrorKind::OutOfMemory`] if there is no pinned memory to upload it from, and
    /// [`ErrorKind::NotANode`] if this would be a node of a graph.
    #[track_caller]
    pub fn fill<T: Plain>(&self, dst: &mut (impl AsViewMut<T> + ?Sized), value: T) -> Result<()> {
        self.fill_for(&self.enter(call_site("fill"))?, &mut dst.view_mut(), value)
    }

    fn fill_for<T: Plain>(&self, entry: &StreamEntry<'_>, dst: &mut ViewMut<'_, T>, value: T) -> Result<()> {
        self.check_memory(entry, &dst.view())?;
        let bytes = dst.view().bytes().len();
        if bytes == 0 {
            return Ok(());
        }
        let Some(pattern) = pattern(bytemuck::bytes_of(&value)) else {
            return self.fill_by_doubling(entry, dst, value);
        };
        let view = dst.view();
        let fill = Work::Fill(Fill { dst: view.as_raw(), pattern, count: bytes / pattern.width() });
        // SAFETY: the range is in a live block; the pattern is at most as wide as T, to which the range is aligned.
        unsafe { entry.submit_call(&[&view.access(Mode::Write)], DriverCalls::Work(fill)) }
    }

    /// Fills with a value that the driver's fill cannot express. We upload a few copies of the value, then copy the filled part
    /// to the place after it until the range is full.
    fn fill_by_doubling<T: Plain>(
        &self,
        entry: &StreamEntry<'_>,
        dst: &mut ViewMut<'_, T>,
        value: T,
    ) -> Result<()> {
        if !self.core.takes_several_calls() {
            return Err(not_a_node(
                "make a single node of a fill with a value wider than four bytes; fill a buffer before, and copy it in the node",
            ));
        }
        let seed = (4096 / size_of::<T>()).clamp(1, dst.len());
        let seed_values = self.device.pinned_from(&vec![value; seed])?;
        let view = dst.view();
        let (total, seed_bytes) = (view.bytes().len(), seed * size_of::<T>());
        let source = seed_values.view();
        let accesses = [&source.access(Mode::Read), &view.access(Mode::Write)];
        let address = view.as_raw();
        let to_host = view.block.is_host();
        let mut double = |device: &dyn hal::Device, stream: RawStream| {
            let mut filled = seed_bytes;
            // SAFETY: all ranges are in the blocks of the accesses, and each copy reads below what it writes.
            unsafe {
                if to_host {
                    device.copy_on_device(address, source.as_raw(), seed_bytes, stream)?;
                } else {
                    device.copy_to_device(address, source.host()?, seed_bytes, stream)?;
                }
                while filled < total {
                    let more = filled.min(total - filled);
                    device.copy_on_device(address.offset(filled), address, more, stream)?;
                    filled += more;
                }
            }
            Ok(())
        };
        let work = trace::WorkKind::Fill { bytes: total as u64 };
        // SAFETY: all ranges are in live blocks, which are not freed before this use is done.
        unsafe { entry.submit_call(&accesses, DriverCalls::Several(work, &mut double)) }
    }

    pub(crate) fn check_memory<T: Plain>(&self, entry: &StreamEntry<'_>, view: &View<'_, T>) -> Result<()> {
        entry.named(self.check_reaches(view.device, view.block.kind, "the memory"))
    }

    pub(crate) fn check_source<T: Plain>(&self, entry: &StreamEntry<'_>, src: &View<'_, T>) -> Result<()> {
        self.check_memory(entry, src)?;
        self.check_written(entry, src)
    }

    /// Returns true if this copies memory of another device to this stream's device. If the two cannot reach each other, the
    /// driver copies through the host.
    fn is_peer_copy<T: Plain>(&self, src: &View<'_, T>, dst: &View<'_, T>) -> bool {
        let (here, from, to) = (&self.device.0.info, &src.device.0.info, &dst.device.0.info);
        !src.block.is_host()
            && !dst.block.is_host()
            && from.backend == here.backend
            && (to.backend, to.ordinal) == (here.backend, here.ordinal)
            && from.ordinal != here.ordinal
    }

    fn check_written<T: Plain>(&self, entry: &StreamEntry<'_>, src: &View<'_, T>) -> Result<()> {
        // Captured operations have not written anything yet, so we cannot know the contents.
        if self.core.is_recorded() && self.core.is_recorded_here().unwrap_or(false) {
            return Ok(());
        }
        if src.block.history.lock().is_written(&src.bytes()) {
            return Ok(());
        }
        let message = "some of these elements were never written; allocate with `zeros`, `full` or `upload`, or submit the work \
                       that writes them first (if the library cannot see that work, call `assume_written`)";
        entry.named(Err(Error::new(ErrorKind::Uninitialized, message)))
    }
}

#[cold]
fn no_host_memory<T>(len: usize) -> Error {
    let bytes = len.saturating_mul(size_of::<T>());
    Error::new(
        ErrorKind::OutOfMemory,
        format!("the host has no room for the {bytes} bytes of {len} elements; download them in pieces"),
    )
}

pub(crate) fn check_lengths(src: usize, dst: usize) -> Result<()> {
    if src == dst {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ArgumentMismatch,
        format!("the source has {src} elements and the destination {dst}; slice the longer one"),
    ))
}

/// Returns the shortest pattern whose repetition is `value`, if the drivers can fill with it. A pattern is at most as wide as
/// the value, so the value's alignment is enough.
fn pattern(value: &[u8]) -> Option<FillPattern> {
    let repeats = |width: usize| {
        value.len().is_multiple_of(width) && value.chunks_exact(width).all(|chunk| chunk == &value[..width])
    };
    if repeats(1) {
        return Some(FillPattern::U8(value[0]));
    }
    if repeats(2) {
        return Some(FillPattern::U16(u16::from_ne_bytes([value[0], value[1]])));
    }
    repeats(4).then(|| FillPattern::U32(u32::from_ne_bytes([value[0], value[1], value[2], value[3]])))
}

/// Returns what a trace says about several copies in the same direction as the first.
#[cold]
fn traced_together<T: Plain>(first: &Work<'_>, src: &[View<'_, T>]) -> trace::WorkKind {
    let total = src.iter().map(|src| src.bytes().len() as u64).sum();
    match trace::timeline_kind(first.kind()) {
        trace::WorkKind::Copy { direction, pageable, .. } => {
            trace::WorkKind::Copy { direction, bytes: total, pageable }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_the_shortest_that_repeat() {
        assert_eq!(pattern(&[7; 8]), Some(FillPattern::U8(7)));
        assert_eq!(pattern(&[1, 2, 1, 2, 1, 2, 1, 2]), Some(FillPattern::U16(u16::from_ne_bytes([1, 2]))));
        assert_eq!(pattern(&1.0f32.to_ne_bytes()), Some(FillPattern::U32(1.0f32.to_bits())));
        assert_eq!(pattern(&1.0f64.to_ne_bytes()), None);
        assert_eq!(pattern(&[1, 2, 3]), None);
    }
}
