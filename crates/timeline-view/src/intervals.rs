//! Sets of times, as unions of intervals.

use std::ops::Range;

use gpustream_timeline::Nanos;

/// A set of times: intervals in order that do not touch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Intervals {
    ranges: Vec<Range<Nanos>>,
    /// For each interval, the total length of those before it.
    sums: Vec<Nanos>,
}

impl FromIterator<Range<Nanos>> for Intervals {
    /// Makes the union of intervals in any order. Empty intervals add nothing.
    fn from_iter<I: IntoIterator<Item = Range<Nanos>>>(ranges: I) -> Self {
        let mut all: Vec<_> = ranges.into_iter().filter(|range| range.start < range.end).collect();
        all.sort_unstable_by_key(|range| range.start);
        let mut union: Vec<Range<Nanos>> = Vec::new();
        for range in all {
            match union.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => union.push(range),
            }
        }
        let mut sum = 0;
        let sums = union
            .iter()
            .map(|range| {
                let before = sum;
                sum += range.end - range.start;
                before
            })
            .collect();
        Self { ranges: union, sums }
    }
}

impl Intervals {
    /// Returns the intervals, in order.
    pub(crate) fn ranges(&self) -> &[Range<Nanos>] {
        &self.ranges
    }

    /// Returns the total length.
    pub(crate) fn length(&self) -> Nanos {
        self.before(Nanos::MAX)
    }

    /// Returns the times that are in at least one of the sets.
    pub(crate) fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        sets.into_iter().flat_map(|set| set.ranges.iter().cloned()).collect()
    }

    /// Returns the total length of the times that are in both sets.
    pub(crate) fn overlap(&self, other: &Self) -> Nanos {
        let (few, many) = if self.ranges.len() < other.ranges.len() { (self, other) } else { (other, self) };
        few.ranges.iter().map(|range| many.within(range)).sum()
    }

    /// Returns the total length of the times in `range` that are in the set.
    pub(crate) fn within(&self, range: &Range<Nanos>) -> Nanos {
        self.before(range.end).saturating_sub(self.before(range.start))
    }

    /// Returns the times in `range` that are not in the set.
    pub(crate) fn complement(&self, range: Range<Nanos>) -> impl Iterator<Item = Range<Nanos>> {
        let starts = std::iter::once(range.start).chain(self.ranges.iter().map(|range| range.end));
        let ends = self.ranges.iter().map(|range| range.start).chain(std::iter::once(range.end));
        starts
            .zip(ends)
            .map(move |(start, end)| start.max(range.start)..end.min(range.end))
            .filter(|gap| gap.start < gap.end)
    }

    /// Returns the total length of the times before `time` that are in the set.
    fn before(&self, time: Nanos) -> Nanos {
        let at = self.ranges.partition_point(|range| range.start < time);
        let Some((range, sum)) = at.checked_sub(1).and_then(|at| self.ranges.get(at).zip(self.sums.get(at)))
        else {
            return 0;
        };
        sum + (time.min(range.end) - range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(Nanos, Nanos)]) -> Intervals {
        ranges.iter().map(|&(start, end)| start..end).collect()
    }

    #[test]
    fn union_joins_intervals_that_overlap_or_touch_and_leaves_out_the_empty() {
        let union = set(&[(5, 7), (1, 3), (2, 4), (7, 9), (20, 20), (12, 11)]);
        assert_eq!(union.ranges(), [1..4, 5..9]);
        assert_eq!(union.length(), 7);
    }

    #[test]
    fn overlap_and_complement_agree_with_the_lengths() {
        let (a, b) = (set(&[(0, 4), (6, 10)]), set(&[(2, 7), (9, 20)]));
        assert_eq!((a.overlap(&b), b.overlap(&a)), (4, 4));
        assert_eq!(a.within(&(3..8)), 3);
        assert_eq!(a.complement(2..12).collect::<Vec<_>>(), [4..6, 10..12]);
        assert_eq!(Intervals::default().complement(1..2).collect::<Vec<_>>(), std::slice::from_ref(&(1..2)));
    }
}
