//! Stable sorts of keys, with values or without, and the order as indices.
//!
//! On GPUs these are radix sorts that read and write each key once per eight bits. On the CPU each worker sorts a share. Both
//! need a second array for the keys, and one for the values.

mod blocks;
mod call;
mod gather;
mod kernels;
mod moved;
mod segments;
mod shares;

use std::ops::Range;

use gpustream::{AsView, AsViewMut, Buffer, Error, ErrorKind, Plain, Result, Stream};

use crate::call::mismatch;
use crate::counted::{Input, InputMut};
pub use crate::index::Index;
use crate::order::{Key, Order};
use call::Call;
use gather::gather_bytes;
use moved::{Moved, Values};

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
