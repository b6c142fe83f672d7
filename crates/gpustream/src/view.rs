//! Views: typed ranges of a buffer or of pinned memory.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use gpustream_core::memory::{Access, Block, HostGuard, MemoryKind};
use gpustream_core::operation::{call_site, named};
use gpustream_core::stream;
use gpustream_core::track::Mode;
use gpustream_hal::{Error, ErrorKind, HostPtr, RawBuffer, Result};

use crate::device::Device;
use crate::pinned::{ReadGuard, WriteGuard};
use crate::plain::Plain;

/// A shared view of `len` elements of device or pinned memory.
///
/// Calls that read take an [`AsView`]: a [`Buffer`](crate::Buffer), a [`Pinned`](crate::Pinned), or a view of a range
/// of one.
///
/// A `View` is `Send` and `Sync`. It is a borrow: dropping it does nothing.
pub struct View<'a, T> {
    pub(crate) block: &'a Arc<Block>,
    pub(crate) device: &'a Device,
    /// The view's first byte in the block.
    pub(crate) start: usize,
    /// Number of elements; all of them lie in the block.
    pub(crate) len: usize,
    element: PhantomData<&'a [T]>,
}

/// An exclusive view of `len` elements of device or pinned memory.
///
/// Calls that write take an [`AsViewMut`].
///
/// A `ViewMut` is `Send` and `Sync`. It is a borrow: dropping it does nothing.
pub struct ViewMut<'a, T> {
    view: View<'a, T>,
    exclusive: PhantomData<&'a mut [T]>,
}

/// Memory that can be read as `len` elements of `T`. The trait is sealed: bounds are checked on one view and used on
/// the next, so all views of a value must agree.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that a device can read as elements of type `{T}`",
    label = "a `&Buffer<{T}>`, a `&Pinned<{T}>` or a view of one goes here",
    note = "upload a slice or a vector first, and pass the buffer: `let buffer = stream.upload(&slice)?;`",
    note = "memory of other elements is cast: `buffer.cast::<{T}>()?`",
    note = "a `Flag` is read by `volatile` parameters alone",
    note = "kernels reach a `Global` by its name; copy it for anything else: `global.copy_to(&stream, &mut buffer)?`"
)]
pub trait AsView<T: Plain>: sealed::Sealed {
    /// Returns a view of all the memory.
    fn view(&self) -> View<'_, T>;
}

/// Memory that can be written as `len` elements of `T`. The trait is sealed, as [`AsView`] is.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that a device can write as elements of type `{T}`",
    label = "a `&mut Buffer<{T}>`, a `&mut Pinned<{T}>` or a `&mut ViewMut` of one goes here",
    note = "give the device memory of its own, and download from there: `let mut buffer = stream.alloc(slice.len())?;`",
    note = "a `View` is shared, so that it can only be read; a `Flag` is written by `volatile` parameters alone"
)]
pub trait AsViewMut<T: Plain>: AsView<T> {
    /// Returns an exclusive view of all the memory.
    fn view_mut(&mut self) -> ViewMut<'_, T>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

impl<T> sealed::Sealed for View<'_, T> {}
impl<T> sealed::Sealed for ViewMut<'_, T> {}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl<'a, T: Plain> View<'a, T> {
    pub(crate) fn new(block: &'a Arc<Block>, device: &'a Device, len: usize) -> Self {
        Self::at(block, device, 0, len)
    }

    /// Makes a view of `len` elements from byte `start` of a block on, which has them all.
    pub(crate) fn at(block: &'a Arc<Block>, device: &'a Device, start: usize, len: usize) -> Self {
        Self { block, device, start, len, element: PhantomData }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the device that the memory belongs to.
    pub fn device(&self) -> &'a Device {
        self.device
    }

    /// Returns a view of the elements of `range`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`].
    #[inline]
    #[track_caller]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        named(call_site("slice"), || self.part(range))
    }

    /// Slices without naming a call, for calls with names of their own.
    #[inline]
    pub(crate) fn part(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = bounds(range, self.len)?;
        Ok(Self { start: self.start + range.start * size_of::<T>(), len: range.len(), ..self })
    }

    /// Returns views of pieces of `size` elements, the last one perhaps shorter.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a size of zero.
    #[track_caller]
    pub fn chunks(self, size: usize) -> Result<impl ExactSizeIterator<Item = View<'a, T>>> {
        named(call_site("chunks"), || self.parts(size))
    }

    fn parts(self, size: usize) -> Result<impl ExactSizeIterator<Item = View<'a, T>>> {
        let count = self.len.div_ceil(checked_chunk(size)?);
        Ok((0..count).map(move |index| self.chunk(index, size)))
    }

    /// Returns piece `index` of the pieces of `size` elements; beyond the last one, an empty view.
    pub(crate) fn chunk(self, index: usize, size: usize) -> Self {
        let from = index.saturating_mul(size).min(self.len);
        Self { start: self.start + from * size_of::<T>(), len: size.min(self.len - from), ..self }
    }

    /// Returns a view of the same bytes as elements of another type, as kernels that read vectors want them: `f32` as
    /// `[f32; 4]` (`float4`).
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let x = stream.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
    /// assert_eq!(stream.download(&x.cast::<[f32; 4]>()?)?, [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]);
    /// assert!(x.slice(..6)?.cast::<[f32; 4]>().is_err());   // one vector and a half
    /// assert!(x.slice(1..5)?.cast::<[f32; 4]>().is_err());  // kernels want a multiple of 16 bytes
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] where the bytes are no whole number of such elements, or begin at an address that
    /// kernels cannot read such elements from.
    #[inline]
    #[track_caller]
    pub fn cast<U: Plain>(self) -> Result<View<'a, U>> {
        named(call_site("cast"), || self.elements())
    }

    /// Casts without naming a call, as [`part`](Self::part) slices.
    #[inline]
    pub(crate) fn elements<U: Plain>(self) -> Result<View<'a, U>> {
        let Self { block, device, start, .. } = self;
        let bytes = self.bytes().len();
        let aligned = |address: usize| address.is_multiple_of(alignment_of::<U>());
        // No element fits where it has no size.
        match bytes.checked_rem(size_of::<U>()) {
            Some(0)
                if aligned(self.as_raw().0) && (!block.is_host() || aligned(block.host.addr() + start)) =>
            {
                Ok(View { block, device, start, len: bytes / size_of::<U>(), element: PhantomData })
            }
            rest => Err(self.not_castable::<U>(rest)),
        }
    }

    #[cold]
    fn not_castable<U: Plain>(&self, rest: Option<usize>) -> Error {
        let (from, to, size) = (type_name::<T>(), type_name::<U>(), size_of::<U>());
        let why = match rest {
            None => format!("`{to}` has no size"),
            Some(0) => format!(
                "kernels want `{to}` at a multiple of {} bytes, and the view begins at {}; slice where that is one",
                alignment_of::<U>(),
                self.as_raw(),
            ),
            Some(rest) => format!(
                "{} bytes are {rest} more than a multiple of the {size} that one takes; slice as many as make whole ones",
                self.bytes().len()
            ),
        };
        Error::new(
            ErrorKind::InvalidArgument,
            format!("{} elements of `{from}` are no elements of `{to}`: {why}", self.len),
        )
    }

    /// Blocks until the device is done writing here, then gives the host access.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for device memory, which the host cannot reach; download it instead.
    #[track_caller]
    pub fn read(self) -> Result<ReadGuard<'a, T>> {
        let call = call_site("read");
        self.wait_to_read().map_err(|error| error.with_call_site(call))
    }

    #[track_caller]
    fn wait_to_read(self) -> Result<ReadGuard<'a, T>> {
        let host = self.host()?;
        let guard = HostGuard::hold(self.block, self.bytes(), Mode::Read);
        stream::wait_for(self.block, &self.bytes(), Mode::Read)?;
        // SAFETY: the range is inside pinned memory and aligned for T. Writers were just waited for, with the guard held,
        // which keeps new ones out, as the shared borrow does.
        Ok(unsafe { ReadGuard::new(host.cast(), self.len, guard) })
    }

    /// Gives the host access as [`read`](Self::read) does, without blocking.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] while the device is still writing here.
    #[track_caller]
    pub fn try_read(self) -> Result<ReadGuard<'a, T>> {
        named(call_site("try_read"), || {
            let host = self.host()?;
            // The guard first: until it is held, a graph may be launched at any moment.
            let guard = HostGuard::hold(self.block, self.bytes(), Mode::Read);
            if !self.done()? {
                return Err(busy("writing to"));
            }
            // SAFETY: as for `read`: the device is done, and the guard was held before it was asked.
            Ok(unsafe { ReadGuard::new(host.cast(), self.len, guard) })
        })
    }

    /// Returns whether the device is done writing here, so that [`read`](Self::read) returns at once. Never blocks.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where the device failed.
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || self.done())
    }

    fn done(&self) -> Result<bool> {
        stream::is_done(self.block, &self.bytes(), Mode::Read)
    }

    /// Returns the address of the first element as kernels see it. Accesses through the address are not tracked.
    pub fn as_raw(&self) -> RawBuffer {
        self.block.address.offset(self.start)
    }

    /// Returns the address of the first element as the host sees it.
    pub(crate) fn host(&self) -> Result<HostPtr> {
        if matches!(self.block.kind, MemoryKind::Device | MemoryKind::Texels | MemoryKind::Array) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the host cannot reach device memory; use `stream.download`, or copy to pinned memory first",
            ));
        }
        // SAFETY: `start` lies inside the block, or at its end.
        Ok(unsafe { self.block.host.add(self.start) })
    }

    #[inline]
    pub(crate) fn bytes(&self) -> Range<usize> {
        self.start..self.start + self.len * size_of::<T>()
    }

    #[inline]
    pub(crate) fn access(&self, mode: Mode) -> Access<'a> {
        Access { block: self.block, range: self.bytes(), mode }
    }
}

impl<'a, T: Plain> ViewMut<'a, T> {
    /// Makes an exclusive view of memory that the caller holds exclusively.
    pub(crate) fn new(view: View<'a, T>) -> Self {
        Self { view, exclusive: PhantomData }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.view.len
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.view.len == 0
    }

    /// Returns the device that the memory belongs to.
    pub fn device(&self) -> &'a Device {
        self.view.device
    }

    /// Returns a view of the elements of `range`, and gives up the rest.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`].
    #[inline]
    #[track_caller]
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> Result<Self> {
        named(call_site("slice_mut"), || self.part(range))
    }

    /// Slices without naming a call, for calls with names of their own.
    #[inline]
    pub(crate) fn part(self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self::new(self.view.part(range)?))
    }

    /// Splits the view into the elements before `middle` and those from there on.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`].
    #[track_caller]
    pub fn split_at_mut(self, middle: usize) -> Result<(Self, Self)> {
        named(call_site("split_at_mut"), || {
            Ok((Self::new(self.view.part(..middle)?), Self::new(self.view.part(middle..)?)))
        })
    }

    /// Returns exclusive views of disjoint pieces of `size` elements, the last one perhaps shorter.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a size of zero.
    #[track_caller]
    pub fn chunks_mut(self, size: usize) -> Result<impl ExactSizeIterator<Item = ViewMut<'a, T>>> {
        named(call_site("chunks_mut"), || Ok(self.view.parts(size)?.map(ViewMut::new)))
    }

    /// Returns an exclusive view of the same bytes as elements of another type; see [`View::cast`].
    ///
    /// # Errors
    /// As for [`View::cast`].
    #[inline]
    #[track_caller]
    pub fn cast_mut<U: Plain>(self) -> Result<ViewMut<'a, U>> {
        named(call_site("cast_mut"), || self.elements())
    }

    /// Casts without naming a call, as [`part`](Self::part) slices.
    pub(crate) fn elements<U: Plain>(self) -> Result<ViewMut<'a, U>> {
        Ok(ViewMut::new(self.view.elements()?))
    }

    /// Blocks until the device is done with this range, then gives the host access.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for device memory, which the host cannot reach; upload to it instead.
    #[track_caller]
    pub fn write(self) -> Result<WriteGuard<'a, T>> {
        let call = call_site("write");
        self.wait_to_write().map_err(|error| error.with_call_site(call))
    }

    #[track_caller]
    fn wait_to_write(self) -> Result<WriteGuard<'a, T>> {
        let host = self.view.host()?;
        let range = self.view.bytes();
        let guard = HostGuard::hold(self.view.block, range.clone(), Mode::Write);
        stream::wait_for(self.view.block, &range, Mode::Write)?;
        // SAFETY: the device was just waited for, with the guard held.
        Ok(unsafe { self.write_guard(host, guard) })
    }

    /// # Safety
    /// After `guard` was held, the device was seen to be done with this memory; `host` is the memory's address on the
    /// host.
    unsafe fn write_guard(self, host: HostPtr, guard: HostGuard<'a>) -> WriteGuard<'a, T> {
        self.view.block.history.lock().set_written(&self.view.bytes());
        // SAFETY: the range is inside pinned memory and aligned for T; all its users are done, and the exclusive
        // borrow and the guard keep new ones out.
        unsafe { WriteGuard::new(host.cast(), self.view.len, guard) }
    }

    /// Gives the host access as [`write`](Self::write) does, without blocking.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] while the device still uses this range.
    #[track_caller]
    pub fn try_write(self) -> Result<WriteGuard<'a, T>> {
        named(call_site("try_write"), || {
            let host = self.view.host()?;
            let guard = HostGuard::hold(self.view.block, self.view.bytes(), Mode::Write);
            if !self.done()? {
                return Err(busy("using"));
            }
            // SAFETY: the device is done, and the guard was held before it was asked.
            Ok(unsafe { self.write_guard(host, guard) })
        })
    }

    /// Returns whether the device is done with this range, so that [`write`](Self::write) returns at once. Never
    /// blocks.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where the device failed.
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || self.done())
    }

    fn done(&self) -> Result<bool> {
        stream::is_done(self.view.block, &self.view.bytes(), Mode::Write)
    }

    /// Declares the elements unwritten: they are an earlier use's, and reading them is an error.
    pub(crate) fn forget_contents(&self) {
        self.view.block.history.lock().set_unwritten(&self.view.bytes());
    }

    /// Declares that work which the tracker does not see wrote these elements.
    ///
    /// # Safety
    /// Such work wrote them, and is done, or is ordered before the next use of the elements.
    pub unsafe fn assume_written(&mut self) {
        self.view.block.history.lock().set_written(&self.view.bytes());
    }
}

impl<T: Plain> AsView<T> for View<'_, T> {
    #[inline]
    fn view(&self) -> View<'_, T> {
        *self
    }
}

impl<T: Plain> AsView<T> for ViewMut<'_, T> {
    #[inline]
    fn view(&self) -> View<'_, T> {
        self.view
    }
}

impl<T: Plain> AsViewMut<T> for ViewMut<'_, T> {
    #[inline]
    fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(self.view)
    }
}

impl<'a, T: Plain, M: AsView<T> + ?Sized> From<&'a M> for View<'a, T> {
    /// Returns a view of all the memory.
    fn from(memory: &'a M) -> Self {
        memory.view()
    }
}

impl<'a, T: Plain, M: AsViewMut<T> + ?Sized> From<&'a mut M> for ViewMut<'a, T> {
    /// Returns an exclusive view of all the memory.
    fn from(memory: &'a mut M) -> Self {
        memory.view_mut()
    }
}

impl<T> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, start, len, .. } = self;
        write!(f, "View<{}>({len} elements at {})", type_name::<T>(), block.address.offset(*start))
    }
}

impl<T> fmt::Debug for ViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let View { block, start, len, .. } = self.view;
        write!(f, "ViewMut<{}>({len} elements at {})", type_name::<T>(), block.address.offset(start))
    }
}

#[cold]
fn busy(doing: &str) -> Error {
    Error::new(
        ErrorKind::WouldBlock,
        format!(
            "the device is still {doing} this memory; use `read` or `write` to wait for it, or try again later"
        ),
    )
}

/// Resolves a range of `len` elements, or refuses it.
fn bounds(range: impl RangeBounds<usize>, len: usize) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok(start..end),
        (start, end) => {
            let show =
                |bound: Option<usize>| bound.map_or_else(|| "(overflow)".into(), |value| value.to_string());
            Err(Error::new(
                ErrorKind::OutOfBounds,
                format!(
                    "the range {}..{} does not lie in memory of {len} elements; give one within 0..{len} that ends no earlier \
                     than it begins",
                    show(start),
                    show(end)
                ),
            ))
        }
    }
}

/// Returns the alignment that kernels want of elements of `size` bytes. Kernels may see elements of a multiple of 2, 4,
/// 8 or 16 bytes as vectors (`float4`), whose alignment Rust's arrays do not have.
pub(crate) const fn kernel_alignment(size: usize) -> usize {
    let zeros = size.trailing_zeros();
    1 << if zeros < 4 { zeros } else { 4 }
}

/// Returns the alignment of elements in memory that host and kernels see: what Rust wants, and what kernels may want.
pub(crate) const fn alignment_of<T>() -> usize {
    let (host, kernel) = (align_of::<T>(), kernel_alignment(size_of::<T>()));
    if host > kernel { host } else { kernel }
}

/// Checks the address of memory that the library did not allocate. What it allocates is aligned by
/// [`layout_of`](gpustream_core::memory::layout_of), and views keep to whole elements.
pub(crate) fn check_alignment<T>(address: usize) -> Result<()> {
    let wanted = alignment_of::<T>();
    if address.is_multiple_of(wanted) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "`{}` has {} bytes and must lie at a multiple of {wanted} bytes, since kernels may read it as vectors; this \
             memory is at {address:#x}: copy it to memory of the library's, or allocate it with that alignment",
            type_name::<T>(),
            size_of::<T>()
        ),
    ))
}

fn checked_chunk(size: usize) -> Result<usize> {
    if size == 0 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "chunks of zero elements; give a size of at least one",
        ));
    }
    Ok(size)
}

/// The view methods of an owner of memory, through its whole view.
macro_rules! owner_methods {
    ($owner:ident) => {
        impl<T> crate::view::sealed::Sealed for $owner<T> {}

        impl<T: Plain> $owner<T> {
            /// Returns the number of elements.
            #[inline]
            pub fn len(&self) -> usize {
                self.view().len()
            }

            /// Returns whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns the device that the memory belongs to.
            pub fn device(&self) -> &Device {
                self.view().device()
            }

            /// Returns a view of the elements of `range`.
            ///
            /// # Errors
            /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds).
            #[track_caller]
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
                self.view().slice(range)
            }

            /// Returns an exclusive view of the elements of `range`.
            ///
            /// # Errors
            /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds).
            #[track_caller]
            pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
                self.view_mut().slice_mut(range)
            }

            /// Splits the memory into the elements before `middle` and those from there on.
            ///
            /// # Errors
            /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds).
            #[track_caller]
            pub fn split_at_mut(&mut self, middle: usize) -> Result<(ViewMut<'_, T>, ViewMut<'_, T>)> {
                self.view_mut().split_at_mut(middle)
            }

            /// Returns views of pieces of `size` elements, the last one perhaps shorter.
            ///
            /// # Errors
            /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a size of zero.
            #[track_caller]
            pub fn chunks(&self, size: usize) -> Result<impl ExactSizeIterator<Item = View<'_, T>>> {
                self.view().chunks(size)
            }

            /// Returns exclusive views of disjoint pieces of `size` elements, the last one perhaps shorter.
            ///
            /// # Errors
            /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a size of zero.
            #[track_caller]
            pub fn chunks_mut(
                &mut self,
                size: usize,
            ) -> Result<impl ExactSizeIterator<Item = ViewMut<'_, T>>> {
                self.view_mut().chunks_mut(size)
            }

            /// Returns a view of the same bytes as elements of another type.
            ///
            /// # Errors
            /// As for [`View::cast`].
            #[track_caller]
            pub fn cast<U: Plain>(&self) -> Result<View<'_, U>> {
                self.view().cast()
            }

            /// Returns an exclusive view of the same bytes as elements of another type.
            ///
            /// # Errors
            /// As for [`View::cast`].
            #[track_caller]
            pub fn cast_mut<U: Plain>(&mut self) -> Result<ViewMut<'_, U>> {
                self.view_mut().cast_mut()
            }

            /// Returns the address of the first element as kernels see it. Accesses through the address are not
            /// tracked.
            pub fn as_raw(&self) -> RawBuffer {
                self.view().as_raw()
            }
        }
    };
}
pub(crate) use owner_methods;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_aligned_for_kernels_and_for_rust() {
        #[repr(align(64))]
        struct Line;
        fn refused<T>(address: usize) -> bool {
            check_alignment::<T>(address).is_err_and(|error| error.kind() == ErrorKind::InvalidArgument)
        }
        assert!(!refused::<[f32; 4]>(16) && refused::<[f32; 4]>(8));
        assert!(!refused::<[f32; 3]>(4) && refused::<[f32; 3]>(2));
        assert!(!refused::<[u16; 1]>(2) && refused::<[u8; 2]>(1));
        assert!(!refused::<[f64; 4]>(16) && refused::<[f64; 4]>(8));
        assert!(!refused::<[u8; 24]>(8) && refused::<[u8; 24]>(12));
        assert!(!refused::<Line>(128) && refused::<Line>(96));
    }

    #[test]
    fn ranges_resolve_or_are_refused() {
        assert_eq!(bounds(.., 5).unwrap(), 0..5);
        assert_eq!(bounds(1..=4, 5).unwrap(), 1..5);
        assert_eq!(bounds(5.., 5).unwrap(), 5..5);
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = bounds(3..2, 5);
        for refused in [bounds(..6, 5), reversed, bounds(6.., 5), bounds(..=usize::MAX, 5)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfBounds);
        }
    }
}
