//! The ends of operations, from which follow the starts of those that waited for them.

use std::collections::{HashMap, VecDeque};

use gpustream_timeline::{Nanos, Operation, Point};

/// The most ends that are kept of a stream.
const MOST: usize = 1 << 12;

/// The ends of the operations that ran last.
#[derive(Default)]
pub(super) struct Ends {
    /// The numbers and the ends of each stream's operations, in their order.
    streams: HashMap<u64, VecDeque<(u64, Nanos)>>,
}

impl Ends {
    /// Notes the end of an operation, which comes after those of its stream that were noted before.
    pub(super) fn note(&mut self, point: Point, end: Nanos) {
        let ends = self.streams.entry(point.stream).or_default();
        if ends.len() == MOST {
            ends.pop_front();
        }
        ends.push_back((point.number, end));
    }

    /// Returns when nothing held up `operation` any more: the end of the operation before, which was running when this one was
    /// submitted, or of the last of those that it waited for and its submission.
    pub(super) fn held_up(&self, operation: &Operation) -> Nanos {
        let (Point { stream, number }, submitted) = (operation.point, operation.submitted.start);
        let before = self.up_to(Point { stream, number: number.saturating_sub(1) });
        if operation.after.is_empty() {
            return before.unwrap_or(submitted);
        }
        let others = operation.after.iter().filter_map(|point| self.up_to(*point));
        others.chain(before).fold(submitted, Nanos::max)
    }

    /// Returns the end of the last operation up to `point`.
    fn up_to(&self, point: Point) -> Option<Nanos> {
        let ends = self.streams.get(&point.stream)?;
        let later = ends.partition_point(|&(number, _)| number <= point.number);
        ends.get(later.checked_sub(1)?).map(|&(_, end)| end)
    }

    pub(super) fn forget(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use gpustream_timeline::WorkKind;

    use super::super::made_up;
    use super::*;

    fn operation(number: u64, after: &[(u64, u64)], submitted: Nanos) -> Operation {
        let after = after.iter().map(|&(stream, number)| Point { stream, number }).collect();
        Operation { submitted: submitted..submitted + 1, after, ..made_up(number, WorkKind::Other) }
    }

    #[test]
    fn operations_are_held_up_by_the_last_of_all_that_they_wait_for() {
        let mut ends = Ends::default();
        for (stream, number, end) in [(1, 3, 100), (2, 5, 150), (2, 9, 400), (1, 4, 200)] {
            ends.note(Point { stream, number }, end);
        }
        let held_up = |ends: &Ends, number, after: &[_], at| ends.held_up(&operation(number, after, at));
        assert_eq!(held_up(&ends, 5, &[], 10), 200, "the one before");
        assert_eq!(held_up(&ends, 4, &[], 10), 100, "not itself");
        assert_eq!(held_up(&ends, 5, &[(2, 9)], 10), 400);
        assert_eq!(held_up(&ends, 5, &[(2, 8)], 10), 200, "number 5 was the last up to 8");
        assert_eq!(held_up(&ends, 5, &[(3, 8)], 10), 200, "an unknown stream");
        assert_eq!(held_up(&ends, 5, &[(2, 5)], 300), 300, "its submission");
        assert_eq!(held_up(&ends, 5, &[], 300), 200, "it was submitted while the one before ran");
        ends.forget(1);
        assert_eq!(held_up(&ends, 5, &[], 10), 10);
    }
}
