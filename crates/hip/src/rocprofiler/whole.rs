//! The operations whose records have all come.
//!
//! A record comes as soon as its kernel is done, and the last kernel of a graph may be done much later than its first.
//! So we must hold the records until the operation has all of them.

use std::collections::BTreeMap;

use super::record::Activity;

/// How many operations we hold. Far fewer run at once, so if there are more, they wait for records that do not come.
const MOST: usize = 1 << 14;

/// The operations that lack records, by their numbers, which count up.
#[derive(Default)]
pub(crate) struct Whole(BTreeMap<u64, IncompleteOperation>);

/// An operation that lacks records.
#[derive(Default)]
struct IncompleteOperation {
    /// How many records it has; `None` while its thread is still in the call.
    all: Option<u32>,
    /// The records that came, with or without times.
    came: u32,
    /// The records with times, in the order that they came.
    parts: Vec<Activity>,
}

impl IncompleteOperation {
    fn is_whole(&self) -> bool {
        self.all.is_some_and(|all| self.came >= all)
    }
}

impl Whole {
    /// Notes how many records an operation has. If they are all there, passes them to `each`.
    pub(crate) fn expect(&mut self, operation: u64, records: u32, each: &mut dyn FnMut(&Activity, bool)) {
        self.0.entry(operation).or_default().all = Some(records);
        self.settle(operation, each);
    }

    /// Notes an operation's record. We do not pass on one without times. If the operation has all its records, passes them to
    /// `each`, the last of them with `true`.
    pub(crate) fn add(
        &mut self,
        operation: u64,
        part: Option<Activity>,
        each: &mut dyn FnMut(&Activity, bool),
    ) {
        let held = self.0.entry(operation).or_default();
        held.came = held.came.saturating_add(1);
        held.parts.extend(part);
        self.settle(operation, each);
    }

    /// Passes on what there is, for all operations.
    pub(crate) fn release(&mut self, each: &mut dyn FnMut(&Activity, bool)) {
        self.0.retain(|_, held| {
            hand_out(held, each);
            // If an operation has no records, they can still come.
            held.came == 0
        });
    }

    fn settle(&mut self, operation: u64, each: &mut dyn FnMut(&Activity, bool)) {
        if self.0.get(&operation).is_some_and(IncompleteOperation::is_whole) {
            self.0.remove(&operation).iter().for_each(|held| hand_out(held, each));
        } else if self.0.len() > MOST
            && let Some((_, oldest)) = self.0.pop_first()
        {
            hand_out(&oldest, each);
        }
    }
}

fn hand_out(held: &IncompleteOperation, each: &mut dyn FnMut(&Activity, bool)) {
    let count = held.parts.len();
    for (at, part) in held.parts.iter().enumerate() {
        each(part, held.is_whole() && at + 1 == count);
    }
}

#[cfg(test)]
mod tests {
    use gpustream_hal::WorkKind;

    use super::*;

    fn part(operation: u64, start: u64) -> Activity {
        Activity { operation, kernel: None, work: WorkKind::Other, start, end: start + 1 }
    }

    /// Runs `work`, and returns what it passed on: operation, start, and whether it is the last.
    fn given(work: impl FnOnce(&mut dyn FnMut(&Activity, bool))) -> Vec<(u64, u64, bool)> {
        let mut given = Vec::new();
        work(&mut |part, last| given.push((part.operation, part.start, last)));
        given
    }

    #[test]
    fn records_come_out_together_whatever_comes_first() {
        let mut whole = Whole::default();
        assert_eq!(given(|each| whole.expect(5, 2, each)), []);
        assert_eq!(given(|each| whole.add(5, Some(part(5, 1)), each)), []);
        assert_eq!(given(|each| whole.add(6, Some(part(6, 2)), each)), []);
        assert_eq!(given(|each| whole.add(5, Some(part(5, 3)), each)), [(5, 1, false), (5, 3, true)]);
        assert_eq!(given(|each| whole.expect(6, 1, each)), [(6, 2, true)]);
        assert!(whole.0.is_empty());
    }

    #[test]
    fn record_without_times_is_one_that_came() {
        let mut whole = Whole::default();
        whole.expect(5, 3, &mut |_, _| panic!());
        assert_eq!(given(|each| whole.add(5, None, each)), []);
        assert_eq!(given(|each| whole.add(5, Some(part(5, 1)), each)), []);
        assert_eq!(given(|each| whole.add(5, None, each)), [(5, 1, true)]);
        whole.add(6, None, &mut |_, _| panic!());
        assert_eq!(given(|each| whole.expect(6, 1, each)), []);
        assert!(whole.0.is_empty());
    }

    #[test]
    fn release_hands_out_what_is_there_and_leaves_what_has_not_begun() {
        let mut whole = Whole::default();
        whole.expect(5, 2, &mut |_, _| panic!());
        whole.expect(6, 1, &mut |_, _| panic!());
        whole.add(5, Some(part(5, 1)), &mut |_, _| panic!());
        whole.add(7, Some(part(7, 2)), &mut |_, _| panic!());
        assert_eq!(given(|each| whole.release(each)), [(5, 1, false), (7, 2, false)]);
        assert_eq!(given(|each| whole.add(6, Some(part(6, 3)), each)), [(6, 3, true)]);
    }

    #[test]
    fn operations_whose_records_never_come_make_room() {
        let mut whole = Whole::default();
        let all = 2 * MOST as u64;
        let mut out = Vec::new();
        for operation in 1..=all {
            whole.expect(operation, 2, &mut |part, last| out.push((part.operation, last)));
            whole
                .add(operation, Some(part(operation, 1)), &mut |part, last| out.push((part.operation, last)));
        }
        assert_eq!(whole.0.len(), MOST);
        assert!(out.iter().copied().eq((1..=all - MOST as u64).map(|operation| (operation, false))));
    }
}
