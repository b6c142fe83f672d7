//! Launches the kernels that combine what the ranks give. They must combine in the order of the ranks, so
//! that you get the same result in every run.

use gpustream::{AsViewMut, Buffer, Result, Stream, ViewMut};
#[cfg(feature = "kernels")]
pub(super) use gpustream_kernels::combine::Kernels;

#[cfg(not(feature = "kernels"))]
pub(super) use super::no_kernels::Kernels;
use crate::element::{ElementType, with_element};
use crate::op::Op;

/// Combines the first elements of all rows of `rows` into `dst`, in the order of the rows. A row has `stride`
/// elements.
pub(super) fn combine(
    kernels: &Kernels,
    stream: &Stream,
    element: ElementType,
    op: Op,
    (rows, count, stride): (&Buffer<u8>, usize, usize),
    dst: &mut ViewMut<'_, u8>,
) -> Result<()> {
    let op = match op {
        Op::Sum => 0,
        Op::Product => 1,
        Op::Min => 2,
        Op::Max => 3,
        Op::Average => 4,
    };
    with_element!(element, T => {
        let (rows, mut dst) = (rows.cast::<T>()?, dst.view_mut().cast_mut::<T>()?);
        let n = dst.len();
        kernels.combine(stream, &rows, stride, count as u64, op, &mut dst, n)
    })
}
