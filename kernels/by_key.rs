//! Sums, smallest and largest values of runs of equal keys.

use std::sync::Arc;

use gpustream::{AsViewMut, Buffer, Plain, Result, Stream, View, ViewMut};

use crate::call::{Form, mismatch, optional, optional_mut};
use crate::counted::{Counted, Elements, Input};
use crate::order::{Key, Order, masks};
use crate::tiles::{Shares, Tiles};

mod bindings {
    gpustream::include_kernels!("by_key");
}
use bindings::Kernels;

/// Reductions and scans of the values of each run of equal keys, as methods of [`Stream`].
///
/// A run is a sequence of neighbours with equal keys. If you sort the pairs by key first, there is one run for each key. Keys may
/// be integers and floats of 32 and 64 bits; floats are equal if their bits are. If the keys are [`Counted`], their count decides how
/// many pairs there are, else that of the values.
///
/// All methods work in stream order and none blocks. On a GPU each element is read once. Results have room for as many runs
/// as there are elements, and come from the stream's pool. You get the same bits in every run on one device, also for floats.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let keys = stream.upload(&[7u32, 7, 7, 2, 2, 7])?;
/// let values = stream.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let (runs, sums) = stream.sum_by_key(&keys, &values)?;
/// assert_eq!(runs.download(&stream)?, [7, 2, 7]);
/// assert_eq!(sums.download(&stream)?, [6.0, 9.0, 6.0]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// Each method returns [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are not as many values as keys, and
/// the errors of an allocation and of a launch.
pub trait ByKey {
    /// Returns each run's key, and the sum of its values. Integers wrap around.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn sum_by_key<K: RunKey, T: RunValue>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>;

    /// Returns each run's key, and the smallest of its values. Floats have their total order ([`Key`]).
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn min_by_key<K: RunKey, T: RunExtreme>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>;

    /// Returns each run's key, and the largest of its values. Floats have their total order ([`Key`]), so NaN is the largest.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn max_by_key<K: RunKey, T: RunExtreme>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>;

    /// Sets `y[i]` to the sum of the values from the beginning of the run up to `i`.
    ///
    /// # Errors
    /// See the [trait](Self). It is also an error if `y` is shorter.
    #[track_caller]
    fn inclusive_scan_by_key<K: RunKey, T: RunValue>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Sets `y[i]` to the sum of the values from the beginning of the run up to the one before `i`; 0 if `i` is the first.
    ///
    /// # Errors
    /// As for [`inclusive_scan_by_key`](Self::inclusive_scan_by_key).
    #[track_caller]
    fn exclusive_scan_by_key<K: RunKey, T: RunValue>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;
}

/// Key types of runs: integers and floats of 32 and 64 bits.
pub trait RunKey: Key<Bits: KeyBits> {}
impl<T: Key<Bits: KeyBits>> RunKey for T {}

/// What kernels see keys as.
#[doc(hidden)]
pub trait KeyBits:
    Plain
    + bindings::HasSumRuns<f32>
    + bindings::HasSumRuns<f64>
    + bindings::HasSumRuns<u32>
    + bindings::HasSumRuns<u64>
    + bindings::HasSumRunsShares<f32>
    + bindings::HasSumRunsShares<f64>
    + bindings::HasSumRunsShares<u32>
    + bindings::HasSumRunsShares<u64>
    + bindings::HasExtremeOfRuns<u32>
    + bindings::HasExtremeOfRuns<u64>
    + bindings::HasExtremeOfRunsShares<u32>
    + bindings::HasExtremeOfRunsShares<u64>
{
}
impl KeyBits for u32 {}
impl KeyBits for u64 {}

/// Value types that can be summed by key: `f32`, `f64`, and integers of 32 and 64 bits.
pub trait RunValue: Plain {
    #[doc(hidden)]
    #[track_caller]
    fn sum<K: KeyBits>(call: Call<'_, K>, values: View<'_, Self>, to: SumsTo<'_, K, Self>) -> Result<()>;
}

/// Value types whose smallest and largest can be found by key: integers and floats of 32 and 64 bits.
pub trait RunExtreme: Key {
    #[doc(hidden)]
    #[track_caller]
    fn extreme<K: KeyBits>(
        call: Call<'_, K>,
        values: View<'_, Self>,
        order: Order,
        to: SumsTo<'_, K, Self>,
    ) -> Result<()>;
}

/// A call, apart from its values.
#[doc(hidden)]
#[derive(Debug)]
pub struct Call<'a, K> {
    stream: &'a Stream,
    kernels: Arc<Kernels>,
    keys: View<'a, K>,
    count: Option<View<'a, u64>>,
    exclusive: bool,
}

/// Where results go.
#[doc(hidden)]
#[derive(Debug)]
pub enum SumsTo<'a, K, T> {
    /// A sum for each element.
    Elements(ViewMut<'a, T>),
    /// A key and a sum for each run, and how many runs there are.
    Runs { keys: ViewMut<'a, K>, totals: ViewMut<'a, T>, count: &'a mut Buffer<u64> },
}

type Outputs<'a, K, T> = (
    Option<&'a mut dyn AsViewMut<T>>,
    Option<&'a mut dyn AsViewMut<K>>,
    Option<&'a mut dyn AsViewMut<T>>,
    Option<&'a mut dyn AsViewMut<u64>>,
);

impl<'a, K: Plain, T: Plain> SumsTo<'a, K, T> {
    /// Returns what kernels call `running`, `run_keys`, `totals` and `runs`.
    fn outputs(&mut self) -> Outputs<'_, K, T> {
        match self {
            Self::Elements(running) => (Some(running), None, None, None),
            Self::Runs { keys, totals, count } => (None, Some(keys), Some(totals), Some(*count)),
        }
    }

    #[track_caller]
    fn cast<U: Plain>(self) -> Result<SumsTo<'a, K, U>> {
        Ok(match self {
            Self::Elements(running) => SumsTo::Elements(running.cast_mut()?),
            Self::Runs { keys, totals, count } => SumsTo::Runs { keys, totals: totals.cast_mut()?, count },
        })
    }
}

/// Cuts `n` elements into tiles. `RunTile` in `by_key.cu` says how many elements a thread has.
#[track_caller]
fn tiles<K, T>(stream: &Stream, n: usize) -> Result<Tiles> {
    let per_pack = 16 / size_of::<K>().max(size_of::<T>());
    Tiles::new(stream, n, 4 * per_pack, 4)
}

macro_rules! run_values {
    ($($value:ty as $seen:ty;)*) => {$(
        impl RunValue for $value {
            fn sum<K: KeyBits>(call: Call<'_, K>, values: View<'_, Self>, to: SumsTo<'_, K, Self>) -> Result<()> {
                let Call { stream, kernels, keys, count, exclusive } = call;
                let (n, count) = (keys.len(), optional(count.as_ref()));
                let (values, mut to) = (values.cast::<$seen>()?, to.cast::<$seen>()?);
                if Form::of(stream.device()) == Form::Blocks {
                    let mut tiles = tiles::<K, $seen>(stream, n)?;
                    let (launch, cut, state) = (&tiles.launch, tiles.count, optional_mut(tiles.state.as_mut()));
                    let (running, run_keys, totals, runs) = to.outputs();
                    return kernels.sum_runs(
                        stream, launch, &keys, &values, n, count, exclusive, running, run_keys, totals, runs, state, cut,
                    );
                }
                let shares = Shares::new(stream, n);
                let (many, mut heads) = (shares.count(), stream.alloc(shares.count())?);
                let mut of_share = stream.alloc::<$seen>(many)?;
                for (step, launch) in shares.steps() {
                    let (heads, of_share) = (&mut heads, &mut of_share);
                    let (running, run_keys, totals, runs) = to.outputs();
                    kernels.sum_runs_shares(
                        stream, &launch, step, &keys, &values, n, count, exclusive, running, run_keys, totals, runs, heads,
                        of_share, many,
                    )?;
                }
                Ok(())
            }
        }
    )*};
}
run_values! {
    f32 as f32;
    f64 as f64;
    u32 as u32;
    i32 as u32;
    u64 as u64;
    i64 as u64;
}

macro_rules! run_extremes {
    ($($value:ty as $seen:ty;)*) => {$(
        impl RunExtreme for $value {
            fn extreme<K: KeyBits>(
                call: Call<'_, K>,
                values: View<'_, Self>,
                order: Order,
                to: SumsTo<'_, K, Self>,
            ) -> Result<()> {
                let Call { stream, kernels, keys, count, .. } = call;
                let (n, count) = (keys.len(), optional(count.as_ref()));
                let (values, mut to) = (values.cast::<$seen>()?, to.cast::<$seen>()?);
                let [if_set, if_clear] = masks::<Self>(order);
                if Form::of(stream.device()) == Form::Blocks {
                    let mut tiles = tiles::<K, $seen>(stream, n)?;
                    let (launch, cut, state) = (&tiles.launch, tiles.count, optional_mut(tiles.state.as_mut()));
                    let (_, run_keys, totals, runs) = to.outputs();
                    return kernels.extreme_of_runs(
                        stream, launch, &keys, &values, n, count, if_set, if_clear, run_keys, totals, runs, state, cut,
                    );
                }
                let shares = Shares::new(stream, n);
                let (many, mut heads) = (shares.count(), stream.alloc(shares.count())?);
                let mut of_share = stream.alloc::<$seen>(many)?;
                for (step, launch) in shares.steps() {
                    let (heads, of_share) = (&mut heads, &mut of_share);
                    let (_, run_keys, totals, runs) = to.outputs();
                    kernels.extreme_of_runs_shares(
                        stream, &launch, step, &keys, &values, n, count, if_set, if_clear, run_keys, totals, runs, heads,
                        of_share, many,
                    )?;
                }
                Ok(())
            }
        }
    )*};
}
run_extremes! {
    f32 as u32;
    f64 as u64;
    u32 as u32;
    i32 as u32;
    u64 as u64;
    i64 as u64;
}

/// Checks keys and values, and makes the call.
#[track_caller]
fn call<'a, K: RunKey, T: Plain>(
    stream: &'a Stream,
    keys: Elements<'a, K>,
    values: &Elements<'a, T>,
    exclusive: bool,
) -> Result<Call<'a, K::Bits>> {
    if keys.values.len() != values.values.len() {
        let (keys, values) = (keys.values.len(), values.values.len());
        return Err(mismatch("by_key", format!("{keys} keys and {values} values: give each value a key")));
    }
    let kernels = stream.device().extension(Kernels::load)?;
    let count = keys.count.or(values.count);
    Ok(Call { stream, kernels, keys: keys.values.cast()?, count, exclusive })
}

/// The key and the total of each run.
struct Totals<K, T> {
    keys: Buffer<K>,
    values: Buffer<T>,
    count: Buffer<u64>,
}

impl<K: RunKey, T: Plain> Totals<K, T> {
    #[track_caller]
    fn new(stream: &Stream, n: usize) -> Result<Self> {
        Ok(Self { keys: stream.alloc(n)?, values: stream.alloc(n)?, count: stream.alloc(1)? })
    }

    #[track_caller]
    fn to(&mut self) -> Result<SumsTo<'_, K::Bits, T>> {
        let Self { keys, values, count } = self;
        Ok(SumsTo::Runs { keys: keys.cast_mut()?, totals: values.view_mut(), count })
    }

    #[track_caller]
    fn counted(self) -> Result<(Counted<K>, Counted<T>)> {
        let count = Arc::new(self.count);
        Ok((Counted::sharing(self.keys, count.clone())?, Counted::sharing(self.values, count)?))
    }
}

#[track_caller]
fn running<K: RunKey, T: RunValue>(
    stream: &Stream,
    keys: Elements<'_, K>,
    values: &Elements<'_, T>,
    y: ViewMut<'_, T>,
    exclusive: bool,
) -> Result<()> {
    let call = call(stream, keys, values, exclusive)?;
    if y.len() < call.keys.len() {
        let text = format!(
            "a scan of {} values into {}: give it as many elements to write",
            call.keys.len(),
            y.len()
        );
        return Err(mismatch("scan_by_key", text));
    }
    T::sum(call, values.values, SumsTo::Elements(y))
}

impl ByKey for Stream {
    fn sum_by_key<K: RunKey, T: RunValue>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)> {
        let values = values.elements();
        let call = call(self, keys.elements(), &values, false)?;
        let mut totals = Totals::new(self, call.keys.len())?;
        T::sum(call, values.values, totals.to()?)?;
        totals.counted()
    }

    fn min_by_key<K: RunKey, T: RunExtreme>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)> {
        let values = values.elements();
        let call = call(self, keys.elements(), &values, false)?;
        let mut totals = Totals::new(self, call.keys.len())?;
        T::extreme(call, values.values, Order::Descending, totals.to()?)?;
        totals.counted()
    }

    fn max_by_key<K: RunKey, T: RunExtreme>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)> {
        let values = values.elements();
        let call = call(self, keys.elements(), &values, false)?;
        let mut totals = Totals::new(self, call.keys.len())?;
        T::extreme(call, values.values, Order::Ascending, totals.to()?)?;
        totals.counted()
    }

    fn inclusive_scan_by_key<K: RunKey, T: RunValue>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        running(self, keys.elements(), &values.elements(), y.view_mut(), false)
    }

    fn exclusive_scan_by_key<K: RunKey, T: RunValue>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        running(self, keys.elements(), &values.elements(), y.view_mut(), true)
    }
}
