//! Selections: some elements of an array, in their order.

use std::ops::RangeBounds;
use std::sync::Arc;

use gpustream::{AsView, AsViewMut, Buffer, Plain, Result, Stream, View, ViewMut};

use crate::call::{by_size, mismatch, optional, optional_mut};
use crate::counted::{Counted, Elements, Input};
use crate::order::{Key, Order, masks, ranks_in};
use crate::tiles::{Tiles, in_form};

mod bindings {
    gpustream::include_kernels!("select");
}
use bindings::Kernels;

/// Selections from arrays, as methods of [`Stream`].
///
/// Only the device knows how many elements a selection has, so it is a [`Counted`]. All methods work in stream order and none
/// blocks. On a GPU each element is read once, and each selected one written once. Results and temporary memory come from the
/// stream's pool: a result has room for all elements, and besides there are 9 bytes for each tile of 20 or 24 KiB. Results are the
/// same in every run.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[3.0f32, 0.5, 0.5, 7.0, 1.0])?;
/// let some = stream.select_range(&x, 1.0..=5.0)?;
/// assert_eq!(some.download(&stream)?, [3.0, 1.0]);
/// let different = stream.unique(&x)?;
/// assert_eq!(different.download(&stream)?, [3.0, 0.5, 7.0, 1.0]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// The errors of an allocation and of a launch, and those that a method names.
pub trait Select {
    /// Keeps each `x[i]` whose `flags[i]` is not 0. Elements may have any type of 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are fewer flags than elements.
    #[track_caller]
    fn select<T: Plain>(
        &self,
        x: &(impl Input<T> + ?Sized),
        flags: &(impl AsView<u8> + ?Sized),
    ) -> Result<Counted<T>>;

    /// Splits `x` into the elements whose flag is not 0 and the others. Both keep their order.
    ///
    /// # Errors
    /// As for [`select`](Self::select).
    #[track_caller]
    fn partition<T: Plain>(
        &self,
        x: &(impl Input<T> + ?Sized),
        flags: &(impl AsView<u8> + ?Sized),
    ) -> Result<(Counted<T>, Counted<T>)>;

    /// Returns the indices of the flags that are not 0.
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are more than 2³² flags, because an index would not
    /// fit.
    #[track_caller]
    fn select_indices(&self, flags: &(impl Input<u8> + ?Sized)) -> Result<Counted<u32>>;

    /// Keeps the elements in a range, such as `2..`, `0.5..=1.0` or `..10`. Floats have their total order ([`Key`]): −0 comes
    /// before 0, so `0.0..` does not contain −0; and NaN is larger than all numbers, so `0.0..` contains it and `0.0..=f32::MAX`
    /// does not.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn select_range<T: Selectable>(
        &self,
        x: &(impl Input<T> + ?Sized),
        range: impl RangeBounds<T>,
    ) -> Result<Counted<T>>;

    /// Keeps the first element of each run of equal elements. If `x` is sorted, the result has each value once. Floats are equal
    /// if their bits are.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn unique<T: Selectable>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Counted<T>>;

    /// Returns the value and the length of each run of equal elements (run-length encoding). Both have the same count.
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are 2³² elements or more, because a length might not
    /// fit.
    #[track_caller]
    fn run_lengths<T: Selectable>(&self, x: &(impl Input<T> + ?Sized)) -> Result<(Counted<T>, Counted<u32>)>;
}

/// Element types that can be selected by their value: all that are [`Key`].
pub trait Selectable: Key<Bits: SelectBits> {}
impl<T: Key<Bits: SelectBits>> Selectable for T {}

/// What kernels see elements as.
#[doc(hidden)]
pub trait SelectBits:
    Plain
    + bindings::HasSelectFlagged
    + bindings::HasSelectFlaggedShares
    + bindings::HasSelectWithin
    + bindings::HasSelectWithinShares
    + bindings::HasSelectHeads
    + bindings::HasSelectHeadsShares
{
}
impl SelectBits for u8 {}
impl SelectBits for u16 {}
impl SelectBits for u32 {}
impl SelectBits for u64 {}

#[track_caller]
fn kernels(stream: &Stream) -> Result<Arc<Kernels>> {
    stream.device().extension(Kernels::load)
}

/// Cuts `n` elements into tiles whose threads have `most` packs of sixteen bytes each, or fewer (`select_packs` in `select.cu`).
#[track_caller]
fn tiles<T>(stream: &Stream, n: usize, most: usize) -> Result<Tiles> {
    let packs = if size_of::<T>() < 4 { 2 } else { most };
    Tiles::new(stream, n, packs * 16 / size_of::<T>(), 1)
}

/// Elements that are kept, and how many. There may be no room for them.
struct Kept<'a, B> {
    values: ViewMut<'a, B>,
    count: &'a mut Buffer<u64>,
}

/// Selects by flags. Without `x`, selects the indices.
#[track_caller]
fn flagged<B: SelectBits>(
    stream: &Stream,
    x: Option<View<'_, B>>,
    flags: View<'_, u8>,
    n: usize,
    count: Option<View<'_, u64>>,
    mut kept: Kept<'_, B>,
    rest: Option<Kept<'_, B>>,
) -> Result<()> {
    if flags.len() < n {
        let text =
            format!("a selection from {n} elements by {} flags: give each element a flag", flags.len());
        return Err(mismatch("select", text));
    }
    let kernels = kernels(stream)?;
    let (mut rest, mut rest_count) = rest.map(|rest| (rest.values, rest.count)).unzip();
    in_form!(
        stream, kernels, n, tiles::<B>(stream, n, 5)?;
        select_flagged, select_flagged_shares(
            optional(x.as_ref()),
            &flags,
            n,
            optional(count.as_ref()),
            &mut kept.values,
            &mut *kept.count,
            optional_mut(rest.as_mut()),
            optional_mut(rest_count.as_deref_mut()),
        ),
        counts
    );
    Ok(())
}

#[track_caller]
fn within<T: Selectable>(stream: &Stream, x: Elements<'_, T>, [first, last]: [u64; 2]) -> Result<Counted<T>> {
    let (n, kernels) = (x.values.len(), kernels(stream)?);
    let (mut kept, mut kept_count) = (stream.alloc::<T>(n)?, stream.alloc::<u64>(1)?);
    let (values, mut to) = (x.values.cast::<T::Bits>()?, kept.cast_mut::<T::Bits>()?);
    let [if_set, if_clear] = masks::<T>(Order::Ascending);
    in_form!(
        stream, kernels, n, tiles::<T>(stream, n, 6)?;
        select_within, select_within_shares(
            &values,
            first,
            last,
            if_set,
            if_clear,
            n,
            optional(x.count.as_ref()),
            &mut to,
            &mut kept_count,
        ),
        counts
    );
    Counted::from_parts(kept, kept_count)
}

/// Selects the heads of runs, and their indices if `positions` is there.
#[track_caller]
fn heads<T: Selectable>(
    stream: &Stream,
    x: &Elements<'_, T>,
    mut positions: Option<&mut Buffer<u32>>,
) -> Result<(Buffer<T>, Buffer<u64>)> {
    let (n, kernels) = (x.values.len(), kernels(stream)?);
    let (mut kept, mut kept_count) = (stream.alloc::<T>(n)?, stream.alloc::<u64>(1)?);
    let (values, mut to) = (x.values.cast::<T::Bits>()?, kept.cast_mut::<T::Bits>()?);
    in_form!(
        stream, kernels, n, tiles::<T>(stream, n, 6)?;
        select_heads, select_heads_shares(
            &values,
            n,
            optional(x.count.as_ref()),
            &mut to,
            &mut kept_count,
            optional_mut(positions.as_deref_mut()),
        ),
        counts
    );
    Ok((kept, kept_count))
}

impl Select for Stream {
    fn select<T: Plain>(
        &self,
        x: &(impl Input<T> + ?Sized),
        flags: &(impl AsView<u8> + ?Sized),
    ) -> Result<Counted<T>> {
        let Elements { values, count } = x.elements();
        let n = values.len();
        let (mut kept, mut kept_count) = (self.alloc::<T>(n)?, self.alloc(1)?);
        by_size!(T, Bits => {
            let kept = Kept::<Bits> { values: kept.cast_mut()?, count: &mut kept_count };
            flagged(self, Some(values.cast()?), flags.view(), n, count, kept, None)
        })?;
        Counted::from_parts(kept, kept_count)
    }

    fn partition<T: Plain>(
        &self,
        x: &(impl Input<T> + ?Sized),
        flags: &(impl AsView<u8> + ?Sized),
    ) -> Result<(Counted<T>, Counted<T>)> {
        let Elements { values, count } = x.elements();
        let n = values.len();
        let (mut kept, mut kept_count) = (self.alloc::<T>(n)?, self.alloc(1)?);
        let (mut rest, mut rest_count) = (self.alloc::<T>(n)?, self.alloc(1)?);
        by_size!(T, Bits => {
            let kept = Kept::<Bits> { values: kept.cast_mut()?, count: &mut kept_count };
            let rest = Kept { values: rest.cast_mut()?, count: &mut rest_count };
            flagged(self, Some(values.cast()?), flags.view(), n, count, kept, Some(rest))
        })?;
        Ok((Counted::from_parts(kept, kept_count)?, Counted::from_parts(rest, rest_count)?))
    }

    fn select_indices(&self, flags: &(impl Input<u8> + ?Sized)) -> Result<Counted<u32>> {
        let Elements { values, count } = flags.elements();
        let n = values.len();
        check_indices("select_indices", n)?;
        let (mut kept, mut kept_count) = (self.alloc::<u32>(n)?, self.alloc(1)?);
        let to = Kept { values: kept.view_mut(), count: &mut kept_count };
        flagged(self, None, values, n, count, to, None)?;
        Counted::from_parts(kept, kept_count)
    }

    fn select_range<T: Selectable>(
        &self,
        x: &(impl Input<T> + ?Sized),
        range: impl RangeBounds<T>,
    ) -> Result<Counted<T>> {
        within(self, x.elements(), ranks_in(range))
    }

    fn unique<T: Selectable>(&self, x: &(impl Input<T> + ?Sized)) -> Result<Counted<T>> {
        let (kept, count) = heads(self, &x.elements(), None)?;
        Counted::from_parts(kept, count)
    }

    fn run_lengths<T: Selectable>(&self, x: &(impl Input<T> + ?Sized)) -> Result<(Counted<T>, Counted<u32>)> {
        let x = x.elements();
        let n = x.values.len();
        check_indices("run_lengths", n + 1)?;
        let (mut positions, mut lengths) = (self.alloc::<u32>(n)?, self.alloc::<u32>(n)?);
        let (values, runs) = heads(self, &x, Some(&mut positions))?;
        let count = optional(x.count.as_ref());
        kernels(self)?.run_lengths(self, &positions, &runs, &mut lengths, n, count)?;
        let runs = Arc::new(runs);
        Ok((Counted::sharing(values, runs.clone())?, Counted::sharing(lengths, runs)?))
    }
}

/// Checks that indices of `n` elements fit into 32 bits.
#[track_caller]
fn check_indices(label: &'static str, n: usize) -> Result<()> {
    if u64::try_from(n).is_ok_and(|n| n <= 1 << 32) {
        return Ok(());
    }
    Err(mismatch(label, format!("{n} elements, but indices and lengths have 32 bits; split the array")))
}
