//! The tracker of one recording: the bytes that its operations touch, and their order.

use std::collections::HashMap;
use std::sync::Arc;

use gpustream_hal::{Operation, Result};
use smallvec::SmallVec;

use super::contents::{Contents, GraphOperation};
use crate::memory::{Access, Block};
use crate::operation::{Kept, hazard};
use crate::track::{Clock, History, Point, StreamId, Tracking, Use};

/// The operations of one recording, by index.
pub(crate) type Operations = SmallVec<[usize; 2]>;

/// The histories of one recording, and the contents of its future graph.
#[derive(Default)]
pub(crate) struct Scope {
    histories: HashMap<*const Block, History>,
    pub(crate) contents: Contents,
    /// The address of the module that was kept last; 0 before. The module is alive, so nothing else has that address.
    last_kept: usize,
}

// SAFETY: the pointers are keys and are never followed.
unsafe impl Send for Scope {}

impl Scope {
    /// Returns the points that an operation of `lane` with this `clock` must come after because of `access`, and does
    /// not come after yet. The list is empty where nobody orders.
    ///
    /// # Errors
    /// [`ErrorKind::Hazard`](gpustream_hal::ErrorKind::Hazard) where the user orders, and such a point exists.
    pub(crate) fn missing(
        &self,
        tracking: Option<Tracking>,
        operation: Operation,
        (lane, clock): (StreamId, &Clock),
        access: &Access<'_>,
    ) -> Result<SmallVec<[Point; 4]>> {
        let (mut missing, mut first) = (SmallVec::new(), None);
        if let (Some(_), Some(history)) = (tracking, self.histories.get(&Arc::as_ptr(access.block))) {
            history.conflicts(&access.range, access.mode, |old| {
                if old.point.stream != lane && !clock.covers(old.point) {
                    first.get_or_insert(old.operation);
                    missing.push(old.point);
                }
            });
        }
        match (tracking, first) {
            (Some(Tracking::Strict), Some(old)) => Err(hazard(operation, old)),
            _ => Ok(missing),
        }
    }

    /// Enters an operation at `point`, directly after the operations `after`.
    pub(crate) fn enter(
        &mut self,
        point: Point,
        operation: Operation,
        accesses: &[&Access<'_>],
        after: Operations,
    ) {
        let Self { histories, contents, .. } = self;
        for Access { block, range, mode } in accesses {
            let history =
                histories.entry(Arc::as_ptr(block)).or_insert_with(|| History::new(block.capacity, true));
            history.insert(range, *mode, Use::new(point, operation));
            contents.uses.add(block, range, *mode);
        }
        contents.operations.push(GraphOperation { operation, after, body: Vec::new() });
    }

    /// Keeps a value alive as long as the graph.
    pub(crate) fn keep(&mut self, kept: Kept<'_>) {
        match kept {
            Kept::Nothing => {}
            Kept::Closure(call) => self.contents.calls.push(call.clone()),
            // One module often serves many nodes in a row.
            Kept::Kernel(module, _) if self.last_kept == Arc::as_ptr(module).addr() => {}
            Kept::Kernel(module, _) => {
                self.contents.keep(module.clone());
                self.last_kept = Arc::as_ptr(module).addr();
            }
        }
    }

    /// Takes the contents of a conditional node's body, whose operation was entered last.
    pub(crate) fn take_body(&mut self, mut body: Contents) {
        if let Some(last) = self.contents.operations.last_mut() {
            last.body = std::mem::take(&mut body.operations);
        }
        self.contents.merge(body);
        self.contents.conditional = true;
    }

    /// Returns the index of the next operation.
    pub(crate) fn len(&self) -> usize {
        self.contents.operations.len()
    }

    /// Ends the recording, and returns its contents.
    pub(crate) fn finish(&mut self) -> Contents {
        self.histories.clear();
        std::mem::take(&mut self.contents)
    }
}

/// Adds operations that are not among `operations` yet.
pub(crate) fn add(operations: &mut Operations, more: &[usize]) {
    for &index in more {
        if !operations.contains(&index) {
            operations.push(index);
        }
    }
}
