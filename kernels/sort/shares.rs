//! Sorts by the workers of a CPU.

use std::ops::Range;

use gpustream::{AsView as _, Buffer, Launch, Plain, Result, Stream, View, ViewMut};

use super::kernels::{Bits, MovedByShares, by_shares};
use super::moved::{How, Moved};
use crate::call::{filling, optional, optional_mut};

/// How many keys a share must have to be worth starting.
const PER_SHARE: usize = 1 << 14;

#[track_caller]
pub(super) fn sort_shares<B: Bits + MovedByShares<V>, V: Plain>(
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
    let count = optional(how.count.as_ref());
    let source = optional(keys.source.as_ref());
    let values_source = optional(values_source);
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
            optional_mut(values.as_deref_mut()),
            optional_mut(values_other.as_deref_mut()),
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
            optional_mut(values.as_deref_mut()),
            optional_mut(values_other.as_deref_mut()),
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
        optional_mut(values),
        optional(values_other.as_deref()),
        numbers,
        n,
        count,
        &plan,
        passes,
    )
}
