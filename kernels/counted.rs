//! Results whose length only the device knows.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use gpustream::{
    AsView, AsViewMut, Buffer, CallSite, Error, ErrorKind, Plain, Result, Stream, View, ViewMut,
};

/// Elements whose number only the device knows: `capacity` of them at most, and a count in device memory.
///
/// Functions that leave elements out return one, because the host does not wait to learn how many there are. You can pass it
/// to each function of this crate that takes [`Input`]; so a filter, a sort and a reduction by key follow each other, also in
/// a graph, without the host. Your own kernels take [`values`](Self::values) and [`count`](Self::count) as two pointers.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[5, 1, 8, 3])?;
/// let keep = stream.upload(&[1u8, 0, 1, 0])?;
/// let kept = stream.select(&x, &keep)?;         // returns at once; there may be 0 to 4 elements
/// assert_eq!(kept.capacity(), 4);
/// assert_eq!(kept.download(&stream)?, [5, 8]);  // waits, and has the exact length
/// # Ok::<(), gpustream::Error>(())
/// ```
pub struct Counted<T> {
    values: Buffer<T>,
    count: Arc<Buffer<u64>>,
}

impl<T: Plain> Counted<T> {
    /// Makes one from the elements and the count that your own kernel wrote, or will write. `count` has one element. If it gets
    /// larger than the buffer, functions of this crate use the whole buffer, and the download is an error.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if `count` does not have exactly one element.
    #[track_caller]
    pub fn from_parts(values: Buffer<T>, count: Buffer<u64>) -> Result<Self> {
        Self::sharing(values, Arc::new(count))
    }

    /// Makes one with a count that others use too. So the keys and the sums of groups have one count.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if `count` does not have exactly one element.
    #[track_caller]
    pub fn sharing(values: Buffer<T>, count: Arc<Buffer<u64>>) -> Result<Self> {
        if count.len() == 1 {
            return Ok(Self { values, count });
        }
        let call_site = CallSite { label: "Counted", location: Location::caller() };
        let text = format!("a count of {} elements; give a buffer with one element", count.len());
        Err(Error::new(ErrorKind::InvalidArgument, text).with_call_site(call_site))
    }

    /// Returns how many elements there can be at most.
    pub fn capacity(&self) -> usize {
        self.values.len()
    }

    /// Returns a view of the whole capacity. What lies beyond the count is unspecified.
    pub fn values(&self) -> View<'_, T> {
        self.values.view()
    }

    /// Returns a view of the count, which has one element.
    pub fn count(&self) -> View<'_, u64> {
        self.count.view()
    }

    /// Returns the first elements, at most `capacity` of them: as many as there are, if there are fewer.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if `capacity` is larger than this one's.
    #[track_caller]
    pub fn first(&self, capacity: usize) -> Result<CountedView<'_, T>> {
        Ok(CountedView { values: self.values.slice(..capacity)?, count: self.count.view() })
    }

    /// Waits for the elements and copies them to the host. Blocks, until the work that writes them is done. We download the
    /// count first, because it tells how many elements to copy.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if the count is larger than the capacity: the message has both. The errors of
    /// [`Stream::download`].
    #[track_caller]
    pub fn download(&self, stream: &Stream) -> Result<Vec<T>> {
        let count = stream.download(&*self.count)?.first().copied().unwrap_or(0);
        let capacity = self.capacity();
        let Some(count) = usize::try_from(count).ok().filter(|&count| count <= capacity) else {
            let call_site = CallSite { label: "download", location: Location::caller() };
            let text = format!(
                "the device counted {count} elements, but there is room for {capacity}; give the kernel that writes them a \
                 larger buffer, or let it stop at the capacity"
            );
            return Err(Error::new(ErrorKind::OutOfBounds, text).with_call_site(call_site));
        };
        stream.download(&self.values.slice(..count)?)
    }
}

impl<T> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("values", &self.values).finish_non_exhaustive()
    }
}

/// The first elements of a [`Counted`].
pub struct CountedView<'a, T> {
    values: View<'a, T>,
    count: View<'a, u64>,
}

impl<T> fmt::Debug for CountedView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedView").field("values", &self.values).finish_non_exhaustive()
    }
}

/// What algorithms read: memory, all of it, or a [`Counted`], as many elements as there are.
pub trait Input<T: Plain> {
    /// Returns the memory, and the count if only the device knows it.
    #[doc(hidden)]
    fn elements(&self) -> Elements<'_, T>;
}

/// What algorithms change in place: memory, or a [`Counted`].
pub trait InputMut<T: Plain> {
    /// Returns the memory, and the count if only the device knows it.
    #[doc(hidden)]
    fn elements_mut(&mut self) -> ElementsMut<'_, T>;
}

/// Memory that is read, and how many of its elements there are, if the host does not know.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a, T> {
    pub values: View<'a, T>,
    pub count: Option<View<'a, u64>>,
}

/// Memory that is changed, and how many of its elements there are, if the host does not know.
#[doc(hidden)]
#[derive(Debug)]
pub struct ElementsMut<'a, T> {
    pub values: ViewMut<'a, T>,
    pub count: Option<View<'a, u64>>,
}

impl<T: Plain, M: AsView<T> + ?Sized> Input<T> for M {
    fn elements(&self) -> Elements<'_, T> {
        Elements { values: self.view(), count: None }
    }
}

impl<T: Plain, M: AsViewMut<T> + ?Sized> InputMut<T> for M {
    fn elements_mut(&mut self) -> ElementsMut<'_, T> {
        ElementsMut { values: self.view_mut(), count: None }
    }
}

impl<T: Plain> Input<T> for Counted<T> {
    fn elements(&self) -> Elements<'_, T> {
        Elements { values: self.values.view(), count: Some(self.count.view()) }
    }
}

impl<T: Plain> InputMut<T> for Counted<T> {
    fn elements_mut(&mut self) -> ElementsMut<'_, T> {
        ElementsMut { values: self.values.view_mut(), count: Some(self.count.view()) }
    }
}

impl<T: Plain> Input<T> for Elements<'_, T> {
    fn elements(&self) -> Elements<'_, T> {
        *self
    }
}

impl<T: Plain> Input<T> for CountedView<'_, T> {
    fn elements(&self) -> Elements<'_, T> {
        Elements { values: self.values, count: Some(self.count) }
    }
}
