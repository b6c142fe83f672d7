//! Memory for parameters that kernels declare `volatile`, because it may change while they run.
//!
//! If a parameter is an ordinary pointer, the compiler may read the memory twice and rely on getting the same value. If it is
//! `volatile`, the compiler may not. So you can only pass a [`Flag`](crate::Flag), which the host and kernels write at any
//! time, to `volatile` parameters. That is why it is not an [`AsView`].

use std::fmt;

use gpustream_core::memory::Access;
use gpustream_core::track::Mode;

use crate::plain::Plain;
use crate::view::{AsView, AsViewMut, View, sealed};

/// Memory that a kernel reads through a `volatile` pointer.
///
/// A `Volatile` is `Send` and `Sync`. It is only a borrow, so dropping it does nothing.
pub struct Volatile<'a, T> {
    pub(crate) view: View<'a, T>,
    /// Set if several sides use the memory at the same time. Then its uses are not ordered.
    shared: bool,
}

/// Memory that a kernel writes through a `volatile` pointer.
///
/// A `VolatileMut` is `Send` and `Sync`. It is only a borrow, so dropping it does nothing.
pub struct VolatileMut<'a, T>(pub(crate) Volatile<'a, T>);

/// Memory that a kernel can read through a `volatile` pointer: a [`Flag`](crate::Flag), or any [`AsView`], which is then
/// ordered as for any other parameter. You cannot implement this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read by a `volatile` parameter as elements of type `{T}`",
    label = "expected a `&Flag` (with elements of type `u32`), a `&Buffer<{T}>`, a `&Pinned<{T}>` or a view of one"
)]
pub trait AsVolatile<T: Plain>: sealed::Sealed {
    /// Returns the memory as an argument.
    fn volatile(&self) -> Volatile<'_, T>;
}

/// Memory that a kernel can write through a `volatile` pointer: a [`Flag`](crate::Flag), or any [`AsViewMut`]. You cannot
/// implement this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written by a `volatile` parameter as elements of type `{T}`",
    label = "expected a `&mut Flag` (with elements of type `u32`), a `&mut Buffer<{T}>`, a `&mut Pinned<{T}>` or a `&mut ViewMut` of one"
)]
pub trait AsVolatileMut<T: Plain>: AsVolatile<T> {
    /// Returns the memory as an argument.
    fn volatile_mut(&mut self) -> VolatileMut<'_, T>;
}

impl<T> Clone for Volatile<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Volatile<'_, T> {}

impl<'a, T: Plain> Volatile<'a, T> {
    /// Wraps memory that several sides use at the same time.
    pub(crate) fn shared(view: View<'a, T>) -> Self {
        Self { view, shared: true }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn access(&self, mode: Mode) -> Access<'a> {
        self.view.access(if self.shared { Mode::Shared } else { mode })
    }
}

impl<'a, T: Plain> VolatileMut<'a, T> {
    /// Wraps memory that several sides use at the same time.
    pub(crate) fn shared(view: View<'a, T>) -> Self {
        Self(Volatile::shared(view))
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Plain, V: AsView<T> + ?Sized> AsVolatile<T> for V {
    #[inline]
    fn volatile(&self) -> Volatile<'_, T> {
        Volatile { view: self.view(), shared: false }
    }
}

impl<T: Plain, V: AsViewMut<T> + ?Sized> AsVolatileMut<T> for V {
    #[inline]
    fn volatile_mut(&mut self) -> VolatileMut<'_, T> {
        VolatileMut(self.volatile())
    }
}

impl<T> fmt::Debug for Volatile<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Volatile({:?})", self.view)
    }
}

impl<T> fmt::Debug for VolatileMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolatileMut({:?})", self.0.view)
    }
}
