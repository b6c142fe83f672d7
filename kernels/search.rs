//! Where values belong in sorted keys.

use gpustream::{AsViewMut, Buffer, Result, Stream, ViewMut};

use crate::call::{mismatch, optional, optional_mut};
use crate::counted::{Elements, Input};
use crate::index::{ByWidth, Index};
use crate::order::{Key, Order, masks};

mod bindings {
    gpustream::include_kernels!("search");
}
use bindings::Kernels;

/// Binary search in sorted keys for many values at once, as methods of [`Stream`].
///
/// The keys must be sorted as [`sort`](crate::sort::Sort::sort) does, the smallest first, floats in their total order: so −0 comes before 0,
/// and NaN last. If they are not sorted, the places are unspecified. If there are n keys, each value takes log₂(n) steps; values that are
/// sorted themselves are faster, because neighbours read the same keys. There is no temporary memory. All methods work in stream order, none blocks,
/// and results are the same in every run.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let sorted = stream.upload(&[10, 20, 20, 30])?;
/// let values = stream.upload(&[5, 20, 25, 40])?;
/// let first = stream.lower_bound(&sorted, &values)?;
/// let end = stream.upper_bound(&sorted, &values)?;
/// assert_eq!(stream.download(&first)?, [0, 1, 3, 4]);
/// assert_eq!(stream.download(&end)?, [0, 3, 3, 4]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are 2³² keys or more and places have 32 bits. The errors of an
/// allocation and of a launch.
pub trait Search {
    /// Returns for each value how many keys are smaller: the first place at which it could be inserted. If the values are
    /// [`Counted`](crate::Counted), what is beyond their count is unspecified.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn lower_bound<K: Searchable>(
        &self,
        sorted: &(impl Input<K> + ?Sized),
        values: &(impl Input<K> + ?Sized),
    ) -> Result<Buffer<u32>>;

    /// Returns for each value how many keys are not larger: the last place at which it could be inserted.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn upper_bound<K: Searchable>(
        &self,
        sorted: &(impl Input<K> + ?Sized),
        values: &(impl Input<K> + ?Sized),
    ) -> Result<Buffer<u32>>;

    /// Like [`lower_bound`](Self::lower_bound), into memory that you have, which may also have 64 bits.
    ///
    /// # Errors
    /// See the [trait](Self). It is also an error if there are fewer places than values.
    #[track_caller]
    fn lower_bound_into<K: Searchable, I: Index>(
        &self,
        sorted: &(impl Input<K> + ?Sized),
        values: &(impl Input<K> + ?Sized),
        places: &mut (impl AsViewMut<I> + ?Sized),
    ) -> Result<()>;

    /// Like [`upper_bound`](Self::upper_bound), into memory that you have, which may also have 64 bits.
    ///
    /// # Errors
    /// As for [`lower_bound_into`](Self::lower_bound_into).
    #[track_caller]
    fn upper_bound_into<K: Searchable, I: Index>(
        &self,
        sorted: &(impl Input<K> + ?Sized),
        values: &(impl Input<K> + ?Sized),
        places: &mut (impl AsViewMut<I> + ?Sized),
    ) -> Result<()>;
}

/// Types of keys that can be searched: all that are [`Key`].
pub trait Searchable: Key<Bits: bindings::HasSearch> {}
impl<K: Key<Bits: bindings::HasSearch>> Searchable for K {}

#[track_caller]
fn search<K: Searchable, I: Index>(
    stream: &Stream,
    label: &'static str,
    sorted: Elements<'_, K>,
    values: Elements<'_, K>,
    upper: bool,
    places: ViewMut<'_, I>,
) -> Result<()> {
    let (n, m) = (sorted.values.len(), values.values.len());
    if size_of::<I>() == 4 && u32::try_from(n).is_err() {
        let text = format!("{n} keys, but places have 32 bits; give memory for places of 64 bits");
        return Err(mismatch(label, text));
    }
    if places.len() < m {
        let text = format!("{} places for {m} values: give each value a place", places.len());
        return Err(mismatch(label, text));
    }
    let kernels = stream.device().extension(Kernels::load)?;
    let [if_set, if_clear] = masks::<K>(Order::Ascending);
    let (mut short, mut long) = by_width(places)?;
    kernels.search(
        stream,
        &sorted.values.cast::<K::Bits>()?,
        n,
        optional(sorted.count.as_ref()),
        &values.values.cast::<K::Bits>()?,
        m,
        optional(values.count.as_ref()),
        upper,
        if_set,
        if_clear,
        optional_mut(short.as_mut()),
        optional_mut(long.as_mut()),
    )
}

/// Returns places as the kernel takes them.
#[track_caller]
fn by_width<I: Index>(places: ViewMut<'_, I>) -> Result<ByWidth<ViewMut<'_, u32>, ViewMut<'_, u64>>> {
    Ok(if size_of::<I>() == 4 { (Some(places.cast_mut()?), None) } else { (None, Some(places.cast_mut()?)) })
}

impl Search for Stream {
    fn lower_bound<K: Searchable>(
        &self,
        sorted: &(impl Input<K> + ?Sized),
        values: &(impl Input<K> + ?Sized),
    ) -> Result<Buffer<u32>> {
        let values = values.elements();
        let mut places = self.alloc::<u32>(values.values.len())?;
        search(self, "lower_bound", sorted.elements(), values, false, places.view_mut())?;
        Ok(places)
    }

    fn upper_bound<K: Searchable>(
        &self,
        sorted: &(impl Input<K> + ?Sized),
        values: &(impl Input<K> + ?Sized),
    ) -> Result<Buffer<u32>> {
        let values = values.elements();
        let mut places = self.alloc::<u32>(values.values.len())?;
        search(self, "upper_bound", sorted.elements(), values, true, places.view_mut())?;
        Ok(places)
    }

    fn lower_bound_into<K: Searchable, I: Index>(
        &self,
        sorted: &(impl Input<K> + ?Sized),
        values: &(impl Input<K> + ?Sized),
        places: &mut (impl AsViewMut<I> + ?Sized),
    ) -> Result<()> {
        search(self, "lower_bound", sorted.elements(), values.elements(), false, places.view_mut())
    }

    fn upper_bound_into<K: Searchable, I: Index>(
        &self,
        sorted: &(impl Input<K> + ?Sized),
        values: &(impl Input<K> + ?Sized),
        places: &mut (impl AsViewMut<I> + ?Sized),
    ) -> Result<()> {
        search(self, "upper_bound", sorted.elements(), values.elements(), true, places.view_mut())
    }
}
