//! The bytes of an allocation that many operations touch together.

use std::ops::Range;

use smallvec::SmallVec;

use super::Mode;

/// A list of disjoint ranges in ascending order, each with its strongest use. Neighbours with the same use are joined,
/// so the list grows with the pattern of accesses and not with the number of operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched(SmallVec<[(Range<usize>, Mode); 1]>);

impl Touched {
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Range<usize>, Mode)> + Clone {
        self.0.iter()
    }

    /// Adds a use. Returns false if one of the ranges already has it.
    #[inline]
    pub(crate) fn add(&mut self, range: &Range<usize>, mode: Mode) -> bool {
        let at = self.0.partition_point(|(old, _)| old.end <= range.start);
        let known = |(old, strongest): &(Range<usize>, Mode)| {
            old.start <= range.start && range.end <= old.end && strength(mode) <= strength(*strongest)
        };
        if range.is_empty() || self.0.get(at).is_some_and(known) {
            return false;
        }
        self.insert(range, mode);
        true
    }

    #[inline(never)]
    fn insert(&mut self, range: &Range<usize>, mode: Mode) {
        // We also take the ranges that touch the new one on either side, so that we can join them.
        let first = self.0.partition_point(|(old, _)| old.end < range.start);
        let last = self.0.partition_point(|(old, _)| old.start <= range.end);
        let mut pieces = Self::default();
        // We have entered the new use up to `done`.
        let mut done = range.start;
        for (old, old_mode) in &self.0[first..last] {
            let both = old.start.clamp(range.start, range.end)..old.end.clamp(range.start, range.end);
            pieces.push(old.start..both.start, *old_mode);
            pieces.push(done..both.start, mode);
            pieces.push(both.clone(), if strength(mode) > strength(*old_mode) { mode } else { *old_mode });
            done = both.end;
            if old.end > range.end {
                pieces.push(both.end..old.end, *old_mode);
            }
        }
        pieces.push(done..range.end, mode);
        self.0.drain(first..last);
        self.0.insert_many(first, pieces.0);
    }

    /// Adds a range after the others. It may be empty.
    fn push(&mut self, range: Range<usize>, mode: Mode) {
        if range.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some((last, last_mode)) if last.end == range.start && *last_mode == mode => last.end = range.end,
            _ => self.0.push((range, mode)),
        }
    }
}

/// Returns a mode's strength. A stronger use must be ordered with everything that a weaker one must be ordered with.
fn strength(mode: Mode) -> u8 {
    match mode {
        Mode::Shared => 0,
        Mode::Read => 1,
        Mode::Write => 2,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 12;

    fn uses() -> impl Strategy<Value = Vec<(Range<usize>, Mode)>> {
        let range = (0..=LEN, 0..=LEN).prop_map(|(a, b)| a.min(b)..a.max(b));
        let mode = prop_oneof![Just(Mode::Read), Just(Mode::Write), Just(Mode::Shared)];
        proptest::collection::vec((range, mode), 0..12)
    }

    proptest! {
        /// Every byte has its strongest use, and the list is sorted and as short as possible.
        #[test]
        fn bytes_have_their_strongest_use(uses in uses()) {
            let mut touched = Touched::default();
            let mut bytes = [None::<Mode>; LEN];
            for (range, mode) in uses {
                let before = bytes;
                for byte in &mut bytes[range.clone()] {
                    *byte = Some(match *byte {
                        Some(old) if strength(old) >= strength(mode) => old,
                        _ => mode,
                    });
                }
                // A use that lies in several ranges of the list may count as new.
                let new = touched.add(&range, mode);
                prop_assert!(new || before == bytes);
                let mut got = [None; LEN];
                for (range, mode) in touched.iter() {
                    prop_assert!(!range.is_empty());
                    got[range.clone()].fill(Some(*mode));
                }
                prop_assert_eq!(got, bytes);
                for pair in touched.0.windows(2) {
                    let ((left, left_mode), (right, right_mode)) = (&pair[0], &pair[1]);
                    prop_assert!(left.end < right.start || left.end == right.start && left_mode != right_mode);
                }
            }
        }
    }
}
