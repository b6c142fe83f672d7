//! Who used which bytes inside one recording.

use std::collections::HashMap;
use std::sync::Arc;

use gpustream_hal::Operation;
use smallvec::SmallVec;

use super::contents::{Contents, GraphOperation};
use crate::memory::Block;
use crate::stream_core::{Access, Kept};
use crate::track::{Clock, History, Point, StreamId, Use};

/// The operations of one recording, by index.
pub(super) type Operations = SmallVec<[usize; 2]>;

/// The tracker of one recording, and what its graph will refer to.
#[derive(Default)]
pub(super) struct Scope {
    histories: HashMap<*const Block, History>,
    pub(super) contents: Contents,
    /// Where the last thing that was kept lies. It is alive, so nothing else lies there.
    last_kept: usize,
}

// SAFETY: the pointers are keys and are never followed.
unsafe impl Send for Scope {}

impl Scope {
    /// The uses that an operation of `lane`, which comes after `clock`, conflicts with and does not come after.
    pub(super) fn missing(&self, lane: StreamId, clock: &Clock, access: &Access<'_>) -> SmallVec<[Use; 4]> {
        let mut missing = SmallVec::new();
        if let Some(history) = self.histories.get(&Arc::as_ptr(access.block)) {
            history.conflicts(&access.range, access.mode, |old| {
                if old.point.stream != lane && !clock.covers(old.point) {
                    missing.push(*old);
                }
            });
        }
        missing
    }

    /// Enters an operation at `point`, directly after the operations `after`.
    pub(super) fn enter<'a>(
        &mut self,
        point: Point,
        operation: Operation,
        accesses: impl Iterator<Item = &'a Access<'a>>,
        after: Operations,
    ) {
        let Self { histories, contents, .. } = self;
        for Access { block, range, mode } in accesses {
            let history =
                histories.entry(Arc::as_ptr(block)).or_insert_with(|| History::new(block.capacity, true));
            history.insert(range, *mode, Use::new(point, operation));
            contents.uses.add(block, range, *mode);
        }
        contents.operations.push(GraphOperation { operation, after });
    }

    /// Keeps something alive as long as the graph.
    pub(super) fn keep(&mut self, kept: Kept<'_>) {
        match kept {
            Kept::Nothing => {}
            Kept::Closure(call) => self.contents.calls.push(call.clone()),
            // One module often serves many nodes in a row.
            Kept::Module(module) if self.last_kept == Arc::as_ptr(module).addr() => {}
            Kept::Module(module) => {
                self.contents.keep(module.clone());
                self.last_kept = Arc::as_ptr(module).addr();
            }
        }
    }

    /// The next operation's index.
    pub(super) fn len(&self) -> usize {
        self.contents.operations.len()
    }

    /// Ends the recording.
    pub(super) fn finish(&mut self) -> Contents {
        self.histories.clear();
        std::mem::take(&mut self.contents)
    }
}

/// Adds operations that are not among `operations` yet.
pub(super) fn add(operations: &mut Operations, more: &[usize]) {
    for &index in more {
        if !operations.contains(&index) {
            operations.push(index);
        }
    }
}
