//! The tracker of one recording: the bytes that its operations touch, and their order.

use std::alloc::Layout;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use gpustream_hal::{CallSite, Result};
use smallvec::SmallVec;

use super::allocated::Allocated;
use super::contents::{Contents, GraphOperation};
use crate::memory::{Access, Block, Home};
use crate::operation::{Caller, Retained, hazard};
use crate::track::{Clock, History, Mode, Point, StreamId, Tracking, Use};

/// The operations of one recording, by index.
pub(crate) type Operations = SmallVec<[usize; 2]>;

/// What an operation needs. This decides its order with others.
#[derive(Clone, Copy)]
pub(crate) struct Needs<'a> {
    pub(crate) accesses: &'a [&'a Access<'a>],
    /// True if it is or contains a kernel whose blocks wait for each other. If two of them ran at once, each might get a
    /// part of the device and wait forever for the rest.
    pub(crate) whole_device: bool,
}

/// The histories of one recording, and the contents of its future graph.
#[derive(Default)]
pub(crate) struct Scope {
    histories: HashMap<*const Block, History>,
    pub(crate) contents: Contents,
    /// The last operation that needs the whole device. The next such operation comes after it, and so after all earlier
    /// ones.
    on_whole_device: Option<Point>,
    /// The memory that was allocated inside the recording, by the pools it is from.
    allocated: SmallVec<[Arc<Allocated>; 1]>,
    /// The address of the module that we kept last. The module is alive, so nothing else has that address.
    last_kept: Option<usize>,
}

// SAFETY: the pointers are keys and are never followed.
unsafe impl Send for Scope {}

impl Scope {
    /// Returns the points that an operation of `chain` with this `clock` must come after because of `access`, but does not
    /// come after yet. If there is no tracking, the list is empty.
    ///
    /// # Errors
    /// [`Hazard`](gpustream_hal::ErrorKind::Hazard) if you order operations yourself, and there is such a point.
    pub(crate) fn missing(
        &self,
        caller: &Caller,
        (chain, clock): (StreamId, &Clock),
        access: &Access<'_>,
    ) -> Result<SmallVec<[Point; 4]>> {
        let (mut missing, mut first) = (SmallVec::new(), None);
        let Some(history) = self.histories.get(&Arc::as_ptr(access.block)) else { return Ok(missing) };
        history.conflicts(&access.range, access.mode, |old| {
            if old.point.stream == chain || clock.covers(old.point) {
                return;
            }
            match caller.rules.tracking {
                None if !old.recycled => {}
                Some(Tracking::Strict) if !old.recycled => drop(first.get_or_insert(old.call_site)),
                _ => missing.push(old.point),
            }
        });
        first.map_or(Ok(missing), |old| Err(hazard(caller.call_site, old)))
    }

    /// Returns the point that an operation which needs the whole device must come after, but does not come after yet. This
    /// does not depend on the tracking, because we order such operations in any case.
    pub(crate) fn missing_device(&self, (chain, clock): (StreamId, &Clock)) -> Option<Point> {
        self.on_whole_device.filter(|&last| last.stream != chain && !clock.covers(last))
    }

    /// Hands out memory of this layout that was allocated inside from `pools`. Its owner must be gone, it must have as many
    /// bytes as `room` allows, and everything that the recording did there must come before the next operation. `is_before`
    /// tells that for each point.
    pub(crate) fn reuse(
        &mut self,
        pools: &Arc<dyn Home>,
        room: &RangeInclusive<usize>,
        layout: Layout,
        is_before: &dyn Fn(Point) -> bool,
    ) -> Option<Arc<Block>> {
        let Self { histories, contents, allocated, .. } = self;
        let allocated = allocated.iter().find(|allocated| allocated.is_of(pools))?;
        let block = allocated.take(room, |block| {
            // If another graph refers to the memory, that graph relies on its contents. And if something outside put values
            // there, this graph relies on them.
            let is_ours = Arc::strong_count(block) == 1 + usize::from(contents.uses.touch(block));
            let is_aligned = block.address.0.is_multiple_of(layout.align());
            let mut usable = is_ours && is_aligned && block.history.lock().is_unwritten();
            if let Some(history) = histories.get(&Arc::as_ptr(block)) {
                history.conflicts(&(0..block.capacity), Mode::Write, |old| usable &= is_before(old.point));
            }
            usable
        })?;
        if let Some(history) = histories.get_mut(&Arc::as_ptr(&block)) {
            history.begin_again(0);
        }
        block.history.lock().begin_again(layout.size());
        Some(block)
    }

    /// Makes a block part of the recording. It was just allocated from `pools` and has room for `room` bytes.
    pub(crate) fn adopt(&mut self, pools: &Arc<dyn Home>, block: &mut Arc<Block>, room: usize) {
        let index = self.allocated.iter().position(|allocated| allocated.is_of(pools)).unwrap_or_else(|| {
            self.allocated.push(Allocated::new(pools.clone()));
            self.allocated.len() - 1
        });
        self.allocated[index].add(block, room);
    }

    /// Enters an operation at `point`. It directly follows the operations `after`.
    pub(crate) fn enter(
        &mut self,
        point: Point,
        call_site: CallSite,
        Needs { accesses, whole_device }: Needs<'_>,
        after: Operations,
    ) {
        if whole_device {
            self.on_whole_device = Some(point);
            self.contents.uses.whole_device = true;
        }
        let Self { histories, contents, .. } = self;
        for Access { block, range, mode } in accesses {
            let history =
                histories.entry(Arc::as_ptr(block)).or_insert_with(|| History::new(block.capacity, true));
            history.insert(range, *mode, || Use::new(point, call_site));
            contents.uses.add(block, range, *mode);
        }
        contents.operations.push(GraphOperation { call_site, after, body: Vec::new() });
    }

    /// Keeps a value alive as long as the graph.
    pub(crate) fn keep(&mut self, kept: Retained<'_>) {
        match kept {
            Retained::Nothing => {}
            Retained::Closure(call) => self.contents.calls.push(call.clone()),
            // One module often serves many nodes in a row.
            Retained::Kernel { module, .. } if self.last_kept == Some(Arc::as_ptr(module).addr()) => {}
            Retained::Kernel { module, .. } => {
                self.contents.keep(module.clone());
                self.last_kept = Some(Arc::as_ptr(module).addr());
            }
        }
    }

    /// Takes the contents of a conditional node's body. The node's operation must be the one entered last.
    pub(crate) fn take_body(&mut self, mut body: Contents) {
        if let Some(last) = self.contents.operations.last_mut() {
            last.body = std::mem::take(&mut body.operations);
        }
        self.contents.merge(body);
    }

    /// Returns the index of the next operation.
    pub(crate) fn len(&self) -> usize {
        self.contents.operations.len()
    }

    /// Ends the recording, and returns its contents.
    pub(crate) fn finish(&mut self) -> Contents {
        self.histories.clear();
        self.allocated.drain(..).for_each(|allocated| allocated.close());
        std::mem::take(&mut self.contents)
    }
}

impl Drop for Scope {
    /// If a recording was dropped before its end, breaks the circle of blocks and their home.
    fn drop(&mut self) {
        self.finish();
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
