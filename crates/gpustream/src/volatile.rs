//! Memory for parameters that kernels declare `volatile`: it may change while they run.
//!
//! A kernel that reads an ordinary pointer may read twice and rely on seeing the same; one that declares it `volatile`
//! says that it does not. So a [`Flag`](crate::Flag), which host and kernels write at any time, is an argument for such
//! parameters alone. It has no [`View`], and what it has is no [`AsView`].

use std::fmt;

use bytemuck::Pod;

use crate::memory::Access;
use crate::track::Mode;
use crate::view::{AsView, AsViewMut, View, sealed};

/// Memory that a kernel reads through a `volatile` pointer.
///
/// Is `Send` and `Sync`. Dropping it does nothing.
pub struct Volatile<'a, T> {
    pub(crate) view: View<'a, T>,
    /// Touched from several sides at once, and so not ordered.
    shared: bool,
}

/// Memory that a kernel writes through a `volatile` pointer.
///
/// Is `Send` and `Sync`. Dropping it does nothing.
pub struct VolatileMut<'a, T>(pub(crate) Volatile<'a, T>);

/// What a kernel can read through a `volatile` pointer: a [`Flag`](crate::Flag), and all that is an [`AsView`], which is
/// ordered as for any other parameter. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that a `volatile` parameter can read as elements of type `{T}`",
    label = "a `&Flag` (with elements of type `u32`), a `&Buffer<{T}>`, a `&Pinned<{T}>` or a view of one goes here"
)]
pub trait AsVolatile<T: Pod>: sealed::Sealed {
    /// The memory itself.
    fn volatile(&self) -> Volatile<'_, T>;
}

/// What a kernel can write through a `volatile` pointer: a [`Flag`](crate::Flag), and all that is an [`AsViewMut`].
/// Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that a `volatile` parameter can write as elements of type `{T}`",
    label = "a `&mut Flag` (with elements of type `u32`), a `&mut Buffer<{T}>`, a `&mut Pinned<{T}>` or a `&mut ViewMut` of one goes here"
)]
pub trait AsVolatileMut<T: Pod>: AsVolatile<T> {
    /// The memory itself.
    fn volatile_mut(&mut self) -> VolatileMut<'_, T>;
}

impl<T> Clone for Volatile<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Volatile<'_, T> {}

impl<'a, T: Pod> Volatile<'a, T> {
    /// Memory that several sides touch at once.
    pub(crate) fn shared(view: View<'a, T>) -> Self {
        Self { view, shared: true }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn access(&self, mode: Mode) -> Access<'a> {
        self.view.access(if self.shared { Mode::Shared } else { mode })
    }
}

impl<'a, T: Pod> VolatileMut<'a, T> {
    /// Memory that several sides touch at once.
    pub(crate) fn shared(view: View<'a, T>) -> Self {
        Self(Volatile::shared(view))
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Pod, V: AsView<T> + ?Sized> AsVolatile<T> for V {
    #[inline]
    fn volatile(&self) -> Volatile<'_, T> {
        Volatile { view: self.view(), shared: false }
    }
}

impl<T: Pod, V: AsViewMut<T> + ?Sized> AsVolatileMut<T> for V {
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
