//! A device's pools: locks, growth, and the steps to take when there is no more memory.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gpustream_hal::{self as hal, Error, ErrorKind, Operation, PinnedOptions, Result};

use super::arena::{Arena, Owner, Slab, Taken};
use super::driver::DriverPool;
use super::lists::Segregated;
use super::options::{MemoryOptions, PoolPolicy};
use super::stats::{Bytes, MemorySnapshot, MemoryStats};
use super::{GRANULE, Holder, Users};
use crate::lint;
use crate::memory::{Block, Kind, PAGE_LOCKED, Registration};
use crate::operation::Rules;
use crate::queue::{StreamCore, StreamTable};
use crate::sync::{Mutex, lock};
use crate::track::{Clock, Uses};

/// The largest size of a small request, in bytes. Small requests share slabs of their own, so that a long-lived one
/// does not keep a large slab from being given back.
pub(super) const SMALL: usize = 128 << 10;

/// The most emptied blocks that are kept to be filled again.
pub(super) const SHELLS: usize = 4096;

#[derive(Default)]
pub(super) struct PoolState {
    pub(super) small: Arena<Segregated>,
    pub(super) large: Arena<Segregated>,
    /// Blocks without memory, so that a warm pool allocates nothing on the heap.
    pub(super) shells: Vec<Arc<Block>>,
    pub(super) used: usize,
    peak: usize,
    peak_reserved: usize,
    pub(super) live: usize,
    hits: u64,
    misses: u64,
}

impl PoolState {
    #[inline]
    pub(super) fn arena(&mut self, size: usize) -> &mut Arena<Segregated> {
        if size <= SMALL { &mut self.small } else { &mut self.large }
    }

    fn reserved(&self) -> usize {
        self.small.reserved() + self.large.reserved()
    }

    fn pending(&self) -> usize {
        self.small.pending() + self.large.pending()
    }

    fn stats(&self) -> MemoryStats {
        MemoryStats {
            used: self.used as u64,
            peak: self.peak as u64,
            reserved: self.reserved() as u64,
            peak_reserved: self.peak_reserved as u64,
            longest_free: self.small.longest_free().max(self.large.longest_free()) as u64,
            live: self.live as u64,
            hits: self.hits,
            misses: self.misses,
        }
    }

    fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot::new(self.stats(), self.small.live().chain(self.large.live()))
    }
}

/// The pools of a device, one for each kind of memory. Pools live as long as the device or a block of theirs, whichever
/// is longer.
pub(crate) struct Pools {
    states: [Mutex<PoolState>; Kind::ALL.len()],
    pub(super) driver: DriverPool,
    /// Held while the driver is asked for more memory under a limit, so that two threads do not exceed the limit
    /// together.
    growth: Mutex<()>,
    /// Registered memory whose owner is gone, with the uses that may still go on.
    pub(super) orphans: Mutex<Vec<(Uses, Box<Registration>)>>,
    options: MemoryOptions,
    pub(super) rules: Rules,
    /// Set when the device is gone: from then on memory that nobody holds goes back to the driver. Set before the
    /// shells are taken out under their lock, and read under that lock.
    pub(super) closed: AtomicBool,
    pub(super) device: Arc<dyn hal::Device>,
}

/// A request for memory.
#[derive(Clone, Copy)]
struct Request {
    kind: Kind,
    /// In bytes, rounded up.
    size: usize,
    holder: Holder,
}

/// Rounds a request up to the pool's granule, and a large one a little more, so that requests of similar size fit each
/// other's place.
pub(crate) fn rounded(bytes: usize) -> Option<usize> {
    let step = if bytes < 1 << 20 { GRANULE } else { (1 << bytes.ilog2()) >> 7 };
    let size = bytes.max(1).checked_next_multiple_of(step)?;
    isize::try_from(size).is_ok().then_some(size)
}

impl Pools {
    pub(crate) fn new(device: Arc<dyn hal::Device>, mut options: MemoryOptions, rules: Rules) -> Arc<Self> {
        if options.pool == PoolPolicy::Driver && !device.info().memory_pools {
            options.pool = PoolPolicy::Library;
        }
        if options.pool == PoolPolicy::Library && device.info().checked {
            options.pool = PoolPolicy::Unpooled;
        }
        let (states, driver, growth, orphans, closed) = Default::default();
        Arc::new(Self { states, driver, growth, orphans, options, rules, closed, device })
    }

    /// Returns whether ranges of this kind are cut out of larger slabs, and kept.
    #[inline]
    fn is_pooled(&self, kind: Kind) -> bool {
        match self.options.pool {
            // Managed memory is moved and advised about by page, so two allocations must not share one.
            _ if kind == Kind::Managed => false,
            PoolPolicy::Library => true,
            PoolPolicy::Driver => kind != Kind::Device,
            PoolPolicy::Unpooled => false,
        }
    }

    #[inline]
    pub(super) fn pool(&self, kind: Kind) -> &Mutex<PoolState> {
        &self.states[kind as usize]
    }

    /// Allocates at least `bytes` bytes. With a `stream`, the earlier uses of the memory come before the next operation
    /// of that stream, if need be because the block's history makes that operation wait. Without a stream, the earlier
    /// uses are done.
    #[inline]
    pub(crate) fn alloc(
        self: &Arc<Self>,
        users: &dyn Users,
        kind: Kind,
        bytes: usize,
        stream: Option<&StreamCore>,
        operation: Operation,
    ) -> Result<Arc<Block>> {
        let Some(size) = rounded(bytes) else { return Err(too_large(bytes, operation)) };
        let request = Request { kind, size, holder: Holder { requested: bytes, operation } };
        if self.is_pooled(kind) {
            let mut state = lock(self.pool(kind));
            if state.arena(size).is_unsettled() {
                drop(state);
                self.settle(users, &request);
                state = lock(self.pool(kind));
            }
            let state = &mut *state;
            if let Some(taken) = state.arena(size).take(size, stream.map(|stream| stream.id), request.holder)
            {
                state.hits += 1;
                return Ok(self.block(state, &request, taken));
            }
        }
        self.alloc_slowly(users, &request, stream).map_err(|error| error.with_operation(operation))
    }

    /// Makes a block of the range that was taken.
    #[inline]
    fn block(self: &Arc<Self>, state: &mut PoolState, request: &Request, taken: Taken) -> Arc<Block> {
        state.used += taken.size;
        state.live += 1;
        state.peak = state.peak.max(state.used);
        if let Some(mut shell) = state.shells.pop()
            && let Some(block) = Arc::get_mut(&mut shell)
        {
            block.fill(taken.into(), request.holder.requested);
            return shell;
        }
        let mut block = Block::empty(self.clone(), request.kind);
        block.fill(taken.into(), request.holder.requested);
        Arc::new(block)
    }

    /// Tries, in order: ranges that have become free, or that had several owners; the driver; ranges that are still in
    /// use, for a stream that waits for them; the driver once more after idle slabs went back to it, and again after
    /// all work is done.
    #[cold]
    fn alloc_slowly(
        self: &Arc<Self>,
        users: &dyn Users,
        request: &Request,
        stream: Option<&StreamCore>,
    ) -> Result<Arc<Block>> {
        if self.options.pool == PoolPolicy::Driver
            && request.kind == Kind::Device
            && let Some(stream) = stream
        {
            return self.alloc_of_driver(users, request, stream);
        }
        let clock = stream.map(|stream| lock(&stream.state).clock.clone()).unwrap_or_default();
        if self.is_pooled(request.kind) {
            if let Some(block) = self.reuse(request, stream, &clock) {
                return Ok(block);
            }
            let pending = lock(self.pool(request.kind)).pending();
            if pending >= request.size {
                users.look();
                if let Some(block) = self.reuse(request, stream, &clock) {
                    return Ok(block);
                }
            }
        } else {
            // Nothing is kept, so memory that is out of use goes back, unless that would wait for other work.
            users.look();
            if !self.device.info().free_synchronizes || users.are_known_idle() {
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
        users.settle()?;
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
        if freed > 0 && self.device.info().free_synchronizes {
            let why = "this allocation first returns freed memory to the driver, which waits for all work of the device";
            lint::serialises_at(why, request.holder.operation.location);
        }
        freed
    }

    /// Asks the driver's pool. If the pool has no more memory, frees all dropped memory and asks the pool again.
    fn alloc_of_driver(
        self: &Arc<Self>,
        users: &dyn Users,
        request: &Request,
        stream: &StreamCore,
    ) -> Result<Arc<Block>> {
        let Request { size, holder, kind } = *request;
        self.driver.flush(self);
        let bytes = self.exact(holder.requested);
        let mut block = Arc::new(Block::empty(self.clone(), kind));
        let mut alloc = || {
            let _growing = self.options.limit.map(|_| lock(&self.growth));
            match self.options.limit {
                Some(limit) if self.driver.stats().reserved + size as u64 > limit => Err(over_limit(limit)),
                _ => self.driver.alloc(self.rules, (size, bytes), holder, stream, &mut block),
            }
        };
        match alloc() {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                users.settle()?;
                self.trim_all();
                alloc().map_err(|error| self.explain(error, request))?;
            }
            other => other?,
        }
        Ok(block)
    }

    /// Asks the driver which work is done, and merges the ranges that this leaves without uses.
    #[cold]
    fn settle(&self, users: &dyn Users, request: &Request) {
        users.look();
        lock(self.pool(request.kind))
            .arena(request.size)
            .settle(|point| StreamTable::shared().known_done(point));
    }

    /// Takes a range that `stream` may have by what is known, if need be from joined neighbours of different owners.
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
        arena.settle(|point| StreamTable::shared().known_done(point));
        let taken = arena.take(size, stream.map(|stream| stream.id), holder).or_else(|| {
            let stream = stream?;
            arena.gather(size, Owner::Stream(stream.id), holder, |uses| {
                uses.iter().all(|old| old.point.stream == stream.id || clock.covers(old.point))
            })
        })?;
        state.hits += 1;
        Some(self.block(state, request, taken))
    }

    /// Takes memory that other streams still use; the first access will wait for them.
    fn steal(self: &Arc<Self>, request: &Request) -> Option<Arc<Block>> {
        let Request { kind, size, holder } = *request;
        let state = &mut *lock(self.pool(kind));
        let taken = if self.is_pooled(kind) {
            state.arena(size).gather(size, Owner::Several, holder, |_| true)?
        } else {
            state.arena(size).take_slab(self.exact(holder.requested), holder)?
        };
        state.hits += 1;
        Some(self.block(state, request, taken))
    }

    /// Asks the driver for a slab or, if there is no room for one, for the request's size alone.
    fn grow(self: &Arc<Self>, request: &Request, stream: Option<&StreamCore>) -> Result<Arc<Block>> {
        let Request { kind, size, holder } = *request;
        let _growing = self.options.limit.filter(|_| kind == Kind::Device).map(|_| lock(&self.growth));
        let reserved = lock(self.pool(kind)).reserved();
        let slab = if self.is_pooled(kind) {
            let preferred = slab_size(kind, size, reserved);
            let outcome = self.new_slab(kind, preferred, preferred, reserved);
            if preferred > size && matches!(&outcome, Err(error) if error.kind() == ErrorKind::OutOfMemory) {
                self.new_slab(kind, size, size, reserved)
            } else {
                outcome
            }
        } else {
            self.new_slab(kind, size, self.exact(holder.requested), reserved)
        }?;
        let state = &mut *lock(self.pool(kind));
        state.misses += 1;
        let arena = state.arena(size);
        let taken = if self.is_pooled(kind) {
            arena.add_slab(slab);
            arena.take(size, stream.map(|stream| stream.id), holder)
        } else {
            arena.take_new(slab, self.exact(holder.requested), holder)
        };
        state.peak_reserved = state.peak_reserved.max(state.reserved());
        let taken = taken.ok_or_else(|| Error::new(ErrorKind::Driver, "a new slab has no room"))?;
        Ok(self.block(state, request, taken))
    }

    /// Returns the length of an allocation that the driver gives by itself: the length to the byte, since tools that
    /// look for accesses beside an allocation know no other. So a freed allocation serves no request of another length:
    /// the allocation may be shorter than the size it is counted with.
    fn exact(&self, bytes: usize) -> usize {
        if self.device.info().checked { bytes } else { bytes.max(1) }
    }

    /// Asks the driver for a slab of `bytes` bytes, which counts as `size` bytes.
    fn new_slab(&self, kind: Kind, size: usize, bytes: usize, reserved: usize) -> Result<Slab> {
        if let Some(limit) = self.options.limit
            && kind == Kind::Device
            && (reserved + size) as u64 > limit
        {
            return Err(over_limit(limit));
        }
        let options = match kind {
            Kind::Device => {
                let start = self.device.alloc(bytes)?.0;
                return Ok(Slab { start, size, host: 0 });
            }
            Kind::Managed => {
                let start = self.device.managed_alloc(bytes)?.0;
                PAGE_LOCKED.include(start, size);
                return Ok(Slab { start, size, host: start });
            }
            Kind::Pinned | Kind::Registered => PinnedOptions::default(),
            Kind::WriteCombined => PinnedOptions::default().write_combined(true),
        };
        let host = self.device.pinned_alloc(bytes, options)?;
        PAGE_LOCKED.include(host.addr(), size);
        // SAFETY: the memory was just allocated as pinned, and nothing uses it yet.
        let address = unsafe {
            self.device.pinned_device_address(host).inspect_err(|_| {
                let _ = self.device.pinned_free(host);
            })
        };
        Ok(Slab { start: address?.0, size, host: host as usize })
    }

    /// Returns whether memory of this kind comes from the driver's own pool.
    pub(crate) fn is_of_driver(&self, kind: Kind) -> bool {
        kind == Kind::Device && self.options.pool == PoolPolicy::Driver
    }

    pub(crate) fn stats(&self, kind: Kind) -> MemoryStats {
        if self.is_of_driver(kind) {
            return self.driver.stats();
        }
        lock(self.pool(kind)).stats()
    }

    pub(crate) fn snapshot(&self, kind: Kind) -> MemorySnapshot {
        if self.is_of_driver(kind) {
            let live = self.driver.live();
            return MemorySnapshot::new(
                self.driver.stats(),
                live.iter().map(|(size, holder)| (*size, holder)),
            );
        }
        lock(self.pool(kind)).snapshot()
    }

    /// Adds the holders of the memory to an error that says that there is no more.
    #[cold]
    fn explain(&self, error: Error, request: &Request) -> Error {
        if error.kind() != ErrorKind::OutOfMemory {
            return error;
        }
        let snapshot = self.snapshot(request.kind);
        error.with_context(format!(
            "no room for {} ({} bytes) of {}: {}",
            Bytes(request.holder.requested as u64),
            request.holder.requested,
            request.kind.name(),
            snapshot.summary(5)
        ))
    }
}

/// Returns how many bytes to ask the driver for. Slabs grow with the bytes that are reserved already, so that their
/// number stays small, and the memory that may lie idle is a share of the memory that is used.
pub(super) fn slab_size(kind: Kind, size: usize, reserved: usize) -> usize {
    let (small, least, most) = match kind {
        Kind::Device => (2 << 20, 16 << 20, 512 << 20),
        // Page-locking takes time in proportion to the size.
        Kind::Pinned | Kind::WriteCombined | Kind::Managed | Kind::Registered => {
            (256 << 10, 1 << 20, 64 << 20)
        }
    };
    if size <= SMALL {
        return small;
    }
    let wanted = (reserved / 16).clamp(least, most);
    let grain = small;
    size.max(wanted).checked_next_multiple_of(grain).unwrap_or(size)
}

#[cold]
fn over_limit(limit: u64) -> Error {
    let message = format!("the limit of {} for this device would be exceeded", Bytes(limit));
    Error::new(ErrorKind::OutOfMemory, message)
}

#[cold]
fn too_large(bytes: usize, operation: Operation) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("an allocation of {bytes} bytes exceeds the address space"))
        .with_operation(operation)
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
