//! The device's memory: mapped pages of the host. We count them against what the machine has, so that you get
//! `OutOfMemory` as on a GPU, and not a process that the system kills.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Mutex;

use gpustream_hal::{ErrorKind, Result};

use crate::error::error;
use crate::fiber::{self, page_size};
use crate::sync::lock;

/// Every allocation begins at a multiple of this, as on a GPU.
pub(crate) const ALIGN: usize = 256;
/// The alignment in checked mode. It is the most that kernels' vectors need, so the end of an allocation is
/// as close as possible to memory that faults. Elements that need more have sizes, and therefore lengths,
/// that are multiples of it.
const CHECKED_ALIGN: usize = 16;
/// How many bytes fault on either side of an allocation in checked mode. These are whole pages, whatever the
/// page size.
const GUARD: usize = 64 << 10;
/// How many freed allocations stay inaccessible in checked mode before their addresses are reused.
const QUARANTINE: usize = 1024;
/// Allocations of at least this size have their own pages.
const MAP_FROM: usize = 64 << 10;
/// Allocations of at least this size begin on a large page.
const HUGE_FROM: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;
/// The byte that fills the surroundings of an allocation in checked mode.
const PATTERN: u8 = 0xa5;

/// What messages call memory that the host cannot reach.
pub(crate) const DEVICE_MEMORY: &str = "device memory";

/// A device's memory.
pub(crate) struct Memory {
    total: u64,
    check: bool,
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    used: u64,
    allocations: BTreeMap<usize, Allocation>,
    /// In checked mode, the most recently freed allocations, oldest first. Any access to them faults.
    freed: VecDeque<(usize, Allocation)>,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: usize,
    kind: &'static str,
    place: Placement,
}

#[derive(Clone, Copy, Debug)]
enum Placement {
    Heap,
    /// Its own pages. In checked mode it is `guarded`: memory that faults on either side, and the pattern in
    /// what remains.
    Map {
        map: usize,
        len: usize,
        guarded: bool,
    },
}

impl Memory {
    pub(crate) fn new(total: u64, check: bool) -> Self {
        Self { total, check, state: Mutex::default() }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the free bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(lock(&self.state).used)
    }

    /// Allocates zeroed memory. Messages call the memory `kind`.
    pub(crate) fn alloc(&self, bytes: usize, kind: &'static str) -> Result<usize> {
        let none = || {
            error(
                ErrorKind::OutOfMemory,
                // The caller adds what there was no room for.
                format!(
                    "{} bytes are free; drop memory, use less, or work through the data in pieces",
                    self.free_bytes()
                ),
            )
        };
        if bytes as u64 > self.free_bytes() {
            return Err(none());
        }
        let (address, place) = if self.check {
            guarded(bytes)
        } else if bytes < MAP_FROM {
            heap(bytes)
        } else {
            mapped(bytes)
        }
        .ok_or_else(none)?;
        let mut state = lock(&self.state);
        state.used += bytes as u64;
        state.allocations.insert(address, Allocation { bytes, kind, place });
        Ok(address)
    }

    /// Takes over a mapping of `len` bytes. You asked for the first `bytes` of them. Messages call the memory
    /// `kind`.
    pub(crate) fn adopt(&self, map: usize, len: usize, bytes: usize, kind: &'static str) {
        let mut state = lock(&self.state);
        state.used += bytes as u64;
        state
            .allocations
            .insert(map, Allocation { bytes, kind, place: Placement::Map { map, len, guarded: false } });
    }

    /// Frees memory that [`alloc`](Self::alloc) gave, or that was [adopted](Self::adopt).
    ///
    /// # Safety
    /// All work that uses the memory must be done.
    pub(crate) unsafe fn free(&self, address: usize) -> Result<()> {
        let allocation = {
            let mut state = lock(&self.state);
            let Some(allocation) = state.allocations.remove(&address) else {
                return Err(error(
                    ErrorKind::InvalidArgument,
                    format!("cannot free {address:#x}: no allocation of this device starts there"),
                ));
            };
            state.used -= allocation.bytes as u64;
            allocation
        };
        match allocation.place {
            Placement::Heap => {
                if let Some(layout) = layout(allocation.bytes) {
                    // SAFETY: allocated with this layout, and not used any more.
                    unsafe { std::alloc::dealloc(address as *mut u8, layout) };
                }
            }
            // SAFETY: the mapping is no longer used, by the caller's promise.
            Placement::Map { map, len, guarded: true } if unsafe { take_away(map, len) } => {
                let mut state = lock(&self.state);
                state.freed.push_back((address, allocation));
                if state.freed.len() > QUARANTINE
                    && let Some((_, Allocation { place: Placement::Map { map, len, .. }, .. })) =
                        state.freed.pop_front()
                {
                    // SAFETY: the mapping belonged to that allocation, which has left the list.
                    unsafe { libc::munmap(map as *mut _, len) };
                }
            }
            Placement::Map { map, len, .. } => {
                // SAFETY: the mapping belongs to this allocation, and is no longer used.
                unsafe { libc::munmap(map as *mut _, len) };
            }
        }
        Ok(())
    }

    /// In checked mode, returns the allocation of device memory that an address is in.
    pub(crate) fn device_allocation(&self, address: usize) -> Option<Range<usize>> {
        let state = lock(&self.state);
        let (&start, allocation) = state.allocations.range(..=address).next_back()?;
        let range = start..start + allocation.bytes;
        let is_checked = matches!(allocation.place, Placement::Map { guarded: true, .. });
        (is_checked && allocation.kind == DEVICE_MEMORY && range.contains(&address)).then_some(range)
    }

    /// Returns the allocation that an address is in or next to, for messages.
    pub(crate) fn describe(&self, address: usize) -> Option<String> {
        let state = lock(&self.state);
        let near = |start: usize, a: &Allocation| {
            let describe =
                |what: String| Some(format!("{what} {} of {} bytes at {start:#x}", a.kind, a.bytes));
            if address < start {
                describe(format!("{} bytes before the", start - address))
            } else if address < start + a.bytes {
                describe(format!("{} bytes into the", address - start))
            } else {
                describe(format!("{} bytes past the end of the", address - start - a.bytes))
            }
        };
        let is_in = |a: &Allocation| matches!(a.place, Placement::Map { map, len, .. } if (map..map + len).contains(&address));
        if let Some(&(start, Allocation { bytes, kind, .. })) = state.freed.iter().find(|(_, a)| is_in(a)) {
            return Some(format!(
                "in or next to the {kind} of {bytes} bytes at {start:#x}, which has been freed"
            ));
        }
        let below = state.allocations.range(..=address).next_back();
        let above = state.allocations.range(address..).next();
        let margin = 1 << 20;
        match (below, above) {
            (Some((&start, a)), _) if address < start + a.bytes + margin => near(start, a),
            (_, Some((&start, a))) if start - address < margin => near(start, a),
            _ => None,
        }
    }

    /// In checked mode, returns the first damaged byte around an allocation.
    pub(crate) fn violation(&self) -> Option<String> {
        let state = lock(&self.state);
        for (&start, allocation) in &state.allocations {
            let Placement::Map { map, len, guarded: true } = allocation.place else { continue };
            let end = start + allocation.bytes;
            // SAFETY: the bytes between the memory that faults and the data are mapped, and belong to no
            // allocation.
            let (front, back) = unsafe {
                (
                    std::slice::from_raw_parts((map + GUARD) as *const u8, start - map - GUARD),
                    std::slice::from_raw_parts(end as *const u8, map + len - GUARD - end),
                )
            };
            let what = format!("{} of {} bytes at {start:#x}", allocation.kind, allocation.bytes);
            if let Some(at) = front.iter().rposition(|&b| b != PATTERN) {
                return Some(format!("writes {} bytes before the {what}", front.len() - at));
            }
            if let Some(at) = back.iter().position(|&b| b != PATTERN) {
                return Some(format!("writes {at} bytes past the end of the {what}"));
            }
        }
        None
    }
}

fn layout(bytes: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(bytes.max(1), ALIGN).ok()
}

fn heap(bytes: usize) -> Option<(usize, Placement)> {
    // SAFETY: the layout is not empty.
    let address = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
    (!address.is_null()).then_some((address as usize, Placement::Heap))
}

fn map(len: usize) -> Option<usize> {
    fiber::map(len, 0).ok().map(|map| map as usize)
}

fn mapped(bytes: usize) -> Option<(usize, Placement)> {
    let page = page_size();
    let len = bytes.checked_next_multiple_of(page)?;
    if len < HUGE_FROM {
        let map = map(len)?;
        return Some((map, Placement::Map { map, len, guarded: false }));
    }
    // We begin on a large page, because fewer faults at first touch are worth more than the address space.
    let padded = len.checked_next_multiple_of(HUGE_PAGE)?.checked_add(HUGE_PAGE)?;
    let map = map(padded)?;
    let start = map.next_multiple_of(HUGE_PAGE);
    // SAFETY: the range is inside the mapping; this is only advice.
    unsafe { libc::madvise(start as *mut _, len, libc::MADV_HUGEPAGE) };
    Some((start, Placement::Map { map, len: padded, guarded: false }))
}

/// Maps an allocation between two inaccessible pieces. The data is as close to the upper piece as its
/// alignment allows, and the rest of its pages holds the pattern.
fn guarded(bytes: usize) -> Option<(usize, Placement)> {
    let data = bytes.checked_next_multiple_of(CHECKED_ALIGN)?;
    let len = data.checked_next_multiple_of(page_size())?.checked_add(2 * GUARD)?;
    let map = map(len)?;
    let start = map + len - GUARD - data;
    // SAFETY: all of this is inside the mapping that we just made. If it failed, no other code has seen it.
    unsafe {
        let faults = |at: usize| libc::mprotect(at as *mut _, GUARD, libc::PROT_NONE) == 0;
        if !faults(map) || !faults(map + len - GUARD) {
            libc::munmap(map as *mut _, len);
            return None;
        }
        std::ptr::write_bytes((map + GUARD) as *mut u8, PATTERN, start - map - GUARD);
        std::ptr::write_bytes((start + bytes) as *mut u8, PATTERN, data - bytes);
    }
    Some((start, Placement::Map { map, len, guarded: true }))
}

/// Gives a mapping's memory back but keeps its addresses. From now on every access to them faults, so that we
/// notice if a kernel uses freed memory. Returns true if the system did so.
///
/// # Safety
/// The mapping must no longer be used.
unsafe fn take_away(map: usize, len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the new mapping replaces one that belongs to this process and is no longer used.
    let new = unsafe { libc::mmap(map as *mut _, len, libc::PROT_NONE, flags, -1, 0) };
    new != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_bytes_tell_where_they_were_written() {
        let memory = Memory::new(1 << 30, true);
        let start = memory.alloc(1000, "device memory").unwrap();
        assert_eq!(start % CHECKED_ALIGN, 0);
        assert_eq!(memory.violation(), None);
        // SAFETY: three bytes beyond the end is still within the mapping.
        unsafe { *((start + 1003) as *mut u8) = 1 };
        assert!(
            memory.violation().unwrap().contains("3 bytes past the end of the device memory of 1000 bytes")
        );
        // SAFETY: three bytes beyond the end is still within the mapping.
        unsafe { *((start + 1003) as *mut u8) = PATTERN };
        // SAFETY: pattern fills the page in front.
        unsafe { *((start - 7) as *mut u8) = 1 };
        assert!(memory.violation().unwrap().contains("7 bytes before"));
        // SAFETY: nothing uses it.
        unsafe { memory.free(start) }.unwrap();
        assert_eq!(memory.violation(), None);
    }

    #[test]
    fn every_size_is_aligned_zeroed_and_given_back() {
        for check in [false, true] {
            let memory = Memory::new(1 << 30, check);
            for bytes in [1, 255, 256, 65_535, 65_536, 1 << 20, (4 << 20) + 1] {
                let start = memory.alloc(bytes, "device memory").unwrap();
                assert_eq!(start % if check { CHECKED_ALIGN } else { ALIGN }, 0, "{bytes}");
                // SAFETY: the allocation's own bytes.
                let data = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) };
                assert!(data.iter().all(|&b| b == 0), "{bytes}");
                assert_eq!(memory.free_bytes(), (1 << 30) - bytes as u64);
                // SAFETY: nothing uses it.
                unsafe { memory.free(start) }.unwrap();
            }
            assert_eq!(memory.free_bytes(), 1 << 30);
        }
    }

    /// Returns true if a write to the byte at `address` is noticed: it faults, or we find it afterwards.
    fn is_noticed(memory: &Memory, address: usize) -> bool {
        // SAFETY: a query.
        let is_mapped = unsafe {
            let page = address & !(page_size() - 1);
            // The system reads the byte for us. If we may not access it, we get an error instead of a fault.
            let mut pipe = [0; 2];
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0, "a pipe for {page:#x}");
            let written = libc::write(pipe[1], address as *const _, 1);
            libc::close(pipe[0]);
            libc::close(pipe[1]);
            written == 1
        };
        if !is_mapped {
            return true;
        }
        let byte = address as *mut u8;
        // SAFETY: the byte is mapped, and is put back as it was.
        unsafe {
            let old = byte.replace(1);
            let found = memory.violation().is_some();
            byte.write(old);
            found
        }
    }

    #[test]
    fn the_first_byte_on_either_side_is_noticed_at_every_length() {
        let memory = Memory::new(1 << 30, true);
        let neighbours =
            [memory.alloc(100, "device memory").unwrap(), memory.alloc(0, "device memory").unwrap()];
        for bytes in (0..=2100).chain([4095, 4096, 4097, 65_535, 65_536, 65_537]) {
            let start = memory.alloc(bytes, "device memory").unwrap();
            let end = start + bytes;
            for beside in [start - 1, end, end + 15, end + 16, end + page_size() - 1, start - page_size()] {
                assert!(is_noticed(&memory, beside), "{bytes} bytes at {start:#x}, {beside:#x}");
            }
            if bytes > 0 {
                assert!(!is_noticed(&memory, start) && !is_noticed(&memory, end - 1), "{bytes}");
            }
            // The largest power of two that divides the length. No type with such elements needs more.
            let wanted = (1 << bytes.max(1).trailing_zeros().min(12)).max(CHECKED_ALIGN);
            assert!(start.is_multiple_of(wanted), "{bytes} bytes at {start:#x}");
            // SAFETY: nothing uses it.
            unsafe { memory.free(start) }.unwrap();
            assert!(bytes == 0 || is_noticed(&memory, start), "{bytes}: freed, and yet reached");
            assert!(memory.describe(end).unwrap().contains("which has been freed"), "{bytes}");
        }
        assert_eq!(memory.violation(), None);
        for start in neighbours {
            // SAFETY: nothing uses it.
            unsafe { memory.free(start) }.unwrap();
        }
    }

    #[test]
    fn more_than_there_is_and_wrong_addresses_are_errors() {
        let memory = Memory::new(1 << 20, false);
        assert_eq!(memory.alloc(usize::MAX, "device memory").unwrap_err().kind(), ErrorKind::OutOfMemory);
        // SAFETY: nothing is freed.
        let error = unsafe { memory.free(4096) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
