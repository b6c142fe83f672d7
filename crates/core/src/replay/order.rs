//! Which operations of a segment must follow which, because they touch the same addresses.
//!
//! We go by address and not by block, because you may free memory within a segment and get it again in another block.

use smallvec::SmallVec;

use super::sequence::Sequence;
use crate::record::chains::Chains;
use crate::record::scope::Operations;
use crate::track::{History, Point, Use};

/// Which nodes of a graph follow which.
#[derive(Default)]
pub(super) struct Order {
    chains: Chains,
    /// The operations that each one follows directly.
    after: Vec<Operations>,
}

impl Order {
    /// Finds the order of a sequence. If `in_order` is set, each operation follows the one before.
    pub(super) fn of(sequence: &Sequence, in_order: bool) -> Self {
        let mut order = Self::default();
        // One history for the whole address space.
        let mut history = History::new(usize::MAX, true);
        for index in 0..sequence.len() {
            let mut before: SmallVec<[usize; 8]> = SmallVec::new();
            if in_order {
                before.extend(index.checked_sub(1));
            } else {
                for touch in sequence.touched(index) {
                    let chains = &order.chains;
                    history.conflicts(&touch.range, touch.mode, |old| before.push(chains.index(old.point)));
                }
                // We take the latest first, because it comes after most of the others.
                before.sort_unstable_by(|a, b| b.cmp(a));
                before.dedup();
            }
            let mut place = order.chains.place(&before);
            let mut after = Operations::new();
            for before in before {
                let point = order.chains.get(before).point;
                let is_in_lane = point.stream == place.point.stream && point.number + 1 == place.point.number;
                if is_in_lane || !place.is_after(point) {
                    order.chains.follow(&mut place, before);
                    after.push(before);
                }
            }
            enter(&mut history, sequence, index, place.point);
            order.chains.push(place);
            order.after.push(after);
        }
        order
    }

    /// Returns the operations that operation `index` follows directly.
    pub(super) fn after(&self, index: usize) -> &[usize] {
        self.after.get(index).map_or(&[], |after| after)
    }

    /// Returns true if this order is enough for operations that touch the memory of `sequence`.
    pub(super) fn suits(&self, sequence: &Sequence) -> bool {
        // We need no name, because ranges are addresses.
        let touched = |index| sequence.touched(index).iter().map(|touch| ((), &touch.range, touch.mode));
        self.chains.unordered(touched).is_none()
    }
}

/// Enters the uses that operation `index` makes at `point`.
fn enter(history: &mut History, sequence: &Sequence, index: usize, point: Point) {
    let Some(operation) = sequence.operation(index) else { return };
    for touch in sequence.touched(index) {
        history.insert(&touch.range, touch.mode, || Use::new(point, operation));
    }
}
