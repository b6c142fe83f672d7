//! The order of recorded operations, kept as chains.
//!
//! Operations that follow each other directly share a chain with one clock. So a long chain costs no more than its length.
//! An operation comes after the earlier operations of its chain, and after the points that its clock covers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::scope::Operations;
use crate::operation::call_site;
use crate::track::{Clock, History, Mode, Point, StreamId, Use};

/// An operation's place in the order.
pub(crate) struct ChainPosition {
    /// The chain, and the number in it.
    pub(crate) point: Point,
    /// Operations on other chains that this one comes after.
    pub(crate) clock: Arc<Clock>,
}

/// The places of all operations so far, by index.
#[derive(Default)]
pub(crate) struct Chains {
    places: Vec<ChainPosition>,
    /// The operations of each chain, in order.
    chains: Vec<Vec<usize>>,
}

impl Chains {
    /// Returns a place for a new operation: in the chain of the first operation in `after` that is the last one of its
    /// chain, or in a new chain if there is none. The place comes after that operation, but not yet after the others.
    pub(crate) fn place(&self, after: &[usize]) -> ChainPosition {
        let is_last =
            |before: &&ChainPosition| self.chains[chain(before.point)].len() as u64 == before.point.number;
        match after.iter().filter_map(|&index| self.places.get(index)).find(is_last) {
            Some(ChainPosition { point, clock }) => {
                ChainPosition { point: Point { number: point.number + 1, ..*point }, clock: clock.clone() }
            }
            None => ChainPosition {
                point: Point { stream: StreamId::nth(self.chains.len() as u64), number: 1 },
                clock: Arc::default(),
            },
        }
    }

    /// Returns the index of the operation at `point`.
    pub(crate) fn index(&self, point: Point) -> usize {
        self.chains[chain(point)][point.number as usize - 1]
    }

    /// Puts `place` after operation `index`, and after everything that this operation comes after.
    pub(crate) fn follow(&self, place: &mut ChainPosition, index: usize) {
        let Some(before) = self.places.get(index) else { return };
        let ChainPosition { point: Point { stream, .. }, clock } = place;
        let news = |point: Point| point.stream != *stream && !clock.covers(point);
        let clocks_differ = !Arc::ptr_eq(clock, &before.clock) && before.clock.points().any(news);
        let point_is_new = news(before.point);
        if clocks_differ || point_is_new {
            let clock = Arc::make_mut(clock);
            if clocks_differ {
                clock.merge(&before.clock);
            }
            if point_is_new {
                clock.advance(before.point);
            }
        }
    }

    /// Adds the next operation at `place`.
    pub(crate) fn push(&mut self, place: ChainPosition) {
        if self.chains.len() == chain(place.point) {
            self.chains.push(Vec::new());
        }
        self.chains[chain(place.point)].push(self.places.len());
        self.places.push(place);
    }

    /// Returns the place of operation `index`.
    pub(crate) fn get(&self, index: usize) -> &ChainPosition {
        &self.places[index]
    }

    /// Returns the operations that come neither before nor after operation `index`. In each chain they lie together, so a
    /// chain costs two searches.
    pub(crate) fn beside(&self, index: usize) -> impl Iterator<Item = usize> {
        let place = &self.places[index];
        let others = self.chains.iter().enumerate().filter(|&(at, _)| at != chain(place.point));
        others.flat_map(|(_, operations)| {
            let before = operations.partition_point(|&other| place.is_after(self.places[other].point));
            let beside =
                operations[before..].partition_point(|&other| !self.places[other].is_after(place.point));
            operations[before..][..beside].iter().copied()
        })
    }

    /// Returns two operations that conflict and are not ordered, the earlier one first. `touched` returns what an operation
    /// touches: the memory's name, the range there, and the mode.
    pub(crate) fn unordered<'a, Name: Ord, Touched: Iterator<Item = (Name, &'a Range<usize>, Mode)>>(
        &self,
        touched: impl Fn(usize) -> Touched,
    ) -> Option<[usize; 2]> {
        let mut histories: BTreeMap<Name, History> = BTreeMap::new();
        let operation = call_site("comparison");
        self.places.iter().enumerate().find_map(|(index, place)| {
            let mut unordered = None;
            for (name, range, mode) in touched(index) {
                if let Some(history) = histories.get(&name) {
                    history.conflicts(range, mode, |old| {
                        if !place.is_after(old.point) {
                            unordered = Some(self.index(old.point));
                        }
                    });
                }
            }
            for (name, range, mode) in touched(index).filter(|&(_, _, mode)| mode != Mode::Shared) {
                let history = histories.entry(name).or_insert_with(|| History::new(usize::MAX, true));
                history.insert(range, mode, || Use::new(place.point, operation));
            }
            unordered.map(|earlier| [earlier, index])
        })
    }
}

impl ChainPosition {
    /// Returns true if the operation here comes after the one at `point`, which must have been added before.
    pub(crate) fn is_after(&self, point: Point) -> bool {
        point.stream == self.point.stream || self.clock.covers(point)
    }

    /// Returns the chain, and the points of other chains that the place comes after.
    pub(crate) fn in_chain(&self) -> (StreamId, &Clock) {
        (self.point.stream, &self.clock)
    }

    /// Puts the place after all of `operations`.
    pub(crate) fn follow_all(&mut self, chains: &Chains, operations: &Operations) {
        operations.iter().for_each(|&index| chains.follow(self, index));
    }
}

/// Returns which chain the point is on, by index.
fn chain(point: Point) -> usize {
    point.stream.index() as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::scope::add;

    /// A name, a range and a mode.
    type Touched = (u8, Range<usize>, Mode);

    /// Which of three earlier operations an operation follows, the index of the first of these three, and what the
    /// operation touches.
    type Made = ([bool; 3], usize, Vec<Touched>);

    fn operations() -> impl Strategy<Value = Vec<Made>> {
        let mode = prop_oneof![Just(Mode::Read), Just(Mode::Write), Just(Mode::Shared)];
        let range = (0..5usize, 0..3usize).prop_map(|(start, len)| start..start + len);
        let touched = proptest::collection::vec((0..2u8, range, mode), 0..3);
        proptest::collection::vec((any::<[bool; 3]>(), 0..20usize, touched), 1..20)
    }

    fn conflict(one: &Touched, other: &Touched) -> bool {
        let modes = [one.2, other.2];
        one.0 == other.0
            && one.1.clone().any(|byte| other.1.contains(&byte))
            && modes.contains(&Mode::Write)
            && !modes.contains(&Mode::Shared)
    }

    proptest! {
        /// Compares the chains with a search through all paths and all pairs.
        #[test]
        fn operations_beside_each_other_are_found(operations in operations()) {
            let mut chains = Chains::default();
            // For each operation, the operations that come before it.
            let mut before: Vec<Vec<usize>> = Vec::new();
            for (index, (follows, from, _)) in operations.iter().enumerate() {
                let mut after = Operations::new();
                for (step, _) in follows.iter().enumerate().filter(|(_, follows)| **follows) {
                    if index > 0 {
                        add(&mut after, &[(from + step) % index]);
                    }
                }
                let mut place = chains.place(&after);
                place.follow_all(&chains, &after);
                chains.push(place);
                let mut all: Vec<usize> = after.iter().flat_map(|&at| before[at].clone()).chain(after.iter().copied()).collect();
                all.sort_unstable();
                all.dedup();
                before.push(all);
            }
            let ordered = |one: usize, other: usize| before[one].contains(&other) || before[other].contains(&one);
            let mut pairs = Vec::new();
            for index in 0..operations.len() {
                let mut beside: Vec<usize> = chains.beside(index).collect();
                beside.sort_unstable();
                let want: Vec<usize> =
                    (0..operations.len()).filter(|&other| other != index && !ordered(index, other)).collect();
                let conflicts = |other: &usize| {
                    operations[index].2.iter().any(|one| operations[*other].2.iter().any(|two| conflict(one, two)))
                };
                pairs.extend(want.iter().copied().filter(conflicts).map(|other| [index, other]));
                prop_assert_eq!(beside, want);
            }
            let touched = |at: usize| operations[at].2.iter().map(|(name, range, mode)| (*name, range, *mode));
            let found = chains.unordered(touched);
            prop_assert_eq!(found.is_some(), !pairs.is_empty());
            prop_assert!(found.is_none_or(|pair| pairs.contains(&pair)));
        }
    }
}
