//! Aggregates of groups: all values whose keys are equal, wherever they are.

use gpustream::{Buffer, Plain, Result, Stream, View};

use crate::by_key::{ByKey as _, RunExtreme, RunKey, RunSum};
use crate::counted::{Counted, Elements, Input};
use crate::number::Number;
use crate::order::Key;
use crate::select::{Select as _, Selectable};
use crate::sort::Sort as _;

/// Groups of equal keys, as a method of [`Stream`].
pub trait GroupBy {
    /// Sorts the keys, so that the values of several columns can be aggregated by them. Returns at once.
    ///
    /// It sorts the keys and remembers their order as indices. Each aggregate then moves its values into that order, and combines
    /// neighbours with equal keys ([`ByKey`](crate::by_key::ByKey)). Takes eight bytes of device memory for each 32-bit key as long as
    /// the groups live, and the same again while it sorts. Results are in the order of the keys, and have the same bits in
    /// every run on one device.
    ///
    /// ```
    /// use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// let device = Device::open("cpu")?;
    /// let stream = device.stream()?;
    /// let city = stream.upload(&[3u32, 1, 3, 2, 1])?;
    /// let (price, area) = (stream.upload(&[5.0f64, 2.0, 7.0, 1.0, 3.0])?, stream.upload(&[10u32, 20, 30, 40, 50])?);
    /// let groups = stream.group_by(&city)?;
    /// let (cities, total) = groups.sum(&stream, &price)?;
    /// let (_, largest) = groups.max(&stream, &area)?;
    /// let (_, count) = groups.count(&stream)?;
    /// assert_eq!(cities.download(&stream)?, [1, 2, 3]);
    /// assert_eq!(total.download(&stream)?, [5.0, 1.0, 12.0]);
    /// assert_eq!(largest.download(&stream)?, [50, 40, 30]);
    /// assert_eq!(count.download(&stream)?, [2, 1, 2]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`argsort`](crate::sort::Sort::argsort): there may be at most 2³² keys.
    #[track_caller]
    fn group_by<'a, K: RunKey>(&self, keys: &'a (impl Input<K> + ?Sized)) -> Result<Groups<'a, K>>;
}

/// Groups of equal keys, made by [`GroupBy::group_by`].
#[derive(Debug)]
pub struct Groups<'a, K> {
    /// The keys, sorted.
    keys: Buffer<K>,
    /// Where each of them was.
    order: Buffer<u32>,
    count: Option<View<'a, u64>>,
}

impl GroupBy for Stream {
    fn group_by<'a, K: RunKey>(&self, keys: &'a (impl Input<K> + ?Sized)) -> Result<Groups<'a, K>> {
        let order = self.argsort(keys)?;
        let Elements { values, count } = keys.elements();
        let sorted = in_order(self, &values, &order, count)?;
        Ok(Groups { keys: sorted, order, count })
    }
}

impl<K: RunKey> Groups<'_, K> {
    /// Returns each group's key, and the sum of its values. Integers wrap around.
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are not as many values as keys.
    #[track_caller]
    pub fn sum<T: Number>(
        &self,
        stream: &Stream,
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>
    where
        K: RunSum<T>,
    {
        stream.sum_by_key(&self.keys(), &self.values(stream, values)?)
    }

    /// Returns each group's key, and the smallest of its values.
    ///
    /// # Errors
    /// As for [`sum`](Self::sum).
    #[track_caller]
    pub fn min<T: Key>(
        &self,
        stream: &Stream,
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>
    where
        K: RunExtreme<T>,
    {
        stream.min_by_key(&self.keys(), &self.values(stream, values)?)
    }

    /// Returns each group's key, and the largest of its values.
    ///
    /// # Errors
    /// As for [`sum`](Self::sum).
    #[track_caller]
    pub fn max<T: Key>(
        &self,
        stream: &Stream,
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>
    where
        K: RunExtreme<T>,
    {
        stream.max_by_key(&self.keys(), &self.values(stream, values)?)
    }

    /// Returns each group's key, and how many values it has.
    ///
    /// # Errors
    /// The errors of a launch.
    #[track_caller]
    pub fn count(&self, stream: &Stream) -> Result<(Counted<K>, Counted<u32>)>
    where
        K: Selectable,
    {
        stream.run_lengths(&self.keys())
    }

    fn keys(&self) -> Elements<'_, K> {
        Elements { values: (&self.keys).into(), count: self.count }
    }

    #[track_caller]
    fn values<T: Plain>(&self, stream: &Stream, values: &(impl Input<T> + ?Sized)) -> Result<Buffer<T>> {
        in_order(stream, &values.elements().values, &self.order, self.count)
    }
}

/// Returns the values in the order of the indices.
#[track_caller]
fn in_order<T: Plain>(
    stream: &Stream,
    values: &View<'_, T>,
    order: &Buffer<u32>,
    count: Option<View<'_, u64>>,
) -> Result<Buffer<T>> {
    let mut sorted = stream.alloc(values.len())?;
    stream.gather(values, &Elements { values: order.into(), count }, &mut sorted)?;
    Ok(sorted)
}
