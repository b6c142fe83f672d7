//! Tests of the arena: by example, and against a map from every granule to its earlier uses.

use proptest::prelude::*;

use super::*;
use crate::track::Use;

const SLAB: usize = 64 * GRANULE;

fn use_at(stream: u64, number: u64) -> Use {
    let operation = Holder::NOBODY.call_site;
    Use::of_earlier_owner(Point { stream: StreamId::nth(stream), number }, operation)
}

fn slab(start: usize, size: usize) -> Slab {
    Slab { start, size, host: 0 }
}

/// Releases a range that a submission of `stream` has used.
fn release(arena: &mut Arena, taken: &Taken, stream: u64, number: u64) {
    arena.release(
        taken.id,
        Some(Uses::from_slice(&[use_at(stream, number)])),
        Owner::Stream(StreamId::nth(stream)),
    );
}

impl Arena {
    /// Asserts that every byte of every slab is in exactly one range, and every free range in exactly one list.
    fn check(&self) {
        let mut seen = 0;
        let (mut free, mut reserved) = (0, 0);
        let mut counts = vec![0; self.lists.len()];
        for (index, entry) in self.slabs.iter().enumerate() {
            let Some(SlabEntry { slab, first, .. }) = entry else { continue };
            let (mut at, mut left) = (slab.start, Neighbour::NONE);
            let mut before = None;
            for id in self.from(*first) {
                let span = &self.spans[id as usize];
                assert_eq!((span.start, span.left, span.slab), (at, left, index as u32));
                assert!(self.size(id) > 0 && self.size(id).is_multiple_of(GRANULE));
                assert_ne!(span.state, RangeState::Vacant);
                if let RangeState::Free(list) = span.state {
                    counts[list as usize] += 1;
                    free += self.size(id);
                    assert_eq!(list != 0, span.used, "idle means without uses");
                    assert_eq!(span.used, !self.details[id as usize].uses.is_empty());
                    assert_ne!(before, Some(list), "neighbours in one list are merged");
                    before = Some(list);
                } else {
                    before = None;
                }
                seen += 1;
                at += self.size(id);
                left = Neighbour::of(id);
            }
            assert_eq!(at, slab.start + slab.size);
            reserved += slab.size;
        }
        assert_eq!(self.lists.iter().map(|list| list.count).collect::<Vec<_>>(), counts);
        assert_eq!((self.free, self.reserved), (free, reserved));
        assert_eq!(seen + self.vacant.len(), self.spans.len());
    }
}

fn count(taken: &Taken) -> usize {
    taken.uses.iter().flatten().count()
}

#[test]
fn a_freed_range_goes_to_its_stream_at_once_and_to_others_when_done() {
    let mut arena = Arena::default();
    arena.add_slab(slab(0x1000, 4 * GRANULE));
    let (a, b) = (Some(StreamId::nth(1)), Some(StreamId::nth(2)));
    let take = |arena: &mut Arena, stream| arena.take(4 * GRANULE, stream, Holder::NOBODY);
    let first = take(&mut arena, a).unwrap();
    assert!(first.uses.is_none());
    release(&mut arena, &first, 1, 5);
    assert!(take(&mut arena, b).is_none(), "stream 1 may still use it");
    assert!(take(&mut arena, None).is_none());
    let again = take(&mut arena, a).unwrap();
    assert_eq!((again.start, count(&again)), (0x1000, 1));
    arena.release(again.id, again.uses, Owner::Stream(StreamId::nth(1)));
    assert!(!arena.settle(|point| point.number < 5));
    assert!(arena.settle(|point| point.number <= 5));
    assert!(take(&mut arena, b).unwrap().uses.is_none());
    arena.check();
}

#[test]
fn joined_ranges_wait_for_the_uses_of_all_their_parts() {
    let mut arena = Arena::default();
    arena.add_slab(slab(0, 4 * GRANULE));
    let parts: Vec<_> = (0..4).map(|_| arena.take(GRANULE, None, Holder::NOBODY).unwrap()).collect();
    for (part, stream) in parts.into_iter().zip([1, 2, 1, 3]) {
        release(&mut arena, &part, stream, 7);
    }
    arena.check();
    let none = arena.gather(2 * GRANULE, Owner::Stream(StreamId::nth(1)), Holder::NOBODY, |uses| {
        uses.iter().all(|old| old.point.stream == StreamId::nth(1))
    });
    assert!(none.is_none());
    let all = arena.gather(3 * GRANULE, Owner::Several, Holder::NOBODY, |_| true).unwrap();
    let streams: Vec<u64> = all.uses.iter().flatten().map(|old| old.point.stream.index()).collect();
    assert_eq!((all.start, streams), (0, vec![1, 2]));
    arena.check();
    let rest = arena.gather(GRANULE, Owner::Several, Holder::NOBODY, |_| true).unwrap();
    assert_eq!(count(&rest), 1);
    arena.check();
}

#[test]
fn the_shortest_run_is_gathered() {
    let mut arena = Arena::default();
    arena.add_slab(slab(0, 10 * GRANULE));
    let sizes = [1, 3, 1, 2, 3];
    let parts: Vec<_> =
        sizes.iter().map(|&n| arena.take(n * GRANULE, None, Holder::NOBODY).unwrap()).collect();
    for (index, part) in parts.into_iter().enumerate() {
        if index != 2 {
            let stream = 10 + index as u64;
            release(&mut arena, &part, stream, 1);
        }
    }
    let taken = arena.gather(3 * GRANULE, Owner::Several, Holder::NOBODY, |_| true).unwrap();
    assert_eq!((taken.start, count(&taken)), (GRANULE, 1));
    arena.check();
}

#[test]
fn only_slabs_without_any_use_are_removed() {
    let mut arena = Arena::default();
    arena.add_slab(slab(0, SLAB));
    arena.add_slab(slab(1 << 30, SLAB));
    let held = arena.take(SLAB, None, Holder::NOBODY).unwrap();
    let used = arena.take(SLAB, None, Holder::NOBODY).unwrap();
    release(&mut arena, &used, 1, 1);
    assert_eq!(arena.remove_idle_slabs(), []);
    assert_eq!(arena.pending(), SLAB);
    arena.settle(|_| true);
    assert_eq!(arena.remove_idle_slabs().len(), 1);
    arena.check();
    arena.release(held.id, None, Owner::Idle);
    assert_eq!(arena.remove_idle_slabs().len(), 1);
    assert_eq!(arena.reserved(), 0);
    arena.check();
}

#[derive(Clone, Debug)]
enum Step {
    Take { units: usize, stream: u64 },
    Release { which: usize, streams: Vec<u64> },
    Settle { stream: u64 },
    Gather { units: usize, stream: u64 },
    Trim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let units = || prop_oneof![4 => 1usize..20, 1 => 1usize..64];
    let step = prop_oneof![
        6 => (units(), 0u64..4).prop_map(|(units, stream)| Step::Take { units, stream }),
        6 => (any::<usize>(), prop::collection::vec(1u64..4, 0..3))
            .prop_map(|(which, streams)| Step::Release { which, streams }),
        1 => (1u64..4).prop_map(|stream| Step::Settle { stream }),
        2 => (units(), 1u64..4).prop_map(|(units, stream)| Step::Gather { units, stream }),
        1 => Just(Step::Trim),
    ];
    // Miri takes a thousand times as long.
    prop::collection::vec(step, 1..if cfg!(miri) { 30 } else { 300 })
}

/// Compares the arena with a list of live ranges and a map from every granule to its last uses.
fn follow(steps: Vec<Step>) {
    let mut arena = Arena::default();
    let mut live: Vec<Taken> = Vec::new();
    // The uses that the next owner of a granule must see.
    let mut left: std::collections::HashMap<usize, Vec<Use>> = std::collections::HashMap::new();
    let mut next_slab = 1 << 40;
    let mut number = 0;
    let mut done = [0u64; 4];
    for step in steps {
        let mut got = None;
        match step {
            Step::Take { units, stream } => {
                let size = units * GRANULE;
                let who = (stream > 0).then_some(StreamId::nth(stream));
                let taken = arena.take(size, who, Holder::NOBODY).or_else(|| {
                    arena.add_slab(slab(next_slab, SLAB));
                    next_slab += 2 * SLAB;
                    arena.take(size, who, Holder::NOBODY)
                });
                let taken = taken.expect("a fresh slab has room");
                for old in taken.uses.iter().flatten() {
                    assert_eq!(Some(old.point.stream), who, "only what precedes the stream's next work");
                }
                got = Some(taken);
            }
            Step::Release { which, streams } if !live.is_empty() => {
                let taken = live.swap_remove(which % live.len());
                let mut uses = Uses::new();
                for &stream in &streams {
                    number += 1;
                    let new = use_at(stream, number);
                    merge_uses(&mut uses, Uses::from_slice(&[new]));
                }
                for at in (taken.start..taken.start + taken.size).step_by(GRANULE) {
                    left.insert(at, uses.to_vec());
                }
                let owner = match uses.as_slice() {
                    [] => Owner::Idle,
                    [only] => Owner::Stream(only.point.stream),
                    _ => Owner::Several,
                };
                arena.release(taken.id, (!uses.is_empty()).then_some(uses), owner);
            }
            Step::Release { .. } => {}
            Step::Settle { stream } => {
                done[stream as usize] = number;
                arena.settle(|point| done[point.stream.index() as usize] >= point.number);
            }
            Step::Gather { units, stream } => {
                let stream = StreamId::nth(stream);
                got = arena.gather(units * GRANULE, Owner::Stream(stream), Holder::NOBODY, |uses| {
                    uses.iter().all(|old| old.point.stream == stream)
                });
            }
            Step::Trim => {
                for slab in arena.remove_idle_slabs() {
                    assert!(
                        live.iter().all(|it| it.start < slab.start || it.start >= slab.start + slab.size)
                    );
                }
            }
        }
        if let Some(taken) = got {
            let range = taken.start..taken.start + taken.size;
            for other in &live {
                let end = other.start + other.size;
                assert!(end <= range.start || other.start >= range.end, "no overlap");
            }
            for at in range.step_by(GRANULE) {
                for old in left.remove(&at).unwrap_or_default() {
                    let known = done[old.point.stream.index() as usize] >= old.point.number;
                    let seen =
                        taken.uses.iter().flatten().any(|it| {
                            it.point.stream == old.point.stream && it.point.number >= old.point.number
                        });
                    assert!(known || seen, "{old:?} would be forgotten");
                }
            }
            live.push(taken);
        }
        arena.check();
        let used: usize = live.iter().map(|it| it.size).sum();
        assert_eq!(used + arena.free(), arena.reserved(), "nothing is lost");
    }
    for taken in live {
        arena.release(taken.id, None, Owner::Idle);
    }
    arena.settle(|_| true);
    arena.check();
    arena.remove_idle_slabs();
    assert_eq!((arena.reserved(), arena.free()), (0, 0), "everything merges back");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]
    #[test]
    fn arena_follows_the_model(steps in steps()) {
        follow(steps);
    }
}
