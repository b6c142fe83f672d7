//! Tests the arenas with a random mix of allocations.

use std::ops::Range;

use super::Holder;
use super::SMALL;
use super::arena::{Arena, Owner, Slab};
use super::growth::slab_size;
use super::pools::rounded;
use crate::memory::MemoryKind;
use crate::track::{Point, StreamId, Use, Uses};

/// A live allocation: its range, and the bytes and the stream that it was for.
struct Live {
    id: u32,
    bytes: usize,
    is_small: bool,
    stream: StreamId,
}

/// Allocates and frees as the pool does, `count` times on eight streams, with sizes that are uniform on a logarithmic
/// scale. At most `slots` allocations live at a time. Returns the peak of the reserved bytes divided by the peak of the
/// used bytes.
fn overhead(count: usize, slots: usize, log_sizes: &Range<u32>) -> f64 {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let mut live: Vec<Option<Live>> = (0..slots).map(|_| None).collect();
    let (mut small, mut large) = (Arena::default(), Arena::default());
    let (mut used, mut peak_used, mut peak_reserved) = (0, 0, 0);
    let mut next_slab = 1 << 40;
    for number in 1..=count {
        let slot = next(slots);
        if let Some(Live { id, bytes, is_small, stream }) = live[slot].take() {
            used -= bytes;
            let left =
                Use::of_earlier_owner(Point { stream, number: number as u64 }, Holder::NOBODY.call_site);
            let arena = if is_small { &mut small } else { &mut large };
            arena.release(id, Some(Uses::from_slice(&[left])), Owner::Stream(stream));
        }
        let log =
            f64::from(log_sizes.start) + next(1 << 20) as f64 / f64::from(1 << 20) * log_sizes.len() as f64;
        let bytes = log.exp2() as usize;
        let stream = StreamId::nth(next(8) as u64);
        let size = rounded(bytes).expect("the sizes fit the address space");
        let reserved = small.reserved() + large.reserved();
        let is_small = size <= SMALL;
        let arena = if is_small { &mut small } else { &mut large };
        if arena.is_unsettled() {
            arena.settle(|_| true);
        }
        let found = arena.take(size, Some(stream), Holder::NOBODY).or_else(|| {
            // At this moment, the driver would say that all freed memory is out of use.
            arena.settle(|_| true);
            arena.take(size, Some(stream), Holder::NOBODY)
        });
        let taken = found.unwrap_or_else(|| {
            let slab =
                Slab { start: next_slab, size: slab_size(MemoryKind::Device, size, reserved), host: 0 };
            next_slab += 2 * slab.size;
            arena.add_slab(slab);
            peak_reserved = peak_reserved.max(reserved + slab.size);
            arena.take(size, Some(stream), Holder::NOBODY).expect("a fresh slab has room")
        });
        used += bytes;
        peak_used = peak_used.max(used);
        live[slot] = Some(Live { id: taken.id, bytes, is_small, stream });
    }
    peak_reserved as f64 / peak_used as f64
}

#[test]
fn a_random_mix_wastes_at_most_a_quarter() {
    let count = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
    for log_sizes in [8..27, 10..23, 16..26] {
        let overhead = overhead(count, 400, &log_sizes);
        assert!(
            overhead <= 1.25,
            "{overhead} for sizes of 2^{} to 2^{} bytes",
            log_sizes.start,
            log_sizes.end
        );
    }
}
