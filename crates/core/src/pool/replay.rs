//! A test of each policy with a random mix of allocations.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::SMALL;
use super::arena::{Arena, Owner, Slab};
use super::growth::slab_size;
use super::lists::{BestFit, FreeList, Segregated};
use super::pools::rounded;
use super::{GRANULE, Holder};
use crate::memory::Kind;
use crate::track::{Point, StreamId, Use, Uses};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// Fills `slot`, which is empty.
    Alloc { slot: usize, bytes: usize, stream: u64 },
    /// Frees the allocation in `slot`.
    Free { slot: usize, stream: u64 },
}

/// The figures of a policy for one mix.
#[derive(Debug, Default)]
struct Outcome {
    name: &'static str,
    hits: usize,
    misses: usize,
    peak_used: usize,
    peak_reserved: usize,
    /// The share of the free memory outside its longest piece, after the last event.
    fragmentation: f64,
    time: Duration,
    events: usize,
}

/// Returns `count` allocations over eight streams, in sizes that are equally likely on a logarithmic scale.
fn random_mix(count: usize, live: usize, log_sizes: std::ops::Range<u32>) -> Vec<Event> {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    let mut streams = vec![None; live];
    let mut events = Vec::new();
    for _ in 0..count {
        let slot = next(live);
        if let Some(stream) = streams[slot] {
            events.push(Event::Free { slot, stream });
        }
        let log = log_sizes.start as f64 + next(1 << 20) as f64 / f64::from(1 << 20) * log_sizes.len() as f64;
        let stream = next(8) as u64 + 1;
        events.push(Event::Alloc { slot, bytes: log.exp2() as usize, stream });
        streams[slot] = Some(stream);
    }
    events
}

/// Allocates and frees as the pool does, with `L` for a policy.
fn replay<L: FreeList>(name: &'static str, events: &[Event]) -> Outcome {
    let mut arenas = [Arena::<L>::default(), Arena::<L>::default()];
    let mut live: HashMap<usize, (u32, usize)> = HashMap::new();
    let mut outcome = Outcome { name, events: events.len(), ..Outcome::default() };
    let (mut used, mut next_slab, mut number) = (0, 1 << 40, 0);
    let start = Instant::now();
    for event in events {
        match *event {
            Event::Alloc { slot, bytes, stream } => {
                let size = rounded(bytes).expect("the sizes fit the address space");
                let reserved = arenas.iter().map(Arena::reserved).sum();
                let arena = &mut arenas[usize::from(size > SMALL)];
                let stream = (stream > 0).then_some(StreamId::nth(stream));
                if arena.is_unsettled() {
                    arena.settle(|_| true);
                }
                let found = arena.take(size, stream, Holder::NOBODY).or_else(|| {
                    // The driver, if asked at this moment, would say that all freed memory is out of use.
                    arena.settle(|_| true);
                    arena.take(size, stream, Holder::NOBODY)
                });
                let taken = if let Some(taken) = found {
                    outcome.hits += 1;
                    taken
                } else {
                    outcome.misses += 1;
                    let bytes = slab_size(Kind::Device, size, reserved);
                    arena.add_slab(Slab { start: next_slab, size: bytes, host: 0 });
                    next_slab += 2 * bytes;
                    outcome.peak_reserved = outcome.peak_reserved.max(reserved + bytes);
                    arena.take(size, stream, Holder::NOBODY).expect("a fresh slab has room")
                };
                used += bytes;
                outcome.peak_used = outcome.peak_used.max(used);
                live.insert(slot, (taken.id, bytes | usize::from(size > SMALL) << 63));
            }
            Event::Free { slot, stream } => {
                let Some((id, bytes)) = live.remove(&slot) else { continue };
                used -= bytes & (usize::MAX >> 1);
                number += 1;
                let point = Point { stream: StreamId::nth(stream), number };
                let (uses, owner) = match stream {
                    0 | u64::MAX => (None, Owner::Idle),
                    _ => {
                        let new = Use::of_earlier_owner(point, Holder::NOBODY.operation);
                        (Some(Uses::from_slice(&[new])), Owner::Stream(point.stream))
                    }
                };
                arenas[bytes >> 63].release(id, uses, owner);
            }
        }
    }
    outcome.time = start.elapsed();
    let free = arenas[0].free() + arenas[1].free();
    let longest = arenas[0].longest_free().max(arenas[1].longest_free());
    outcome.fragmentation = if free == 0 { 0.0 } else { 1.0 - longest as f64 / free as f64 };
    outcome
}

/// Allocates blocks of a size class each, which are never split or merged, for comparison.
fn replay_whole_blocks(events: &[Event]) -> Outcome {
    fn class(bytes: usize) -> usize {
        let bytes = bytes.max(GRANULE);
        bytes.next_multiple_of(((1 << bytes.ilog2()) >> 2).max(GRANULE))
    }
    let mut free: HashMap<usize, usize> = HashMap::new();
    let mut live: HashMap<usize, usize> = HashMap::new();
    let mut outcome = Outcome { name: "whole blocks by class", events: events.len(), ..Outcome::default() };
    let (mut used, mut reserved) = (0, 0);
    let start = Instant::now();
    for event in events {
        match *event {
            Event::Alloc { slot, bytes, .. } => {
                let blocks = free.entry(class(bytes)).or_default();
                if *blocks > 0 {
                    *blocks -= 1;
                    outcome.hits += 1;
                } else {
                    outcome.misses += 1;
                    reserved += class(bytes);
                }
                used += bytes;
                live.insert(slot, bytes);
            }
            Event::Free { slot, .. } => {
                let Some(bytes) = live.remove(&slot) else { continue };
                used -= bytes;
                *free.entry(class(bytes)).or_default() += 1;
            }
        }
        outcome.peak_used = outcome.peak_used.max(used);
        outcome.peak_reserved = outcome.peak_reserved.max(reserved);
    }
    outcome.time = start.elapsed();
    let longest = free.iter().filter(|&(_, &count)| count > 0).map(|(&class, _)| class).max().unwrap_or(0);
    let left: usize = free.iter().map(|(&class, &count)| class * count).sum();
    outcome.fragmentation = if left == 0 { 0.0 } else { 1.0 - longest as f64 / left as f64 };
    outcome
}

impl Outcome {
    fn overhead(&self) -> f64 {
        self.peak_reserved as f64 / self.peak_used.max(1) as f64
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<24}{:>10}{:>10}{:>18}{:>16}{:>12}\n",
        "policy", "hits", "misses", "reserved / used", "fragmentation", "ns / event"
    );
    for it in outcomes {
        let hits = 100.0 * it.hits as f64 / (it.hits + it.misses).max(1) as f64;
        let nanoseconds = it.time.as_nanos() as f64 / it.events.max(1) as f64;
        writeln!(
            text,
            "{:<24}{hits:>9.3}%{:>10}{:>18.3}{:>16.2}{nanoseconds:>12.0}",
            it.name,
            it.misses,
            it.overhead(),
            it.fragmentation
        )
        .expect("strings take any text");
    }
    text
}

fn all(events: &[Event]) -> [Outcome; 3] {
    [
        replay::<Segregated>("segregated lists", events),
        replay::<BestFit>("best fit", events),
        replay_whole_blocks(events),
    ]
}

/// Checks the figure that the pool is held to.
#[test]
fn a_random_mix_wastes_at_most_a_quarter() {
    let count = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
    for sizes in [8..27, 10..23, 16..26] {
        let outcomes = all(&random_mix(count, 400, sizes.clone()));
        println!("{count} allocations of 2^{} to 2^{} bytes\n{}", sizes.start, sizes.end, table(&outcomes));
        assert!(outcomes[0].overhead() <= 1.25, "{outcomes:?}");
    }
}
