//! Operations that a backend measures, and the parts that it tells of.

use std::ops::Range;

use gpustream_hal::{Ran, RanWork};
use gpustream_timeline::{Direction, Nanos, Operation, Piece, Work};

/// The looks for which an operation with measured parts is kept, in case there are more.
pub(super) const LOOKS: u8 = 2;

/// An operation that a backend measures.
pub(super) struct Measured {
    pub(super) operation: Operation,
    /// The looks since the last part came; 0 while none has come.
    pub(super) looks: u8,
    pub(super) last: bool,
    pub(super) device: u32,
}

/// A part of an operation, as a backend measured it; without a kind where the part is nothing to show.
pub(super) struct Part {
    label: String,
    ran: Range<Nanos>,
    work: Option<Work>,
}

impl Part {
    pub(super) fn of(ran: &Ran<'_>) -> Self {
        Self { label: ran.label.to_owned(), ran: ran.start..ran.end.max(ran.start), work: work_of(ran.work) }
    }
}

impl Measured {
    /// Adds a part; `last` says that there are no more.
    pub(super) fn take(&mut self, last: bool, part: Part) {
        self.looks = 1;
        self.last |= last;
        let Part { label, ran, work } = part;
        let whole = self.operation.ran.get_or_insert_with(|| ran.clone());
        *whole = whole.start.min(ran.start)..whole.end.max(ran.end);
        let alone = matches!(
            (self.operation.work, work),
            (Work::Kernel { .. }, Some(Work::Kernel { .. }))
                | (Work::Copy { .. }, Some(Work::Copy { .. }))
                | (Work::Fill { .. }, Some(Work::Fill { .. }))
                | (Work::Host, _)
        );
        if let (false, Some(work)) = (alone, work) {
            self.operation.pieces.push(Piece { label: label.into(), ran, work });
        }
    }
}

fn work_of(work: RanWork) -> Option<Work> {
    let copy = |direction, bytes| Some(Work::Copy { direction, bytes, pageable: false });
    match work {
        RanWork::Kernel { grid, block } => Some(Work::Kernel { grid, block }),
        RanWork::CopyToDevice { bytes } => copy(Direction::Up, bytes),
        RanWork::CopyToHost { bytes } => copy(Direction::Down, bytes),
        RanWork::CopyOnDevice { bytes } => copy(Direction::Inside, bytes),
        RanWork::CopyFromPeer { bytes } => copy(Direction::Peer, bytes),
        RanWork::Fill { bytes } => Some(Work::Fill { bytes }),
        _ => None,
    }
}
