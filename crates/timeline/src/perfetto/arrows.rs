//! Arrows between operations. We draw one as soon as we write its later end, from what we know then.
//!
//! Each operation opens a flow, and an arrow that ends at a slice names the flow. We compute the flow's id
//! from the operation's [`Point`], so we can write the two ends in any order, and we need no table of ids.

use std::collections::BTreeSet;

use super::recent::Recent;
use crate::{Nanos, Point};

/// Where an arrow ends: a track, and a time while the slice is open there. Perfetto can only attach an arrow
/// to an open slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) track: u64,
    pub(super) time: Nanos,
}

/// The numbers of recent operations, so that we can resolve points.
pub(super) struct Arrows {
    streams: Recent<u64, Known>,
}

/// A stream's most recent operations.
#[derive(Default)]
struct Known {
    numbers: BTreeSet<u64>,
    /// Arrows whose point is beyond the last operation. That operation may still come; otherwise the point
    /// means the one before.
    open: Vec<(u64, Head)>,
}

/// Returns the flow that an operation's slice opens.
pub(super) fn operation_flow(point: Point) -> u64 {
    mixed(mixed(point.stream) ^ point.number)
}

/// Returns the flow that an operation's submission opens.
pub(super) fn submission_flow(point: Point) -> u64 {
    mixed(!operation_flow(point))
}

/// Returns an id for a track or flow that is unique except by chance, and never 0. This is the finaliser of
/// `SplitMix64`.
pub(super) fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)).max(1)
}

impl Arrows {
    const MOST_NUMBERS: usize = 256;
    const MOST_OPEN: usize = 256;

    pub(super) fn new() -> Self {
        Self { streams: Recent::new() }
    }

    /// Returns the flow of an arrow to `head`, from the operation that a point stands for.
    pub(super) fn to(&mut self, from: Point, head: Head) -> u64 {
        let known = self.streams.get_or_insert(from.stream, Known::default);
        if known.numbers.last().is_none_or(|last| *last < from.number) {
            if known.open.len() == Self::MOST_OPEN {
                known.open.remove(0);
            }
            known.open.push((from.number, head));
            return operation_flow(from);
        }
        let number = known.last_up_to(from.number).unwrap_or(from.number);
        operation_flow(Point { number, ..from })
    }

    /// Records an operation. Returns the arrows whose point, as we now know, stands for the operation before
    /// it.
    pub(super) fn add(&mut self, point: Point) -> Vec<(u64, Head)> {
        let known = self.streams.get_or_insert(point.stream, Known::default);
        let settled = known.settled(point.stream, |number| number < point.number);
        known.open.retain(|(number, _)| *number != point.number);
        known.numbers.insert(point.number);
        if known.numbers.len() > Self::MOST_NUMBERS {
            known.numbers.pop_first();
        }
        settled
    }

    /// Returns the arrows that are still open, each with the flow of the last operation up to its point.
    pub(super) fn end(&mut self) -> Vec<(u64, Head)> {
        self.streams.iter_mut().flat_map(|(stream, known)| known.settled(*stream, |_| true)).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.streams.iter().map(|(_, known)| 1 + known.numbers.len() + known.open.len()).sum()
    }
}

impl Known {
    fn last_up_to(&self, number: u64) -> Option<u64> {
        self.numbers.range(..=number).next_back().copied()
    }

    /// Takes out the open arrows from numbers that are `meant`, with the flows of the operations that they
    /// stand for.
    fn settled(&mut self, stream: u64, meant: impl Fn(u64) -> bool) -> Vec<(u64, Head)> {
        let settled: Vec<_> = self.open.extract_if(.., |(number, _)| meant(*number)).collect();
        let flow = |(number, head)| {
            let number = self.last_up_to(number)?;
            Some((operation_flow(Point { stream, number }), head))
        };
        settled.into_iter().filter_map(flow).collect()
    }
}
