//! The first elements of an order: the largest or the smallest ones, without a sort of all.
//!
//! A row is cut into parts, each part's first elements are found, and all of them together are a shorter row. This repeats until one
//! part is left. So we need no memory but for the results of each round. The kernel file says how a part's elements are
//! found.

use std::sync::Arc;

use gpustream::{AsView, Buffer, Launch, Result, Stream, View};

use crate::call::{Form, filling, mismatch, optional, optional_mut};
use crate::counted::{Counted, Elements, Input};
use crate::order::{Key, Order};
use crate::rank::{Ranked, Ranks, first_is_largest};
use crate::sort::{Sort as _, SortOptions};

mod bindings {
    gpustream::include_kernels!("top_k");
}
use bindings::{
    HasChoose, HasCopyKept, HasCountDigits, HasCountKept, HasRanksOfRows, HasTakeFirst, HasTopParts,
    HasTopSmallParts, Kernels,
};

/// How many elements a block can sort, and how many of them it can find without sorting all.
const ROOM: usize = 2048;
const MOST: usize = ROOM / 2;

/// How many elements of a part one warp sorts alone.
const SMALL: usize = 256;

/// Up to how many rows are sorted one after another, each by the whole device.
const FEW_ROWS: usize = 16;

/// How many values a digit of a rank has in the kernels.
const DIGITS: usize = 1 << 11;

/// The first elements of an order.
///
/// The methods return new buffers, with the elements in order and with their indices. Equal elements come in the order of
/// their indices, so results are the same in every run. NaN comes last, whatever its sign and the order; −0 comes before
/// 0 in [`Order::Ascending`].
///
/// For k up to 1024 the array is read once, and perhaps a second time in part. If very many elements are equal, or the input
/// was made to be slow, each part of it is read up to twelve times. The temporaries are small. For larger k a GPU reads the array
/// once for each 11 bits of an element and twice more, and then sorts the k elements. If k is more than half of the elements,
/// and on the CPU, we [sort](crate::sort) them all. A sort takes temporary memory for two copies of the elements and their indices.
pub trait TopK {
    /// Finds the `k` largest elements and their indices.
    ///
    /// ```
    /// use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// let device = Device::open("cpu")?;
    /// let stream = device.stream()?;
    /// let x = stream.upload(&[3.0f32, f32::NAN, 7.0, 3.0, -1.0])?;
    /// let (values, indices) = stream.top_k(&x, 3)?;
    /// assert_eq!(stream.download(&values)?, [7.0, 3.0, 3.0]);
    /// assert_eq!(stream.download(&indices)?, [2, 0, 3]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if there are fewer than `k` elements, or 2³² of them
    /// or more. The errors of [`Stream::alloc`] and of launches.
    fn top_k<T: Rankable>(&self, x: &(impl AsView<T> + ?Sized), k: usize)
    -> Result<(Buffer<T>, Buffer<u32>)>;

    /// Finds the first `k` elements of an order and their indices: with [`Order::Ascending`] the smallest ones, with
    /// [`Order::Descending`] the largest ones.
    ///
    /// # Errors
    /// The errors of [`top_k`](Self::top_k).
    fn top_k_with<T: Rankable>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        k: usize,
        order: Order,
    ) -> Result<(Buffer<T>, Buffer<u32>)>;

    /// Finds the first `k` elements of an order in an array whose length only the device knows. If it has fewer than `k`
    /// elements, both results have that many. They share their count.
    ///
    /// # Errors
    /// The errors of [`top_k`](Self::top_k), but `k` may be larger than the number of elements.
    fn top_k_counted<T: Rankable>(
        &self,
        x: &impl Input<T>,
        k: usize,
        order: Order,
    ) -> Result<(Counted<T>, Counted<u32>)>;

    /// Finds the first `k` elements in each row of a matrix with `rows` rows, which you store row after row without gaps.
    /// The results have `rows` rows of `k`. An index is a place in its row.
    ///
    /// # Errors
    /// The errors of [`top_k`](Self::top_k) for a row;
    /// [`ErrorKind::ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) also if the elements are no whole number of rows.
    fn top_k_rows<T: Rankable>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        k: usize,
        order: Order,
    ) -> Result<(Buffer<T>, Buffer<u32>)>;

    /// Finds element number `k` of an order, which is the last of the first `k`: number 1 is the first. So you get the median of
    /// an odd number of elements with `k = n / 2 + 1`. A GPU sorts nothing for this. If the element is NaN, you may get
    /// another NaN.
    ///
    /// # Errors
    /// The errors of [`top_k`](Self::top_k), also if `k` is 0.
    fn kth<T: Rankable>(&self, x: &(impl AsView<T> + ?Sized), k: usize, order: Order) -> Result<Buffer<T>>;
}

/// Element types that [`TopK`] takes: those of [`Key`].
pub trait Rankable: Ranked<Bits: TopKernels> {}
impl<T: Ranked<Bits: TopKernels>> Rankable for T {}

/// Integers that stand for keys.
#[doc(hidden)]
pub trait TopKernels:
    Key
    + HasTopParts
    + HasTopSmallParts
    + HasCountDigits
    + HasChoose
    + HasCountKept
    + HasCopyKept
    + HasRanksOfRows
    + HasTakeFirst
{
}
impl TopKernels for u8 {}
impl TopKernels for u16 {}
impl TopKernels for u32 {}
impl TopKernels for u64 {}

impl TopK for Stream {
    #[track_caller]
    fn top_k<T: Rankable>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        k: usize,
    ) -> Result<(Buffer<T>, Buffer<u32>)> {
        self.top_k_with(x, k, Order::Descending)
    }

    #[track_caller]
    fn top_k_with<T: Rankable>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        k: usize,
        order: Order,
    ) -> Result<(Buffer<T>, Buffer<u32>)> {
        let elements = Elements { values: x.view(), count: None };
        let first = first(self, "top_k", &elements, 1, k, order)?;
        Ok((first.values, first.indices))
    }

    #[track_caller]
    fn top_k_counted<T: Rankable>(
        &self,
        x: &impl Input<T>,
        k: usize,
        order: Order,
    ) -> Result<(Counted<T>, Counted<u32>)> {
        let elements = x.elements();
        let k = k.min(elements.values.len());
        let first = first(self, "top_k_counted", &elements, 1, k, order)?;
        let count = Arc::new(first.count);
        Ok((Counted::sharing(first.values, count.clone())?, Counted::sharing(first.indices, count)?))
    }

    #[track_caller]
    fn top_k_rows<T: Rankable>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        k: usize,
        order: Order,
    ) -> Result<(Buffer<T>, Buffer<u32>)> {
        let elements = Elements { values: x.view(), count: None };
        let first = first(self, "top_k_rows", &elements, rows, k, order)?;
        Ok((first.values, first.indices))
    }

    #[track_caller]
    fn kth<T: Rankable>(&self, x: &(impl AsView<T> + ?Sized), k: usize, order: Order) -> Result<Buffer<T>> {
        if k == 0 {
            return Err(mismatch("kth", "element number 0: count from 1, which is the first".to_owned()));
        }
        let elements = Elements { values: x.view(), count: None };
        if k > MOST && k <= elements.values.len() && Form::of(self.device()) == Form::Blocks {
            let kernels = self.device().extension(Kernels::load)?;
            let rounds = Rounds { kernels: &kernels, rows: 1, k, ranks: first_is_largest::<T>(order) };
            let mut kth = self.alloc(1)?;
            rounds.rank_of_kth(self, &Row::new(&elements, 1)?, Some(&mut kth))?;
            return Ok(kth);
        }
        let first = first(self, "kth", &elements, 1, k, order)?;
        let mut kth = self.alloc(1)?;
        self.copy(&first.values.slice(k - 1..)?, &mut kth)?;
        Ok(kth)
    }
}

/// The first elements of rows, and how many there are, if there is one row.
struct First<T> {
    values: Buffer<T>,
    indices: Buffer<u32>,
    count: Buffer<u64>,
}

#[track_caller]
fn first<T: Rankable>(
    stream: &Stream,
    call: &'static str,
    x: &Elements<'_, T>,
    rows: usize,
    k: usize,
    order: Order,
) -> Result<First<T>> {
    let n = x.values.len();
    let row = n.checked_div(rows).unwrap_or(0);
    if row * rows != n {
        return Err(mismatch(
            call,
            format!("{rows} rows of {n} elements: give a view with a multiple of {rows}"),
        ));
    }
    if k > row && rows > 0 || u32::try_from(row).is_err() {
        return Err(mismatch(
            call,
            format!("the first {k} of {row} elements: there must be {k} at least and fewer than 2³²"),
        ));
    }
    if rows * k == 0 {
        return Ok(First { values: stream.alloc(0)?, indices: stream.alloc(0)?, count: stream.zeros(1)? });
    }
    let kernels = stream.device().extension(Kernels::load)?;
    let rounds = Rounds { kernels: &kernels, rows, k, ranks: first_is_largest::<T>(order) };
    let keys = Row::new(x, rows)?;
    if k <= MOST {
        return rounds.parts(stream, &keys);
    }
    if k > row / 2 || Form::of(stream.device()) == Form::Shares {
        return rounds.sorted(stream, &keys);
    }
    let kept = rounds.keep(stream, &keys)?;
    rounds.sorted(stream, &kept.row()?)
}

/// What stays the same from round to round.
struct Rounds<'a, T: Rankable> {
    kernels: &'a Kernels,
    rows: usize,
    k: usize,
    ranks: Ranks<T::Bits>,
}

/// The rows of a round: `len` keys each, from `stride` to `stride`. Without `indices` these are the keys' places.
struct Row<'a, T: Rankable> {
    keys: View<'a, T::Bits>,
    indices: Option<View<'a, u32>>,
    count: Option<View<'a, u64>>,
    stride: usize,
    len: usize,
}

impl<'a, T: Rankable> Row<'a, T> {
    #[track_caller]
    fn new(x: &Elements<'a, T>, rows: usize) -> Result<Self> {
        let len = x.values.len() / rows;
        Ok(Self { keys: x.values.cast()?, indices: None, count: x.count, stride: len, len })
    }
}

/// What a round left.
struct Round<T> {
    first: First<T>,
    /// Whether only the device knows how many elements there are.
    is_counted: bool,
    stride: usize,
    len: usize,
}

impl<T: Rankable> Round<T> {
    #[track_caller]
    fn row(&self) -> Result<Row<'_, T>> {
        Ok(Row {
            keys: self.first.values.cast()?,
            indices: Some(self.first.indices.view()),
            count: self.is_counted.then(|| self.first.count.view()),
            stride: self.stride,
            len: self.len,
        })
    }
}

impl<T: Rankable> Rounds<'_, T> {
    /// Finds up to [`MOST`] elements of each row, by parts of parts.
    #[track_caller]
    fn parts(&self, stream: &Stream, row: &Row<'_, T>) -> Result<First<T>> {
        let mut round = self.part(stream, row, self.window(stream, row.len)?)?;
        // One part leaves `k` elements.
        while round.stride > self.k {
            let window = self.window(stream, round.len)?;
            round = self.part(stream, &round.row()?, window)?;
        }
        Ok(round.first)
    }

    /// Finds the rank of number `k` in each row, digit by digit, and the elements' keys if you give a buffer. Returns what is known
    /// of each row, for `copy_kept`.
    #[track_caller]
    fn rank_of_kth(
        &self,
        stream: &Stream,
        row: &Row<'_, T>,
        mut kth: Option<&mut Buffer<T>>,
    ) -> Result<Buffer<u64>> {
        let Ranks { if_set, if_clear, numbers, .. } = self.ranks;
        let count = optional(row.count.as_ref());
        let window = self.short_window(stream, row.len)?;
        let (mut known, mut counters) = (stream.zeros(3 * self.rows)?, stream.zeros(DIGITS * self.rows)?);
        let bits = 8 * size_of::<T>() as u32;
        let digits = bits.div_ceil(DIGITS.ilog2());
        for digit in 0..digits {
            // The last digit may overlap with the one before it: all its bits that are known are the same then.
            let shift = bits.saturating_sub((digit + 1) * DIGITS.ilog2());
            let blocks = (self.rows * row.len.div_ceil(window)).min(i32::MAX as usize) as u32;
            #[rustfmt::skip]
            self.kernels.count_digits(
                stream, &Launch::new(blocks, 512), &row.keys, count, self.rows, row.stride, row.len, window, if_set, if_clear,
                numbers, shift, &known, &mut counters,
            )?;
            let mut kth = kth.as_mut().map(|kth| kth.cast_mut::<T::Bits>()).transpose()?;
            #[rustfmt::skip]
            self.kernels.choose(
                stream, &Launch::new(self.rows.min(i32::MAX as usize) as u32, 512), count, self.rows, row.len, self.k, shift,
                u32::from(digit == 0), if_set, if_clear, numbers, &mut known, &mut counters,
                optional_mut(kth.as_mut()),
            )?;
        }
        Ok(known)
    }

    /// Copies the first `k` elements of each row, in the order of their places.
    #[track_caller]
    fn keep(&self, stream: &Stream, row: &Row<'_, T>) -> Result<Round<T>> {
        let known = self.rank_of_kth(stream, row, None)?;
        let Ranks { if_set, if_clear, numbers, .. } = self.ranks;
        let count = optional(row.count.as_ref());
        let window = self.short_window(stream, row.len)?;
        let parts = self.rows * row.len.div_ceil(window);
        let launch = Launch::new(parts.min(i32::MAX as usize) as u32, 512);
        let mut tallies = stream.alloc(2 * parts)?;
        #[rustfmt::skip]
        self.kernels.count_kept(
            stream, &launch, &row.keys, count, self.rows, row.stride, row.len, window, if_set, if_clear, numbers, &known,
            &mut tallies,
        )?;
        let mut first = self.room(stream, self.k)?;
        #[rustfmt::skip]
        self.kernels.copy_kept(
            stream, &launch, &row.keys, count, self.rows, row.stride, row.len, window, self.k, if_set, if_clear, numbers,
            &known, &tallies, &mut first.values.cast_mut::<T::Bits>()?, &mut first.indices,
            Some(&mut first.count),
        )?;
        Ok(Round { first, is_counted: row.count.is_some(), stride: self.k, len: self.k })
    }

    /// Sorts the elements of each row by their ranks, and takes the first `k`. The sort is stable, so equal elements stay in the order of
    /// their places.
    #[track_caller]
    fn sorted(&self, stream: &Stream, row: &Row<'_, T>) -> Result<First<T>> {
        let (rows, n) = (self.rows, row.len);
        let by_segments = rows > FEW_ROWS;
        let mut ranks = stream.alloc::<T::Bits>(rows * n)?;
        let mut order = stream.alloc::<u32>(rows * n)?;
        let mut offsets = stream.alloc::<u64>(if by_segments { rows + 1 } else { 0 })?;
        let Ranks { if_set, if_clear, numbers, .. } = self.ranks;
        #[rustfmt::skip]
        self.kernels.ranks_of_rows(
            stream, &row.keys, rows, row.stride, n, if_set, if_clear, numbers, &mut ranks,
            optional_mut(by_segments.then_some(&mut order)), optional_mut(by_segments.then_some(&mut offsets)),
        )?;
        let how = SortOptions::default().order(Order::Descending);
        if by_segments {
            stream.sort_segments_by_key(&mut ranks, &mut order, &offsets, &how)?;
        } else {
            for at in (0..rows).map(|row| row * n..(row + 1) * n) {
                let keys = Elements { values: ranks.slice(at.clone())?, count: row.count };
                stream.argsort_into(&keys, &mut order.slice_mut(at)?, &how)?;
            }
        }
        let mut first = self.room(stream, self.k)?;
        let (count, indices) = (optional(row.count.as_ref()), optional(row.indices.as_ref()));
        #[rustfmt::skip]
        self.kernels.take_first(
            stream, &row.keys, indices, &order, count, rows, row.stride, n, self.k, &mut first.values.cast_mut::<T::Bits>()?,
            &mut first.indices, Some(&mut first.count),
        )?;
        Ok(first)
    }

    /// Returns how many elements a part of a row has: so many that the device is busy, but that a part leaves little of them.
    #[track_caller]
    fn window(&self, stream: &Stream, len: usize) -> Result<usize> {
        let info = stream.device().info();
        let (parts, least) = match Form::of(stream.device()) {
            // As many blocks of 512 threads with 64 registers as an H200 runs at once.
            Form::Blocks => (2 * info.multiprocessors as usize, 16_384),
            Form::Shares => (filling(stream, len * self.rows)?.0, 4 * ROOM),
        };
        let parts = (parts / self.rows).min(len / least).max(1);
        // A part begins on a 16-byte boundary if the row does. A place in a part has 32 bits.
        Ok(if parts == 1 { len.min(u32::MAX as usize) } else { len.div_ceil(parts).next_multiple_of(64) })
    }

    /// Returns how many elements a part has if it leaves next to nothing, so that more of them do no harm.
    #[track_caller]
    fn short_window(&self, stream: &Stream, len: usize) -> Result<usize> {
        Ok(self.window(stream, len)?.div_ceil(4).next_multiple_of(64).max(8 * ROOM))
    }

    /// Finds the first elements of each part with `window` elements.
    #[track_caller]
    fn part(&self, stream: &Stream, row: &Row<'_, T>, window: usize) -> Result<Round<T>> {
        let keep = self.k.min(window);
        let parts = row.len.div_ceil(window);
        let mut first = self.room(stream, parts * keep)?;
        let round = |first| Round {
            first,
            is_counted: row.count.is_some(),
            stride: parts * keep,
            len: kept(row.len, window, keep),
        };
        let Ranks { if_set, if_clear, numbers, .. } = self.ranks;
        let is_gpu = Form::of(stream.device()) == Form::Blocks;
        let (info, parts) = (stream.device().info(), self.rows * parts);
        let indices = optional(row.indices.as_ref());
        let count = optional(row.count.as_ref());
        if is_gpu && window <= SMALL {
            let warps = 256 / info.warp_size.max(1) as usize;
            #[rustfmt::skip]
            self.kernels.top_small_parts(
                stream, &Launch::new(parts.div_ceil(warps).min(i32::MAX as usize) as u32, 256), &row.keys, indices, count,
                self.rows, row.stride, row.len, window, keep as u32, if_set, if_clear, numbers,
                &mut first.values.cast_mut::<T::Bits>()?, &mut first.indices, Some(&mut first.count),
            )?;
            return Ok(round(first));
        }
        let threads = if is_gpu {
            // If there are many parts, small blocks do more in all, because fewer threads wait at each barrier. With less
            // than 128 threads, it takes each of them too long to look through the counters.
            let most = if parts > 8 * info.multiprocessors as usize { 256 } else { 512 };
            (window / 8).next_power_of_two().clamp(128, most) as u32
        } else {
            1
        };
        let launch = Launch::new(parts.min(i32::MAX as usize) as u32, threads);
        // If a block reads every pack for its bound, it collects about `keep` elements, and `step` times as many if it reads
        // one in `step`. It should read enough of them and not have to sort many.
        let step = (512 / keep).min(window / 8192).clamp(1, 8);
        #[rustfmt::skip]
        self.kernels.top_parts(
            stream, &launch, &row.keys, indices, count, self.rows, row.stride, row.len, window, keep as u32, if_set, if_clear,
            numbers, step as u32, &mut first.values.cast_mut::<T::Bits>()?, &mut first.indices, Some(&mut first.count),
        )?;
        Ok(round(first))
    }

    /// Allocates `stride` elements for each row.
    #[track_caller]
    fn room(&self, stream: &Stream, stride: usize) -> Result<First<T>> {
        Ok(First {
            values: stream.alloc(self.rows * stride)?,
            indices: stream.alloc(self.rows * stride)?,
            count: stream.alloc(1)?,
        })
    }
}

/// Returns how many elements remain of `n`, if at most `keep` remain of each `window`.
fn kept(n: usize, window: usize, keep: usize) -> usize {
    n / window * keep + keep.min(n % window)
}
