//! The units of an operation that workers share.
//!
//! Each worker begins with a part of its own, the same in every operation of this size: so it meets the memory that it has
//! in its caches. Then it goes on with what is left of the parts of others.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of parts.
pub(crate) const PARTS: usize = 16;

/// What is left of an operation's parts.
pub(crate) struct Parts {
    /// The next unit of each part, which is beyond the part if none is left.
    next: [AtomicU64; PARTS],
}

/// The parts that one worker has left to look at.
pub(crate) struct Claims {
    own: usize,
    passed: usize,
}

impl Claims {
    /// Begins with part `own`.
    pub(crate) fn from(own: usize) -> Self {
        Self { own, passed: 0 }
    }
}

impl Parts {
    pub(crate) const fn new() -> Self {
        Self { next: [const { AtomicU64::new(0) }; PARTS] }
    }

    /// Makes the units `from..units` those that are left.
    pub(crate) fn begin_at(&self, from: u64, units: u64) {
        for (part, next) in self.next.iter().enumerate() {
            next.store(from.max(first(part, units)), Ordering::Relaxed);
        }
    }

    /// Returns up to `grain` units that nobody else gets; `None` if none are left for this worker.
    pub(crate) fn claim(&self, claims: &mut Claims, grain: u64, units: u64) -> Option<Range<u64>> {
        while claims.passed < PARTS {
            let part = (claims.own + claims.passed) % PARTS;
            let end = first(part + 1, units);
            let begin = self.next[part].fetch_add(grain, Ordering::Relaxed);
            if begin < end {
                return Some(begin..(begin + grain).min(end));
            }
            claims.passed += 1;
        }
        None
    }

    /// Returns whether some units are left.
    pub(crate) fn any(&self, units: u64) -> bool {
        let mut parts = self.next.iter().enumerate();
        parts.any(|(part, next)| next.load(Ordering::Relaxed) < first(part + 1, units))
    }
}

/// Returns the first unit of a part.
const fn first(part: usize, units: u64) -> u64 {
    let (part, parts) = (part as u64, PARTS as u64);
    units / parts * part + units % parts * part / parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whoever claims in whatever order, each unit that was left is claimed once.
        #[test]
        fn each_unit_is_claimed_once(
            units in 1u64..200,
            done in 0u64..200,
            turns in prop::collection::vec((0usize..4, 1u64..20), 0..300),
        ) {
            let done = done.min(units);
            let parts = Parts::new();
            parts.begin_at(done, units);
            let mut workers = [0, 5, 10, 15].map(Claims::from);
            let mut claimed = vec![0; units as usize];
            let mut take = |range: Range<u64>| {
                assert!(!range.is_empty());
                range.for_each(|unit| claimed[unit as usize] += 1);
            };
            for (worker, grain) in turns {
                if let Some(range) = parts.claim(&mut workers[worker], grain, units) {
                    take(range);
                }
            }
            // One that comes late finds all that is left.
            let mut late = Claims::from(3);
            while let Some(range) = parts.claim(&mut late, 7, units) {
                take(range);
            }
            prop_assert!(!parts.any(units));
            let expected: Vec<_> = (0..units).map(|unit| i32::from(unit >= done)).collect();
            prop_assert_eq!(claimed, expected);
        }
    }

    #[test]
    fn a_worker_begins_with_its_own_part() {
        let (parts, units) = (Parts::new(), 160);
        for _ in 0..2 {
            parts.begin_at(0, units);
            assert_eq!(parts.claim(&mut Claims::from(8), 4, units), Some(80..84));
            assert_eq!(parts.claim(&mut Claims::from(0), 4, units), Some(0..4));
        }
    }

    #[test]
    fn parts_of_the_largest_grid_do_not_overflow() {
        let units = u64::from(u32::MAX >> 1) * 65_535 * 65_535;
        assert_eq!((first(0, units), first(PARTS, units)), (0, units));
        assert!((0..PARTS).all(|part| first(part, units) < first(part + 1, units)));
    }
}
