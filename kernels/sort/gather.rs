//! Elements in another order.

use gpustream::{AsView as _, Result, Stream, View, ViewMut};

use super::moved::Moved;
use crate::call::optional;
use crate::index::{Index, by_width};

mod bindings {
    gpustream::include_kernels!("gather");
}

/// Moves values of any size to where the keys went.
#[track_caller]
pub(super) fn move_bytes<I: Index>(
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
pub(super) fn gather_bytes<I: Index>(
    stream: &Stream,
    from: View<'_, u8>,
    index: View<'_, I>,
    mut to: ViewMut<'_, u8>,
    size: usize,
    count: Option<View<'_, u64>>,
) -> Result<()> {
    let kernels = stream.device().extension(bindings::Kernels::load)?;
    let (n, elements) = (index.len(), from.len().checked_div(size).unwrap_or(0));
    if n == 0 {
        return Ok(());
    }
    let count = optional(count.as_ref());
    let (short, long) = by_width(index)?;
    let (short, long) = (optional(short.as_ref()), optional(long.as_ref()));
    macro_rules! by {
        ($word:ty) => {{
            let (from, mut to) = (from.cast::<$word>()?, to.cast_mut::<$word>()?);
            let words = (size / size_of::<$word>()) as u32;
            kernels.gather::<$word>(stream, &from, short, long, &mut to, n, count, elements, words)
        }};
    }
    match size.trailing_zeros() {
        0 => kernels.gather::<u8>(stream, &from, short, long, &mut to, n, count, elements, size as u32),
        1 => by!(u16),
        2 => by!(u32),
        _ => by!(u64),
    }
}
