//! The kernels of sorts, and the types that they are compiled for.

use gpustream::{Plain, Stream};

use crate::order::LowBits;

pub(super) mod blocks {
    gpustream::include_kernels!("sort");
}
pub(super) mod by_shares {
    gpustream::include_kernels!("sort_shares");
}

/// Integers with the width of keys.
pub(super) trait Bits:
    LowBits
    + blocks::HasSortDigits
    + blocks::HasSortKeys<0>
    + blocks::HasSortKeys<1>
    + blocks::HasSortShortSegments
    + blocks::HasSortSegments
    + blocks::HasSortLongSegments
    + by_shares::HasShareSegments
    + blocks::HasSortBlock
    + by_shares::HasShareDigits
    + by_shares::HasShareCounts
    + MovedByShares<u8>
{
    /// How many keys one block of `sort_block` has; `sort.cu` has the same numbers.
    const IN_BLOCK: usize = 512 * if size_of::<Self>() == 8 { 8 } else { 16 };
    /// What a block of `sort_keys` sorts.
    const TILES: Tiles = Tiles { threads: 256, items: if size_of::<Self>() == 8 { 18 } else { 32 } };
}

/// Keys that values of type `V` can move with.
pub(super) trait Pairs<V: Plain>:
    Bits + blocks::HasSortPairs<V, 0> + blocks::HasSortPairs<V, 1> + MovedByShares<V>
{
    /// What a block of `sort_pairs` sorts.
    const TILES: Tiles = Tiles {
        threads: 384,
        items: match (size_of::<Self>(), size_of::<V>()) {
            (_, 8) => 15,
            (8, _) => 14,
            _ => 22,
        },
    };
}
impl<V: Plain, B: Bits + blocks::HasSortPairs<V, 0> + blocks::HasSortPairs<V, 1> + MovedByShares<V>> Pairs<V>
    for B
{
}

/// Keys that all values can move with.
pub(super) trait Keys: Pairs<u32> + Pairs<u64> {}
impl<B: Pairs<u32> + Pairs<u64>> Keys for B {}

pub(super) trait MovedByShares<V: Plain>:
    by_shares::HasShareScatter<V> + by_shares::HasShareFinish<V> + by_shares::HasShareAlone<V>
{
}
impl<V: Plain, B> MovedByShares<V> for B where
    B: by_shares::HasShareScatter<V> + by_shares::HasShareFinish<V> + by_shares::HasShareAlone<V>
{
}

impl Bits for u8 {}
impl Bits for u16 {}
impl Bits for u32 {}
impl Bits for u64 {}

/// What the blocks of a pass sort; `sort.cu` has the same numbers.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    pub(super) threads: usize,
    items: usize,
}

impl Tiles {
    /// How many elements a thread has with short tiles.
    const SHORT: usize = 8;

    /// Returns how many elements a tile has, and if tiles are short: then there is still one for each multiprocessor.
    pub(super) fn choose(self, n: usize, stream: &Stream) -> (usize, bool) {
        let short = self.threads * Self::SHORT;
        let is_short = n <= 2 * short * stream.device().info().multiprocessors as usize;
        (if is_short { short } else { self.threads * self.items }, is_short)
    }
}
