//! The way back: to the pool when you drop a block's owner, and to the driver when nothing uses a slab any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpustream_hal::{ArrayShape, Bytes, Error, ErrorKind, RawBuffer, Result, TexelFormat, unheard};

use super::arena::{Owner, Slab};
use super::source::Source;
use super::watch::drop_unused_after;
use super::{Pools, Users, are_done};
use crate::deferred_drop::ForeignOwner;
use crate::memory::{
    self, ArrayMemory, Backing, Block, BudgetShare, Filling, Home, MemoryKind, Registration, Returned,
};
use crate::module_core::ModuleCore;
use crate::stream::{StreamTable, known_done};
use crate::sync::lock;
use crate::track::{StreamId, Uses};

/// At most this many orphans wait until we ask about their streams. Otherwise a program that never waits for a stream would
/// keep the memory of everything that it ever dropped, and each drop would look through all of it.
const BACKLOG: usize = 64;

impl Home for Pools {
    fn give_back(&self, returned: Returned) {
        self.take_back(returned, None);
    }
}

impl Pools {
    /// Takes back the allocation of a dropped owner. If a graph or a recording still holds the block, its last holder gives
    /// the range back later.
    #[inline]
    pub fn release(self: &Arc<Self>, mut block: Arc<Block>) {
        let Some(emptied) = Arc::get_mut(&mut block).and_then(Block::empty_out) else {
            return block.disown();
        };
        let of_driver = matches!(emptied.place, Backing::Driver);
        self.take_back(emptied, Some(block));
        if of_driver {
            self.driver.flush(self);
        }
    }

    #[inline]
    fn take_back(&self, returned: Returned, shell: Option<Arc<Block>>) {
        let Returned { kind, place, address, size, mut uses } = returned;
        let id = match place {
            Backing::Nowhere => return,
            Backing::Arena(id) => id,
            Backing::Driver => {
                self.driver.give_back(Returned { kind, place, address, size, uses });
                if self.closed.load(Ordering::Acquire) {
                    self.driver.free_done(self);
                }
                return;
            }
            Backing::Foreign { .. }
            | Backing::Module { .. }
            | Backing::Registered { .. }
            | Backing::Array(_) => {
                memory::note_return();
                let uses = uses.unwrap_or_default();
                let is_foreign = matches!(place, Backing::Foreign { .. });
                let waiting = {
                    let mut orphans = lock(&self.orphans);
                    orphans.push((uses.clone(), place));
                    orphans.len()
                };
                self.drop_unused();
                if is_foreign || waiting > BACKLOG {
                    drop_unused_after(self.this.clone(), uses);
                }
                return;
            }
        };
        let owner = uses.as_mut().map_or(Owner::Idle, owner_of);
        let uses = uses.filter(|uses| !uses.is_empty());
        let mut state = lock(self.pool(kind));
        state.take_back(size);
        self.trace_memory(&state, kind);
        state.arena(size).release(id, uses, owner);
        if self.closed.load(Ordering::Relaxed) {
            drop(state);
            self.trim(kind);
            return;
        }
        if let Some(shell) = shell {
            state.keep(shell);
        }
    }

    /// Makes a block for `bytes` bytes of registered memory. They count as written, because you may have put values there.
    pub fn register(self: &Arc<Self>, registration: Registration, bytes: usize) -> Result<Arc<Block>> {
        self.drop_unused();
        let (start, host) = (registration.device_address()?.0, registration.host() as usize);
        let place = Backing::Registered { _memory: Box::new(registration) };
        let mut block = self.placed(MemoryKind::Registered, place, start, host, bytes);
        block.history.get_mut().set_written(&(0..bytes));
        Ok(Arc::new(block))
    }

    /// Makes a block for foreign memory: `bytes` bytes, starting at `start`.
    ///
    /// # Safety
    /// The device may use the memory until `owner` is dropped, and every other access to it counts as a use of the block.
    pub unsafe fn foreign(
        self: &Arc<Self>,
        owner: ForeignOwner,
        RawBuffer(start): RawBuffer,
        bytes: usize,
    ) -> Arc<Block> {
        self.drop_unused();
        let place = Backing::Foreign { _owner: owner };
        Arc::new(self.placed(MemoryKind::Device, place, start, 0, bytes))
    }

    /// Makes a block for variables of a loaded module: `bytes` bytes, starting at `start`. Kernels reach the variables
    /// without a borrow, just as graphs reach their memory. The variables have values, because loading gave them some.
    ///
    /// # Safety
    /// The memory is the module's, and every other access to it counts as a use of the block.
    pub unsafe fn of_module(
        self: &Arc<Self>,
        module: Arc<ModuleCore>,
        RawBuffer(start): RawBuffer,
        bytes: usize,
    ) -> Arc<Block> {
        let place = Backing::Module { _loaded: module };
        let mut block = self.placed(MemoryKind::Device, place, start, 0, bytes);
        block.history.get_mut().set_written(&(0..bytes));
        *block.in_graph.get_mut() = true;
        Arc::new(block)
    }

    /// Makes a block for `bytes` bytes that have a place of their own, at these addresses of device and host.
    fn placed(
        self: &Arc<Self>,
        kind: MemoryKind,
        place: Backing,
        start: usize,
        host: usize,
        bytes: usize,
    ) -> Block {
        let mut block = Block::empty(self.clone(), kind);
        block.fill(Filling { place, start, host, size: bytes, uses: None }, bytes, 1);
        block
    }

    /// Allocates an array of `bytes` bytes. If the driver has no room, we first give freed memory back to it, and wait for
    /// that.
    pub fn array(
        self: &Arc<Self>,
        users: &dyn Users,
        shape: ArrayShape,
        format: TexelFormat,
        bytes: usize,
    ) -> Result<Arc<Block>> {
        self.textured(users, (MemoryKind::Array, bytes), |share| {
            ArrayMemory::new(&self.device, shape, format, share)
        })
    }

    /// Allocates `bytes` bytes of texels in a row, in the same way as [`array`](Self::array).
    pub fn texels(
        self: &Arc<Self>,
        users: &dyn Users,
        format: TexelFormat,
        bytes: usize,
    ) -> Result<Arc<Block>> {
        self.textured(users, (MemoryKind::Texels, bytes), |share| {
            ArrayMemory::linear(&self.device, format, bytes, share)
        })
    }

    fn textured(
        self: &Arc<Self>,
        users: &dyn Users,
        (kind, bytes): (MemoryKind, usize),
        create: impl Fn(BudgetShare) -> Result<ArrayMemory>,
    ) -> Result<Arc<Block>> {
        let memory = self.with_room(users, bytes, create)?;
        let start = memory.address();
        let mut block = self.placed(kind, Backing::Array(Box::new(memory)), start, 0, bytes);
        // Textures hold no borrow, just like graphs.
        *block.in_graph.get_mut() = true;
        Ok(Arc::new(block))
    }

    /// Calls `create` to ask the driver for memory that the pools do not keep, with a share of `bytes` bytes of your limit.
    /// If there is no room, gives freed memory back to the driver and calls it once more.
    ///
    /// # Errors
    /// The errors of `create`, and of the waits before the second call.
    pub fn with_room<R>(
        self: &Arc<Self>,
        users: &dyn Users,
        bytes: usize,
        create: impl Fn(BudgetShare) -> Result<R>,
    ) -> Result<R> {
        self.drop_unused();
        let over = |error: Error| error.with_context(format_args!("no room for {}", Bytes(bytes as u64)));
        let create = || create(self.source.share(bytes).map_err(over)?);
        match create() {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                users.wait()?;
                self.trim_all();
                create()
            }
            outcome => outcome,
        }
    }

    /// Drops foreign and registered memory, arrays and modules if nothing can be using them any more.
    pub(super) fn drop_unused(&self) {
        let gone: Vec<_> = lock(&self.orphans).extract_if(.., |(uses, _)| are_done(uses)).collect();
        // We hold no lock while we drop these, because that calls the driver.
        unheard(|| drop(gone));
    }

    /// Gives slabs that nothing uses back to the driver. Returns how many bytes that was.
    pub fn trim(&self, kind: MemoryKind) -> u64 {
        self.drop_unused();
        let removed: Vec<Slab> = {
            let state = &mut *lock(self.pool(kind));
            state.small.settle(known_done);
            state.large.settle(known_done);
            let mut removed = state.small.remove_idle_slabs();
            removed.append(&mut state.large.remove_idle_slabs());
            removed
        };
        let bytes = removed.iter().map(|slab| slab.size as u64).sum();
        for slab in removed {
            // SAFETY: the slab was idle from end to end, and has left the pool.
            unheard(|| unsafe { self.source.free(kind, slab) });
        }
        bytes
    }

    /// Gives idle memory of every kind back to the driver, because one kind may make room for another. Returns how many
    /// bytes that was.
    pub fn trim_all(self: &Arc<Self>) -> u64 {
        self.driver.flush(self);
        MemoryKind::ALL.iter().map(|&kind| self.trim(kind)).sum()
    }

    /// Stops keeping memory. All work of the device is done, so we give the memory that no one holds back to the driver.
    /// Graphs of other devices may hold the rest; it follows block by block.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for kind in MemoryKind::ALL {
            let shells = lock(self.pool(kind)).take_shells();
            // We hold no lock while we drop these, because each of them holds these pools.
            drop(shells);
        }
        self.free_done();
    }

    /// Gives the memory that no one holds and nothing uses back to the driver.
    fn free_done(&self) {
        self.driver.free_done(self);
        for kind in MemoryKind::ALL {
            self.trim(kind);
        }
    }
}

impl Drop for Pools {
    /// Gives memory back for the last time, because the last block is gone. If we still do not know that some memory is out
    /// of use, it stays with the process.
    fn drop(&mut self) {
        if *self.closed.get_mut() {
            self.free_done();
        }
    }
}

/// Returns the stream that comes after all uses, and forgets the uses that are done.
#[inline]
fn owner_of(uses: &mut Uses) -> Owner {
    if let [only] = uses.as_slice() { Owner::Stream(only.point.stream) } else { owner_of_several(uses) }
}

fn owner_of_several(uses: &mut Uses) -> Owner {
    uses.retain(|old| !known_done(old.point));
    let follows = |stream: StreamId| {
        let Some(core) = StreamTable::shared().get(stream) else { return false };
        // This thread may already hold the lock, because you can drop buffers anywhere.
        let Some(state) = core.try_state() else { return false };
        uses.iter().all(|old| old.point.stream == stream || state.clock.covers(old.point))
    };
    match uses.as_slice() {
        [] => Owner::Idle,
        [only] => Owner::Stream(only.point.stream),
        _ => uses
            .iter()
            .map(|old| old.point.stream)
            .find(|&stream| follows(stream))
            .map_or(Owner::Several, Owner::Stream),
    }
}
