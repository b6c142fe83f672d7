//! Finds the operation for each thing that a device ran.
//!
//! CUPTI numbers the driver's calls. Two records describe a call: one says which operation we made it for, and the other what the
//! device ran for it. They can come in either order, and in different buffers. One call may run many things: the kernels of a
//! graph all have the number of its launch.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use gpustream_hal::WorkKind;

use super::record::Activity;

/// How many calls we remember. A device rarely has more to do, because a stream holds about a thousand launches, and a thread
/// that submits more must wait. Only a graph can run for longer, while other streams go on.
const CALLS: usize = 1 << 18;

/// How many things can wait for their operation. What other libraries run outside all operations waits in vain.
const MOST_WAITING: usize = 1 << 14;

/// A thing that a device ran, with its readable name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    pub(crate) correlation: u32,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) work: WorkKind,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Named {
    pub(crate) fn new(part: &Activity<'_>, label: Option<Arc<str>>) -> Self {
        let Activity { correlation, ref work, start, end, .. } = *part;
        Self { correlation, label, work: *work, start, end }
    }
}

/// The operations that the last driver calls belonged to, and the things that wait to learn theirs.
#[derive(Default)]
pub(crate) struct Attribution {
    /// A call's number and its operation, at the number's remainder by [`CALLS`]. Numbers count up, so a newer call overwrites
    /// the one that was [`CALLS`] before it. Operation 0 means none. Empty until the first use.
    calls: Vec<(u32, u64)>,
    /// The waiting things, in the order that they came.
    waiting: VecDeque<Named>,
    /// Counts the things that came after we forgot their operation.
    lost: u64,
}

/// Whether we know which operation a call was made for.
enum Found {
    Operation(u64),
    /// The record may come yet.
    NotYet,
    /// A much later call has taken its place.
    Forgotten,
}

impl Attribution {
    /// Notes which operation a call was made for.
    pub(crate) fn note(&mut self, correlation: u32, operation: u64) {
        if self.calls.is_empty() {
            self.calls.resize(CALLS, (0, 0));
        }
        self.calls[place(correlation)] = (correlation, operation);
    }

    /// Passes `part` to `each` with its operation. If we do not know that yet, `part` waits.
    pub(crate) fn give(&mut self, part: Named, each: &mut dyn FnMut(u64, &Named)) {
        match self.find(part.correlation) {
            Found::Operation(operation) => each(operation, &part),
            Found::NotYet => {
                if self.waiting.len() >= MOST_WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(part);
            }
            Found::Forgotten => self.lost += 1,
        }
    }

    /// Looks again for the operations of the waiting things.
    pub(crate) fn retry(&mut self, each: &mut dyn FnMut(u64, &Named)) {
        for part in mem::take(&mut self.waiting) {
            self.give(part, each);
        }
    }

    /// Returns how many were lost since the last call.
    pub(crate) fn take_lost(&mut self) -> u64 {
        mem::take(&mut self.lost)
    }

    fn find(&self, correlation: u32) -> Found {
        match self.calls.get(place(correlation)) {
            Some(&(known, operation)) if operation != 0 && known == correlation => {
                Found::Operation(operation)
            }
            // Numbers wrap around.
            Some(&(known, operation)) if operation != 0 && known.wrapping_sub(correlation) < u32::MAX / 2 => {
                Found::Forgotten
            }
            _ => Found::NotYet,
        }
    }
}

fn place(correlation: u32) -> usize {
    correlation as usize % CALLS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(correlation: u32, start: u64) -> Named {
        Named { correlation, label: None, work: WorkKind::Other, start, end: start + 1 }
    }

    /// Runs `work`, and returns what it handed out: operations with starts.
    fn given(work: impl FnOnce(&mut dyn FnMut(u64, &Named))) -> Vec<(u64, u64)> {
        let mut given = Vec::new();
        work(&mut |operation, part| given.push((operation, part.start)));
        given
    }

    #[test]
    fn records_find_each_other_in_either_order() {
        let mut attribution = Attribution::default();
        attribution.note(5, 50);
        assert_eq!(given(|each| attribution.give(part(5, 1), each)), [(50, 1)]);
        assert_eq!(given(|each| attribution.give(part(6, 2), each)), []);
        assert_eq!(given(|each| attribution.retry(each)), []);
        attribution.note(6, 60);
        assert_eq!(given(|each| attribution.retry(each)), [(60, 2)]);
        assert_eq!(given(|each| attribution.retry(each)), [], "each is handed out once");
    }

    #[test]
    fn all_of_a_call_belongs_to_its_operation_and_later_calls_change_nothing() {
        let mut attribution = Attribution::default();
        attribution.note(5, 50);
        for later in 6..1000 {
            attribution.note(later, 7);
            attribution.note(later, 7); // CUDA 13 writes some twice.
            assert_eq!(given(|each| attribution.give(part(5, later.into()), each)), [(50, later.into())]);
        }
    }

    #[test]
    fn work_waits_for_its_operation_and_is_not_lost() {
        let mut attribution = Attribution::default();
        assert_eq!(given(|each| attribution.give(part(5, 1), each)), []);
        assert_eq!(given(|each| attribution.retry(each)), []);
        attribution.note(5, 50);
        assert_eq!(given(|each| attribution.retry(each)), [(50, 1)]);
        assert_eq!(given(|each| attribution.give(part(6, 2), each)), []);
        assert_eq!(attribution.take_lost(), 0, "another library's is not lost");
    }

    #[test]
    fn memory_is_bounded_and_what_came_too_late_is_counted() {
        let mut attribution = Attribution::default();
        let calls = CALLS as u32;
        for correlation in 1..=3 * calls {
            attribution.note(correlation, u64::from(correlation) + 1);
        }
        assert_eq!(attribution.calls.len(), CALLS);
        assert_eq!(given(|each| attribution.give(part(calls, 1), each)), []);
        assert_eq!((attribution.take_lost(), attribution.take_lost()), (1, 0));
        let newest = u64::from(3 * calls);
        assert_eq!(given(|each| attribution.give(part(3 * calls, 1), each)), [(newest + 1, 1)]);

        for start in 0..2 * MOST_WAITING {
            assert_eq!(given(|each| attribution.give(part(4 * calls, start as u64), each)), []);
        }
        assert_eq!(attribution.waiting.len(), MOST_WAITING);
        attribution.note(4 * calls, 9);
        let late = given(|each| attribution.retry(each));
        assert_eq!((late.len(), late[0]), (MOST_WAITING, (9, MOST_WAITING as u64)), "the oldest went");
    }

    #[test]
    fn numbers_may_wrap_around() {
        let mut attribution = Attribution::default();
        let old = u32::MAX - CALLS as u32 + 1;
        attribution.note(old, 1);
        attribution.note(0, 2);
        assert_eq!(given(|each| attribution.give(part(0, 1), each)), [(2, 1)]);
        assert_eq!(given(|each| attribution.give(part(old, 1), each)), []);
        assert_eq!(attribution.take_lost(), 1);
    }
}
