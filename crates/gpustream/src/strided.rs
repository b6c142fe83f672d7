//! Copies of boxes out of larger arrays.

use gpustream_core::operation::{DriverCalls, call_site};
use gpustream_core::stream::StreamEntry;
use gpustream_core::track::Mode;
use gpustream_hal::{Copy3d, CopyEnd, Error, ErrorKind, Result, Work};

use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, AsViewMut, View};

/// Where a box's elements are in an array: element `(x, y, z)` is at index `offset + x + pitch * (y + rows * z)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitched {
    /// The index at which the box begins.
    pub offset: usize,
    /// How many elements it is from one row to the next.
    pub pitch: usize,
    /// How many rows it is from one plane to the next. Not used if the box has one plane.
    pub rows: usize,
}

impl Pitched {
    /// Makes a box at the start of a two-dimensional array whose rows are `pitch` elements apart.
    pub const fn new_2d(pitch: usize) -> Self {
        Self { offset: 0, pitch, rows: usize::MAX }
    }

    /// Makes a box at the start of a three-dimensional array, whose planes have `rows` rows of `pitch` elements.
    pub const fn new_3d(pitch: usize, rows: usize) -> Self {
        Self { offset: 0, pitch, rows }
    }

    /// Moves the box's first element to `(x, y)` of the first plane.
    #[must_use]
    pub const fn at(self, x: usize, y: usize) -> Self {
        self.at_plane(x, y, 0)
    }

    /// Moves the box's first element to `(x, y, z)`. If the index overflows, the box is outside any array.
    #[must_use]
    pub const fn at_plane(mut self, x: usize, y: usize, z: usize) -> Self {
        let row = if z == 0 { y } else { y.saturating_add(z.saturating_mul(self.rows)) };
        self.offset = self.offset.saturating_add(x).saturating_add(row.saturating_mul(self.pitch));
        self
    }

    /// Returns true if rows and planes do not overlap.
    fn is_apart(&self, [width, height, depth]: [usize; 3]) -> bool {
        let several_rows = height > 1 || depth > 1;
        (!several_rows || width <= self.pitch) && (depth <= 1 || height <= self.rows)
    }

    /// Returns the index after a box's last element. If that overflows, returns an index beyond any array's end.
    fn end(&self, [width, height, depth]: [usize; 3]) -> usize {
        let planes = if depth > 1 { (depth - 1).saturating_mul(self.rows) } else { 0 };
        let rows = planes.saturating_add(height - 1);
        let start = if rows > 0 { rows.saturating_mul(self.pitch) } else { 0 };
        self.offset.saturating_add(start).saturating_add(width)
    }

    /// Returns the index at which a row begins.
    fn row(&self, y: usize, z: usize) -> usize {
        let row = if z == 0 { y } else { y + z * self.rows };
        self.offset + row * self.pitch
    }
}

impl Stream {
    /// Copies a box of `[width, height, depth]` elements between arrays of device or pinned memory, in any combination and in
    /// the stream's order (`cuMemcpy3DAsync`). If your arrays have two dimensions, use a depth of 1.
    ///
    /// ```
    /// # use gpustream::{Device, Pitched};
    /// # let device = Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let image = stream.upload(&[1, 2, 3, 4, 5, 6, 7, 8, 9])?;        // 3 by 3
    /// let mut tile = stream.zeros::<i32>(4)?;                           // 2 by 2
    /// stream.copy_box(&image, Pitched::new_2d(3).at(1, 1), &mut tile, Pitched::new_2d(2), [2, 2, 1])?;
    /// assert_eq!(stream.download(&tile)?, [5, 6, 8, 9]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// For the order of operations, a box counts as the whole span from its first element to its last, including the elements
    /// between the rows.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if a box reaches beyond its array; [`ErrorKind::InvalidArgument`] if its rows or planes
    /// overlap; [`ErrorKind::Uninitialized`] if some of the source was never written.
    #[track_caller]
    pub fn copy_box<T: Plain>(
        &self,
        src: &(impl AsView<T> + ?Sized),
        src_box: Pitched,
        dst: &mut (impl AsViewMut<T> + ?Sized),
        dst_box: Pitched,
        extent: [usize; 3],
    ) -> Result<()> {
        let entry = self.enter(call_site("copy_box"))?;
        let (src, dst) = (src.view(), dst.view_mut());
        let dst = dst.view();
        self.check_memory(&entry, &src)?;
        self.check_memory(&entry, &dst)?;
        let from = entry.named(src_box.span(&src, extent, "source"))?;
        let to = entry.named(dst_box.span(&dst, extent, "destination"))?;
        if extent.contains(&0) || size_of::<T>() == 0 {
            return Ok(());
        }
        self.check_box(&entry, &src, &from, src_box, extent)?;
        let copy = copy_between::<T>(dst_box.end_of(&to, extent)?, src_box.end_of(&from, extent)?, extent);
        let accesses = [&from.access(Mode::Read), &to.access(Mode::Write)];
        // SAFETY: every row is in the spans, which are in live blocks that are not freed before this use is done. The borrows
        // rule out overlap, and host access waits for the use that we enter with the tracker.
        unsafe { entry.submit_call(&accesses, DriverCalls::Work(Work::Copy3d(&copy))) }
    }

    /// Checks that a box's elements were written. They are all within `span` of `memory`.
    pub(crate) fn check_box<T: Plain>(
        &self,
        entry: &StreamEntry<'_>,
        memory: &View<'_, T>,
        span: &View<'_, T>,
        given: Pitched,
        [width, height, depth]: [usize; 3],
    ) -> Result<()> {
        if self.check_source(entry, span).is_err() {
            // Perhaps only elements between the rows are unwritten, and those don't matter, so we look at each row.
            for (y, z) in (0..depth).flat_map(|z| (0..height).map(move |y| (y, z))) {
                let start = given.row(y, z);
                self.check_source(entry, &memory.part(start..start + width)?)?;
            }
        }
        Ok(())
    }
}

/// One end of a strided copy as drivers take it, with the pitch in bytes and the rows of a plane. If the end is an array, these
/// don't matter.
#[derive(Clone, Copy)]
pub(crate) struct StridedEnd {
    pub(crate) end: CopyEnd,
    pub(crate) pitch: usize,
    pub(crate) rows: usize,
}

/// Returns the copy of a box of elements of `T` from `src` to `dst`.
pub(crate) fn copy_between<T>(
    dst: StridedEnd,
    src: StridedEnd,
    [width, height, depth]: [usize; 3],
) -> Copy3d {
    Copy3d {
        dst: dst.end,
        dst_pitch: dst.pitch,
        dst_rows: dst.rows,
        src: src.end,
        src_pitch: src.pitch,
        src_rows: src.rows,
        width: width * size_of::<T>(),
        height,
        depth,
    }
}

impl Pitched {
    /// Returns the end of a copy of a box that is in `span`.
    pub(crate) fn end_of<T: Plain>(
        &self,
        span: &View<'_, T>,
        [width, height, depth]: [usize; 3],
    ) -> Result<StridedEnd> {
        let end =
            if span.block.is_host() { CopyEnd::Host(span.host()?) } else { CopyEnd::Device(span.as_raw()) };
        // If there is one row or one plane, the distance does not matter, but the driver requires a valid one.
        let pitch = if height * depth > 1 { self.pitch } else { width } * size_of::<T>();
        let rows = if depth > 1 { self.rows } else { height };
        Ok(StridedEnd { end, pitch, rows })
    }

    /// Returns the part of a view from a box's first element to its last.
    pub(crate) fn span<'a, T: Plain>(
        &self,
        view: &View<'a, T>,
        extent: [usize; 3],
        which: &str,
    ) -> Result<View<'a, T>> {
        if extent.contains(&0) {
            return view.part(..0);
        }
        let [width, height, depth] = extent;
        if !self.is_apart(extent) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a box of {width} by {height} by {depth} elements does not fit planes of {} rows of {} elements in the \
                     {which}, because its rows would overlap; make the box smaller, or correct `pitch` and `rows`",
                    self.rows, self.pitch
                ),
            ));
        }
        view.part(self.offset..self.end(extent)).map_err(|error| {
            error.with_context(format!("a box of {width} by {height} by {depth} elements in the {which}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_exact_or_beyond_any_array() {
        let image = Pitched::new_2d(10);
        assert_eq!(image.end([10, 5, 1]), 50);
        assert_eq!(image.at(3, 2).end([4, 2, 1]), 37);
        assert_eq!(image.end([11, 1, 1]), 11);
        let volume = Pitched::new_3d(10, 4);
        assert_eq!(volume.at_plane(1, 1, 1).end([2, 2, 2]), 51 + 40 + 10 + 2);
        assert_eq!(volume.end([1, 5, 1]), 41);
        assert_eq!(Pitched::new_2d(usize::MAX).end([2, 3, 1]), usize::MAX);
        assert_eq!(Pitched::new_2d(10).at(usize::MAX, 0).end([1, 1, 1]), usize::MAX);
    }

    #[test]
    fn rows_and_planes_do_not_overlap() {
        let (image, volume) = (Pitched::new_2d(10), Pitched::new_3d(10, 4));
        assert!(image.is_apart([11, 1, 1]), "one row may be longer");
        assert!(!image.is_apart([11, 2, 1]));
        assert!(volume.is_apart([1, 5, 1]), "one plane may be longer");
        assert!(!volume.is_apart([1, 5, 2]));
    }
}
