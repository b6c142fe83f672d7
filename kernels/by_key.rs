//! Neighbours with equal keys: the sum of their values, the smallest and the largest.

use std::sync::Arc;

use gpustream::{AsView, AsViewMut, BackendName, Buffer, Plain, Result, Stream, View, ViewMut};

use crate::call::{mismatch, optional, optional_mut};
use crate::counted::{Counted, Elements, Input};
use crate::index::{Index, by_width};
use crate::number::Number;
use crate::order::{Key, Order, masks};
use crate::tiles::{Tiles, in_form};

mod bindings {
    gpustream::include_kernels!("by_key");
}
use bindings::Kernels;

/// Combines or scans the values that have equal keys and follow each other, as methods of [`Stream`].
///
/// A run is a sequence of neighbours with equal keys. If you sort the pairs by key first, there is one run for each key. Keys may
/// have any type that is a [`Key`], and values 32 or 64 bits; floats are equal if their bits are. If the keys are [`Counted`], their count decides how
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
    fn sum_by_key<K: RunSum<T>, T: Number>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>;

    /// Returns each run's key, and the smallest of its values. Floats have their total order ([`Key`]).
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn min_by_key<K: RunExtreme<T>, T: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>;

    /// Returns each run's key, and the largest of its values. Floats have their total order ([`Key`]), so NaN is the largest.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn max_by_key<K: RunExtreme<T>, T: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)>;

    /// Sets `y[i]` to the sum of the values from the beginning of the run up to `i`.
    ///
    /// # Errors
    /// See the [trait](Self). It is also an error if `y` is shorter.
    #[track_caller]
    fn inclusive_scan_by_key<K: RunSum<T>, T: Number>(
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
    fn exclusive_scan_by_key<K: RunSum<T>, T: Number>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Scans segments: sets `y[i]` to the sum of the values from the beginning of its segment up to `i`. Segment `s` has the values from
    /// `offsets[s]` up to `offsets[s + 1]`. Values before the first offset, and those from the last one on, are segments of their own. Takes a
    /// byte of temporary memory for each value. If offsets do not ascend, the sums are unspecified.
    ///
    /// ```
    /// # use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// # let stream = Device::open("cpu")?.stream()?;
    /// let x = stream.upload(&[1, 2, 3, 4, 5])?;
    /// let mut y = stream.alloc(5)?;
    /// stream.inclusive_scan_segments(&x, &stream.upload(&[0u32, 2, 2, 5])?, &mut y)?;
    /// assert_eq!(stream.download(&y)?, [1, 3, 3, 7, 12]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if `y` is shorter than the values.
    #[track_caller]
    fn inclusive_scan_segments<T: SegmentSum, I: Index>(
        &self,
        values: &(impl AsView<T> + ?Sized),
        offsets: &(impl AsView<I> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Like [`inclusive_scan_segments`](Self::inclusive_scan_segments), but without `values[i]` itself: 0 if it is the first.
    ///
    /// # Errors
    /// As for [`inclusive_scan_segments`](Self::inclusive_scan_segments).
    #[track_caller]
    fn exclusive_scan_segments<T: SegmentSum, I: Index>(
        &self,
        values: &(impl AsView<T> + ?Sized),
        offsets: &(impl AsView<I> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;
}

/// Element types whose segments can be scanned: `f32`, `f64`, and integers of 32 and 64 bits.
pub trait SegmentSum: Number<Seen: bindings::HasSumMarked + bindings::HasSumMarkedShares> {}
impl<T: Number<Seen: bindings::HasSumMarked + bindings::HasSumMarkedShares>> SegmentSum for T {}

/// Key types of runs: all that are [`Key`].
pub trait RunKey: Key<Bits: bindings::HasSumRuns<u32>> {}
impl<K: Key<Bits: bindings::HasSumRuns<u32>>> RunKey for K {}

/// Keys of runs whose values can be summed: all, if the values are `f32`, `f64`, or integers of 32 or 64 bits.
pub trait RunSum<T: Number>:
    RunKey + Key<Bits: bindings::HasSumRuns<T::Seen> + bindings::HasSumRunsShares<T::Seen>>
{
}
impl<K, T: Number> RunSum<T> for K where
    K: RunKey + Key<Bits: bindings::HasSumRuns<T::Seen> + bindings::HasSumRunsShares<T::Seen>>
{
}

/// Keys of runs whose smallest and largest value can be found: all, if the values have 32 or 64 bits.
pub trait RunExtreme<T: Key>:
    RunKey + Key<Bits: bindings::HasExtremeOfRuns<T::Bits> + bindings::HasExtremeOfRunsShares<T::Bits>>
{
}
impl<K, T: Key> RunExtreme<T> for K where
    K: RunKey + Key<Bits: bindings::HasExtremeOfRuns<T::Bits> + bindings::HasExtremeOfRunsShares<T::Bits>>
{
}

/// Keys and as many values, as kernels see them.
struct Pairs<'a, K, T> {
    keys: View<'a, K>,
    values: View<'a, T>,
    count: Option<View<'a, u64>>,
}

impl<'a, K: Plain, T: Plain> Pairs<'a, K, T> {
    #[track_caller]
    fn new<A: Plain, B: Plain>(keys: Elements<'a, A>, values: Elements<'a, B>) -> Result<Self> {
        if keys.values.len() != values.values.len() {
            let (keys, values) = (keys.values.len(), values.values.len());
            let text = format!("{keys} keys and {values} values: give each value a key");
            return Err(mismatch("by_key", text));
        }
        let count = keys.count.or(values.count);
        Ok(Self { keys: keys.values.cast()?, values: values.values.cast()?, count })
    }

    /// Cuts the pairs into tiles. `RunTile` in `by_key.cu` says how many a thread has.
    #[track_caller]
    fn tiles(&self, stream: &Stream) -> Result<Tiles> {
        let packs = if stream.device().info().backend == BackendName::HIP { 2 } else { 4 };
        let per_pack = 16 / size_of::<K>().max(size_of::<T>());
        Tiles::new(stream, self.keys.len(), packs * per_pack, 4)
    }
}

/// Where results go.
enum To<'a, K, T> {
    /// A sum for each element.
    Elements(ViewMut<'a, T>),
    /// A key and a total for each run, and how many runs there are.
    Runs(ViewMut<'a, K>, ViewMut<'a, T>, &'a mut Buffer<u64>),
}

/// What kernels call `running`, `run_keys`, `totals` and `runs`.
type Outputs<'a, K, T> =
    (Option<ViewMut<'a, T>>, Option<ViewMut<'a, K>>, Option<ViewMut<'a, T>>, Option<&'a mut Buffer<u64>>);

impl<'a, K, T> To<'a, K, T> {
    fn outputs(self) -> Outputs<'a, K, T> {
        match self {
            Self::Elements(running) => (Some(running), None, None, None),
            Self::Runs(keys, totals, count) => (None, Some(keys), Some(totals), Some(count)),
        }
    }
}

#[track_caller]
fn sum<K: RunSum<T>, T: Number>(
    stream: &Stream,
    pairs: &Pairs<'_, K::Bits, T::Seen>,
    exclusive: bool,
    to: To<'_, K::Bits, T::Seen>,
) -> Result<()> {
    let kernels = stream.device().extension(Kernels::load)?;
    let Pairs { keys, values, count } = pairs;
    let (mut running, mut run_keys, mut totals, mut runs) = to.outputs();
    let n = keys.len();
    in_form!(
        stream, kernels, n, pairs.tiles(stream)?;
        sum_runs, sum_runs_shares(
            keys,
            values,
            n,
            optional(count.as_ref()),
            exclusive,
            optional_mut(running.as_mut()),
            optional_mut(run_keys.as_mut()),
            optional_mut(totals.as_mut()),
            optional_mut(runs.as_deref_mut()),
        ),
        heads, of_share
    );
    Ok(())
}

/// Finds the key that comes last in an order, of the values of each run.
#[track_caller]
fn extremes<K: RunExtreme<T>, T: Key>(
    stream: &Stream,
    keys: Elements<'_, K>,
    values: Elements<'_, T>,
    order: Order,
) -> Result<(Counted<K>, Counted<T>)> {
    let kernels = stream.device().extension(Kernels::load)?;
    let pairs = Pairs::<K::Bits, T::Bits>::new(keys, values)?;
    let mut result = Totals::<K, T>::new(stream, pairs.keys.len())?;
    let Pairs { keys, values, count } = &pairs;
    let (_, mut run_keys, mut totals, mut runs) = result.to::<T::Bits>()?.outputs();
    let ([if_set, if_clear], n) = (masks::<T>(order), keys.len());
    in_form!(
        stream, kernels, n, pairs.tiles(stream)?;
        extreme_of_runs, extreme_of_runs_shares(
            keys,
            values,
            n,
            optional(count.as_ref()),
            if_set,
            if_clear,
            optional_mut(run_keys.as_mut()),
            optional_mut(totals.as_mut()),
            optional_mut(runs.as_deref_mut()),
        ),
        heads, of_share
    );
    result.counted()
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
    fn to<U: Plain>(&mut self) -> Result<To<'_, K::Bits, U>> {
        let Self { keys, values, count } = self;
        Ok(To::Runs(keys.cast_mut()?, values.cast_mut()?, count))
    }

    #[track_caller]
    fn counted(self) -> Result<(Counted<K>, Counted<T>)> {
        let count = Arc::new(self.count);
        Ok((Counted::sharing(self.keys, count.clone())?, Counted::sharing(self.values, count)?))
    }
}

#[track_caller]
fn running<K: RunSum<T>, T: Number>(
    stream: &Stream,
    keys: Elements<'_, K>,
    values: Elements<'_, T>,
    y: ViewMut<'_, T>,
    exclusive: bool,
) -> Result<()> {
    let pairs = Pairs::new(keys, values)?;
    if y.len() < pairs.keys.len() {
        let text = format!(
            "a scan of {} values into {}: give it as many elements to write",
            pairs.keys.len(),
            y.len()
        );
        return Err(mismatch("scan_by_key", text));
    }
    sum::<K, T>(stream, &pairs, exclusive, To::Elements(y.cast_mut()?))
}

#[track_caller]
fn segments<T: SegmentSum, I: Index>(
    stream: &Stream,
    values: View<'_, T>,
    offsets: View<'_, I>,
    y: ViewMut<'_, T>,
    exclusive: bool,
) -> Result<()> {
    let n = values.len();
    if y.len() < n {
        let text = format!("a scan of {n} values into {}: give it as many elements to write", y.len());
        return Err(mismatch("scan_segments", text));
    }
    if n == 0 {
        return Ok(());
    }
    let kernels = stream.device().extension(Kernels::load)?;
    let mut marks = stream.zeros::<u8>(n)?;
    let (short, long) = by_width(offsets)?;
    let (short, long) = (optional(short.as_ref()), optional(long.as_ref()));
    kernels.mark_segments(stream, short, long, offsets.len(), &mut marks, n)?;
    let pairs = Pairs::<u8, T::Seen> { keys: marks.view(), values: values.cast()?, count: None };
    let mut running = y.cast_mut::<T::Seen>()?;
    in_form!(
        stream, kernels, n, pairs.tiles(stream)?;
        sum_marked, sum_marked_shares(&pairs.keys, &pairs.values, n, exclusive, &mut running),
        heads, of_share
    );
    Ok(())
}

impl ByKey for Stream {
    fn sum_by_key<K: RunSum<T>, T: Number>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)> {
        let pairs = Pairs::new(keys.elements(), values.elements())?;
        let mut totals = Totals::<K, T>::new(self, pairs.keys.len())?;
        sum::<K, T>(self, &pairs, false, totals.to()?)?;
        totals.counted()
    }

    fn min_by_key<K: RunExtreme<T>, T: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)> {
        extremes(self, keys.elements(), values.elements(), Order::Descending)
    }

    fn max_by_key<K: RunExtreme<T>, T: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
    ) -> Result<(Counted<K>, Counted<T>)> {
        extremes(self, keys.elements(), values.elements(), Order::Ascending)
    }

    fn inclusive_scan_by_key<K: RunSum<T>, T: Number>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        running(self, keys.elements(), values.elements(), y.view_mut(), false)
    }

    fn exclusive_scan_by_key<K: RunSum<T>, T: Number>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        running(self, keys.elements(), values.elements(), y.view_mut(), true)
    }

    fn inclusive_scan_segments<T: SegmentSum, I: Index>(
        &self,
        values: &(impl AsView<T> + ?Sized),
        offsets: &(impl AsView<I> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        segments(self, values.view(), offsets.view(), y.view_mut(), false)
    }

    fn exclusive_scan_segments<T: SegmentSum, I: Index>(
        &self,
        values: &(impl AsView<T> + ?Sized),
        offsets: &(impl AsView<I> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        segments(self, values.view(), offsets.view(), y.view_mut(), true)
    }
}
