//! Sorts by the blocks of a GPU.

use gpustream::{AsView as _, AsViewMut as _, Buffer, Launch, Plain, Result, Stream, View, ViewMut};

use super::kernels::{Bits, Pairs, blocks};
use super::moved::{How, Moved};
use crate::call::{optional, optional_mut};

#[track_caller]
pub(super) fn sort_in_block<B: Bits>(
    stream: &Stream,
    mut keys: Moved<'_, B>,
    how: &How<'_>,
    values: Option<(Moved<'_, u8>, usize)>,
    mut numbers: Option<ViewMut<'_, u32>>,
) -> Result<()> {
    let kernels = stream.device().extension(blocks::Kernels::load)?;
    let (n, [if_set, if_clear]) = (keys.result.len(), how.masks());
    let (mut values, size) = values.map_or((None, 0), |(values, size)| (Some(values), size as u32));
    kernels.sort_block::<B>(
        stream,
        &Launch::new([1, 1, 1], [512, 1, 1]),
        optional(keys.source.as_ref()),
        &mut keys.result,
        optional(values.as_ref().and_then(|values| values.source).as_ref()),
        optional_mut(values.as_mut().map(|values| &mut values.result)),
        size,
        optional_mut(numbers.as_mut()),
        n,
        optional(how.count.as_ref()),
        how.bits.start,
        how.bits.end,
        if_set,
        if_clear,
    )
}

/// An array that goes back and forth between its result and another array, so that the last pass ends in the result.
struct PingPong<'a, T> {
    source: Option<View<'a, T>>,
    result: ViewMut<'a, T>,
    other: Option<Buffer<T>>,
    copied: bool,
    passes: u32,
}

impl<'a, T: Plain> PingPong<'a, T> {
    /// Allocates the other array, if it is needed. In place and with an odd number of passes we copy the elements there first.
    /// Without `has_elements` there are none before the first pass.
    #[track_caller]
    fn new(stream: &Stream, moved: Moved<'a, T>, passes: u32, has_elements: bool) -> Result<Self> {
        let Moved { source, result } = moved;
        let copied = source.is_none() && has_elements && passes % 2 == 1;
        let mut other = (passes > 1 || copied).then(|| stream.alloc::<T>(result.len())).transpose()?;
        if let (true, Some(other)) = (copied, &mut other) {
            stream.copy(&result, other)?;
        }
        Ok(Self { source, result, other, copied, passes })
    }

    /// Returns where a pass reads and where it writes. If nothing has been written yet, it reads nowhere.
    fn step(&mut self, pass: u32) -> (Option<View<'_, T>>, ViewMut<'_, T>) {
        let Self { source, result, other, copied, passes } = self;
        let Some(other) = other else { return (*source, result.view_mut()) };
        let first = pass == 0 && !*copied;
        if (*passes - pass) % 2 == 1 {
            let from = if first { *source } else { Some(other.view()) };
            return (from, result.view_mut());
        }
        let from = if first { *source } else { None };
        (Some(from.unwrap_or_else(|| result.view())), other.view_mut())
    }
}

/// How many keys a launch has at most: words of the look-back count up to 2³⁰.
pub(super) const PORTION: usize = (1 << 30) - 1;

#[track_caller]
pub(super) fn sort_tiles<B: Pairs<V>, V: Plain>(
    stream: &Stream,
    keys: Moved<'_, B>,
    how: &How<'_>,
    values: Option<Moved<'_, V>>,
    numbers: bool,
    portion: usize,
) -> Result<()> {
    let kernels = stream.device().extension(blocks::Kernels::load)?;
    let (n, passes) = (keys.result.len(), how.passes());
    let kind = if values.is_some() { <B as Pairs<V>>::TILES } else { <B as Bits>::TILES };
    let (tile, is_short) = kind.choose(n, stream);
    let tiles = n.div_ceil(tile).min(portion / tile);
    let portions = n.div_ceil(tiles * tile);
    let mut control = stream.zeros::<u64>(portions * passes as usize * 257 + 1)?;
    let mut words = stream.alloc::<u32>(2 * 256 * tiles)?;
    let count = optional(how.count.as_ref());
    let (masks, none, portions) = (how.masks::<B>(), [B::low(0); 2], portions as u32);
    kernels.sort_digits::<B>(
        stream,
        &counting(stream, n),
        &keys.source.unwrap_or_else(|| keys.result.view()),
        n,
        count,
        &mut control,
        &mut words,
        256 * tiles,
        how.bits.start,
        how.bits.end,
        passes,
        portions,
        masks[0],
        masks[1],
    )?;
    let launch = Launch::new([tiles as u32, 1, 1], [kind.threads as u32, 1, 1]);
    let mut keys = PingPong::new(stream, keys, passes, true)?;
    let mut values = values.map(|values| PingPong::new(stream, values, passes, !numbers)).transpose()?;
    for pass in 0..passes {
        let load = if pass == 0 { masks } else { none };
        let store = if pass + 1 == passes { masks } else { none };
        let shift = how.bits.start + 8 * pass;
        let bits = (how.bits.end - shift).min(8);
        for portion in 0..portions {
            let (from, mut to) = keys.step(pass);
            let Some(from) = from else { continue };
            let (control, words) = (&mut control, &mut words);
            macro_rules! launch {
                ($kernel:ident::<$($parameter:tt),+>($($values:expr),*)) => {
                    kernels.$kernel::<$($parameter),+>(
                        stream, &launch, &from, &mut to, $($values,)* control, words, n, count, load[0], load[1], store[0],
                        store[1], shift, bits, pass, passes, portion, portions,
                    )?
                };
            }
            match &mut values {
                None if is_short => launch!(sort_keys::<B, 1>()),
                None => launch!(sort_keys::<B, 0>()),
                Some(values) => {
                    let (values_from, mut values_to) = values.step(pass);
                    let values_from = values_from.filter(|_| pass > 0 || !numbers);
                    let values_from = optional(values_from.as_ref());
                    if is_short {
                        launch!(sort_pairs::<B, V, 1>(values_from, &mut values_to));
                    } else {
                        launch!(sort_pairs::<B, V, 0>(values_from, &mut values_to));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Returns the launch that counts the digits: as many blocks as can be resident, if each has work.
fn counting(stream: &Stream, n: usize) -> Launch {
    const THREADS: usize = 512;
    let info = stream.device().info();
    let resident = (info.limits.max_threads_per_multiprocessor as usize / THREADS).max(1)
        * info.multiprocessors as usize;
    Launch::new([n.div_ceil(8 * THREADS).min(resident).max(1) as u32, 1, 1], [THREADS as u32, 1, 1])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::order::{Order, masks};
    use gpustream::Device;

    /// Arrays with so many keys are too long for a test, so we make the portions shorter.
    #[test]
    fn passes_of_several_portions_sort_too() {
        let stream = Device::open("cpu").unwrap().stream().unwrap();
        let n = 30_000;
        let keys: Vec<u32> = (0..n).map(|i: u32| (i ^ 0x5a5).wrapping_mul(0x9e37_79b9) >> 12).collect();
        let mut order: Vec<u32> = (0..n).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(keys[i as usize]));
        let how = How { masks: masks::<u32>(Order::Descending), bits: 0..20, count: None };
        let (mut x, mut numbers) = (stream.upload(&keys).unwrap(), stream.alloc::<u32>(n as usize).unwrap());
        let (moved, values) = (Moved::in_place(x.view_mut()), Moved::in_place(numbers.view_mut()));
        sort_tiles(&stream, moved, &how, Some(values), true, 10_000).unwrap();
        assert_eq!(stream.download(&numbers).unwrap(), order);
        let sorted: Vec<u32> = order.iter().map(|&i| keys[i as usize]).collect();
        assert_eq!(stream.download(&x).unwrap(), sorted);
        sort_tiles::<u32, u32>(&stream, Moved::in_place(x.view_mut()), &how, None, false, 9000).unwrap();
        assert_eq!(stream.download(&x).unwrap(), sorted);
    }
}
