//! The naive model of order: each operation has a plain set of predecessors.
//!
//! The model replays a log of driver calls. An operation comes after everything that its stream has seen, which is the stream's
//! own operations and whatever the events that it waited for had seen. It also comes after everything that the host knew to be
//! done when it was submitted. If two operations touch the same bytes and one writes, they must be ordered.

use std::collections::HashMap;
use std::ops::Range;

/// A set of operations by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(Vec<u64>);

impl Set {
    pub(crate) fn insert(&mut self, op: usize) {
        if self.0.len() <= op / 64 {
            self.0.resize(op / 64 + 1, 0);
        }
        self.0[op / 64] |= 1 << (op % 64);
    }

    pub(crate) fn contains(&self, op: usize) -> bool {
        self.0.get(op / 64).is_some_and(|word| word >> (op % 64) & 1 == 1)
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(to, from)| *to |= from);
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        let zeros = std::iter::repeat(&0);
        self.0.iter().zip(other.0.iter().chain(zeros)).all(|(mine, theirs)| mine & !theirs == 0)
    }
}

/// The bytes that an operation touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) range: Range<usize>,
    pub(crate) write: bool,
}

/// One driver call, reduced to what matters for order. `Seen` means that the host waited for an operation or found it done.
/// `NewOwner` means that the test gave the range to a new owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Op { stream: usize, touches: Vec<Touch> },
    HostFn { stream: usize },
    Record { event: usize, stream: usize, explicit: bool },
    Wait { stream: usize, event: usize, explicit: bool },
    EventSeen { event: usize },
    EventPending { event: usize },
    StreamSeen { stream: usize },
    StreamPending { stream: usize },
    DeviceSeen,
    NewOwner { block: Range<usize> },
    EventCreate { event: usize },
    EventDestroy { event: usize },
    StreamDestroy { stream: usize },
    Alloc { block: Range<usize> },
    Free { block: Range<usize> },
}

/// Describes the rule that was broken.
pub(crate) type Violation = String;

struct Op {
    touches: Vec<(Touch, u64)>,
    /// The operations that come before this one, and this one itself.
    before: Set,
}

/// The state after some calls.
#[derive(Default)]
pub(crate) struct Order {
    ops: Vec<Op>,
    /// Which operations each stream has seen.
    streams: HashMap<usize, Set>,
    /// Which operations each event had seen at its last record.
    events: HashMap<usize, Set>,
    /// Which operations the host knows to be done.
    host: Set,
    /// The range that each owner has had. If there are several, the latest counts.
    owners: Vec<Range<usize>>,
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Order {
    pub(crate) fn ops(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn seen_by_stream(&self, stream: usize) -> Set {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    pub(crate) fn seen_by_event(&self, event: usize) -> Set {
        self.events.get(&event).cloned().unwrap_or_default()
    }

    fn owner_of(&self, range: &Range<usize>) -> u64 {
        self.owners.iter().rposition(|owned| overlap(owned, range)).map_or(0, |index| index as u64 + 1)
    }

    /// Returns the earlier operations that conflict with these touches and are not in `before`, if `count` says that the two
    /// owners of the memory matter to each other.
    fn unordered(
        &self,
        touches: &[(Touch, u64)],
        before: &Set,
        count: impl Fn(u64, u64) -> bool,
    ) -> Vec<usize> {
        let conflicts = |op: &Op| {
            op.touches.iter().any(|(a, owner_a)| {
                touches.iter().any(|(b, owner_b)| {
                    overlap(&a.range, &b.range) && (a.write || b.write) && count(*owner_a, *owner_b)
                })
            })
        };
        let old = self.ops.iter().enumerate();
        old.filter(|(index, op)| !before.contains(*index) && conflicts(op)).map(|(index, _)| index).collect()
    }

    /// Returns the operations that a new operation would race with, including those of former owners of the memory.
    pub(crate) fn races(&self, stream: usize, touches: &[Touch]) -> Vec<usize> {
        self.races_where(stream, touches, |_, _| true)
    }

    /// Like [`races`](Self::races), but only with operations of the present owner.
    pub(crate) fn races_of_owner(&self, stream: usize, touches: &[Touch]) -> Vec<usize> {
        self.races_where(stream, touches, |old, new| old == new)
    }

    fn races_where(&self, stream: usize, touches: &[Touch], count: impl Fn(u64, u64) -> bool) -> Vec<usize> {
        let mut before = self.seen_by_stream(stream);
        before.extend(&self.host);
        self.unordered(&self.with_owners(touches), &before, count)
    }

    fn with_owners(&self, touches: &[Touch]) -> Vec<(Touch, u64)> {
        touches.iter().map(|touch| (touch.clone(), self.owner_of(&touch.range))).collect()
    }

    /// Checks that the host may touch these bytes, because conflicting operations cannot be running any more.
    pub(crate) fn check_host(&self, touch: &Touch) -> Result<(), Violation> {
        let racing = self.unordered(&self.with_owners(std::slice::from_ref(touch)), &self.host, |_, _| true);
        if racing.is_empty() { Ok(()) } else { Err(format!("host access {touch:?} races with {racing:?}")) }
    }

    fn check_done(&self, what: &str, set: &Set) -> Result<(), Violation> {
        if set.is_subset(&self.host) { Ok(()) } else { Err(format!("{what} while its work may be running")) }
    }

    /// Applies the next call. If it breaks a rule, returns which; the state is updated anyway.
    pub(crate) fn apply(&mut self, call: &Call) -> Result<(), Violation> {
        match call {
            Call::Op { stream, touches } => return self.apply_op(*stream, touches),
            Call::HostFn { stream } => return self.apply_op(*stream, &[]),
            Call::Record { event, stream, .. } => {
                let mut seen = self.seen_by_stream(*stream);
                seen.extend(&self.host);
                self.events.insert(*event, seen);
            }
            Call::Wait { stream, event, .. } => {
                let seen = self.seen_by_event(*event);
                self.streams.entry(*stream).or_default().extend(&seen);
            }
            Call::EventSeen { event } => self.host.extend(&self.seen_by_event(*event)),
            Call::StreamSeen { stream } => self.host.extend(&self.seen_by_stream(*stream)),
            Call::DeviceSeen => (0..self.ops.len()).for_each(|op| self.host.insert(op)),
            Call::NewOwner { block } => {
                self.owners.push(block.clone());
                // The library does not remember which bytes a former owner used, so the use counts for the whole range.
                let touches = self.ops.iter_mut().flat_map(|op| &mut op.touches);
                touches.filter(|(touch, _)| overlap(&touch.range, block)).for_each(|(touch, _)| {
                    touch.range = touch.range.start.min(block.start)..touch.range.end.max(block.end);
                });
            }
            Call::StreamDestroy { stream } => {
                return self.check_done("a stream was destroyed", &self.seen_by_stream(*stream));
            }
            Call::Free { block } => {
                let racing = self.unordered(
                    &[(Touch { range: block.clone(), write: true }, 0)],
                    &self.host,
                    |_, _| true,
                );
                if !racing.is_empty() {
                    return Err(format!("{block:?} was freed while {racing:?} may be running"));
                }
                // The driver may give the address to a new allocation.
                self.ops
                    .iter_mut()
                    .for_each(|op| op.touches.retain(|(touch, _)| !overlap(&touch.range, block)));
            }
            Call::Alloc { .. }
            | Call::EventPending { .. }
            | Call::StreamPending { .. }
            | Call::EventCreate { .. }
            | Call::EventDestroy { .. } => {}
        }
        Ok(())
    }

    fn apply_op(&mut self, stream: usize, touches: &[Touch]) -> Result<(), Violation> {
        let racing = self.races(stream, touches);
        let touches = self.with_owners(touches);
        let index = self.ops.len();
        let seen = self.streams.entry(stream).or_default();
        seen.extend(&self.host);
        seen.insert(index);
        self.ops.push(Op { touches, before: seen.clone() });
        if racing.is_empty() {
            return Ok(());
        }
        Err(format!("operation {index} on stream {stream} races with {racing:?}"))
    }

    /// Returns true if each operation's predecessors include their own predecessors. This checks the model itself.
    pub(crate) fn is_transitive(&self) -> bool {
        self.ops.iter().all(|op| {
            (0..self.ops.len())
                .filter(|&other| op.before.contains(other))
                .all(|other| self.ops[other].before.is_subset(&op.before))
        })
    }
}
