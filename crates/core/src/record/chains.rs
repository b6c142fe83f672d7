//! The order of recorded operations, by chains.
//!
//! Operations that follow each other directly share a chain with one clock, so that a long chain costs no more than its
//! length. An operation comes after the earlier ones of its chain, and after the points that its clock covers.

use std::sync::Arc;

use super::scope::Operations;
use crate::track::{Clock, Point, StreamId};

/// The place of an operation in the order.
pub(crate) struct Place {
    /// The chain, and the number in it.
    pub(crate) point: Point,
    /// The operations that this one comes after, besides the earlier ones of its chain.
    pub(crate) clock: Arc<Clock>,
}

/// The places of the operations so far, by index.
#[derive(Default)]
pub(crate) struct Chains {
    places: Vec<Place>,
    /// The operations of each chain, in order.
    chains: Vec<Vec<usize>>,
}

impl Chains {
    /// Returns a place in the chain of the first of `after` that is its chain's last operation, else in a new chain. The
    /// place comes after that operation, and not yet after the others.
    pub(crate) fn place(&self, after: &[usize]) -> Place {
        let is_last = |before: &&Place| self.chains[chain(before.point)].len() as u64 == before.point.number;
        match after.iter().filter_map(|&index| self.places.get(index)).find(is_last) {
            Some(Place { point, clock }) => {
                Place { point: Point { number: point.number + 1, ..*point }, clock: clock.clone() }
            }
            None => Place {
                point: Point { stream: StreamId::nth(self.chains.len() as u64), number: 1 },
                clock: Arc::default(),
            },
        }
    }

    /// Returns the index of the operation at `point`.
    pub(crate) fn index(&self, point: Point) -> usize {
        self.chains[chain(point)][point.number as usize - 1]
    }

    /// Puts `place` after operation `index`, and everything which that operation comes after.
    pub(crate) fn follow(&self, place: &mut Place, index: usize) {
        let Some(before) = self.places.get(index) else { return };
        let Place { point: Point { stream, .. }, clock } = place;
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
    pub(crate) fn push(&mut self, place: Place) {
        if self.chains.len() == chain(place.point) {
            self.chains.push(Vec::new());
        }
        self.chains[chain(place.point)].push(self.places.len());
        self.places.push(place);
    }

    /// Returns the place of operation `index`.
    pub(crate) fn get(&self, index: usize) -> &Place {
        &self.places[index]
    }
}

impl Place {
    /// Returns whether the operation here comes after the one at `point`, which was added before.
    pub(crate) fn is_after(&self, point: Point) -> bool {
        point.stream == self.point.stream || self.clock.covers(point)
    }

    /// Returns the chain, and the points of others that the place comes after.
    pub(crate) fn in_chain(&self) -> (StreamId, &Clock) {
        (self.point.stream, &self.clock)
    }

    /// Puts the place after all of `operations`.
    pub(crate) fn follow_all(&mut self, chains: &Chains, operations: &Operations) {
        operations.iter().for_each(|&index| chains.follow(self, index));
    }
}

/// Returns the index of the chain of `point`.
fn chain(point: Point) -> usize {
    point.stream.index() as usize
}
