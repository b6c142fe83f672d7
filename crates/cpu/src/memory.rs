//! The device's memory: mapped pages of the host's, counted against what the machine has.

use std::collections::BTreeMap;
use std::sync::Mutex;

use gpustream_hal::{ErrorKind, Result};

use crate::error::error;
use crate::fiber::page_size;
use crate::sync::lock;

/// Every allocation starts at a multiple of this, as on a GPU.
pub(crate) const ALIGN: usize = 256;
/// From this size on an allocation has pages of its own.
const MAP_FROM: usize = 64 << 10;
/// From this size on large pages pay.
const HUGE_FROM: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;
/// What fills the bytes around an allocation in checked mode.
const PATTERN: u8 = 0xa5;

/// A device's memory.
pub(crate) struct Memory {
    total: u64,
    check: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    allocations: BTreeMap<usize, Allocation>,
}

#[derive(Clone, Copy, Debug)]
struct Allocation {
    bytes: usize,
    kind: &'static str,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Heap,
    /// Pages of its own; `guarded` in checked mode, with an unreadable page on either side and the pattern
    /// in what remains.
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

    /// Free bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(lock(&self.state).used)
    }

    /// Zeroed memory; `kind` is what messages call it.
    pub(crate) fn alloc(&self, bytes: usize, kind: &'static str) -> Result<usize> {
        let none = || {
            error(
                ErrorKind::OutOfMemory,
                format!("no room for {bytes} bytes of {kind}: {} bytes are free", self.free_bytes()),
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

    /// Frees what [`alloc`](Self::alloc) gave.
    ///
    /// # Safety
    /// All work that uses it is done.
    pub(crate) unsafe fn free(&self, address: usize) -> Result<()> {
        let allocation = {
            let mut state = lock(&self.state);
            let Some(allocation) = state.allocations.remove(&address) else {
                return Err(error(
                    ErrorKind::InvalidArgument,
                    format!("{address:#x} is not the start of an allocation of this device"),
                ));
            };
            state.used -= allocation.bytes as u64;
            allocation
        };
        match allocation.place {
            Place::Heap => {
                if let Some(layout) = layout(allocation.bytes) {
                    // SAFETY: allocated with this layout, and not used any more.
                    unsafe { std::alloc::dealloc(address as *mut u8, layout) };
                }
            }
            Place::Map { map, len, .. } => {
                // SAFETY: the mapping is this allocation's own, and not used any more.
                unsafe { libc::munmap(map as *mut _, len) };
            }
        }
        Ok(())
    }

    /// The allocation that an address lies in or next to, for messages.
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
        let below = state.allocations.range(..=address).next_back();
        let above = state.allocations.range(address..).next();
        let margin = 1 << 20;
        match (below, above) {
            (Some((&start, a)), _) if address < start + a.bytes + margin => near(start, a),
            (_, Some((&start, a))) if start - address < margin => near(start, a),
            _ => None,
        }
    }

    /// In checked mode: the first byte around an allocation that somebody wrote.
    pub(crate) fn violation(&self) -> Option<String> {
        let state = lock(&self.state);
        for (&start, allocation) in &state.allocations {
            let Place::Map { map, len, guarded: true } = allocation.place else { continue };
            let page = page_size();
            let end = start + allocation.bytes;
            // SAFETY: the bytes between the guard pages and the data are mapped and nobody's.
            let (front, back) = unsafe {
                (
                    std::slice::from_raw_parts((map + page) as *const u8, start - map - page),
                    std::slice::from_raw_parts(end as *const u8, map + len - page - end),
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

fn heap(bytes: usize) -> Option<(usize, Place)> {
    // SAFETY: the layout is not empty.
    let address = unsafe { std::alloc::alloc_zeroed(layout(bytes)?) };
    (!address.is_null()).then_some((address as usize, Place::Heap))
}

fn map(len: usize) -> Option<usize> {
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no other memory.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (map != libc::MAP_FAILED).then_some(map as usize)
}

fn mapped(bytes: usize) -> Option<(usize, Place)> {
    let page = page_size();
    let len = bytes.checked_next_multiple_of(page)?;
    if len < HUGE_FROM {
        let map = map(len)?;
        return Some((map, Place::Map { map, len, guarded: false }));
    }
    // Start on a large page; fewer faults at first touch are worth more than the address space.
    let padded = len.checked_next_multiple_of(HUGE_PAGE)?.checked_add(HUGE_PAGE)?;
    let map = map(padded)?;
    let start = map.next_multiple_of(HUGE_PAGE);
    // SAFETY: the range lies in the mapping; this is advice.
    unsafe { libc::madvise(start as *mut _, len, libc::MADV_HUGEPAGE) };
    Some((start, Place::Map { map, len: padded, guarded: false }))
}

/// Between two pages that nothing may touch, the data as close to the upper one as its alignment allows.
fn guarded(bytes: usize) -> Option<(usize, Place)> {
    let page = page_size();
    let data = bytes.checked_next_multiple_of(ALIGN)?;
    // At least one page of pattern in front.
    let len = data.checked_next_multiple_of(page)?.checked_add(3 * page)?;
    let map = map(len)?;
    let start = map + len - page - data;
    // SAFETY: all of it lies in the mapping made above.
    unsafe {
        libc::mprotect(map as *mut _, page, libc::PROT_NONE);
        libc::mprotect((map + len - page) as *mut _, page, libc::PROT_NONE);
        std::ptr::write_bytes((map + page) as *mut u8, PATTERN, start - map - page);
        std::ptr::write_bytes((start + bytes) as *mut u8, PATTERN, data - bytes);
    }
    Some((start, Place::Map { map, len, guarded: true }))
}

/// Memory this process can have: the machine's, or its control group's limit.
pub(crate) fn machine_total() -> u64 {
    // SAFETY: queries without side effects.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = pages.max(0) as u64 * size.max(0) as u64;
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max");
    let limit = limit.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    machine.min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_bytes_tell_where_they_were_written() {
        let memory = Memory::new(1 << 30, true);
        let start = memory.alloc(1000, "device memory").unwrap();
        assert_eq!(start % ALIGN, 0);
        assert_eq!(memory.violation(), None);
        // SAFETY: three bytes beyond the end is still within the mapping.
        unsafe { *((start + 1003) as *mut u8) = 1 };
        assert!(
            memory.violation().unwrap().contains("3 bytes past the end of the device memory of 1000 bytes")
        );
        // SAFETY: as above.
        unsafe { *((start + 1003) as *mut u8) = PATTERN };
        // SAFETY: a page of pattern lies in front.
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
                assert_eq!(start % ALIGN, 0, "{bytes}");
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

    #[test]
    fn more_than_there_is_and_wrong_addresses_are_errors() {
        let memory = Memory::new(1 << 20, false);
        assert_eq!(memory.alloc(usize::MAX, "device memory").unwrap_err().kind(), ErrorKind::OutOfMemory);
        // SAFETY: nothing is freed.
        let error = unsafe { memory.free(4096) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
