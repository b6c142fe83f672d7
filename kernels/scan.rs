//! Scans: running sums, products, largest and smallest elements.

use std::sync::Arc;

use gpustream::half::{bf16, f16};
use gpustream::{AsViewMut, Plain, Result, Stream, View, ViewMut};

use crate::call::{Form, mismatch, optional, optional_mut};
use crate::counted::{Elements, ElementsMut, Input, InputMut};
use crate::order::{self, Key, Order};
use crate::tiles::{Shares, Tiles};

mod bindings {
    gpustream::include_kernels!("scan");
}
use bindings::Kernels;

/// Scans of arrays, as methods of [`Stream`].
///
/// All work in stream order and none blocks. A scan reads and writes each element once on a GPU. Its temporary memory comes from the
/// stream's pool: 17 bytes for each tile of 24 KiB, and none for a single tile. You get the same bits in every
/// run on one device, also for floats. Sums and products of integers wrap around. We sum `f16` and `bf16` in `f32`, and round
/// each result once.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[3u32, 1, 4, 1, 5])?;
/// let mut y = stream.alloc(5)?;
/// stream.inclusive_scan(&x, &mut y)?;
/// assert_eq!(stream.download(&y)?, [3, 4, 8, 9, 14]);
/// stream.exclusive_scan(&x, &mut y)?;
/// assert_eq!(stream.download(&y)?, [0, 3, 4, 8, 9]);
/// stream.cumulative_max(&x, &mut y)?;
/// assert_eq!(stream.download(&y)?, [3, 3, 4, 4, 5]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// Each method returns [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if `y` is shorter than `x`, and the errors of a launch and an allocation.
pub trait Scan {
    /// Sets `y[i] = x[0] + … + x[i]`.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn inclusive_scan<T: Summable>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Replaces each `x[i]` by `x[0] + … + x[i]`.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn inclusive_scan_in_place<T: Summable>(&self, x: &mut (impl InputMut<T> + ?Sized)) -> Result<()>;

    /// Sets `y[i] = x[0] + … + x[i - 1]`, and `y[0] = 0`.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn exclusive_scan<T: Summable>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Replaces each `x[i]` by `x[0] + … + x[i - 1]`, and `x[0]` by 0.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn exclusive_scan_in_place<T: Summable>(&self, x: &mut (impl InputMut<T> + ?Sized)) -> Result<()>;

    /// Sets `y[i] = x[0] * … * x[i]`.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn cumulative_product<T: Multipliable>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Sets `y[i]` to the largest of `x[0]`, …, `x[i]`. Floats have their total order ([`Key`]), so once a NaN came, it stays.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn cumulative_max<T: Cumulative>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Sets `y[i]` to the smallest of `x[0]`, …, `x[i]`. Floats have their total order ([`Key`]).
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn cumulative_min<T: Cumulative>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;
}

/// Element types that can be summed: `f16`, `bf16`, `f32`, `f64`, and integers of 32 and 64 bits.
pub trait Summable: Plain + order::sealed::Sealed {
    #[doc(hidden)]
    type Elements: bindings::HasScanSum + bindings::HasScanSumShares<Self::Total>;
    /// What we add in.
    #[doc(hidden)]
    type Total: Plain;
}

/// Element types that can be multiplied: `f32`, `f64`, and integers of 32 and 64 bits.
pub trait Multipliable: Plain + order::sealed::Sealed {
    #[doc(hidden)]
    type Elements: bindings::HasScanProduct + bindings::HasScanProductShares;
}

/// Element types whose largest and smallest so far can be found: all that are [`Key`].
pub trait Cumulative: Key<Bits: bindings::HasScanExtreme + bindings::HasScanExtremeShares> {}
impl<T: Key<Bits: bindings::HasScanExtreme + bindings::HasScanExtremeShares>> Cumulative for T {}

macro_rules! summable {
    ($($element:ty as $seen:ty, in $total:ty;)*) => {$(
        impl Summable for $element {
            type Elements = $seen;
            type Total = $total;
        }
    )*};
}
summable! {
    f32 as f32, in f32;
    f64 as f64, in f64;
    f16 as f16, in f32;
    bf16 as bf16, in f32;
    u32 as u32, in u32;
    i32 as u32, in u32;
    u64 as u64, in u64;
    i64 as u64, in u64;
}

macro_rules! multipliable {
    ($($element:ty as $seen:ty;)*) => {$(
        impl Multipliable for $element {
            type Elements = $seen;
        }
    )*};
}
multipliable! {
    f32 as f32;
    f64 as f64;
    u32 as u32;
    i32 as u32;
    u64 as u64;
    i64 as u64;
}

/// The arrays of a scan. Without `x`, `y` is scanned in place.
struct Arrays<'a, T> {
    x: Option<View<'a, T>>,
    y: ViewMut<'a, T>,
    n: usize,
    count: Option<View<'a, u64>>,
}

impl<'a, T: Plain> Arrays<'a, T> {
    #[track_caller]
    fn into<U: Plain>(x: Elements<'a, U>, y: ViewMut<'a, U>) -> Result<Self> {
        let n = x.values.len();
        if n > y.len() {
            return Err(mismatch(
                "scan",
                format!("a scan of {n} elements into {}: give it as many elements to write", y.len()),
            ));
        }
        Ok(Self { x: Some(x.values.cast()?), y: y.cast_mut()?, n, count: x.count })
    }

    #[track_caller]
    fn in_place<U: Plain>(x: ElementsMut<'a, U>) -> Result<Self> {
        let n = x.values.len();
        Ok(Self { x: None, y: x.values.cast_mut()?, n, count: x.count })
    }

    /// Cuts the elements into tiles. `ScanTile` in `scan.cu` says how many elements a thread has.
    #[track_caller]
    fn tiles(&self, stream: &Stream) -> Result<Tiles> {
        let packs = if size_of::<T>() < 4 { 2 } else { 6 };
        Tiles::new(stream, self.n, packs * 16 / size_of::<T>(), 2)
    }
}

#[track_caller]
fn kernels(stream: &Stream) -> Result<Arc<Kernels>> {
    stream.device().extension(Kernels::load)
}

#[track_caller]
fn sums<T: Summable>(stream: &Stream, arrays: Arrays<'_, T::Elements>, exclusive: bool) -> Result<()> {
    let kernels = kernels(stream)?;
    match Form::of(stream.device()) {
        _ if arrays.n == 0 => {}
        Form::Blocks => {
            let mut tiles = arrays.tiles(stream)?;
            let Arrays { x, mut y, n, count } = arrays;
            let (x, count, state) =
                (optional(x.as_ref()), optional(count.as_ref()), optional_mut(tiles.state.as_mut()));
            kernels.scan_sum(stream, &tiles.launch, x, &mut y, n, count, state, tiles.count, exclusive)?;
        }
        Form::Shares => {
            let Arrays { x, mut y, n, count } = arrays;
            let (x, count) = (optional(x.as_ref()), optional(count.as_ref()));
            let shares = Shares::new(stream, n);
            let (many, mut totals) = (shares.count(), stream.alloc::<T::Total>(shares.count())?);
            for (step, launch) in shares.steps() {
                let (totals, y) = (&mut totals, &mut y);
                kernels.scan_sum_shares(stream, &launch, step, x, totals, many, y, n, count, exclusive)?;
            }
        }
    }
    Ok(())
}

#[track_caller]
fn products<T: Multipliable>(stream: &Stream, arrays: Arrays<'_, T::Elements>) -> Result<()> {
    let kernels = kernels(stream)?;
    match Form::of(stream.device()) {
        _ if arrays.n == 0 => {}
        Form::Blocks => {
            let mut tiles = arrays.tiles(stream)?;
            let Arrays { x, mut y, n, count } = arrays;
            let (x, count, state) =
                (optional(x.as_ref()), optional(count.as_ref()), optional_mut(tiles.state.as_mut()));
            kernels.scan_product(stream, &tiles.launch, x, &mut y, n, count, state, tiles.count, false)?;
        }
        Form::Shares => {
            let Arrays { x, mut y, n, count } = arrays;
            let (x, count) = (optional(x.as_ref()), optional(count.as_ref()));
            let shares = Shares::new(stream, n);
            let (many, mut totals) = (shares.count(), stream.alloc::<T::Elements>(shares.count())?);
            for (step, launch) in shares.steps() {
                let (totals, y) = (&mut totals, &mut y);
                kernels.scan_product_shares(stream, &launch, step, x, totals, many, y, n, count, false)?;
            }
        }
    }
    Ok(())
}

#[track_caller]
fn extremes<T: Cumulative>(stream: &Stream, arrays: Arrays<'_, T::Bits>, order: Order) -> Result<()> {
    let kernels = kernels(stream)?;
    let [if_set, if_clear] = order::masks::<T>(order);
    match Form::of(stream.device()) {
        _ if arrays.n == 0 => {}
        Form::Blocks => {
            let mut tiles = arrays.tiles(stream)?;
            let Arrays { x, mut y, n, count } = arrays;
            let (x, count, state) =
                (optional(x.as_ref()), optional(count.as_ref()), optional_mut(tiles.state.as_mut()));
            let (launch, cut) = (&tiles.launch, tiles.count);
            kernels.scan_extreme(stream, launch, x, &mut y, n, count, state, cut, if_set, if_clear)?;
        }
        Form::Shares => {
            let Arrays { x, mut y, n, count } = arrays;
            let (x, count) = (optional(x.as_ref()), optional(count.as_ref()));
            let shares = Shares::new(stream, n);
            let (many, mut totals) = (shares.count(), stream.alloc::<T::Bits>(shares.count())?);
            for (step, launch) in shares.steps() {
                let (totals, y) = (&mut totals, &mut y);
                kernels.scan_extreme_shares(
                    stream, &launch, step, x, totals, many, y, n, count, if_set, if_clear,
                )?;
            }
        }
    }
    Ok(())
}

impl Scan for Stream {
    fn inclusive_scan<T: Summable>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        sums::<T>(self, Arrays::into(x.elements(), y.view_mut())?, false)
    }

    fn inclusive_scan_in_place<T: Summable>(&self, x: &mut (impl InputMut<T> + ?Sized)) -> Result<()> {
        sums::<T>(self, Arrays::in_place(x.elements_mut())?, false)
    }

    fn exclusive_scan<T: Summable>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        sums::<T>(self, Arrays::into(x.elements(), y.view_mut())?, true)
    }

    fn exclusive_scan_in_place<T: Summable>(&self, x: &mut (impl InputMut<T> + ?Sized)) -> Result<()> {
        sums::<T>(self, Arrays::in_place(x.elements_mut())?, true)
    }

    fn cumulative_product<T: Multipliable>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        products::<T>(self, Arrays::into(x.elements(), y.view_mut())?)
    }

    fn cumulative_max<T: Cumulative>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        extremes::<T>(self, Arrays::into(x.elements(), y.view_mut())?, Order::Ascending)
    }

    fn cumulative_min<T: Cumulative>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        extremes::<T>(self, Arrays::into(x.elements(), y.view_mut())?, Order::Descending)
    }
}
