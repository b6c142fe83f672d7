//! Operations that a backend measures, each in one part or several.

use std::ops::Range;

use gpustream_hal::{self as hal, Ran};
use gpustream_timeline::{Nanos, Operation, Piece, WorkKind};

use super::timeline_kind;

/// How many looks we wait after a part arrived, because further parts may come.
const LOOKS: u8 = 2;

/// An operation that the backend measures.
pub(super) struct Measured {
    pub(super) operation: Operation,
    /// How often we have looked since the last part arrived; 0 if none has.
    pub(super) looks: u8,
    pub(super) device: u32,
    /// True if the backend said that this was the last part.
    last: bool,
    /// True if the parts add up to the whole operation, as far as we can tell from its kind.
    pub(super) is_whole: bool,
}

/// A part of an operation, as the backend measured it. It has no kind if there is nothing to show for it.
pub(super) struct MeasuredPart {
    label: String,
    ran: Range<Nanos>,
    work: Option<WorkKind>,
}

impl MeasuredPart {
    pub(super) fn of(ran: &Ran<'_>) -> Self {
        Self {
            label: ran.label.to_owned(),
            ran: ran.start..ran.end.max(ran.start),
            work: part_kind(ran.work),
        }
    }
}

impl Measured {
    pub(super) fn new(operation: Operation, device: u32) -> Self {
        Self { operation, looks: 0, device, last: false, is_whole: false }
    }

    /// Returns true if we expect no more parts. `is_passed` says that a later operation of the stream was measured: the
    /// kernels of a graph may run for long after the first one.
    pub(super) fn is_complete(&self, is_passed: bool) -> bool {
        self.last || self.looks > LOOKS && (self.is_whole || is_passed)
    }

    /// Returns true if the vendors' libraries do not measure operations of this kind.
    pub(super) fn has_no_parts(&self) -> bool {
        matches!(self.operation.work, WorkKind::Host | WorkKind::Other)
    }

    /// Adds a part. `last` says that no more will come.
    pub(super) fn take(&mut self, last: bool, part: MeasuredPart) {
        self.looks = 1;
        self.last |= last;
        let MeasuredPart { label, ran, work } = part;
        let whole = self.operation.ran.get_or_insert_with(|| ran.clone());
        *whole = whole.start.min(ran.start)..whole.end.max(ran.end);
        let part_bytes = match work {
            Some(WorkKind::Copy { bytes, .. }) => bytes,
            _ => 0,
        };
        self.is_whole |= match self.operation.work {
            WorkKind::Copy { bytes, .. } => part_bytes >= bytes,
            WorkKind::Kernel { .. } | WorkKind::Fill { .. } | WorkKind::Host => true,
            _ => false,
        };
        let alone = matches!(
            (self.operation.work, work),
            (WorkKind::Kernel { .. }, Some(WorkKind::Kernel { .. }))
                | (WorkKind::Copy { .. }, Some(WorkKind::Copy { .. }))
                | (WorkKind::Fill { .. }, Some(WorkKind::Fill { .. }))
                | (WorkKind::Host, _)
        );
        if let (false, Some(work)) = (alone, work) {
            self.operation.pieces.push(Piece { label: label.into(), ran, work });
        }
    }
}

/// Returns the kind of a part, or `None` if it has nothing to show.
fn part_kind(kind: hal::WorkKind) -> Option<WorkKind> {
    let kind = timeline_kind(kind);
    (!matches!(kind, WorkKind::Host | WorkKind::Other)).then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use gpustream_hal::CopyDirection;
    use gpustream_timeline::Direction;

    use super::*;

    fn measured(work: WorkKind) -> Measured {
        Measured::new(made_up(1, work), 1)
    }

    fn part(work: hal::WorkKind, start: u64) -> Ran<'static> {
        Ran { operation: 1, label: "", work, start, end: start + 10, last: false }
    }

    #[test]
    fn parts_may_come_long_after_the_first() {
        let kernel = hal::WorkKind::Kernel { grid: [1; 3], block: [1; 3] };
        let mut graph = measured(WorkKind::Graph { operations: 3 });
        for round in 0..3 {
            graph.take(false, MeasuredPart::of(&part(kernel, 100 * round)));
            graph.looks = u8::MAX;
            assert!(!graph.is_complete(false) && graph.is_complete(true));
        }
        assert_eq!((graph.operation.pieces.len(), graph.operation.ran), (3, Some(0..210)));

        let mut alone = measured(WorkKind::Kernel { grid: [1; 3], block: [1; 3] });
        alone.take(false, MeasuredPart::of(&part(kernel, 0)));
        assert!(!alone.is_complete(false));
        alone.looks = LOOKS + 1;
        assert!(alone.is_complete(false));

        let mut batch = measured(WorkKind::Copy { direction: Direction::Up, bytes: 8, pageable: false });
        batch.take(
            false,
            MeasuredPart::of(&part(hal::WorkKind::Copy { direction: CopyDirection::ToDevice, bytes: 4 }, 0)),
        );
        batch.looks = LOOKS + 1;
        assert!(!batch.is_complete(false));

        let mut told = measured(WorkKind::Graph { operations: 3 });
        told.take(true, MeasuredPart::of(&part(kernel, 0)));
        assert!(told.is_complete(false), "the backend said that it was the last");
    }
}
