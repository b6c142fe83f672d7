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
/// Calls that read take an [`AsView`]: you can pass a [`Buffer`](crate::Buffer), a [`Pinned`](crate::Pinned), or a view of a
/// part.
///
/// A `View` is `Send` and `Sync`. It is only a borrow, so dropping it does nothing.
pub struct View<'a, T> {
    pub(crate) block: &'a Arc<Block>,
    pub(crate) device: &'a Device,
    /// The view's first byte in the block.
    pub(crate) start: usize,
    /// The number of elements, which are all inside the block.
    pub(crate) len: usize,
    element: PhantomData<&'a [T]>,
}

/// An exclusive view of `len` elements of device or pinned memory.
///
/// Calls that write take an [`AsViewMut`].
///
/// A `ViewMut` is `Send` and `Sync`. It is only a borrow, so dropping it does nothing.
pub struct ViewMut<'a, T> {
    view: View<'a, T>,
    exclusive: PhantomData<&'a mut [T]>,
}

/// Memory that can be read as `len` elements of `T`. You cannot implement this trait: we check bounds on one view and use the
/// next, so all views of a value must agree.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read by a device as elements of type `{T}`",
    label = "expected a `&Buffer<{T}>`, a `&Pinned<{T}>` or a view of one",
    note = "if you have a slice or a vector, upload it first and pass the buffer: `let buffer = stream.upload(&slice)?;`",
    note = "if the memory has other elements, cast it: `buffer.cast::<{T}>()?`",
    note = "a `Flag` can only be read by `volatile` parameters",
    note = "kernels reach a `Global` by its name; for anything else, copy it: `global.copy_to(&stream, &mut buffer)?`"
)]
pub trait AsView<T: Plain>: sealed::Sealed {
    /// Returns a view of all the memory.
    fn view(&self) -> View<'_, T>;
}

/// Memory that can be written as `len` elements of `T`. You cannot implement this trait, for the same reason as [`AsView`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written by a device as elements of type `{T}`",
    label = "expected a `&mut Buffer<{T}>`, a `&mut Pinned<{T}>` or a `&mut ViewMut` of one",
    note = "let the device write its own memory, and download that: `let mut buffer = stream.alloc(slice.len())?;`",
    note = "a `View` is shared, so it can only be read; a `Flag` can only be written by `volatile` parameters"
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

    /// Makes a view of `len` elements that begins at byte `start` of a block. The block must have all of them.
    pub(crate) fn at(block: &'a Arc<Block>, device: &'a Device, start: usize, len: usize) -> Self {
        Self { block, device, start, len, element: PhantomData }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
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
    /// [`ErrorKind::OutOfBounds`] if the range ends after the last element.
    #[inline]
    #[track_caller]
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        named(call_site("slice"), || self.part(range))
    }

    /// Slices without naming a call, because the caller has a name of its own.
    #[inline]
    pub(crate) fn part(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = bounds(range, self.len)?;
        Ok(Self { start: self.start + range.start * size_of::<T>(), len: range.len(), ..self })
    }

    /// Returns views of pieces of `size` elements each. The last piece may be shorter.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the size is zero.
    #[track_caller]
    pub fn chunks(self, size: usize) -> Result<impl ExactSizeIterator<Item = View<'a, T>>> {
        named(call_site("chunks"), || self.parts(size))
    }

    fn parts(self, size: usize) -> Result<impl ExactSizeIterator<Item = View<'a, T>>> {
        let count = self.len.div_ceil(checked_chunk(size)?);
        Ok((0..count).map(move |index| self.chunk(index, size)))
    }

    /// Returns piece `index` of the pieces of `size` elements, or an empty view if there are fewer pieces.
    pub(crate) fn chunk(self, index: usize, size: usize) -> Self {
        let from = index.saturating_mul(size).min(self.len);
        Self { start: self.start + from * size_of::<T>(), len: size.min(self.len - from), ..self }
    }

    /// Returns a view of the same bytes as elements of another type, for example `f32` as `[f32; 4]` for a kernel that reads
    /// `float4`.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let x = stream.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])?;
    /// assert_eq!(stream.download(&x.cast::<[f32; 4]>()?)?, [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]);
    /// assert!(x.slice(..6)?.cast::<[f32; 4]>().is_err());   // one and a half vectors
    /// assert!(x.slice(1..5)?.cast::<[f32; 4]>().is_err());  // not at a multiple of 16 bytes, which kernels need
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the bytes are not a whole number of the new elements, or if their address is not
    /// aligned as kernels need it.
    #[inline]
    #[track_caller]
    pub fn cast<U: Plain>(self) -> Result<View<'a, U>> {
        named(call_site("cast"), || self.elements())
    }

    /// Casts without naming a call, like [`part`](Self::part).
    #[inline]
    pub(crate) fn elements<U: Plain>(self) -> Result<View<'a, U>> {
        let Self { block, device, start, .. } = self;
        let bytes = self.bytes().len();
        let aligned = |address: usize| address.is_multiple_of(alignment_of::<U>());
        // If `U` has no size, `checked_rem` returns `None`, because no number of elements would be right.
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
            None => format!("`{to}` has no size, so it cannot be stored in memory"),
            Some(0) => format!(
                "kernels need `{to}` at a multiple of {} bytes, and the view begins at {}; begin the slice at such an address",
                alignment_of::<U>(),
                self.as_raw(),
            ),
            Some(rest) => format!(
                "the {} bytes are {rest} more than a multiple of {size}, the size of one; slice a whole number of them",
                self.bytes().len()
            ),
        };
        Error::new(
            ErrorKind::InvalidArgument,
            format!("{} elements of `{from}` cannot be cast to `{to}`: {why}", self.len),
        )
    }

    /// Blocks until the device has finished writing here, then lets the host read.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this is device memory, which the host cannot reach. Download it instead.
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
        // SAFETY: the range is inside pinned memory and aligned for T. We have just waited for writers while holding the guard,
        // which keeps new ones out, and so does the shared borrow.
        Ok(unsafe { ReadGuard::new(host.cast(), self.len, guard) })
    }

    /// Lets the host read like [`read`](Self::read), but never blocks.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if the device is still writing here.
    #[track_caller]
    pub fn try_read(self) -> Result<ReadGuard<'a, T>> {
        named(call_site("try_read"), || {
            let host = self.host()?;
            // The guard comes first, otherwise a graph could be launched after we have asked.
            let guard = HostGuard::hold(self.block, self.bytes(), Mode::Read);
            if !self.done()? {
                return Err(busy("writing to"));
            }
            // SAFETY: as for `read`: the device is done, and we held the guard before we asked.
            Ok(unsafe { ReadGuard::new(host.cast(), self.len, guard) })
        })
    }

    /// Returns true if the device has finished writing here, so that [`read`](Self::read) would return at once. Never blocks.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed.
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || self.done())
    }

    fn done(&self) -> Result<bool> {
        stream::is_done(self.block, &self.bytes(), Mode::Read)
    }

    /// Returns the address of the first element as kernels see it. If you use the address, we cannot track it.
    pub fn as_raw(&self) -> RawBuffer {
        self.block.address.offset(self.start)
    }

    /// Returns the address of the first element as the host sees it.
    pub(crate) fn host(&self) -> Result<HostPtr> {
        if matches!(self.block.kind, MemoryKind::Device | MemoryKind::Texels | MemoryKind::Array) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the host cannot reach device memory; download it with `stream.download`, or copy it to pinned memory first",
            ));
        }
        // SAFETY: `start` is inside the block, or at its end.
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
    /// Makes an exclusive view of memory that the caller has exclusively.
    pub(crate) fn new(view: View<'a, T>) -> Self {
        Self { view, exclusive: PhantomData }
    }

    /// Gives up the right to write, and returns a shared view that lasts as long as this one would have. You can copy that
    /// one and pass it to calls that keep it, while [`view`](AsView::view) only borrows from this value.
    ///
    /// ```
    /// # use gpustream::View;
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.upload(&[1, 2, 3, 4])?;
    /// let (own, mut halo) = x.split_at_mut(3)?;
    /// let last: View<'_, i32> = own.into_view().slice(2..)?;
    /// stream.copy(&last, &mut halo)?;
    /// assert_eq!(stream.download(&x)?, [1, 2, 3, 3]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    pub fn into_view(self) -> View<'a, T> {
        self.view
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.view.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.view.len == 0
    }

    /// Returns the device that the memory belongs to.
    pub fn device(&self) -> &'a Device {
        self.view.device
    }

    /// Returns a view of the elements of `range` and gives up the rest.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if the range ends after the last element.
    #[inline]
    #[track_caller]
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> Result<Self> {
        named(call_site("slice_mut"), || self.part(range))
    }

    /// Slices without naming a call, because the caller has a name of its own.
    #[inline]
    pub(crate) fn part(self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self::new(self.view.part(range)?))
    }

    /// Splits the view at `middle`: the first part has the elements before it, the second the others.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if `middle` is greater than the length.
    #[track_caller]
    pub fn split_at_mut(self, middle: usize) -> Result<(Self, Self)> {
        named(call_site("split_at_mut"), || {
            Ok((Self::new(self.view.part(..middle)?), Self::new(self.view.part(middle..)?)))
        })
    }

    /// Returns exclusive views of disjoint pieces of `size` elements each. The last piece may be shorter.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the size is zero.
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

    /// Casts without naming a call, like [`part`](Self::part).
    pub(crate) fn elements<U: Plain>(self) -> Result<ViewMut<'a, U>> {
        Ok(ViewMut::new(self.view.elements()?))
    }

    /// Blocks until the device has finished with this range, then lets the host write.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this is device memory, which the host cannot reach. Upload to it instead.
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
        // SAFETY: we have just waited for the device while holding the guard.
        Ok(unsafe { self.write_guard(host, guard) })
    }

    /// # Safety
    /// While `guard` was held, the device must have been seen to be done with this memory. `host` must be the memory's address
    /// on the host.
    unsafe fn write_guard(self, host: HostPtr, guard: HostGuard<'a>) -> WriteGuard<'a, T> {
        self.view.block.history.lock().set_written(&self.view.bytes());
        // SAFETY: the range is inside pinned memory and aligned for T. All its users are done, and the exclusive borrow and the
        // guard keep new ones out.
        unsafe { WriteGuard::new(host.cast(), self.view.len, guard) }
    }

    /// Lets the host write like [`write`](Self::write), but never blocks.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if the device still uses this range.
    #[track_caller]
    pub fn try_write(self) -> Result<WriteGuard<'a, T>> {
        named(call_site("try_write"), || {
            let host = self.view.host()?;
            let guard = HostGuard::hold(self.view.block, self.view.bytes(), Mode::Write);
            if !self.done()? {
                return Err(busy("using"));
            }
            // SAFETY: the device is done, and we held the guard before we asked.
            Ok(unsafe { self.write_guard(host, guard) })
        })
    }

    /// Returns true if the device has finished with this range, so that [`write`](Self::write) would return at once. Never
    /// blocks.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed.
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || self.done())
    }

    fn done(&self) -> Result<bool> {
        stream::is_done(self.view.block, &self.view.bytes(), Mode::Write)
    }

    /// Marks the elements as unwritten: they are left over from an earlier use, so reading them must be an error.
    pub(crate) fn forget_contents(&self) {
        self.view.block.history.lock().set_unwritten(&self.view.bytes());
    }

    /// Tells the tracker that these elements were written by work that it cannot see.
    ///
    /// # Safety
    /// Such work must really have written them, and be done or ordered before the next use of the elements.
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

impl<'a, T: Plain> From<ViewMut<'a, T>> for View<'a, T> {
    /// Gives up the right to write; see [`ViewMut::into_view`].
    fn from(memory: ViewMut<'a, T>) -> Self {
        memory.into_view()
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
            "the device is still {doing} this memory; call `read` or `write` to wait for it, or try again later"
        ),
    )
}

/// Returns the range as numbers, or an error if it is not inside `len` elements.
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
                    "the range {}..{} is not inside memory of {len} elements; give a range within 0..{len} that does not end \
                     before it begins",
                    show(start),
                    show(end)
                ),
            ))
        }
    }
}

/// Returns the alignment that kernels need for elements of `size` bytes. If the size is a multiple of 2, 4, 8 or 16 bytes, a
/// kernel may see the elements as vectors (`float4`), whose alignment Rust's arrays do not have.
pub(crate) const fn kernel_alignment(size: usize) -> usize {
    let zeros = size.trailing_zeros();
    1 << if zeros < 4 { zeros } else { 4 }
}

/// Returns the alignment of elements that the host and kernels share: what Rust needs, or what kernels may need if that is
/// more.
pub(crate) const fn alignment_of<T>() -> usize {
    let (host, kernel) = (align_of::<T>(), kernel_alignment(size_of::<T>()));
    if host > kernel { host } else { kernel }
}

/// Checks the address of memory that the library did not allocate. What it did allocate is aligned by
/// [`layout_of`](gpustream_core::memory::layout_of), and a view always begins at a whole element.
pub(crate) fn check_alignment<T>(address: usize) -> Result<()> {
    let wanted = alignment_of::<T>();
    if address.is_multiple_of(wanted) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "`{}` has {} bytes and must be at a multiple of {wanted} bytes, because kernels may read it as a vector; this memory \
             is at {address:#x}: copy it to memory that this library allocates, or allocate it with that alignment",
            type_name::<T>(),
            size_of::<T>()
        ),
    ))
}

fn checked_chunk(size: usize) -> Result<usize> {
    if size == 0 {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "the chunks were to have 0 elements each; give a size of at least 1",
        ));
    }
    Ok(size)
}

/// The methods that an owner of memory shares with views, through a view of the whole.
macro_rules! owner_methods {
    ($owner:ident) => {
        impl<T> crate::view::sealed::Sealed for $owner<T> {}

        impl<T: Plain> $owner<T> {
            /// Returns the number of elements.
            #[inline]
            pub fn len(&self) -> usize {
                self.view().len()
            }

            /// Returns true if there are no elements.
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
            /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if the range ends after the last element.
            #[track_caller]
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
                self.view().slice(range)
            }

            /// Returns an exclusive view of the elements of `range`.
            ///
            /// # Errors
            /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if the range ends after the last element.
            #[track_caller]
            pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
                self.view_mut().slice_mut(range)
            }

            /// Splits the memory at `middle`: the first part has the elements before it, the second the others.
            ///
            /// # Errors
            /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if `middle` is greater than the length.
            #[track_caller]
            pub fn split_at_mut(&mut self, middle: usize) -> Result<(ViewMut<'_, T>, ViewMut<'_, T>)> {
                self.view_mut().split_at_mut(middle)
            }

            /// Returns views of pieces of `size` elements each. The last piece may be shorter.
            ///
            /// # Errors
            /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the size is zero.
            #[track_caller]
            pub fn chunks(&self, size: usize) -> Result<impl ExactSizeIterator<Item = View<'_, T>>> {
                self.view().chunks(size)
            }

            /// Returns exclusive views of disjoint pieces of `size` elements each. The last piece may be shorter.
            ///
            /// # Errors
            /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if the size is zero.
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

            /// Returns the address of the first element as kernels see it. If you use the address, we cannot track it.
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
