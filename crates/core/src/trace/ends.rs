//! When operations ended. If an operation waited for others, it can start when the last of them has ended.

use std::collections::{HashMap, VecDeque};

use gpustream_timeline::{Nanos, Operation, Point};

/// How many ends we keep for each stream.
const MOST: usize = 1 << 12;

/// When the most recent operations ended.
#[derive(Default)]
pub(super) struct Ends {
    /// For each stream, the numbers and ends of its operations, in order.
    streams: HashMap<u64, VecDeque<(u64, Nanos)>>,
}

impl Ends {
    /// Notes when an operation ended. You must note the operations of one stream in order.
    pub(super) fn note(&mut self, point: Point, end: Nanos) {
        let ends = self.streams.entry(point.stream).or_default();
        if ends.len() == MOST {
            ends.pop_front();
        }
        ends.push_back((point.number, end));
    }

    /// Returns when nothing held `operation` up any more: it had been submitted, and the stream's previous operation and
    /// those that it waited for had ended. If it waited for none, the previous operation was still running at the
    /// submission, so only that one's end counts.
    pub(super) fn held_up(&self, operation: &Operation) -> Nanos {
        let (Point { stream, number }, submitted) = (operation.point, operation.submitted.start);
        let before = self.up_to(Point { stream, number: number.saturating_sub(1) });
        if operation.after.is_empty() {
            return before.unwrap_or(submitted);
        }
        let others = operation.after.iter().filter_map(|point| self.up_to(*point));
        others.chain(before).fold(submitted, Nanos::max)
    }

    /// Returns when the last operation up to `point` ended.
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
