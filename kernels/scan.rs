//! Scans: running sums, products, largest and smallest elements.

use gpustream::half::{bf16, f16};
use gpustream::{AsViewMut, Plain, Result, Stream, View, ViewMut};

use crate::call::{Form, mismatch, optional, optional_mut};
use crate::counted::{Elements, ElementsMut, Input, InputMut};
use crate::number::Number;
use crate::order::{Key, Order, masks};
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
pub trait Summable: Number<Seen: bindings::HasScanSum + bindings::HasScanSumShares<Self::Total>> {
    /// What we add in.
    #[doc(hidden)]
    type Total: Plain;
}

/// Element types that can be multiplied: `f32`, `f64`, and integers of 32 and 64 bits.
pub trait Multipliable: Number<Seen: bindings::HasScanProduct + bindings::HasScanProductShares> {}
impl<T: Number<Seen: bindings::HasScanProduct + bindings::HasScanProductShares>> Multipliable for T {}

/// Element types whose largest and smallest so far can be found: all that are [`Key`].
pub trait Cumulative: Key<Bits: bindings::HasScanExtreme + bindings::HasScanExtremeShares> {}
impl<T: Key<Bits: bindings::HasScanExtreme + bindings::HasScanExtremeShares>> Cumulative for T {}

macro_rules! summable {
    ($($element:ty => $total:ty;)*) => {$(
        impl Summable for $element {
            type Total = $total;
        }
    )*};
}
summable! {
    f32 => f32;
    f64 => f64;
    f16 => f32;
    bf16 => f32;
    u32 => u32;
    i32 => u32;
    u64 => u64;
    i64 => u64;
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

/// Scans by the kernel for tiles, or by the one for shares, which sums in `$total`. `$option` are the last arguments of both. This is a
/// macro, because each kernel has a launcher of its own.
macro_rules! scan {
    ($stream:ident, $arrays:ident => $total:ty; $tiles:ident, $shares:ident, $($option:expr),+) => {{
        if $arrays.n == 0 {
            return Ok(());
        }
        let kernels = $stream.device().extension(Kernels::load)?;
        if Form::of($stream.device()) == Form::Blocks {
            let mut tiles = $arrays.tiles($stream)?;
            let Arrays { x, mut y, n, count } = $arrays;
            let (x, count) = (optional(x.as_ref()), optional(count.as_ref()));
            let (launch, state) = (&tiles.launch, optional_mut(tiles.state.as_mut()));
            return kernels.$tiles($stream, launch, x, &mut y, n, count, state, tiles.count, $($option),+);
        }
        let Arrays { x, mut y, n, count } = $arrays;
        let (x, count) = (optional(x.as_ref()), optional(count.as_ref()));
        let shares = Shares::new($stream, n);
        let (many, mut totals) = (shares.count(), $stream.alloc::<$total>(shares.count())?);
        for (step, launch) in shares.steps() {
            kernels.$shares($stream, &launch, step, x, &mut totals, many, &mut y, n, count, $($option),+)?;
        }
        Ok(())
    }};
}

#[track_caller]
fn sums<T: Summable>(stream: &Stream, arrays: Arrays<'_, T::Seen>, exclusive: bool) -> Result<()> {
    scan!(stream, arrays => T::Total; scan_sum, scan_sum_shares, exclusive)
}

#[track_caller]
fn products<T: Multipliable>(stream: &Stream, arrays: Arrays<'_, T::Seen>) -> Result<()> {
    scan!(stream, arrays => T::Seen; scan_product, scan_product_shares, false)
}

#[track_caller]
fn extremes<T: Cumulative>(stream: &Stream, arrays: Arrays<'_, T::Bits>, order: Order) -> Result<()> {
    let [if_set, if_clear] = masks::<T>(order);
    scan!(stream, arrays => T::Bits; scan_extreme, scan_extreme_shares, if_set, if_clear)
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
