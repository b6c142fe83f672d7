//! Arrays made from others: in another order, transposed, clipped, chosen from two, and differences of neighbours.

use std::ops::RangeBounds;

use gpustream::{AsView, AsViewMut, Plain, Result, Stream, View, ViewMut};

use crate::call::{mismatch, optional, unusable};
use crate::counted::{Elements, Input, InputMut};
use crate::index::{Index, by_width};
use crate::number::Number;
use crate::order::{Order, masks, ranks_in};
use crate::rank::Ranked;

mod bindings {
    gpustream::include_kernels!("transform");
}
use bindings::Kernels;

/// Transforms of arrays, as methods of [`Stream`].
///
/// All methods work in stream order and none blocks. Each element is read and written once, and there is no temporary memory.
/// Elements that are only moved may have any type. If an input is [`Counted`](crate::Counted), we write as many elements as there are.
///
/// ```
/// use gpustream::Device;
/// use gpustream_kernels::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = device.stream()?;
/// let x = stream.upload(&[3, 1, 4, 1, 5, 9])?;
/// let mut y = stream.alloc(6)?;
/// stream.reverse(&x, &mut y)?;
/// assert_eq!(stream.download(&y)?, [9, 5, 1, 4, 1, 3]);
/// stream.rotate_left(&x, 2, &mut y)?;
/// assert_eq!(stream.download(&y)?, [4, 1, 5, 9, 3, 1]);
/// stream.transpose(&x, 2, 3, &mut y)?;
/// assert_eq!(stream.download(&y)?, [3, 1, 1, 5, 4, 9]);
/// stream.clip(&x, 2..=4, &mut y)?;
/// assert_eq!(stream.download(&y)?, [3, 2, 4, 2, 4, 4]);
/// stream.adjacent_difference(&x, &mut y)?;
/// assert_eq!(stream.download(&y)?, [3, -2, 3, -3, 4, 4]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// Each method returns [`ArgumentMismatch`](gpustream::ErrorKind::ArgumentMismatch) if an array is too short, and the errors of a launch.
pub trait Transform {
    /// Sets `y[i] = x[n - 1 - i]`, if `x` has n elements.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn reverse<T: Plain>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Reverses `x` in place.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn reverse_in_place<T: Plain>(&self, x: &mut (impl InputMut<T> + ?Sized)) -> Result<()>;

    /// Sets `y[i] = x[(i + by) % n]`, if `x` has n elements: the first `by` of them come last. These are two copies. For a rotation to
    /// the right by k, pass `n - k`.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn rotate_left<T: Plain>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        by: usize,
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Transposes matrices that lie one after another, each with `rows` rows of `columns` elements: in `y`, row number c of a matrix is
    /// column number c of the same matrix in `x`. There are as many as fit into `x`. Elements have 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// See the [trait](Self). It is also an error if `x` is no whole number of matrices.
    #[track_caller]
    fn transpose<T: Plain>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Sets `to[indices[i]] = from[i]`. If there is no such element of `to`, nothing is written. What has no index stays as it is. If two
    /// indices are equal, one of both elements is there afterwards, and not always the same one. This is the opposite of
    /// `gather`. Indices are `u32` or `u64`.
    ///
    /// ```
    /// # use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// # let stream = Device::open("cpu")?.stream()?;
    /// let mut y = stream.zeros(4)?;
    /// stream.scatter(&stream.upload(&[7, 8, 9])?, &stream.upload(&[2u32, 0, 100])?, &mut y)?;
    /// assert_eq!(stream.download(&y)?, [8, 0, 7, 0]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// See the [trait](Self): there are as many indices as elements of `from`.
    #[track_caller]
    fn scatter<T: Plain, I: Index>(
        &self,
        from: &(impl Input<T> + ?Sized),
        indices: &(impl Input<I> + ?Sized),
        to: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Sets `y[i]` to `a[i]` if `flags[i]` is not 0, otherwise to `b[i]`.
    ///
    /// ```
    /// # use gpustream::Device;
    /// use gpustream_kernels::prelude::*;
    ///
    /// # let stream = Device::open("cpu")?.stream()?;
    /// let (a, b) = (stream.upload(&[1, 2, 3])?, stream.upload(&[10, 20, 30])?);
    /// let mut y = stream.alloc(3)?;
    /// stream.choose(&stream.upload(&[1, 0, 1])?, &a, &b, &mut y)?;
    /// assert_eq!(stream.download(&y)?, [1, 20, 3]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn choose<T: Plain>(
        &self,
        flags: &(impl Input<u8> + ?Sized),
        a: &(impl Input<T> + ?Sized),
        b: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Sets `y[i]` to `x[i]`, or to the nearer end of the range if `x[i]` lies outside, such as `0.0..=1.0` or `..=255`. Floats have
    /// their total order ([`Key`](crate::Key)), so −0 is below `0.0..`; but NaN stays NaN.
    ///
    /// # Errors
    /// See the [trait](Self). [`InvalidArgument`](gpustream::ErrorKind::InvalidArgument) if the range is empty.
    #[track_caller]
    fn clip<T: Clip>(
        &self,
        x: &(impl Input<T> + ?Sized),
        range: impl RangeBounds<T>,
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;

    /// Clips `x` in place.
    ///
    /// # Errors
    /// As for [`clip`](Self::clip).
    #[track_caller]
    fn clip_in_place<T: Clip>(
        &self,
        x: &mut (impl InputMut<T> + ?Sized),
        range: impl RangeBounds<T>,
    ) -> Result<()>;

    /// Sets `y[0] = x[0]`, and each other `y[i] = x[i] - x[i - 1]`. Integers wrap around, so
    /// [`inclusive_scan`](crate::scan::Scan::inclusive_scan) gives them back. We subtract `f16` and `bf16` in `f32`.
    ///
    /// # Errors
    /// See the [trait](Self).
    #[track_caller]
    fn adjacent_difference<T: Different>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()>;
}

/// Element types that can be clipped: those of [`Key`](crate::Key).
pub trait Clip: Ranked<Bits: bindings::HasClip> {}
impl<T: Ranked<Bits: bindings::HasClip>> Clip for T {}

/// Element types that have differences: those of [`Number`].
pub trait Different: Number<Seen: bindings::HasAdjacentDifference> {}
impl<T: Number<Seen: bindings::HasAdjacentDifference>> Different for T {}

/// Checks that there is room for `n` elements.
#[track_caller]
fn check_room(label: &'static str, n: usize, what: &str, room: usize) -> Result<()> {
    if n <= room {
        return Ok(());
    }
    Err(mismatch(label, format!("{n} elements and {room} {what}: give as many")))
}

/// Calls a kernel that moves elements, with the widest words that they consist of. `$view` casts memory to these words.
macro_rules! in_words {
    ($element:ty, $words:ident, $word:ident => $call:expr) => {{
        let size = size_of::<$element>();
        macro_rules! by {
            ($type:ty) => {{
                type $word = $type;
                let $words = (size / size_of::<$type>()) as u32;
                $call
            }};
        }
        match size {
            0 => Ok(()),
            _ if size % 8 == 0 => by!(u64),
            _ if size % 4 == 0 => by!(u32),
            _ if size % 2 == 0 => by!(u16),
            _ => by!(u8),
        }
    }};
}

#[track_caller]
fn reverse<T: Plain>(
    stream: &Stream,
    x: Option<View<'_, T>>,
    count: Option<View<'_, u64>>,
    n: usize,
    y: ViewMut<'_, T>,
) -> Result<()> {
    if n == 0 {
        return Ok(());
    }
    let (kernels, count) = (stream.device().extension(Kernels::load)?, optional(count.as_ref()));
    in_words!(T, words, Word => {
        let x = x.map(View::cast::<Word>).transpose()?;
        kernels.reverse(stream, optional(x.as_ref()), &mut y.cast_mut::<Word>()?, n, count, words)
    })
}

#[track_caller]
fn clip<T: Clip>(
    stream: &Stream,
    x: Option<View<'_, T>>,
    count: Option<View<'_, u64>>,
    n: usize,
    y: ViewMut<'_, T>,
    [first, last]: [u64; 2],
) -> Result<()> {
    if first > last {
        return Err(unusable("clip", "an empty range: its first value must not come after its last"));
    }
    if n == 0 {
        return Ok(());
    }
    let kernels = stream.device().extension(Kernels::load)?;
    let [if_set, if_clear] = masks::<T>(Order::Ascending);
    let x = x.map(View::cast::<T::Bits>).transpose()?;
    kernels.clip(
        stream,
        optional(x.as_ref()),
        &mut y.cast_mut::<T::Bits>()?,
        n,
        optional(count.as_ref()),
        first,
        last,
        if_set,
        if_clear,
        T::NUMBERS,
    )
}

impl Transform for Stream {
    fn reverse<T: Plain>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (Elements { values, count }, y) = (x.elements(), y.view_mut());
        let n = values.len();
        check_room("reverse", n, "elements of the result", y.len())?;
        reverse(self, Some(values), count, n, y)
    }

    fn reverse_in_place<T: Plain>(&self, x: &mut (impl InputMut<T> + ?Sized)) -> Result<()> {
        let x = x.elements_mut();
        reverse(self, None, x.count, x.values.len(), x.values)
    }

    fn rotate_left<T: Plain>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        by: usize,
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (x, mut y) = (x.view(), y.view_mut());
        let n = x.len();
        check_room("rotate_left", n, "elements of the result", y.len())?;
        let by = by.checked_rem(n).unwrap_or(0);
        self.copy(&x.slice(by..)?, &mut y.view_mut().slice_mut(..n - by)?)?;
        self.copy(&x.slice(..by)?, &mut y.slice_mut(n - by..n)?)
    }

    fn transpose<T: Plain>(
        &self,
        x: &(impl AsView<T> + ?Sized),
        rows: usize,
        columns: usize,
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (x, y) = (x.view(), y.view_mut());
        let n = x.len();
        check_room("transpose", n, "elements of the result", y.len())?;
        if n == 0 {
            return Ok(());
        }
        let matrices =
            rows.checked_mul(columns).filter(|size| *size > 0 && n % size == 0).map(|size| n / size);
        let Some(matrices) = matrices else {
            let text =
                format!("matrices of {rows}×{columns} in {n} elements: give a whole number of matrices");
            return Err(mismatch("transpose", text));
        };
        let kernels = self.device().extension(Kernels::load)?;
        crate::call::by_size!(T, Bits => {
            let (x, mut y) = (x.cast::<Bits>()?, y.cast_mut::<Bits>()?);
            kernels.transpose_matrices(self, &x, &mut y, matrices, rows, columns)
        })
    }

    fn scatter<T: Plain, I: Index>(
        &self,
        from: &(impl Input<T> + ?Sized),
        indices: &(impl Input<I> + ?Sized),
        to: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (from, indices, to) = (from.elements(), indices.elements(), to.view_mut());
        let (n, elements) = (from.values.len(), to.len());
        if indices.values.len() != n {
            let text =
                format!("{n} elements and {} indices: give each element an index", indices.values.len());
            return Err(mismatch("scatter", text));
        }
        if n == 0 {
            return Ok(());
        }
        let kernels = self.device().extension(Kernels::load)?;
        let (short, long) = by_width(indices.values)?;
        let (short, long) = (optional(short.as_ref()), optional(long.as_ref()));
        let count = from.count.or(indices.count);
        let count = optional(count.as_ref());
        in_words!(T, words, Word => {
            let (from, mut to) = (from.values.cast::<Word>()?, to.cast_mut::<Word>()?);
            kernels.scatter(self, &from, short, long, &mut to, n, count, elements, words)
        })
    }

    fn choose<T: Plain>(
        &self,
        flags: &(impl Input<u8> + ?Sized),
        a: &(impl Input<T> + ?Sized),
        b: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (flags, a, b, y) = (flags.elements(), a.elements(), b.elements(), y.view_mut());
        let n = flags.values.len();
        check_room("choose", n, "elements to choose from if the flag is set", a.values.len())?;
        check_room("choose", n, "elements to choose from if it is not", b.values.len())?;
        check_room("choose", n, "elements of the result", y.len())?;
        if n == 0 {
            return Ok(());
        }
        let kernels = self.device().extension(Kernels::load)?;
        let count = flags.count.or(a.count).or(b.count);
        let count = optional(count.as_ref());
        in_words!(T, words, Word => {
            let (a, b, mut y) = (a.values.cast::<Word>()?, b.values.cast::<Word>()?, y.cast_mut::<Word>()?);
            kernels.choose(self, &flags.values, &a, &b, &mut y, n, count, words)
        })
    }

    fn clip<T: Clip>(
        &self,
        x: &(impl Input<T> + ?Sized),
        range: impl RangeBounds<T>,
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (Elements { values, count }, y) = (x.elements(), y.view_mut());
        let n = values.len();
        check_room("clip", n, "elements of the result", y.len())?;
        clip(self, Some(values), count, n, y, ranks_in(range))
    }

    fn clip_in_place<T: Clip>(
        &self,
        x: &mut (impl InputMut<T> + ?Sized),
        range: impl RangeBounds<T>,
    ) -> Result<()> {
        let x = x.elements_mut();
        clip(self, None, x.count, x.values.len(), x.values, ranks_in(range))
    }

    fn adjacent_difference<T: Different>(
        &self,
        x: &(impl Input<T> + ?Sized),
        y: &mut (impl AsViewMut<T> + ?Sized),
    ) -> Result<()> {
        let (Elements { values, count }, y) = (x.elements(), y.view_mut());
        let n = values.len();
        check_room("adjacent_difference", n, "elements of the result", y.len())?;
        if n == 0 {
            return Ok(());
        }
        let kernels = self.device().extension(Kernels::load)?;
        let (x, mut y) = (values.cast::<T::Seen>()?, y.cast_mut::<T::Seen>()?);
        kernels.adjacent_difference(self, &x, &mut y, n, optional(count.as_ref()))
    }
}
