//! Indices and offsets with 32 or 64 bits.

use gpustream::{Plain, Result, View};

use crate::order::sealed::Sealed;

/// Integers that can be indices and offsets: `u32` and `u64`.
pub trait Index: Plain + Sealed {}
impl Index for u32 {}
impl Index for u64 {}

/// Indices as kernels take them: the first if they have 32 bits, otherwise the second.
pub(crate) type ByWidth<Short, Long> = (Option<Short>, Option<Long>);

/// Returns indices as kernels take them.
#[track_caller]
pub(crate) fn by_width<I: Index>(indices: View<'_, I>) -> Result<ByWidth<View<'_, u32>, View<'_, u64>>> {
    Ok(if size_of::<I>() == 4 { (Some(indices.cast()?), None) } else { (None, Some(indices.cast()?)) })
}
