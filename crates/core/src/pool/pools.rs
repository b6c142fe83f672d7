//! A device's pools: their locks, and what to try when memory runs out.

use std::alloc::Layout;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use gpustream_hal::notice::{self, Level, Notice};
use gpustream_hal::{self as hal, Bytes, CallSite, DeviceInfo, Error, ErrorKind, Result};

use super::arena::{Owner, Taken};
use super::driver::DriverPool;
use super::growth::alloc_slab;
use super::options::{MemoryOptions, PoolPolicy};
use super::source::{DeviceMemory, Source, device_memory};
use super::state::PoolState;
use super::stats::{MemorySnapshot, MemoryStats};
use super::{ALIGNED, GRANULE, Holder, Users};
use crate::lint;
use crate::memory::{Backing, Block, MemoryKind};
use crate::operation::Rules;
use crate::stream::{StreamCore, StreamEntry, known_done};
use crate::sync::{Mutex, lock};
use crate::trace;
use crate::track::{Clock, Uses};

/// The pools of a device, one for each kind of memory. They live as long as the device or any of their blocks.
pub struct Pools {
    states: [Mutex<PoolState>; MemoryKind::ALL.len()],
    pub(super) driver: DriverPool,
    pub(super) source: DeviceMemory,
    /// Foreign and registered memory, arrays and modules' variables whose owners are gone, with the uses that may still be
    /// running.
    pub(super) orphans: Mutex<Vec<(Uses, Backing)>>,
    policy: PoolPolicy,
    pub(super) rules: Rules,
    /// Set when the device is gone. From then on, memory that no one holds goes back to the driver. We set it before we lock
    /// and take out the shells, and read it under that lock.
    pub(super) closed: AtomicBool,
    pub(super) device: Arc<dyn hal::Device>,
    pub(super) this: Weak<Self>,
}

/// A request for memory.
#[derive(Clone, Copy)]
struct Request {
    kind: MemoryKind,
    layout: Layout,
    /// In bytes, with room to align, rounded up.
    size: usize,
    holder: Holder,
}

/// Returns how many bytes to allocate so that memory with this layout can begin at an aligned address.
#[inline]
fn with_slack(layout: Layout) -> Option<usize> {
    layout.size().checked_add(layout.align().saturating_sub(ALIGNED))
}

/// Rounds a request up to the pool's granule, and a large one a little more, so that a request of a similar size fits into
/// the same place later.
#[inline]
pub(crate) fn rounded(bytes: usize) -> Option<usize> {
    let step = if bytes < 1 << 20 { GRANULE } else { (1 << bytes.ilog2()) >> 7 };
    let size = bytes.max(1).checked_next_multiple_of(step)?;
    isize::try_from(size).is_ok().then_some(size)
}

impl Pools {
    pub(crate) fn new(device: Arc<dyn hal::Device>, mut options: MemoryOptions, rules: Rules) -> Arc<Self> {
        if options.pool == PoolPolicy::Driver && !device.info().features.memory_pools {
            options.pool = PoolPolicy::Library;
        }
        if options.pool == PoolPolicy::Library && device.info().quirks.checked {
            options.pool = PoolPolicy::Unpooled;
        }
        let source = device_memory(device.clone(), options.limit);
        let (states, driver, orphans, closed) = Default::default();
        Arc::new_cyclic(|this| Self {
            states,
            driver,
            source,
            orphans,
            policy: options.pool,
            rules,
            closed,
            device,
            this: this.clone(),
        })
    }

    /// Returns true if we cut ranges of this kind out of larger slabs, and keep them.
    #[inline]
    pub(super) fn is_pooled(&self, kind: MemoryKind) -> bool {
        match self.policy {
            // The driver moves managed memory, and takes advice about it, by page. So two allocations must not share one.
            _ if kind == MemoryKind::Managed => false,
            PoolPolicy::Library => true,
            PoolPolicy::Driver => kind != MemoryKind::Device,
            PoolPolicy::Unpooled => false,
        }
    }

    #[inline]
    pub(super) fn pool(&self, kind: MemoryKind) -> &Mutex<PoolState> {
        &self.states[kind as usize]
    }

    /// Allocates memory of this layout. If there is an `entry`, the memory's earlier uses come before the next operation of
    /// its stream. If need be, the block's history makes that operation wait. Without an entry, the earlier uses are done.
    #[inline]
    pub fn alloc(
        self: &Arc<Self>,
        users: &dyn Users,
        kind: MemoryKind,
        layout: Layout,
        entry: Option<&StreamEntry<'_>>,
        call_site: CallSite,
    ) -> Result<Arc<Block>> {
        let Some(size) = with_slack(layout).and_then(rounded) else {
            return Err(too_large(layout.size(), call_site));
        };
        let request = Request { kind, layout, size, holder: Holder { requested: layout.size(), call_site } };
        if self.is_pooled(kind) {
            let mut state = lock(self.pool(kind));
            if state.arena(size).is_unsettled() {
                drop(state);
                self.poll_and_settle(users, &request);
                state = lock(self.pool(kind));
            }
            let state = &mut *state;
            if let Some(taken) =
                state.arena(size).take(size, entry.map(|entry| entry.stream.id), request.holder)
            {
                state.hit();
                return Ok(self.block(state, &request, taken));
            }
        }
        self.alloc_slowly(users, &request, entry).map_err(|error| error.with_call_site(call_site))
    }

    /// Tells listeners how much device memory is in use.
    #[inline]
    pub(super) fn trace_memory(&self, state: &PoolState, kind: MemoryKind) {
        if trace::is_on() && kind == MemoryKind::Device {
            trace::memory(&self.device, state.used(), state.reserved() as u64);
        }
    }

    /// Makes a block of the range that we took.
    #[inline]
    fn block(self: &Arc<Self>, state: &mut PoolState, request: &Request, taken: Taken) -> Arc<Block> {
        let shell = state.hand_out(taken.size);
        self.trace_memory(state, request.kind);
        if let Some(mut shell) = shell
            && let Some(block) = Arc::get_mut(&mut shell)
        {
            block.fill(taken.into(), request.layout.size(), request.layout.align());
            return shell;
        }
        let mut block = Block::empty(self.clone(), request.kind);
        block.fill(taken.into(), request.layout.size(), request.layout.align());
        Arc::new(block)
    }

    /// Tries, in this order: ranges that have become free, or that had several owners; the driver; ranges that are still in
    /// use, if a stream can wait for them; the driver again after idle slabs went back to it, and once more after all work
    /// is done.
    #[cold]
    fn alloc_slowly(
        self: &Arc<Self>,
        users: &dyn Users,
        request: &Request,
        entry: Option<&StreamEntry<'_>>,
    ) -> Result<Arc<Block>> {
        if self.is_of_driver(request.kind)
            // We free this memory by the block's address, so we cannot skip anything at the front to align the block.
            && request.layout.align() <= ALIGNED
            && let Some(entry) = entry
            // The driver would record this call. So we use the plain allocator, and keep and free its memory as if there
            // were no pool.
            && !entry.stream.is_recorded()
        {
            return self.alloc_of_driver(users, request, entry);
        }
        let stream = entry.map(|entry| entry.stream);
        let clock = stream.map(|stream| stream.state.lock().clock.clone()).unwrap_or_default();
        if self.is_pooled(request.kind) {
            if let Some(block) = self.reuse(request, stream, &clock) {
                return Ok(block);
            }
            let pending = lock(self.pool(request.kind)).pending();
            if pending >= request.size {
                users.poll();
                if let Some(block) = self.reuse(request, stream, &clock) {
                    return Ok(block);
                }
            }
        } else {
            // We keep nothing, so memory that is out of use goes back, unless we would have to wait for other work.
            users.poll();
            if !self.device.info().quirks.free_synchronizes || users.known_idle() {
                self.trim_for(request);
            }
        }
        if let Some(block) = self.try_grow(request, stream)? {
            return Ok(block);
        }
        if stream.is_some()
            && let Some(block) = self.steal(request)
        {
            return Ok(block);
        }
        if self.trim_for(request) > 0
            && let Some(block) = self.try_grow(request, stream)?
        {
            return Ok(block);
        }
        users.wait()?;
        if let Some(block) = self.reuse(request, stream, &clock) {
            return Ok(block);
        }
        self.trim_all();
        self.grow(request, stream).map_err(|error| self.explain(error, request))
    }

    /// Calls [`grow`](Self::grow), and returns `None` if there is no more memory.
    fn try_grow(
        self: &Arc<Self>,
        request: &Request,
        stream: Option<&StreamCore>,
    ) -> Result<Option<Arc<Block>>> {
        match self.grow(request, stream) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(None),
            other => other.map(Some),
        }
    }

    /// Gives idle memory back to make room for `request`. Returns how many bytes that was.
    fn trim_for(&self, request: &Request) -> u64 {
        let freed = self.trim(request.kind);
        if freed > 0 && self.device.info().quirks.free_synchronizes {
            let why = "this allocation first returns freed memory to the driver, which waits for all work on the device; \
                       keep less memory alive at a time";
            lint::serialises_at(why, request.holder.call_site.location);
        }
        freed
    }

    /// Asks the driver's pool. If it has no more memory, frees all dropped memory and asks again.
    fn alloc_of_driver(
        self: &Arc<Self>,
        users: &dyn Users,
        request: &Request,
        entry: &StreamEntry<'_>,
    ) -> Result<Arc<Block>> {
        let Request { size, holder, kind, layout } = *request;
        self.driver.flush(self);
        let bytes = self.exact(layout);
        let mut block = Arc::new(Block::empty(self.clone(), kind));
        let mut alloc = || self.driver.alloc(&self.source, (size, bytes), holder, entry, &mut block);
        match alloc() {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                users.wait()?;
                self.trim_all();
                alloc().map_err(|error| self.explain(error, request))?;
            }
            other => other?,
        }
        Ok(block)
    }

    /// Asks the driver which work is done, and merges the ranges that have no uses left.
    #[cold]
    fn poll_and_settle(&self, users: &dyn Users, request: &Request) {
        users.poll();
        lock(self.pool(request.kind)).arena(request.size).settle(known_done);
    }

    /// Takes a range that, as far as we know, `stream` may have. If need be, joins neighbours of different owners.
    fn reuse(
        self: &Arc<Self>,
        request: &Request,
        stream: Option<&StreamCore>,
        clock: &Clock,
    ) -> Option<Arc<Block>> {
        if !self.is_pooled(request.kind) {
            return None;
        }
        let state = &mut *lock(self.pool(request.kind));
        let Request { size, holder, .. } = *request;
        let arena = state.arena(size);
        arena.settle(known_done);
        let taken = arena.take(size, stream.map(|stream| stream.id), holder).or_else(|| {
            let stream = stream?;
            arena.gather(size, Owner::Stream(stream.id), holder, |uses| {
                uses.iter().all(|old| old.point.stream == stream.id || clock.covers(old.point))
            })
        })?;
        state.hit();
        Some(self.block(state, request, taken))
    }

    /// Takes memory that other streams still use. The first access must wait for them.
    fn steal(self: &Arc<Self>, request: &Request) -> Option<Arc<Block>> {
        let Request { kind, size, holder, .. } = *request;
        let state = &mut *lock(self.pool(kind));
        let taken = if self.is_pooled(kind) {
            state.arena(size).gather(size, Owner::Several, holder, |_| true)?
        } else {
            state.arena(size).take_slab(self.exact(request.layout), holder)?
        };
        state.hit();
        Some(self.block(state, request, taken))
    }

    /// Asks the driver for a slab. If there is no room for one, asks only for the request's size.
    fn grow(self: &Arc<Self>, request: &Request, stream: Option<&StreamCore>) -> Result<Arc<Block>> {
        let Request { kind, size, holder, .. } = *request;
        let exact = self.exact(request.layout);
        let slab = trace::on_behalf(holder.call_site.location, || {
            if self.is_pooled(kind) {
                alloc_slab(&self.source, kind, size, self.reserved(kind))
            } else {
                self.source.alloc(kind, size, exact)
            }
        })?;
        let state = &mut *lock(self.pool(kind));
        let arena = state.arena(size);
        let taken = if self.is_pooled(kind) {
            arena.add_slab(slab);
            arena.take(size, stream.map(|stream| stream.id), holder)
        } else {
            arena.take_new(slab, exact, holder)
        };
        state.miss();
        // The thread that asks for memory may hold locks.
        notice::later(Level::Debug, || {
            let DeviceInfo { backend, ordinal, .. } = self.device.info();
            Notice::PoolGrew {
                device: format!("{backend}:{ordinal}"),
                memory: kind.name(),
                bytes: slab.size as u64,
                reserved: state.reserved() as u64,
                location: holder.call_site.location,
            }
        });
        let taken = taken
            .ok_or_else(|| Error::new(ErrorKind::Driver, "a new slab has no room; please report this bug"))?;
        Ok(self.block(state, request, taken))
    }

    /// Returns how long an allocation is if the driver makes it just for one request: exactly as long as was asked for,
    /// because tools that look for accesses outside an allocation know no other length. So we cannot reuse a freed one for a
    /// request of another length: it may be shorter than the size that we count for it.
    fn exact(&self, layout: Layout) -> usize {
        let bytes = with_slack(layout).unwrap_or(layout.size());
        if self.device.info().quirks.checked { bytes } else { bytes.max(1) }
    }

    /// Returns true if memory of this kind comes from the driver's own pool.
    pub(crate) fn is_of_driver(&self, kind: MemoryKind) -> bool {
        kind == MemoryKind::Device && self.policy == PoolPolicy::Driver
    }

    /// Returns how many bytes we took from the driver.
    fn reserved(&self, kind: MemoryKind) -> usize {
        let of_driver = if self.is_of_driver(kind) { self.driver.reserved() } else { 0 };
        of_driver + lock(self.pool(kind)).reserved()
    }

    /// Returns true if the pools have memory that the driver only takes back while nothing runs in the context.
    pub(crate) fn free_would_wait(&self) -> bool {
        self.device.info().quirks.free_synchronizes
            && MemoryKind::ALL.iter().any(|&kind| self.reserved(kind) > 0)
    }

    pub fn stats(&self, kind: MemoryKind) -> MemoryStats {
        let stats = lock(self.pool(kind)).stats();
        if self.is_of_driver(kind) { stats.with(&self.driver.stats()) } else { stats }
    }

    pub fn snapshot(&self, kind: MemoryKind) -> MemorySnapshot {
        let of_driver = if self.is_of_driver(kind) { self.driver.live() } else { Vec::new() };
        let stats = self.stats(kind);
        let state = lock(self.pool(kind));
        MemorySnapshot::new(stats, state.live().chain(of_driver.iter().map(|(size, holder)| (*size, holder))))
    }

    /// If an error says that there is no more memory, adds who holds it.
    #[cold]
    fn explain(&self, error: Error, request: &Request) -> Error {
        if error.kind() != ErrorKind::OutOfMemory {
            return error;
        }
        let snapshot = self.snapshot(request.kind);
        let mut context = format!(
            "no room for {} ({} bytes) of {}",
            Bytes(request.holder.requested as u64),
            request.holder.requested,
            request.kind.name()
        );
        if snapshot.stats.reserved > 0 {
            context += &format!(": {}", snapshot.summary(5));
        }
        error.with_context(context)
    }
}

#[cold]
pub(super) fn too_large(bytes: usize, call_site: CallSite) -> Error {
    Error::new(
        ErrorKind::OutOfMemory,
        format!("you asked for {bytes} bytes, but the address space is smaller than that; ask for fewer"),
    )
    .with_call_site(call_site)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_holds_the_request_and_loses_little() {
        for bytes in (0..5000).chain([1 << 20, (1 << 20) + 1, (1 << 40) + 12345]) {
            let size = rounded(bytes).unwrap();
            assert!(size >= bytes.max(1) && size.is_multiple_of(GRANULE), "{bytes} -> {size}");
            assert!(size - bytes <= GRANULE.max(bytes / 64), "{bytes} -> {size}");
            assert_eq!(rounded(size), Some(size), "{bytes}");
        }
        assert_eq!(rounded(usize::MAX), None);
    }
}
