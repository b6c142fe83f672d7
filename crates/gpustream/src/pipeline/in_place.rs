//! Pieces of pinned memory, each of which goes to the device and comes back to its place.

use gpustream_core::operation::{HostWait, call_site};
use gpustream_hal::{Error, ErrorKind, Result};

use super::{Pipeline, report};
use crate::plain::Plain;
use crate::stream::Stream;
use crate::view::{AsView, AsViewMut, ViewMut};

impl Pipeline<'_> {
    /// Works on arrays of one length in place, in pinned memory. For each piece we enqueue the upload, your `work`, and the
    /// download to the same place. Returns without waiting for the device.
    ///
    /// If you [`read`](crate::Pinned::read) an array or a range of it, you wait for the pieces there. Other streams wait for
    /// the pieces as for any work, and so does the next run. If that run has the same pieces, each piece follows itself on the
    /// stream that it had before, so the streams need not wait for each other.
    ///
    /// `work` is called for one piece after another and gets the same piece of every array, on the device. The device needs
    /// memory for one piece of every array on every stream.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// let mut a = device.pinned_from(&[1u32; 1000])?;
    /// let mut b = device.pinned_from(&[2u32; 1000])?;
    /// let mut pipeline = device.pipeline().chunks(100);
    /// for _ in 0..3 {
    ///     pipeline.in_place([&mut a, &mut b], |stream, [a, b]| {
    ///         stream.copy(b, a)?;                         // or launch kernels
    ///         stream.fill(b, 5)
    ///     })?;
    /// }
    /// assert_eq!((a.read()?[999], b.read()?[999]), (5, 5));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`] if the lengths differ; the first error of `work` or the library. If `work` fails or
    /// panics, earlier pieces are worked on, and this piece and later ones stay as they were.
    #[track_caller]
    pub fn in_place<T: Plain, A: AsViewMut<T> + ?Sized, const N: usize>(
        &mut self,
        arrays: [&mut A; N],
        mut work: impl FnMut(&Stream, &mut [ViewMut<'_, T>; N]) -> Result<()>,
    ) -> Result<()> {
        let operation = call_site("in_place");
        let arrays = arrays.map(|array| AsView::view(&*array));
        let Some(&first) = arrays.first() else { return Ok(()) };
        if let Some(other) = arrays.iter().find(|array| array.len() != first.len()) {
            return Err(Error::new(
                ErrorKind::ArgumentMismatch,
                format!(
                    "the arrays have {} and {} elements; pass slices of one length",
                    first.len(),
                    other.len()
                ),
            )
            .with_call_site(operation));
        }
        let chunk = self.chunk_of::<T>();
        let (lanes, progress) = self.open_lanes(operation)?;
        let first_lane = &lanes[0].stream;
        let entry = first_lane.enter(operation)?;
        arrays.iter().try_for_each(|array| first_lane.check_source(&entry, array))?;
        let (mut index, mut done) = (0, 0);
        while done < first.len() {
            let host = arrays.map(|array| array.chunk(index, chunk));
            let len = host[0].len();
            let turn = index % lanes.len();
            let (stream, entry, places) = lanes[turn].places(len, operation)?;
            stream.submit_copies(&entry, &host, &places, HostWait::WithNext)?;
            work(stream, &mut places.map(ViewMut::new))?;
            stream.submit_copies(&entry, &places, &host, HostWait::Alone)?;
            index += 1;
            done += len;
            report(progress, done);
        }
        Ok(())
    }
}
