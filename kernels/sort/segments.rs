//! Sorts of many segments.

use std::ops::Range;

use gpustream::{Launch, Result, Stream, View, ViewMut};

use super::kernels::{Bits, blocks, by_shares};
use super::moved::How;
use crate::call::{Form, filling, mismatch, optional, optional_mut};
use crate::index::{Index, by_width};

#[track_caller]
pub(super) fn sort_segments<B: Bits, I: Index>(
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
    let (short, long) = by_width(offsets)?;
    let (short, long) = (optional(short.as_ref()), optional(long.as_ref()));
    let (mut values, size) = values.map_or((None, 0), |(values, size)| (Some(values), size));
    let mut other = stream.alloc::<B>(n)?;
    let mut other_values = values.as_ref().map(|_| stream.alloc::<u8>(n * size)).transpose()?;
    let mut numbers =
        values.as_ref().map(|_| Ok([stream.alloc::<u32>(n)?, stream.alloc::<u32>(n)?])).transpose()?;
    let (numbers, more) = match &mut numbers {
        Some([numbers, more]) => (Some(numbers as _), Some(more as _)),
        None => (None, None),
    };
    let other_values = optional_mut(other_values.as_mut());
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
                        optional_mut(values.as_mut()),
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
                optional_mut(values.as_mut()),
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
                optional_mut(values.as_mut()),
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
