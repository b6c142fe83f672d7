//! Blocks of memory, and the caches that hand them out again.
//!
//! A block outlives its owner: when a buffer is dropped its block goes back to the device's cache together with
//! its history, and the next owner's first write is ordered after what is still running. So freeing never
//! waits, and nothing that a stream still uses is returned to the driver.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gpustream_hal::{self as hal, Error, ErrorKind, HostPtr, PinnedOptions, RawBuffer, Result};
use smallvec::SmallVec;

use crate::device::{DeviceCore, StreamTable};
use crate::host_call;
use crate::stream_core::{Access, StreamCore};
use crate::sync::{Latch, lock};
use crate::track::{History, Mode, Point};

/// What kind of memory a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Device,
    /// Page-locked host memory.
    Pinned,
    /// Page-locked host memory that the host only writes.
    WriteCombined,
}

/// One allocation of a driver.
pub(crate) struct Block {
    pub(crate) address: RawBuffer,
    /// Where the host sees it; null for device memory.
    pub(crate) host: HostPtr,
    pub(crate) kind: Kind,
    /// Size in bytes as allocated: the size class.
    pub(crate) capacity: usize,
    pub(crate) history: Latch<History>,
    /// Whether a graph has ever referred to it; then launches touch it without a borrow.
    pub(crate) in_graph: AtomicBool,
    guards: Latch<Guards>,
    reserved: Arc<AtomicU64>,
    device: Arc<dyn hal::Device>,
    /// For [`prune`](Self::prune): whether a point is known to be done.
    streams: Arc<StreamTable>,
}

// SAFETY: `host` is an address; who may read or write there is the business of guards and the tracker.
unsafe impl Send for Block {}
// SAFETY: as above; everything else in a block is immutable or latched.
unsafe impl Sync for Block {}

impl Block {
    #[inline]
    pub(crate) fn is_host(&self) -> bool {
        !self.host.is_null()
    }

    /// Forgets the uses that are known to be done.
    pub(crate) fn prune(&self, history: &mut History) {
        history.prune(|point| self.streams.is_known_done(point));
    }

    /// Whether all uses are known to be done, or precede whatever `stream` does next.
    fn is_free_for(&self, stream: Option<&StreamCore>) -> bool {
        let history = self.history.lock();
        let mut uses = history.uses();
        match stream {
            None => uses.all(|old| self.streams.is_known_done(old.point)),
            Some(stream) => {
                uses.all(|old| old.point.stream == stream.id || self.streams.is_known_done(old.point))
            }
        }
    }

    /// Whether all uses are done; asks the driver.
    fn is_idle(&self, device: &DeviceCore) -> bool {
        matches!(is_ready(device, self, &(0..self.capacity), Mode::Write), Ok(true))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.reserved.fetch_sub(self.capacity as u64, Ordering::Relaxed);
        let (device, kind, address, host) =
            (self.device.clone(), self.kind, self.address, self.host as usize);
        host_call::outside(move || {
            // SAFETY: blocks are dropped by the cache, after it has seen that all uses are done, or with a graph
            // that was parked until they were.
            let _ = unsafe {
                match kind {
                    Kind::Device => device.free(address),
                    Kind::Pinned | Kind::WriteCombined => device.pinned_free(host as HostPtr),
                }
            };
        });
    }
}

/// Who holds guards on a block, and whether a graph that touches it is being launched.
///
/// Ordinary operations and guards exclude each other by their borrows. A graph holds no borrow.
#[derive(Default)]
struct Guards {
    held: SmallVec<[(Range<usize>, Mode); 1]>,
    replays: usize,
}

/// A guard's entry in its block's list.
pub(crate) struct HostGuard<'a> {
    block: &'a Block,
    range: Range<usize>,
    mode: Mode,
}

impl<'a> HostGuard<'a> {
    /// Enters a guard. A launch that is being entered at this moment goes first; its run is then waited for.
    pub(crate) fn hold(block: &'a Block, range: Range<usize>, mode: Mode) -> Self {
        loop {
            let mut guards = block.guards.lock();
            if guards.replays == 0 {
                guards.held.push((range.clone(), mode));
                return Self { block, range, mode };
            }
            drop(guards);
            std::thread::yield_now();
        }
    }
}

impl Drop for HostGuard<'_> {
    fn drop(&mut self) {
        let mut guards = self.block.guards.lock();
        if let Some(index) = guards.held.iter().position(|held| held.0 == self.range && held.1 == self.mode) {
            guards.held.swap_remove(index);
        }
    }
}

/// Keeps guards out while a graph's launch is entered.
pub(crate) struct HostReplay<'a>(SmallVec<[&'a Block; 4]>);

impl<'a> HostReplay<'a> {
    /// # Errors
    /// [`ErrorKind::HostBorrowed`] where a guard is held on memory that the launch conflicts with.
    pub(crate) fn begin(accesses: &[Access<'a>]) -> Result<Self> {
        let mut entered = Self(SmallVec::new());
        for access in accesses.iter().filter(|access| access.block.is_host()) {
            let mut guards = access.block.guards.lock();
            let conflict = guards.held.iter().any(|(range, mode)| {
                let overlap = range.start < access.range.end && access.range.start < range.end;
                overlap && (*mode == Mode::Write || access.mode == Mode::Write)
            });
            if conflict {
                return Err(Error::new(
                    ErrorKind::HostBorrowed,
                    "the graph touches pinned memory that the host holds a guard on; drop the guard before launching",
                ));
            }
            guards.replays += 1;
            drop(guards);
            entered.0.push(access.block);
        }
        Ok(entered)
    }
}

impl Drop for HostReplay<'_> {
    fn drop(&mut self) {
        for block in &self.0 {
            block.guards.lock().replays -= 1;
        }
    }
}

/// How much memory a device's caches hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// In live buffers, rounded up to size classes.
    pub used: u64,
    /// The most `used` has been.
    pub peak: u64,
    /// Taken from the driver: `used` and what is kept for the next allocations.
    pub reserved: u64,
}

type FreeLists = HashMap<(Kind, usize), Vec<Arc<Block>>>;

/// Blocks without an owner, by kind and size class.
#[derive(Default)]
pub(crate) struct Cache {
    free: Mutex<FreeLists>,
    used: AtomicU64,
    peak: AtomicU64,
    reserved: Arc<AtomicU64>,
    /// Blocks in `free`, to skip the lock where there are none.
    count: AtomicUsize,
}

/// Rounds up to a size class: at least 512 bytes, four classes per doubling, so at most a quarter is lost.
fn size_class(bytes: usize) -> Option<usize> {
    if bytes <= 512 {
        return Some(512);
    }
    let step = 1usize << (usize::BITS - 1 - (bytes - 1).leading_zeros()).saturating_sub(2);
    bytes.checked_next_multiple_of(step.max(512))
}

impl Cache {
    /// A block of at least `bytes` bytes. With a `stream` its earlier uses are ordered before what that stream
    /// does next, by history if not in fact; without one they are done.
    pub(crate) fn alloc(
        &self,
        device: &DeviceCore,
        kind: Kind,
        bytes: usize,
        stream: Option<&StreamCore>,
    ) -> Result<Arc<Block>> {
        let class = size_class(bytes).filter(|&class| isize::try_from(class).is_ok()).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfMemory,
                format!("an allocation of {bytes} bytes exceeds the address space"),
            )
        })?;
        let block = match self.take(device, kind, class, stream) {
            Some(block) => block,
            None => self.grow(device, kind, class)?,
        };
        let mut history = block.history.lock();
        block.prune(&mut history);
        history.recycle(bytes);
        drop(history);
        let used = self.used.fetch_add(class as u64, Ordering::Relaxed) + class as u64;
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(used, Ordering::Relaxed);
        }
        Ok(block)
    }

    fn take(
        &self,
        device: &DeviceCore,
        kind: Kind,
        class: usize,
        stream: Option<&StreamCore>,
    ) -> Option<Arc<Block>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut free = lock(&self.free);
        let blocks = free.get_mut(&(kind, class))?;
        // The latest first: it is likely to be this stream's own, and warm.
        let index = match kind {
            Kind::Device => blocks.iter().rposition(|block| block.is_free_for(stream)),
            // The host is about to touch it. Ask the driver about the oldest, which is likeliest to be done.
            Kind::Pinned | Kind::WriteCombined => {
                let known = blocks.iter().rposition(|block| block.is_free_for(None));
                known.or_else(|| blocks.iter().take(2).position(|block| block.is_idle(device)))
            }
        }?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(blocks.remove(index))
    }

    /// Asks the driver, and where it has no more, gives back what is cached and asks again.
    fn grow(&self, device: &DeviceCore, kind: Kind, class: usize) -> Result<Arc<Block>> {
        let block = match self.driver_alloc(device, kind, class) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                device.refresh();
                if self.trim() == 0 {
                    device.synchronize()?;
                    self.trim();
                }
                self.driver_alloc(device, kind, class).map_err(|error| self.explain(error, class))?
            }
            other => other?,
        };
        Ok(Arc::new(block))
    }

    fn driver_alloc(&self, device: &DeviceCore, kind: Kind, class: usize) -> Result<Block> {
        let (address, host) = driver_alloc(device, kind, class)?;
        self.reserved.fetch_add(class as u64, Ordering::Relaxed);
        Ok(Block {
            address,
            host,
            kind,
            capacity: class,
            history: Latch::new(History::new(class, false)),
            in_graph: AtomicBool::new(false),
            guards: Latch::new(Guards::default()),
            reserved: self.reserved.clone(),
            device: device.raw.clone(),
            streams: device.streams.clone(),
        })
    }

    #[cold]
    fn explain(&self, error: Error, class: usize) -> Error {
        let MemoryStats { used, reserved, .. } = self.stats();
        error.with_context(format!(
            "{class} bytes were asked for while live buffers hold {used} and the cache holds {} more",
            reserved - used
        ))
    }

    /// Takes back the block of a dropped owner.
    pub(crate) fn put(&self, block: Arc<Block>) {
        self.used.fetch_sub(block.capacity as u64, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        lock(&self.free).entry((block.kind, block.capacity)).or_default().push(block);
    }

    /// Lets go of a dropped owner's block that a graph may still hold.
    pub(crate) fn disown(&self, block: Arc<Block>) {
        let bytes = block.capacity as u64;
        if let Some(block) = Arc::into_inner(block) {
            self.put(Arc::new(block));
        } else {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns blocks whose uses are done to the driver; says how many bytes.
    pub(crate) fn trim(&self) -> u64 {
        let mut released = Vec::new();
        for blocks in lock(&self.free).values_mut() {
            released.extend(blocks.extract_if(.., |block| block.is_free_for(None)));
        }
        self.count.fetch_sub(released.len(), Ordering::Relaxed);
        released.iter().map(|block| block.capacity as u64).sum()
    }

    /// Empties the cache; all work of the device is done.
    pub(crate) fn clear(&self) {
        lock(&self.free).clear();
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            used: self.used.load(Ordering::Relaxed),
            peak: self.peak.load(Ordering::Relaxed),
            reserved: self.reserved.load(Ordering::Relaxed),
        }
    }
}

/// Device and host address of fresh memory.
fn driver_alloc(device: &DeviceCore, kind: Kind, bytes: usize) -> Result<(RawBuffer, HostPtr)> {
    let raw = &device.raw;
    let options = match kind {
        Kind::Device => return Ok((raw.alloc(bytes)?, std::ptr::null_mut())),
        Kind::Pinned => PinnedOptions::default(),
        Kind::WriteCombined => PinnedOptions::default().write_combined(),
    };
    let host = raw.pinned_alloc(bytes, options)?;
    // SAFETY: the memory was just allocated as pinned, and nothing uses it yet.
    let address = unsafe {
        raw.pinned_device_address(host).inspect_err(|_| {
            let _ = raw.pinned_free(host);
        })
    };
    Ok((address?, host))
}

/// Blocks until the device is done with `range`: with its writers for a read, with everyone for a write.
pub(crate) fn wait_for(device: &DeviceCore, block: &Block, range: &Range<usize>, mode: Mode) -> Result<()> {
    for point in pending(block, range, mode) {
        if let Some(stream) = device.stream(point.stream) {
            stream.synchronize_number(device, point.number)?;
        }
    }
    Ok(())
}

/// Whether [`wait_for`] would return at once.
pub(crate) fn is_ready(device: &DeviceCore, block: &Block, range: &Range<usize>, mode: Mode) -> Result<bool> {
    for point in pending(block, range, mode) {
        if let Some(stream) = device.stream(point.stream)
            && !stream.query_number(device, point.number)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The points that [`wait_for`] waits for.
pub(crate) fn pending(block: &Block, range: &Range<usize>, mode: Mode) -> SmallVec<[Point; 4]> {
    let mut points = SmallVec::new();
    block.history.lock().conflicts(range, mode, |old| points.push(old.point));
    points
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn classes_hold_their_request_and_lose_at_most_a_quarter() {
        for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, (1 << 40) + 12345]) {
            let class = size_class(bytes).unwrap();
            assert!(class >= bytes, "{bytes} -> {class}");
            assert!(bytes <= 2048 || class - bytes <= bytes / 4, "{bytes} -> {class}");
            assert_eq!(size_class(class), Some(class), "{bytes}");
        }
        assert_eq!(size_class(usize::MAX), None);
    }
}
