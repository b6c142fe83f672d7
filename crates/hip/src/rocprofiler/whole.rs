//! The operations of which all records have come.
//!
//! A record comes as soon as its kernel is done, and that of a graph's last kernel may come much later than the first one's. So
//! records are held until there are as many as the operation has.

use std::collections::BTreeMap;

use super::record::Activity;

/// The most operations that are held. Far fewer run at once, so any more wait for records that do not come.
const MOST: usize = 1 << 14;

/// The operations that lack records, by their numbers, which count up.
#[derive(Default)]
pub(crate) struct Whole(BTreeMap<u64, IncompleteOperation>);

/// An operation that lacks records.
#[derive(Default)]
struct IncompleteOperation {
    /// The number of its records; `None` while its thread is still in the call.
    all: Option<u32>,
    /// The records that came, timed or not.
    came: u32,
    /// The records with times, in the order in which they came.
    parts: Vec<Activity>,
}

impl IncompleteOperation {
    fn is_whole(&self) -> bool {
        self.all.is_some_and(|all| self.came >= all)
    }
}

impl Whole {
    /// Takes in how many records an operation has. Hands the records to `each` if they are all there.
    pub(crate) fn expect(&mut self, operation: u64, records: u32, each: &mut dyn FnMut(&Activity, bool)) {
        self.0.entry(operation).or_default().all = Some(records);
        self.settle(operation, each);
    }

    /// Takes in a record of an operation; one without times is none to hand out. Hands the operation's records to `each`, the last
    /// of them with `true`, if they are all there.
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

    /// Hands out what is there of all operations.
    pub(crate) fn release(&mut self, each: &mut dyn FnMut(&Activity, bool)) {
        self.0.retain(|_, held| {
            hand_out(held, each);
            // The records of an operation that has none may come yet.
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
    use gpustream_hal::RanWork;

    use super::*;

    fn part(operation: u64, start: u64) -> Activity {
        Activity { operation, kernel: None, work: RanWork::Other, start, end: start + 1 }
    }

    /// Runs `work`, and returns what it handed out: operation, start, and whether it is the last.
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
