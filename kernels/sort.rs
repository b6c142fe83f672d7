//! Stable sorts of keys, with values or without, and the order as indices.
//!
//! On GPUs these are radix sorts that read and write each key once per eight bits. On the CPU each worker sorts a share. Both
//! need a second array for the keys, and one for the values.

use std::ops::Range;
use std::panic::Location;

use gpustream::interop::on_behalf;
use gpustream::{
    AsView, AsViewMut, Buffer, CallSite, Error, ErrorKind, Launch, Plain, Result, Stream, View, ViewMut,
};

use crate::call::{Form, filling, mismatch};
use crate::counted::{Input, InputMut};
use crate::order::{Key, Order, masks};

mod blocks {
    gpustream::include_kernels!("sort");
}
mod by_shares {
    gpustream::include_kernels!("sort_shares");
}
mod moves {
    gpustream::include_kernels!("gather");
}

/// How to sort: the direction, and by which bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortOptions {
    order: Order,
    bits: Option<Range<u32>>,
}

impl SortOptions {
    /// Sets the direction. Equal keys keep their order in both.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sorts by some of the bits alone; bit 0 is the lowest. The fewer there are, the less time it takes: a GPU moves all
    /// elements once for each eight of them. Keys that only differ in other bits keep their order.
    ///
    /// These are bits of an unsigned integer that has the keys' order. For unsigned keys it is the key itself. For signed ones the
    /// top bit is inverted, and for floats the top bit too, or all bits if the float is negative.
    #[must_use]
    pub fn bits(mut self, bits: Range<u32>) -> Self {
        self.bits = Some(bits);
        self
    }
}

/// Integers that can be indices: `u32` and `u64`.
pub trait Index:
    moves::HasGather<u8> + moves::HasGather<u16> + moves::HasGather<u32> + moves::HasGather<u64>
{
}
impl Index for u32 {}
impl Index for u64 {}

/// Sorts on a stream.
///
/// All sorts are stable: equal keys keep their order. Floats have their total order, like [`f32::total_cmp`]. You get the same result
/// in every run. No function blocks, and all can be captured and replayed.
///
/// If keys are a [`Counted`](crate::Counted), we sort as many as there are, and leave what is beyond alone.
///
/// # Memory and time
/// A sort allocates a second array for the keys (and one for the values), and at most a byte per element for counts. A GPU sorts
/// up to 8192 keys (4096 with 64 bits) in a block, without any of these. The time grows with the number of keys times their bits.
///
/// Values with 4 or 8 bytes move with the keys. For values of any other size we sort indices, and then move each value once.
///
/// # By several columns
/// Sort the order by the last column first, and by the first column last. Each sort keeps the order of the ones before if its
/// own keys are equal:
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let stream = Device::open("cpu")?.stream()?;
/// let (year, price) = (stream.upload(&[2020u16, 2019, 2020, 2019])?, stream.upload(&[5.0f32, 9.0, 1.0, 7.0])?);
/// let mut order = stream.argsort(&price)?;
/// let mut years = stream.alloc(4)?;
/// stream.gather(&year, &order, &mut years)?;
/// stream.sort_by_key(&mut years, &mut order)?;
/// assert_eq!(stream.download(&order)?, [3, 1, 2, 0]); // 2019 and 7, 2019 and 9, 2020 and 1, 2020 and 5
/// # Ok::<(), gpustream::Error>(())
/// ```
pub trait Sort {
    /// Sorts keys in place, the smallest first.
    ///
    /// ```
    /// # use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// # let stream = Device::open("cpu")?.stream()?;
    /// let mut keys = stream.upload(&[3.0f32, -1.0, f32::NAN, 0.0, -0.0])?;
    /// stream.sort(&mut keys)?;
    /// assert_eq!(stream.download(&keys)?[..4], [-1.0, -0.0, 0.0, 3.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// `DeviceMismatch` if the stream cannot reach the memory, `OutOfMemory` if there is no room for a second array.
    fn sort<K: Key>(&self, keys: &mut (impl InputMut<K> + ?Sized)) -> Result<()>;

    /// Sorts keys in place, with options.
    ///
    /// ```
    /// # use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// # let stream = Device::open("cpu")?.stream()?;
    /// let mut keys = stream.upload(&[0x11, 0x32, 0x23, 0x12])?;
    /// stream.sort_with(&mut keys, &SortOptions::default().order(Order::Descending).bits(4..8))?;
    /// assert_eq!(stream.download(&keys)?, [0x32, 0x23, 0x11, 0x12]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`sort`](Self::sort). [`ErrorKind::InvalidArgument`] if the keys do not have these bits.
    fn sort_with<K: Key>(&self, keys: &mut (impl InputMut<K> + ?Sized), options: &SortOptions) -> Result<()>;

    /// Sorts keys into another array.
    ///
    /// # Errors
    /// The errors of [`sort_with`](Self::sort_with). [`ErrorKind::ArgumentMismatch`] if the lengths differ.
    fn sort_into<K: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        sorted: &mut (impl AsViewMut<K> + ?Sized),
        options: &SortOptions,
    ) -> Result<()>;

    /// Sorts keys in place, and moves each value with its key.
    ///
    /// ```
    /// # use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// # let stream = Device::open("cpu")?.stream()?;
    /// let (mut keys, mut values) = (stream.upload(&[2u8, 1, 2, 0])?, stream.upload(&[1.0f64, 2.0, 3.0, 4.0])?);
    /// stream.sort_by_key(&mut keys, &mut values)?;
    /// assert_eq!(stream.download(&values)?, [4.0, 2.0, 1.0, 3.0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`sort`](Self::sort). [`ErrorKind::ArgumentMismatch`] if the lengths differ.
    fn sort_by_key<K: Key, V: Plain>(
        &self,
        keys: &mut (impl InputMut<K> + ?Sized),
        values: &mut (impl InputMut<V> + ?Sized),
    ) -> Result<()>;

    /// Sorts keys and values in place, with options.
    ///
    /// # Errors
    /// The errors of [`sort_with`](Self::sort_with) and [`sort_by_key`](Self::sort_by_key).
    fn sort_by_key_with<K: Key, V: Plain>(
        &self,
        keys: &mut (impl InputMut<K> + ?Sized),
        values: &mut (impl InputMut<V> + ?Sized),
        options: &SortOptions,
    ) -> Result<()>;

    /// Sorts keys and values into other arrays.
    ///
    /// # Errors
    /// The errors of [`sort_with`](Self::sort_with) and [`sort_by_key`](Self::sort_by_key).
    fn sort_by_key_into<K: Key, V: Plain>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<V> + ?Sized),
        sorted_keys: &mut (impl AsViewMut<K> + ?Sized),
        sorted_values: &mut (impl AsViewMut<V> + ?Sized),
        options: &SortOptions,
    ) -> Result<()>;

    /// Returns where the smallest key is, then the next one, and so on. The keys stay as they are.
    ///
    /// ```
    /// # use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// # let stream = Device::open("cpu")?.stream()?;
    /// let order = stream.argsort(&stream.upload(&[30i16, 10, 20])?)?;
    /// assert_eq!(stream.download(&order)?, [1, 2, 0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`argsort_into`](Self::argsort_into).
    fn argsort<K: Key>(&self, keys: &(impl Input<K> + ?Sized)) -> Result<Buffer<u32>>;

    /// Returns the order of the keys, with options.
    ///
    /// # Errors
    /// The errors of [`argsort_into`](Self::argsort_into).
    fn argsort_with<K: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        options: &SortOptions,
    ) -> Result<Buffer<u32>>;

    /// Writes the order of the keys to an array. Allocates two arrays for keys and one for indices.
    ///
    /// # Errors
    /// The errors of [`sort_with`](Self::sort_with). [`ErrorKind::ArgumentMismatch`] if the lengths differ, or if there are more
    /// than 2³² keys: then the indices do not fit.
    fn argsort_into<K: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        order: &mut (impl AsViewMut<u32> + ?Sized),
        options: &SortOptions,
    ) -> Result<()>;

    /// Sorts each segment of the keys in place. Segment `s` has the keys from `offsets[s]` up to `offsets[s + 1]`, so there is one more
    /// offset than there are segments. Keys outside of all segments stay as they are.
    ///
    /// A GPU sorts up to 128 keys with a warp, and more with a block; up to 2048 stay inside of it. So this is for many segments:
    /// if there are a few very long ones, sort each as an array of its own. Allocates a second array for the keys.
    ///
    /// ```
    /// # use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// # let stream = Device::open("cpu")?.stream()?;
    /// let mut keys = stream.upload(&[3, 1, 2, 9, 8])?;
    /// stream.sort_segments(&mut keys, &stream.upload(&[0u32, 3, 5])?, &SortOptions::default())?;
    /// assert_eq!(stream.download(&keys)?, [1, 2, 3, 8, 9]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// If offsets lie beyond the keys, they count as their end. If segments overlap, the result is unspecified.
    ///
    /// # Errors
    /// The errors of [`sort_with`](Self::sort_with).
    fn sort_segments<K: Key, I: Index>(
        &self,
        keys: &mut (impl AsViewMut<K> + ?Sized),
        offsets: &(impl AsView<I> + ?Sized),
        options: &SortOptions,
    ) -> Result<()>;

    /// Sorts each segment of the keys in place, and moves values with them. They have 1, 2, 4, 8 or 16 bytes. Allocates a second array
    /// for the keys and for the values, and two arrays of indices.
    ///
    /// # Errors
    /// The errors of [`sort_segments`](Self::sort_segments). [`ErrorKind::ArgumentMismatch`] if the lengths differ,
    /// [`ErrorKind::InvalidArgument`] if the values have another size, or if there are more than 2³² keys.
    fn sort_segments_by_key<K: Key, V: Plain, I: Index>(
        &self,
        keys: &mut (impl AsViewMut<K> + ?Sized),
        values: &mut (impl AsViewMut<V> + ?Sized),
        offsets: &(impl AsView<I> + ?Sized),
        options: &SortOptions,
    ) -> Result<()>;

    /// Sets `to[i] = from[indices[i]]`. If there is no such element, all bytes of `to[i]` become zero.
    ///
    /// # Errors
    /// `DeviceMismatch` if the stream cannot reach the memory. [`ErrorKind::ArgumentMismatch`] if there are not as many indices as
    /// elements of `to`.
    fn gather<T: Plain, I: Index>(
        &self,
        from: &(impl Input<T> + ?Sized),
        indices: &(impl Input<I> + ?Sized),
        to: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;
}

impl Sort for Stream {
    #[track_caller]
    fn sort<K: Key>(&self, keys: &mut (impl InputMut<K> + ?Sized)) -> Result<()> {
        let (call, keys) = (Call::new(self, "sort"), keys.elements_mut());
        call.sort(Moved::in_place(keys.values), keys.count, &SortOptions::default(), Values::None)
    }

    #[track_caller]
    fn sort_with<K: Key>(&self, keys: &mut (impl InputMut<K> + ?Sized), options: &SortOptions) -> Result<()> {
        let (call, keys) = (Call::new(self, "sort"), keys.elements_mut());
        call.sort(Moved::in_place(keys.values), keys.count, options, Values::None)
    }

    #[track_caller]
    fn sort_into<K: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        sorted: &mut (impl AsViewMut<K> + ?Sized),
        options: &SortOptions,
    ) -> Result<()> {
        let (call, keys) = (Call::new(self, "sort_into"), keys.elements());
        call.sort(Moved::into(keys.values, sorted.view_mut()), keys.count, options, Values::None)
    }

    #[track_caller]
    fn sort_by_key<K: Key, V: Plain>(
        &self,
        keys: &mut (impl InputMut<K> + ?Sized),
        values: &mut (impl InputMut<V> + ?Sized),
    ) -> Result<()> {
        self.sort_by_key_with(keys, values, &SortOptions::default())
    }

    #[track_caller]
    fn sort_by_key_with<K: Key, V: Plain>(
        &self,
        keys: &mut (impl InputMut<K> + ?Sized),
        values: &mut (impl InputMut<V> + ?Sized),
        options: &SortOptions,
    ) -> Result<()> {
        let (call, keys, values) =
            (Call::new(self, "sort_by_key"), keys.elements_mut(), values.elements_mut());
        let (count, values) = (keys.count.or(values.count), Values::of(Moved::in_place(values.values))?);
        call.sort(Moved::in_place(keys.values), count, options, values)
    }

    #[track_caller]
    fn sort_by_key_into<K: Key, V: Plain>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        values: &(impl Input<V> + ?Sized),
        sorted_keys: &mut (impl AsViewMut<K> + ?Sized),
        sorted_values: &mut (impl AsViewMut<V> + ?Sized),
        options: &SortOptions,
    ) -> Result<()> {
        let (call, keys, values) = (Call::new(self, "sort_by_key_into"), keys.elements(), values.elements());
        let count = keys.count.or(values.count);
        let values = Values::of(Moved::into(values.values, sorted_values.view_mut()))?;
        call.sort(Moved::into(keys.values, sorted_keys.view_mut()), count, options, values)
    }

    #[track_caller]
    fn argsort<K: Key>(&self, keys: &(impl Input<K> + ?Sized)) -> Result<Buffer<u32>> {
        self.argsort_with(keys, &SortOptions::default())
    }

    #[track_caller]
    fn argsort_with<K: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        options: &SortOptions,
    ) -> Result<Buffer<u32>> {
        let mut order = self.alloc(keys.elements().values.len())?;
        self.argsort_into(keys, &mut order, options)?;
        Ok(order)
    }

    #[track_caller]
    fn argsort_into<K: Key>(
        &self,
        keys: &(impl Input<K> + ?Sized),
        order: &mut (impl AsViewMut<u32> + ?Sized),
        options: &SortOptions,
    ) -> Result<()> {
        let (call, keys, order) = (Call::new(self, "argsort"), keys.elements(), order.view_mut());
        let n = keys.values.len();
        if n as u64 > 1 << 32 {
            let text = format!(
                "the order of {n} keys does not fit into indices with 32 bits; sort them with indices of your own"
            );
            return Err(mismatch("argsort", text));
        }
        let mut sorted = self.alloc::<K>(n)?;
        let moved = Moved::into(keys.values, sorted.view_mut());
        call.sort(moved, keys.count, options, Values::Numbers(order))
    }

    #[track_caller]
    fn sort_segments<K: Key, I: Index>(
        &self,
        keys: &mut (impl AsViewMut<K> + ?Sized),
        offsets: &(impl AsView<I> + ?Sized),
        options: &SortOptions,
    ) -> Result<()> {
        Call::new(self, "sort_segments").sort_segments(keys.view_mut(), None, offsets.view(), options)
    }

    #[track_caller]
    fn sort_segments_by_key<K: Key, V: Plain, I: Index>(
        &self,
        keys: &mut (impl AsViewMut<K> + ?Sized),
        values: &mut (impl AsViewMut<V> + ?Sized),
        offsets: &(impl AsView<I> + ?Sized),
        options: &SortOptions,
    ) -> Result<()> {
        let (call, keys, values) =
            (Call::new(self, "sort_segments_by_key"), keys.view_mut(), values.view_mut());
        call.check_lengths(keys.len(), "keys", values.len(), "values")?;
        let (n, size) = (keys.len(), size_of::<V>());
        if ![1, 2, 4, 8, 16].contains(&size) || n as u64 > 1 << 32 {
            let text = format!(
                "segments of {n} keys and values with {size} bytes; give at most 2^32, and values with 1, 2, 4, 8 or 16 bytes, \
                 or sort indices and gather the values"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_call_site(call.site));
        }
        call.sort_segments(keys, Some((values.cast_mut()?, size)), offsets.view(), options)
    }

    #[track_caller]
    fn gather<T: Plain, I: Index>(
        &self,
        from: &(impl Input<T> + ?Sized),
        indices: &(impl Input<I> + ?Sized),
        to: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let call = Call::new(self, "gather");
        let (from, indices, to) = (from.elements(), indices.elements(), to.view_mut());
        let n = indices.values.len();
        call.check_lengths(n, "indices", to.len(), "elements of the result")?;
        call.run(|| {
            let (from, to) = (from.values.cast()?, to.cast_mut()?);
            gather_bytes(self, from, indices.values, to, size_of::<T>(), indices.count)
        })
    }
}

/// What a sort moves: from one array to another, or in place if there is no source.
struct Moved<'a, T> {
    source: Option<View<'a, T>>,
    result: ViewMut<'a, T>,
}

impl<'a, T: Plain> Moved<'a, T> {
    fn in_place(result: ViewMut<'a, T>) -> Self {
        Self { source: None, result }
    }

    fn into(source: View<'a, T>, result: ViewMut<'a, T>) -> Self {
        Self { source: Some(source), result }
    }

    #[track_caller]
    fn cast<U: Plain>(self) -> Result<Moved<'a, U>> {
        Ok(Moved { source: self.source.map(View::cast).transpose()?, result: self.result.cast_mut()? })
    }
}

/// What moves with the keys.
enum Values<'a> {
    None,
    /// Elements with this many bytes.
    Bytes(Moved<'a, u8>, usize),
    /// The keys' numbers.
    Numbers(ViewMut<'a, u32>),
    LongNumbers(ViewMut<'a, u64>),
}

impl<'a> Values<'a> {
    #[track_caller]
    fn of<V: Plain>(values: Moved<'a, V>) -> Result<Self> {
        Ok(Self::Bytes(values.cast()?, size_of::<V>()))
    }

    /// Returns the lengths of source and result.
    fn lengths(&self) -> Option<[usize; 2]> {
        match self {
            Self::None => None,
            Self::Bytes(Moved { source, result }, size) => {
                let result = result.len().checked_div(*size).unwrap_or(0);
                Some([
                    source.as_ref().map_or(result, |source| source.len().checked_div(*size).unwrap_or(0)),
                    result,
                ])
            }
            Self::Numbers(result) => Some([result.len(); 2]),
            Self::LongNumbers(result) => Some([result.len(); 2]),
        }
    }
}

/// A call of a public function.
struct Call<'a> {
    stream: &'a Stream,
    site: CallSite,
}

impl<'a> Call<'a> {
    #[track_caller]
    fn new(stream: &'a Stream, label: &'static str) -> Self {
        Self { stream, site: CallSite { label, location: Location::caller() } }
    }

    fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        on_behalf(self.site, work)
    }

    fn check_lengths(&self, a: usize, what_a: &str, b: usize, what_b: &str) -> Result<()> {
        if a == b {
            return Ok(());
        }
        let text = format!("there are {a} {what_a} and {b} {what_b}; give arrays of the same length");
        Err(Error::new(ErrorKind::ArgumentMismatch, text).with_call_site(self.site))
    }

    fn sort<K: Key>(
        &self,
        keys: Moved<'_, K>,
        count: Option<View<'_, u64>>,
        options: &SortOptions,
        values: Values<'_>,
    ) -> Result<()> {
        let n = keys.result.len();
        if let Some(source) = &keys.source {
            self.check_lengths(source.len(), "keys", n, "elements of the result")?;
        }
        if let Some([source, result]) = values.lengths() {
            self.check_lengths(n, "keys", source, "values")?;
            self.check_lengths(n, "keys", result, "elements of the values' result")?;
        }
        let how = self.how::<K>(options, count)?;
        self.run(|| match size_of::<K>() {
            1 => sort_bits::<u8>(self.stream, keys.cast()?, &how, values),
            2 => sort_bits::<u16>(self.stream, keys.cast()?, &how, values),
            4 => sort_bits::<u32>(self.stream, keys.cast()?, &how, values),
            _ => sort_bits::<u64>(self.stream, keys.cast()?, &how, values),
        })
    }

    fn sort_segments<K: Key, I: Index>(
        &self,
        keys: ViewMut<'_, K>,
        values: Option<(ViewMut<'_, u8>, usize)>,
        offsets: View<'_, I>,
        options: &SortOptions,
    ) -> Result<()> {
        let how = self.how::<K>(options, None)?;
        self.run(|| match size_of::<K>() {
            1 => sort_segments::<u8, I>(self.stream, keys.cast_mut()?, &how, values, offsets),
            2 => sort_segments::<u16, I>(self.stream, keys.cast_mut()?, &how, values, offsets),
            4 => sort_segments::<u32, I>(self.stream, keys.cast_mut()?, &how, values, offsets),
            _ => sort_segments::<u64, I>(self.stream, keys.cast_mut()?, &how, values, offsets),
        })
    }

    /// Checks the options.
    fn how<'b, K: Key>(&self, options: &SortOptions, count: Option<View<'b, u64>>) -> Result<How<'b>> {
        let width = 8 * size_of::<K>() as u32;
        let bits = options.bits.clone().unwrap_or(0..width);
        if bits.is_empty() || bits.end > width {
            let Range { start, end } = bits;
            let text = format!(
                "a sort by bits {start}..{end} of keys with {width} bits; give one bit at least, up to {width}"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text).with_call_site(self.site));
        }
        Ok(How { masks: masks::<K>(options.order), bits, count })
    }
}

/// By what to sort, and how many keys.
struct How<'a> {
    masks: [u64; 2],
    bits: Range<u32>,
    count: Option<View<'a, u64>>,
}

impl How<'_> {
    fn passes(&self) -> u32 {
        self.bits.len().div_ceil(8) as u32
    }

    fn masks<B: Bits>(&self) -> [B; 2] {
        self.masks.map(B::from_mask)
    }
}

/// Integers with the width of keys.
trait Bits:
    blocks::HasSortDigits
    + blocks::HasSortKeys<0>
    + blocks::HasSortKeys<1>
    + blocks::HasSortShortSegments
    + blocks::HasSortSegments
    + blocks::HasSortLongSegments
    + by_shares::HasShareSegments
    + blocks::HasSortBlock
    + by_shares::HasShareDigits
    + by_shares::HasShareCounts
    + MovedByShares<u8>
{
    /// How many keys one block of `sort_block` has; `sort.cu` has the same numbers.
    const IN_BLOCK: usize = 512 * if size_of::<Self>() == 8 { 8 } else { 16 };
    /// What a block of `sort_keys` sorts.
    const TILES: Tiles = Tiles { threads: 256, items: if size_of::<Self>() == 8 { 18 } else { 32 } };

    /// Takes as many low bits as fit.
    fn from_mask(mask: u64) -> Self;
}

/// Keys that values of type `V` can move with.
trait Pairs<V: Plain>: Bits + blocks::HasSortPairs<V, 0> + blocks::HasSortPairs<V, 1> + MovedByShares<V> {
    /// What a block of `sort_pairs` sorts.
    const TILES: Tiles = Tiles {
        threads: 384,
        items: match (size_of::<Self>(), size_of::<V>()) {
            (_, 8) => 15,
            (8, _) => 14,
            _ => 22,
        },
    };
}
impl<V: Plain, B: Bits + blocks::HasSortPairs<V, 0> + blocks::HasSortPairs<V, 1> + MovedByShares<V>> Pairs<V>
    for B
{
}

/// Keys that all values can move with.
trait Keys: Pairs<u32> + Pairs<u64> {}
impl<B: Pairs<u32> + Pairs<u64>> Keys for B {}

trait MovedByShares<V: Plain>:
    by_shares::HasShareScatter<V> + by_shares::HasShareFinish<V> + by_shares::HasShareAlone<V>
{
}
impl<V: Plain, B> MovedByShares<V> for B where
    B: by_shares::HasShareScatter<V> + by_shares::HasShareFinish<V> + by_shares::HasShareAlone<V>
{
}

macro_rules! bits {
    ($($bits:ty)*) => {$(
        impl Bits for $bits {
            fn from_mask(mask: u64) -> Self {
                mask as Self
            }
        }
    )*};
}
bits!(u8 u16 u32 u64);

/// What the blocks of a pass sort; `sort.cu` has the same numbers.
#[derive(Clone, Copy)]
struct Tiles {
    threads: usize,
    items: usize,
}

impl Tiles {
    /// How many elements a thread has with short tiles.
    const SHORT: usize = 8;

    /// Returns how many elements a tile has, and if tiles are short: then there is still one for each multiprocessor.
    fn choose(self, n: usize, stream: &Stream) -> (usize, bool) {
        let short = self.threads * Self::SHORT;
        let is_short = n <= 2 * short * stream.device().info().multiprocessors as usize;
        (if is_short { short } else { self.threads * self.items }, is_short)
    }
}

#[track_caller]
fn sort_bits<B: Keys>(stream: &Stream, keys: Moved<'_, B>, how: &How<'_>, values: Values<'_>) -> Result<()> {
    let n = keys.result.len();
    if n == 0 {
        return Ok(());
    }
    let form = Form::of(stream.device());
    let values = match values {
        Values::Bytes(bytes, size)
            if form == Form::Blocks && n <= B::IN_BLOCK && [1, 2, 4, 8, 16].contains(&size) =>
        {
            return sort_in_block(stream, keys, how, Some((bytes, size)), None);
        }
        Values::Bytes(bytes, 4) => {
            return sort_moving::<B, u32>(stream, form, keys, how, Some(bytes.cast()?), false);
        }
        Values::Bytes(bytes, 8) => {
            return sort_moving::<B, u64>(stream, form, keys, how, Some(bytes.cast()?), false);
        }
        Values::Bytes(bytes, size) if n as u64 > 1 << 32 => {
            let mut order = stream.alloc(n)?;
            sort_bits(stream, keys, how, Values::LongNumbers(order.view_mut()))?;
            return move_bytes::<u64>(stream, bytes, order.view(), size, how.count);
        }
        Values::Bytes(bytes, size) => {
            let mut order = stream.alloc(n)?;
            sort_bits(stream, keys, how, Values::Numbers(order.view_mut()))?;
            return move_bytes::<u32>(stream, bytes, order.view(), size, how.count);
        }
        values => values,
    };
    let in_block = form == Form::Blocks && n <= B::IN_BLOCK;
    match values {
        Values::Numbers(numbers) if in_block => sort_in_block(stream, keys, how, None, Some(numbers)),
        Values::None if in_block => sort_in_block(stream, keys, how, None, None),
        Values::Numbers(numbers) => {
            sort_moving(stream, form, keys, how, Some(Moved::in_place(numbers)), true)
        }
        Values::LongNumbers(numbers) => {
            sort_moving(stream, form, keys, how, Some(Moved::in_place(numbers)), true)
        }
        _ => sort_moving::<B, u32>(stream, form, keys, how, None, false),
    }
}

/// Sorts keys and moves values with them, if there are any. With `numbers` they are the keys' numbers.
#[track_caller]
fn sort_moving<B: Pairs<V>, V: Plain>(
    stream: &Stream,
    form: Form,
    keys: Moved<'_, B>,
    how: &How<'_>,
    values: Option<Moved<'_, V>>,
    numbers: bool,
) -> Result<()> {
    match form {
        Form::Blocks => sort_tiles(stream, keys, how, values, numbers, PORTION),
        Form::Shares => sort_shares(stream, keys, how, values, numbers),
    }
}

/// Moves values of any size to where the keys went.
#[track_caller]
fn move_bytes<I: Index>(
    stream: &Stream,
    bytes: Moved<'_, u8>,
    order: View<'_, I>,
    size: usize,
    count: Option<View<'_, u64>>,
) -> Result<()> {
    let Moved { source, result } = bytes;
    if let Some(source) = source {
        return gather_bytes(stream, source, order, result, size, count);
    }
    let mut before = stream.alloc::<u8>(result.len())?;
    stream.copy(&result, &mut before)?;
    gather_bytes(stream, before.view(), order, result, size, count)
}

/// Gathers elements with `size` bytes, in the widest words that they consist of.
#[track_caller]
fn gather_bytes<I: Index>(
    stream: &Stream,
    from: View<'_, u8>,
    index: View<'_, I>,
    mut to: ViewMut<'_, u8>,
    size: usize,
    count: Option<View<'_, u64>>,
) -> Result<()> {
    let kernels = stream.device().extension(moves::Kernels::load)?;
    let (n, elements) = (index.len(), from.len().checked_div(size).unwrap_or(0));
    if n == 0 {
        return Ok(());
    }
    let count = count.as_ref().map(|count| count as _);
    macro_rules! by {
        ($word:ty) => {{
            let (from, mut to) = (from.cast::<$word>()?, to.cast_mut::<$word>()?);
            let words = (size / size_of::<$word>()) as u32;
            kernels.gather::<I, $word>(stream, &from, &index, &mut to, n, count, elements, words)
        }};
    }
    match size.trailing_zeros() {
        0 => kernels.gather::<I, u8>(stream, &from, &index, &mut to, n, count, elements, size as u32),
        1 => by!(u16),
        2 => by!(u32),
        _ => by!(u64),
    }
}

#[track_caller]
fn sort_in_block<B: Bits>(
    stream: &Stream,
    mut keys: Moved<'_, B>,
    how: &How<'_>,
    values: Option<(Moved<'_, u8>, usize)>,
    mut numbers: Option<ViewMut<'_, u32>>,
) -> Result<()> {
    let kernels = stream.device().extension(blocks::Kernels::load)?;
    let (n, [if_set, if_clear]) = (keys.result.len(), how.masks());
    let (mut values, size) = values.map_or((None, 0), |(values, size)| (Some(values), size as u32));
    kernels.sort_block::<B>(
        stream,
        &Launch::new([1, 1, 1], [512, 1, 1]),
        keys.source.as_ref().map(|source| source as _),
        &mut keys.result,
        values.as_ref().and_then(|values| values.source).as_ref().map(|source| source as _),
        values.as_mut().map(|values| &mut values.result as _),
        size,
        numbers.as_mut().map(|numbers| numbers as _),
        n,
        how.count.as_ref().map(|count| count as _),
        how.bits.start,
        how.bits.end,
        if_set,
        if_clear,
    )
}

/// An array that goes back and forth between its result and another array, so that the last pass ends in the result.
struct PingPong<'a, T> {
    source: Option<View<'a, T>>,
    result: ViewMut<'a, T>,
    other: Option<Buffer<T>>,
    copied: bool,
    passes: u32,
}

impl<'a, T: Plain> PingPong<'a, T> {
    /// Allocates the other array, if it is needed. In place and with an odd number of passes we copy the elements there first.
    /// Without `has_elements` there are none before the first pass.
    #[track_caller]
    fn new(stream: &Stream, moved: Moved<'a, T>, passes: u32, has_elements: bool) -> Result<Self> {
        let Moved { source, result } = moved;
        let copied = source.is_none() && has_elements && passes % 2 == 1;
        let mut other = (passes > 1 || copied).then(|| stream.alloc::<T>(result.len())).transpose()?;
        if let (true, Some(other)) = (copied, &mut other) {
            stream.copy(&result, other)?;
        }
        Ok(Self { source, result, other, copied, passes })
    }

    /// Returns where a pass reads and where it writes. If nothing has been written yet, it reads nowhere.
    fn step(&mut self, pass: u32) -> (Option<View<'_, T>>, ViewMut<'_, T>) {
        let Self { source, result, other, copied, passes } = self;
        let Some(other) = other else { return (*source, result.view_mut()) };
        let first = pass == 0 && !*copied;
        if (*passes - pass) % 2 == 1 {
            let from = if first { *source } else { Some(other.view()) };
            return (from, result.view_mut());
        }
        let from = if first { *source } else { None };
        (Some(from.unwrap_or_else(|| result.view())), other.view_mut())
    }
}

/// How many keys a launch has at most: words of the look-back count up to 2³⁰.
const PORTION: usize = (1 << 30) - 1;

#[track_caller]
fn sort_tiles<B: Pairs<V>, V: Plain>(
    stream: &Stream,
    keys: Moved<'_, B>,
    how: &How<'_>,
    values: Option<Moved<'_, V>>,
    numbers: bool,
    portion: usize,
) -> Result<()> {
    let kernels = stream.device().extension(blocks::Kernels::load)?;
    let (n, passes) = (keys.result.len(), how.passes());
    let kind = if values.is_some() { <B as Pairs<V>>::TILES } else { <B as Bits>::TILES };
    let (tile, is_short) = kind.choose(n, stream);
    let tiles = n.div_ceil(tile).min(portion / tile);
    let portions = n.div_ceil(tiles * tile);
    let mut control = stream.zeros::<u64>(portions * passes as usize * 257 + 1)?;
    let mut words = stream.alloc::<u32>(2 * 256 * tiles)?;
    let count = how.count.as_ref().map(|count| count as _);
    let (masks, none, portions) = (how.masks::<B>(), [B::from_mask(0); 2], portions as u32);
    kernels.sort_digits::<B>(
        stream,
        &counting(stream, n),
        &keys.source.unwrap_or_else(|| keys.result.view()),
        n,
        count,
        &mut control,
        &mut words,
        256 * tiles,
        how.bits.start,
        how.bits.end,
        passes,
        portions,
        masks[0],
        masks[1],
    )?;
    let launch = Launch::new([tiles as u32, 1, 1], [kind.threads as u32, 1, 1]);
    let mut keys = PingPong::new(stream, keys, passes, true)?;
    let mut values = values.map(|values| PingPong::new(stream, values, passes, !numbers)).transpose()?;
    for pass in 0..passes {
        let load = if pass == 0 { masks } else { none };
        let store = if pass + 1 == passes { masks } else { none };
        let shift = how.bits.start + 8 * pass;
        let bits = (how.bits.end - shift).min(8);
        for portion in 0..portions {
            let (from, mut to) = keys.step(pass);
            let Some(from) = from else { continue };
            let (control, words) = (&mut control, &mut words);
            macro_rules! launch {
                ($kernel:ident::<$($parameter:tt),+>($($values:expr),*)) => {
                    kernels.$kernel::<$($parameter),+>(
                        stream, &launch, &from, &mut to, $($values,)* control, words, n, count, load[0], load[1], store[0],
                        store[1], shift, bits, pass, passes, portion, portions,
                    )?
                };
            }
            match &mut values {
                None if is_short => launch!(sort_keys::<B, 1>()),
                None => launch!(sort_keys::<B, 0>()),
                Some(values) => {
                    let (values_from, mut values_to) = values.step(pass);
                    let values_from = values_from.filter(|_| pass > 0 || !numbers);
                    let values_from = values_from.as_ref().map(|from| from as _);
                    if is_short {
                        launch!(sort_pairs::<B, V, 1>(values_from, &mut values_to));
                    } else {
                        launch!(sort_pairs::<B, V, 0>(values_from, &mut values_to));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Returns the launch that counts the digits: as many blocks as can be resident, if each has work.
fn counting(stream: &Stream, n: usize) -> Launch {
    const THREADS: usize = 512;
    let info = stream.device().info();
    let resident = (info.limits.max_threads_per_multiprocessor as usize / THREADS).max(1)
        * info.multiprocessors as usize;
    Launch::new([n.div_ceil(8 * THREADS).min(resident).max(1) as u32, 1, 1], [THREADS as u32, 1, 1])
}

/// How many keys a share must have to be worth starting.
const PER_SHARE: usize = 1 << 14;

#[track_caller]
fn sort_shares<B: Bits + MovedByShares<V>, V: Plain>(
    stream: &Stream,
    mut keys: Moved<'_, B>,
    how: &How<'_>,
    values: Option<Moved<'_, V>>,
    numbers: bool,
) -> Result<()> {
    match values {
        None => sort_shares_with::<B, u8>(stream, &mut keys, how, None, None, None, false),
        Some(Moved { source, mut result }) => {
            let mut other = stream.alloc::<V>(result.len())?;
            sort_shares_with(
                stream,
                &mut keys,
                how,
                source.as_ref(),
                Some(&mut result),
                Some(&mut other),
                numbers,
            )
        }
    }
}

#[track_caller]
fn sort_shares_with<B: Bits + MovedByShares<V>, V: Plain>(
    stream: &Stream,
    keys: &mut Moved<'_, B>,
    how: &How<'_>,
    values_source: Option<&View<'_, V>>,
    mut values: Option<&mut ViewMut<'_, V>>,
    mut values_other: Option<&mut Buffer<V>>,
    numbers: bool,
) -> Result<()> {
    let kernels = stream.device().extension(by_shares::Kernels::load)?;
    let (n, passes, [if_set, if_clear]) = (keys.result.len(), how.passes(), how.masks::<B>());
    let Range { start: first, end } = how.bits;
    let mut other = stream.alloc::<B>(n)?;
    let count = how.count.as_ref().map(|count| count as _);
    let source = keys.source.as_ref().map(|source| source as _);
    let values_source = values_source.map(|source| source as _);
    let numbers = u32::from(numbers);
    let workers = filling(stream, n)?.0.min(n.div_ceil(PER_SHARE)) as u32;
    let launch = Launch::new([workers, 1, 1], [1, 1, 1]);
    if workers == 1 {
        return kernels.share_alone::<B, V>(
            stream,
            &launch,
            source,
            &mut keys.result,
            &mut other,
            values_source,
            values.as_mut().map(|values| *values as _),
            values_other.as_mut().map(|other| *other as _),
            numbers,
            n,
            count,
            first,
            end,
            passes,
            if_set,
            if_clear,
        );
    }
    let mut totals = stream.alloc::<u64>(workers as usize * passes as usize * 256)?;
    let mut counts = stream.alloc::<u64>(workers as usize * 256)?;
    let mut plan = stream.alloc::<u32>(passes as usize + 1)?;
    let all = keys.source.unwrap_or_else(|| keys.result.view());
    kernels.share_digits::<B>(
        stream,
        &launch,
        &all,
        n,
        count,
        &mut totals,
        first,
        end,
        passes,
        if_set,
        if_clear,
    )?;
    let in_place = u32::from(keys.source.is_none());
    let one = Launch::new([1, 1, 1], [1, 1, 1]);
    kernels.share_plan(stream, &one, &totals, &mut plan, n, count, workers as usize, passes, in_place)?;
    for pass in 0..passes {
        kernels.share_counts::<B>(
            stream,
            &launch,
            source,
            &keys.result,
            &other,
            n,
            count,
            &plan,
            &totals,
            &mut counts,
            first,
            end,
            pass,
            passes,
            if_set,
            if_clear,
        )?;
        kernels.share_scatter::<B, V>(
            stream,
            &launch,
            source,
            &mut keys.result,
            &mut other,
            values_source,
            values.as_mut().map(|values| *values as _),
            values_other.as_mut().map(|other| *other as _),
            numbers,
            n,
            count,
            &plan,
            &counts,
            first,
            end,
            pass,
            if_set,
            if_clear,
        )?;
    }
    kernels.share_finish::<B, V>(
        stream,
        &launch,
        source,
        &mut keys.result,
        &other,
        values_source,
        values.as_mut().map(|values| *values as _),
        values_other.as_ref().map(|other| *other as _),
        numbers,
        n,
        count,
        &plan,
        passes,
    )
}

#[track_caller]
fn sort_segments<B: Bits, I: Index>(
    stream: &Stream,
    mut keys: ViewMut<'_, B>,
    how: &How<'_>,
    values: Option<(ViewMut<'_, u8>, usize)>,
    offsets: View<'_, I>,
) -> Result<()> {
    let (n, segments) = (keys.len(), offsets.len().saturating_sub(1));
    if n == 0 || segments == 0 {
        return Ok(());
    }
    if segments > i32::MAX as usize {
        let text = format!("there are {segments} segments; sort at most 2^31 - 1 at once");
        return Err(mismatch("sort_segments", text));
    }
    let Range { start: first, end } = how.bits;
    let [if_set, if_clear] = how.masks::<B>();
    let (short, long) = if size_of::<I>() == 4 {
        (Some(offsets.cast::<u32>()?), None)
    } else {
        (None, Some(offsets.cast::<u64>()?))
    };
    let (short, long) =
        (short.as_ref().map(|offsets| offsets as _), long.as_ref().map(|offsets| offsets as _));
    let (mut values, size) = values.map_or((None, 0), |(values, size)| (Some(values), size));
    let mut other = stream.alloc::<B>(n)?;
    let mut other_values = values.as_ref().map(|_| stream.alloc::<u8>(n * size)).transpose()?;
    let mut numbers =
        values.as_ref().map(|_| Ok([stream.alloc::<u32>(n)?, stream.alloc::<u32>(n)?])).transpose()?;
    let (numbers, more) = match &mut numbers {
        Some([numbers, more]) => (Some(numbers as _), Some(more as _)),
        None => (None, None),
    };
    let other_values = other_values.as_mut().map(|values| values as _);
    match Form::of(stream.device()) {
        Form::Blocks => {
            let kernels = stream.device().extension(blocks::Kernels::load)?;
            let launch = |blocks: usize, threads: u32| {
                Launch::new([segments.min(blocks) as u32, 1, 1], [threads, 1, 1])
            };
            macro_rules! launch {
                ($kernel:ident, $blocks:expr) => {
                    kernels.$kernel::<B>(
                        stream,
                        &launch($blocks, 256),
                        &mut keys,
                        values.as_mut().map(|values| values as _),
                        size as u32,
                        n,
                        short,
                        long,
                        segments,
                        first,
                        end,
                        if_set,
                        if_clear,
                    )?
                };
            }
            // Each launch leaves to the others what does not fit.
            launch!(sort_short_segments, segments.div_ceil(256 / stream.device().info().warp_size as usize));
            launch!(sort_segments, segments);
            kernels.sort_long_segments::<B>(
                stream,
                &launch(1 << 16, 512),
                &mut keys,
                &mut other,
                values.as_mut().map(|values| values as _),
                other_values,
                numbers,
                more,
                size as u32,
                n,
                short,
                long,
                segments,
                first,
                end,
                if_set,
                if_clear,
            )
        }
        Form::Shares => {
            let workers = filling(stream, n)?.0.min(segments) as u32;
            stream.device().extension(by_shares::Kernels::load)?.share_segments::<B>(
                stream,
                &Launch::new([workers, 1, 1], [1, 1, 1]),
                &mut keys,
                &mut other,
                values.as_mut().map(|values| values as _),
                other_values,
                numbers,
                more,
                size as u32,
                n,
                short,
                long,
                segments,
                first,
                end,
                how.passes(),
                if_set,
                if_clear,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use gpustream::Device;

    /// Arrays with so many keys are too long for a test, so we make the portions shorter.
    #[test]
    fn passes_of_several_portions_sort_too() {
        let stream = Device::open("cpu").unwrap().stream().unwrap();
        let n = 30_000;
        let keys: Vec<u32> = (0..n).map(|i: u32| (i ^ 0x5a5).wrapping_mul(0x9e37_79b9) >> 12).collect();
        let mut order: Vec<u32> = (0..n).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(keys[i as usize]));
        let how = How { masks: masks::<u32>(Order::Descending), bits: 0..20, count: None };
        let (mut x, mut numbers) = (stream.upload(&keys).unwrap(), stream.alloc::<u32>(n as usize).unwrap());
        let (moved, values) = (Moved::in_place(x.view_mut()), Moved::in_place(numbers.view_mut()));
        sort_tiles(&stream, moved, &how, Some(values), true, 10_000).unwrap();
        assert_eq!(stream.download(&numbers).unwrap(), order);
        let sorted: Vec<u32> = order.iter().map(|&i| keys[i as usize]).collect();
        assert_eq!(stream.download(&x).unwrap(), sorted);
        sort_tiles::<u32, u32>(&stream, Moved::in_place(x.view_mut()), &how, None, false, 9000).unwrap();
        assert_eq!(stream.download(&x).unwrap(), sorted);
    }
}
