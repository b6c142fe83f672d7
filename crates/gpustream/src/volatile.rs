//! Memory for parameters that kernels declare `volatile`: it may change while they run.
//!
//! A kernel may read an ordinary pointer twice and rely on the same value; a kernel that declares the pointer
//! `volatile` does not. So a [`Flag`](crate::Flag), which host and kernels write at any time, is an argument for
//! `volatile` parameters alone: it is no [`AsView`].

use std::fmt;

use gpustream_core::memory::Access;
use gpustream_core::track::Mode;

use crate::plain::Plain;
use crate::view::{AsView, AsViewMut, View, sealed};

/// Memory that a kernel reads through a `volatile` pointer.
///
/// A `Volatile` is `Send` and `Sync`. Dropping it does nothing.
pub struct Volatile<'a, T> {
    pub(crate) view: View<'a, T>,
    /// Set for memory that several sides touch at once, which is therefore not ordered.
    shared: bool,
}

/// Memory that a kernel writes through a `volatile` pointer.
///
/// A `VolatileMut` is `Send` and `Sync`. Dropping it does nothing.
pub struct VolatileMut<'a, T>(pub(crate) Volatile<'a, T>);

/// Memory that a kernel can read through a `volatile` pointer: a [`Flag`](crate::Flag), and every [`AsView`], which is
/// ordered as for any other parameter. The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that a `volatile` parameter can read as elements of type `{T}`",
    label = "a `&Flag` (with elements of type `u32`), a `&Buffer<{T}>`, a `&Pinned<{T}>` or a view of one goes here"
)]
pub trait AsVolatile<T: Plain>: sealed::Sealed {
    /// Returns the memory as an argument.
    fn volatile(&self) -> Volatile<'_, T>;
}

/// Memory that a kernel can write through a `volatile` pointer: a [`Flag`](crate::Flag), and every [`AsViewMut`]. The
/// trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that a `volatile` parameter can write as elements of type `{T}`",
    label = "a `&mut Flag` (with elements of type `u32`), a `&mut Buffer<{T}>`, a `&mut Pinned<{T}>` or a `&mut ViewMut` of one goes here"
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
    /// Takes memory that several sides touch at once.
    pub(crate) fn shared(view: View<'a, T>) -> Self {
        Self { view, shared: true }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn access(&self, mode: Mode) -> Access<'a> {
        self.view.access(if self.shared { Mode::Shared } else { mode })
    }
}

impl<'a, T: Plain> VolatileMut<'a, T> {
    /// Takes memory that several sides touch at once.
    pub(crate) fn shared(view: View<'a, T>) -> Self {
        Self(Volatile::shared(view))
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no elements.
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
