//! Histograms: how many elements are in each bin, or the sum of their weights.

use std::ops::RangeInclusive;

use gpustream::{AsView, Buffer, Launch, Plain, Result, Stream, View};

use crate::call::{Form, filling, mismatch, optional, unusable};
use crate::counted::{Elements, Input};
use crate::order::{Order, masks};
use crate::rank::{Ranked, kind, number};
use crate::reduce_parts::{ReduceParts as _, ReducibleParts};
use crate::sort::{Sort as _, SortOptions};

mod bindings {
    gpustream::include_kernels!("bins");
}
use bindings::Kernels;

/// How many bytes of counters a block keeps in shared memory. With more, fewer blocks would fit on a multiprocessor.
const LOCAL: usize = 32 << 10;

/// How many bytes they may be if that is more than one counter for each bin. More would not make the kernel faster.
const COPIES: usize = 8 << 10;

/// The bins of a [`Histogram`].
#[derive(Clone, Debug)]
pub struct Bins<'a, T>(Shape<'a, T>);

#[derive(Clone, Debug)]
enum Shape<'a, T> {
    /// Each of the integers from 0 on.
    Integers(usize),
    Even(usize, RangeInclusive<T>),
    Edges(View<'a, T>),
}

impl<'a, T: Plain> Bins<'a, T> {
    /// Splits a range into `count` bins of the same width. Bin b begins at `low + b·step`, if `step` is `(high - low) / count`, all in
    /// `f64`, and the last bin contains `high`. These are NumPy's bins.
    #[must_use]
    pub fn even(count: usize, range: RangeInclusive<T>) -> Self {
        Self(Shape::Even(count, range))
    }

    /// Takes the bins from edges in device memory, which must ascend: bin b has the elements from `edges[b]` on up to, but without,
    /// `edges[b + 1]`. The last bin contains the last edge. If edges do not ascend, the result is unspecified.
    #[must_use]
    pub fn edges(edges: &'a (impl AsView<T> + ?Sized)) -> Self {
        Self(Shape::Edges(edges.view()))
    }
}

/// Histograms, as methods of [`Stream`].
///
/// Elements outside of all bins are not counted, and NaN is always outside. −0 is 0. If `x` is [`Counted`](crate::Counted), its count
/// decides how many elements there are. All methods work in stream order and none blocks. Results are new buffers from the
/// stream's pool with one element for each bin.
///
/// Each element is read once. Up to 8192 bins, blocks count in shared memory, and else in the result. For bins with given edges each element takes
/// log₂(bins) steps.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[0.1f32, 0.6, 0.7, 1.0, 2.0])?;
/// let halves = stream.histogram(&x, &Bins::even(2, 0.0..=1.0))?;
/// assert_eq!(stream.download(&halves)?, [1, 3]);
/// let edges = stream.upload(&[0.0f32, 0.5, 5.0])?;
/// let weights = stream.upload(&[1.0f64, 10.0, 10.0, 10.0, 100.0])?;
/// let sums = stream.histogram_weighted(&x, &weights, &Bins::edges(&edges))?;
/// assert_eq!(stream.download(&sums)?, [1.0, 130.0]);
/// let counts = stream.bincount(&stream.upload(&[3u8, 1, 3])?, 4)?;
/// assert_eq!(stream.download(&counts)?, [0, 1, 0, 2]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if there are no bins, or 2³² − 1 or more of them, or if the range of even
/// bins is empty or not finite. [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are not as many weights as elements. The errors
/// of an allocation and of a launch.
pub trait Histogram {
    /// Counts the elements in each bin.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn histogram<T: Binned>(&self, x: &(impl Input<T> + ?Sized), bins: &Bins<'_, T>) -> Result<Buffer<u64>>;

    /// Sums the weights of the elements in each bin. Integers wrap around; of `f16` and `bf16` the sums are `f32`.
    ///
    /// The sums have the same bits in every run on one device. For that, weights that are floats are sorted by their bins first, which takes time
    /// and temporary memory like [`sort_by_key`](crate::sort::Sort::sort_by_key) with `u32` keys of as few bits as the bins need. Integers take four
    /// bytes of temporary memory for each element.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn histogram_weighted<T: Binned, W: Weight>(
        &self,
        x: &(impl Input<T> + ?Sized),
        weights: &(impl Input<W> + ?Sized),
        bins: &Bins<'_, T>,
    ) -> Result<Buffer<W::Sum>>;

    /// Like [`histogram_weighted`](Self::histogram_weighted), but adds weights in any order. This is faster, and sums of floats can have other bits in
    /// each run.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn histogram_weighted_unordered<T: Binned, W: Weight>(
        &self,
        x: &(impl Input<T> + ?Sized),
        weights: &(impl Input<W> + ?Sized),
        bins: &Bins<'_, T>,
    ) -> Result<Buffer<W::Sum>>;

    /// Counts how often each of the integers `0..bins` is in `x`. Others are not counted.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn bincount<T: Countable>(&self, x: &(impl Input<T> + ?Sized), bins: usize) -> Result<Buffer<u64>> {
        self.histogram(x, &Bins(Shape::Integers(bins)))
    }

    /// Sums the weights of each of the integers `0..bins`, as [`histogram_weighted`](Self::histogram_weighted) does.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn bincount_weighted<T: Countable, W: Weight>(
        &self,
        x: &(impl Input<T> + ?Sized),
        weights: &(impl Input<W> + ?Sized),
        bins: usize,
    ) -> Result<Buffer<W::Sum>> {
        self.histogram_weighted(x, weights, &Bins(Shape::Integers(bins)))
    }

    /// Like [`bincount_weighted`](Self::bincount_weighted), but adds weights in any order, as
    /// [`histogram_weighted_unordered`](Self::histogram_weighted_unordered) does.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn bincount_weighted_unordered<T: Countable, W: Weight>(
        &self,
        x: &(impl Input<T> + ?Sized),
        weights: &(impl Input<W> + ?Sized),
        bins: usize,
    ) -> Result<Buffer<W::Sum>> {
        self.histogram_weighted_unordered(x, weights, &Bins(Shape::Integers(bins)))
    }
}

/// Element types that can be in bins: those of [`Key`](crate::Key).
pub trait Binned:
    Ranked<
    Bits: bindings::HasEvenEdges
              + bindings::HasEdgeRanks
              + bindings::HasCountInBins
              + bindings::HasBinNumbers,
>
{
}
impl<T> Binned for T where
    T: Ranked<
        Bits: bindings::HasEvenEdges
                  + bindings::HasEdgeRanks
                  + bindings::HasCountInBins
                  + bindings::HasBinNumbers,
    >
{
}

/// Element types of [`Histogram::bincount`]: the integers of 8 to 64 bits.
pub trait Countable: Binned {}
impl Countable for u8 {}
impl Countable for u16 {}
impl Countable for u32 {}
impl Countable for u64 {}
impl Countable for i8 {}
impl Countable for i16 {}
impl Countable for i32 {}
impl Countable for i64 {}

/// Types of weights: all that can be summed.
pub trait Weight: ReducibleParts<Seen: bindings::HasAddInBins<Self::SeenSum>> {}
impl<W: ReducibleParts<Seen: bindings::HasAddInBins<Self::SeenSum>>> Weight for W {}

/// Bins as kernels see them.
struct Plan<T: Ranked> {
    bins: u32,
    /// The edges' ranks, unless each bin has one integer.
    edges: Option<Buffer<T::Bits>>,
    /// Bins per unit if they are even, otherwise 0.
    scale: f64,
    /// How close to the middle of a bin, in bins, an element must be that we do not compare it with an edge.
    sure: f64,
    masks: [u64; 2],
    /// Bits that count as 0.
    minus_zero: u64,
}

impl<T: Binned> Plan<T> {
    #[track_caller]
    fn new(stream: &Stream, kernels: &Kernels, bins: &Bins<'_, T>) -> Result<Self> {
        let count = match &bins.0 {
            Shape::Integers(count) | Shape::Even(count, _) => *count,
            Shape::Edges(edges) => edges.len().saturating_sub(1),
        };
        let Some(few) = u32::try_from(count).ok().filter(|count| (1..u32::MAX).contains(count)) else {
            return Err(unusable(
                "histogram",
                format!("{count} bins: give 1 to 2³² - 2; edges are one more"),
            ));
        };
        let is_float = T::NUMBERS != u64::MAX;
        let mut plan = Self {
            bins: few,
            edges: None,
            scale: 0.0,
            sure: 0.0,
            masks: masks::<T>(Order::Ascending),
            minus_zero: if is_float { 1 << (8 * size_of::<T>() - 1) } else { 0 },
        };
        let [if_set, if_clear] = plan.masks;
        match &bins.0 {
            Shape::Integers(_) => {}
            Shape::Even(_, range) => {
                let (low, high) = (number(range.start()), number(range.end()));
                let step = (high - low) / f64::from(few);
                if !(step > 0.0 && step.is_finite() && low.is_finite() && high.is_finite()) {
                    let text =
                        format!("{few} bins from {low} to {high}: give two numbers, the smaller one first");
                    return Err(unusable("histogram", text));
                }
                // The distance from `low`, the scale, their product, and the distance from the middle are rounded, in `f32` if the key
                // has up to 32 bits. Edges are rounded in `f64`. We take twice the sum of these errors.
                let computed = if size_of::<T>() == 8 { 1.0 } else { f64::from(1 << 29) };
                let rounding = computed + low.abs().max(high.abs()) / (high - low);
                plan.sure = 0.5 - f64::from(few) * rounding * (4.0 * f64::EPSILON);
                // With very many bins most elements would be in doubt. The kernel's numbers must not overflow or lose digits.
                let scale = f64::from(few) / (high - low);
                let fits = if size_of::<T>() == 8 {
                    scale.is_normal()
                } else {
                    (scale as f32).is_normal() && ((high - low) as f32).is_finite()
                };
                if plan.sure > 0.25 && fits {
                    plan.scale = scale;
                }
                let mut edges = stream.alloc(count + 1)?;
                kernels.even_edges(
                    stream,
                    &Launch::strided(count + 1),
                    &mut edges,
                    count,
                    kind::<T>(),
                    low,
                    step,
                    if_set,
                    if_clear,
                    zero_for(range.start(), low).rank(),
                    zero_for(range.end(), high).rank(),
                )?;
                plan.edges = Some(edges);
            }
            Shape::Edges(given) => {
                let mut edges = stream.alloc(count + 1)?;
                let given = given.cast::<T::Bits>()?;
                kernels.edge_ranks(
                    stream,
                    &given,
                    &mut edges,
                    count + 1,
                    if_set,
                    if_clear,
                    plan.minus_zero,
                )?;
                plan.edges = Some(edges);
            }
        }
        Ok(plan)
    }

    /// Returns a launch that shares `n` elements, and how many counters a block has for each bin in shared memory, up to `most`: a power
    /// of two, or 0 if the counters would be too large. One counter for each bin takes `bytes` in all.
    #[track_caller]
    fn launch(stream: &Stream, n: usize, bytes: usize, most: usize) -> Result<(Launch, u32)> {
        let (blocks, launch) = filling(stream, n)?;
        let copies = match most.min(COPIES / bytes) {
            0 => most.min(usize::from(bytes <= LOCAL)),
            fit => 1 << fit.ilog2(),
        };
        Ok((launch(blocks).shared((bytes * copies) as u32), copies as u32))
    }

    /// Returns the bin that each element is in.
    #[track_caller]
    fn numbers(&self, stream: &Stream, kernels: &Kernels, x: &Elements<'_, T>) -> Result<Buffer<u32>> {
        let n = x.values.len();
        let mut numbers = stream.alloc(n)?;
        let [if_set, if_clear] = self.masks;
        kernels.bin_numbers(
            stream,
            &x.values.cast::<T::Bits>()?,
            n,
            optional(x.count.as_ref()),
            optional(self.edges.as_ref()),
            self.bins,
            kind::<T>(),
            self.scale,
            self.sure,
            if_set,
            if_clear,
            self.minus_zero,
            &mut numbers,
        )?;
        Ok(numbers)
    }
}

/// Returns 0 for −0.
fn zero_for<T: Ranked>(x: &T, number: f64) -> T {
    if number == 0.0 { T::zeroed() } else { *x }
}

#[track_caller]
fn weighted<T: Binned, W: Weight>(
    stream: &Stream,
    x: Elements<'_, T>,
    weights: Elements<'_, W>,
    bins: &Bins<'_, T>,
    is_ordered: bool,
) -> Result<Buffer<W::Sum>> {
    let n = x.values.len();
    if weights.values.len() != n {
        let text = format!("{n} elements and {} weights: give each element a weight", weights.values.len());
        return Err(mismatch("histogram_weighted", text));
    }
    let kernels = stream.device().extension(Kernels::load)?;
    let plan = Plan::new(stream, &kernels, bins)?;
    let x = Elements { values: x.values, count: x.count.or(weights.count) };
    let mut numbers = plan.numbers(stream, &kernels, &x)?;
    let bins = plan.bins as usize;
    if is_ordered && W::NUMBERS != u64::MAX {
        let mut sorted = stream.alloc::<W>(n)?;
        let mut sorted_numbers = stream.alloc::<u32>(n)?;
        let how = SortOptions::default().bits(0..plan.bins.ilog2() + 1);
        stream.sort_by_key_into(&numbers, &weights.values, &mut sorted_numbers, &mut sorted, &how)?;
        drop(std::mem::replace(&mut numbers, sorted_numbers));
        let mut offsets = stream.alloc(bins + 1)?;
        kernels.bin_offsets(stream, &Launch::strided(bins + 1), &numbers, n, bins, &mut offsets)?;
        return stream.sum_segments(&sorted, &offsets);
    }
    let mut sums = stream.zeros::<W::Sum>(bins)?;
    let (launch, local) = Plan::<T>::launch(stream, n, 8 * bins, 1)?;
    let top = bytemuck::cast_slice::<W::SeenSum, u8>(&[W::TOP])
        .iter()
        .rev()
        .fold(0, |top, byte| top << 8 | u64::from(*byte));
    kernels.add_in_bins(
        stream,
        &launch,
        &numbers,
        &weights.values.cast::<W::Seen>()?,
        n,
        top,
        &mut sums.cast_mut::<W::SeenSum>()?,
        plan.bins,
        local,
    )?;
    Ok(sums)
}

impl Histogram for Stream {
    fn histogram<T: Binned>(&self, x: &(impl Input<T> + ?Sized), bins: &Bins<'_, T>) -> Result<Buffer<u64>> {
        let Elements { values, count } = x.elements();
        let kernels = self.device().extension(Kernels::load)?;
        let plan = Plan::new(self, &kernels, bins)?;
        let mut counts = self.zeros(plan.bins as usize)?;
        let n = values.len();
        // A warp's lanes meet in counters; a worker of the CPU is alone. The kernel has counters of its own for bytes.
        let most = match Form::of(self.device()) {
            _ if size_of::<T>() == 1 => 0,
            Form::Blocks => 16,
            Form::Shares => 1,
        };
        let (launch, copies) = Plan::<T>::launch(self, n, 4 * (plan.bins as usize + 1), most)?;
        let [if_set, if_clear] = plan.masks;
        kernels.count_in_bins(
            self,
            &launch,
            &values.cast::<T::Bits>()?,
            n,
            optional(count.as_ref()),
            optional(plan.edges.as_ref()),
            plan.bins,
            kind::<T>(),
            plan.scale,
            plan.sure,
            if_set,
            if_clear,
            plan.minus_zero,
            &mut counts,
            copies,
        )?;
        Ok(counts)
    }

    fn histogram_weighted<T: Binned, W: Weight>(
        &self,
        x: &(impl Input<T> + ?Sized),
        weights: &(impl Input<W> + ?Sized),
        bins: &Bins<'_, T>,
    ) -> Result<Buffer<W::Sum>> {
        weighted(self, x.elements(), weights.elements(), bins, true)
    }

    fn histogram_weighted_unordered<T: Binned, W: Weight>(
        &self,
        x: &(impl Input<T> + ?Sized),
        weights: &(impl Input<W> + ?Sized),
        bins: &Bins<'_, T>,
    ) -> Result<Buffer<W::Sum>> {
        weighted(self, x.elements(), weights.elements(), bins, false)
    }
}
