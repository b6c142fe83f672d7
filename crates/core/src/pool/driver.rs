//! The driver's own stream-ordered pool, if your program prefers it.
//!
//! You may use memory from `cuMemAllocAsync` after the call's point in its stream. We treat that point as a use that an
//! earlier owner left, so other streams wait for it. We free the memory in the order of one stream, which first waits for
//! the uses on all others.

use std::collections::HashMap;
use std::sync::Arc;

use gpustream_hal::{CallSite, RawBuffer, Result, unheard};

use super::arena::Slab;
use super::source::{DeviceMemory, Source};
use super::stats::MemoryStats;
use super::{Holder, Pools, are_done};
use crate::memory::{self, Access, Backing, Block, Filling, MemoryKind, Returned};
use crate::reentrancy;
use crate::stream::{StreamEntry, StreamTable};
use crate::sync::{Mutex, lock};
use crate::trace;
use crate::track::{Mode, Point};

/// The end of the error text inside a capture.
const CAPTURED: &str = "allocate or free from the driver's pool inside it; allocate before, because the graph keeps its \
                        memory alive";

/// What we know about the memory from the driver's pool.
#[derive(Default)]
pub(super) struct DriverPool(Mutex<DriverPoolState>);

#[derive(Default)]
struct DriverPoolState {
    /// Sizes in bytes and holders of live allocations, by address.
    live: HashMap<usize, (usize, Holder)>,
    /// Ranges that were dropped and that we have not given back to the driver yet.
    frees: Vec<Returned>,
    /// The figures, except for the reserved bytes.
    counted: MemoryStats,
}

impl DriverPoolState {
    /// Returns how many bytes are in use or wait to be freed.
    fn reserved(&self) -> usize {
        self.counted.used as usize + self.frees.iter().map(|returned| returned.size).sum::<usize>()
    }
}

impl DriverPool {
    /// Fills `block` in stream order (`cuMemAllocAsync`). The block must be empty, and the caller must be its only holder.
    /// The allocation counts as `size` bytes, which we tell `limit`, and we ask the driver for `bytes`.
    pub(super) fn alloc(
        &self,
        limit: &DeviceMemory,
        (size, bytes): (usize, usize),
        holder: Holder,
        entry: &StreamEntry<'_>,
        block: &mut Arc<Block>,
    ) -> Result<()> {
        limit.take(MemoryKind::Device, size)?;
        let mut address = RawBuffer(0);
        // The block's history notes the point of the allocation, because other threads may submit right after it.
        block.history.lock().begin(size, None);
        let access = [Access { block: &*block, range: 0..size, mode: Mode::Write }];
        let outcome =
            entry.submit_outside_captures(CAPTURED, trace::WorkKind::Other, access.iter(), |raw, stream| {
                // SAFETY: the stream is alive.
                address = unsafe { raw.alloc_async(bytes, stream) }?;
                Ok(())
            });
        let uses = block.history.lock().end();
        let inner = &mut *lock(&self.0);
        if let Err(error) = outcome {
            // The driver may have allocated before something else failed.
            if address == RawBuffer(0) {
                limit.give_back(MemoryKind::Device, size);
            } else {
                let (kind, place) = (MemoryKind::Device, Backing::Driver);
                inner.frees.push(Returned { kind, place, address, size, uses });
            }
            return Err(error);
        }
        inner.live.insert(address.0, (size, holder));
        inner.counted.hand_out(size);
        inner.counted.miss(inner.reserved());
        if let Some(block) = Arc::get_mut(block) {
            block.fill(
                Filling { place: Backing::Driver, start: address.0, host: 0, size, uses },
                holder.requested,
                1,
            );
        }
        Ok(())
    }

    /// Notes a range for us to free later.
    pub(super) fn give_back(&self, returned: Returned) {
        let inner = &mut *lock(&self.0);
        inner.live.remove(&returned.address.0);
        inner.counted.take_back(returned.size);
        inner.frees.push(returned);
    }

    /// Frees the ranges that were dropped (`cuMemFreeAsync`). If we cannot free a range now, it stays for the next time.
    pub(super) fn flush(&self, pools: &Arc<Pools>) {
        if reentrancy::is_inside() {
            return;
        }
        let frees = std::mem::take(&mut lock(&self.0).frees);
        for returned in frees {
            let (kind, size) = (returned.kind, returned.size);
            match unheard(|| free(pools, returned)) {
                Some(returned) => lock(&self.0).frees.push(returned),
                None => pools.source.give_back(kind, size),
            }
        }
    }

    /// The device is gone, so frees without a stream those dropped ranges that we know are out of use.
    pub(super) fn free_done(&self, pools: &Pools) {
        let frees: Vec<_> = lock(&self.0)
            .frees
            .extract_if(.., |returned| returned.uses.as_ref().is_none_or(are_done))
            .collect();
        for Returned { kind, address, size, .. } in frees {
            // SAFETY: all uses of the range are done, and it has no holder. The plain call can also free memory from the
            // pool.
            unsafe { pools.source.free(kind, Slab { start: address.0, size, host: 0 }) };
        }
    }

    /// Returns how many bytes are in use or wait to be freed.
    pub(super) fn reserved(&self) -> usize {
        lock(&self.0).reserved()
    }

    pub(super) fn stats(&self) -> MemoryStats {
        let inner = &*lock(&self.0);
        MemoryStats { reserved: inner.reserved() as u64, ..inner.counted }
    }

    pub(super) fn live(&self) -> Vec<(usize, Holder)> {
        lock(&self.0).live.values().copied().collect()
    }
}

/// Frees a range, or returns it if we cannot free it now.
fn free(pools: &Arc<Pools>, mut returned: Returned) -> Option<Returned> {
    // If a stream is out of reach, we ask its events instead.
    let is_done = |point: Point| {
        StreamTable::shared().get(point.stream).is_none_or(|it| it.needs_no_wait(point.number))
    };
    let uses = returned.uses.get_or_insert_default();
    uses.retain(|old| !is_done(old.point));
    let mut target = None;
    for old in &*uses {
        let Some(stream) = StreamTable::shared().get(old.point.stream).filter(|stream| stream.is_reachable())
        else {
            continue;
        };
        // This thread may already hold the lock, because you can drop buffers anywhere. And in a capture we cannot free
        // anything.
        let usable = stream.try_state().is_some_and(|state| !state.is_recorded());
        if !usable {
            return Some(returned);
        }
        if Arc::ptr_eq(&stream.device, &pools.device) {
            target = Some(stream);
        }
    }
    let Some(stream) = target else {
        if !uses.is_empty() {
            return Some(returned);
        }
        memory::note_return();
        // SAFETY: all uses are done. The plain call can also free memory from the pool.
        let _ = unsafe { pools.device.free(returned.address) };
        return None;
    };
    memory::note_return();
    let operation = CallSite { label: "free", location: std::panic::Location::caller() };
    let Returned { address, size, uses, .. } = returned;
    let mut block = Block::empty(pools.clone(), MemoryKind::Device);
    block.fill(Filling { place: Backing::Driver, start: address.0, host: 0, size, uses }, size, 1);
    let mut block = Arc::new(block);
    let accesses = [Access { block: &block, range: 0..size, mode: Mode::Write }];
    let outcome = stream.enter(pools.rules, operation).and_then(|entry| {
        entry.submit_outside_captures(CAPTURED, trace::WorkKind::Other, accesses.iter(), |raw, stream| {
            // SAFETY: the uses of the memory are done or ordered before this point, by the access above.
            unsafe { raw.free_async(address, stream) }
        })
    });
    let left = Arc::get_mut(&mut block).and_then(Block::empty_out);
    // Freeing fails if the device is lost, or if a capture began just now.
    left.filter(|_| outcome.is_err())
}
