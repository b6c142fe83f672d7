//! Checked mode: writes that leave a launch's views and stay inside their allocation, where no guard page
//! notices them.
//!
//! Before a launch we copy what its kernel must not write: of each allocation that an argument lies in, all
//! bytes outside of the views that the launch may write, whichever argument they belong to. After the launch
//! we compare. The kernel itself works on its memory in place, because kernels may keep addresses.
//!
//! Other work may rightly write these bytes meanwhile, for example another part of the allocation on another
//! stream. Then a difference proves nothing. So we compare only if the launch was alone: nothing else was
//! running when it began, and nothing else began until we had compared. Otherwise we report nothing. We cannot
//! make launches alone by running them one at a time, because a kernel may wait for another one. We also leave
//! out memory that the host or another process can write at any time, and look only at device memory. On the
//! CPU other code of the process could write that too (by `as_raw`, or as a guest by DLPack). We cannot know,
//! so such code must not write beside a launch on the same allocation in checked mode.
//!
//! A kernel that reaches memory by an address among its values or in memory must not write there if an argument
//! lies in the same allocation, unless a view that it may write contains the place. `Kernel::launch` demands
//! that anyway, because otherwise nothing orders the write.
//!
//! The cost is a copy and a comparison of the bytes outside, for each launch. If there is no room for the copy,
//! nothing is compared. Launches in graphs and captures do not say which memory they get, so they are not
//! compared either.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use gpustream_hal::{ArgumentMemory, Error, ErrorKind};

use crate::error::error;
use crate::shared::Shared;
use crate::work::Task;

/// The operations of all checked devices: how many are running in the lower half, and how many have begun in
/// the upper one. They are one number, so that an operation learns both at one moment.
static OPERATIONS: AtomicU64 = AtomicU64::new(0);
const BEGUN: u64 = 1 << 32;

/// True if the process has opened a device without checks, whose operations are not counted.
static IS_UNCOUNTED: AtomicBool = AtomicBool::new(false);

/// Ends all comparisons, because a device is opened whose operations are not counted.
pub(crate) fn stop_comparing() {
    IS_UNCOUNTED.store(true, Ordering::SeqCst);
}

/// An operation that runs, counted as one.
struct Turn {
    number: u64,
    began_alone: bool,
}

impl Turn {
    fn begin() -> Self {
        let before = OPERATIONS.fetch_add(BEGUN + 1, Ordering::SeqCst);
        // Others must see that this operation has begun before they see anything that it writes.
        fence(Ordering::SeqCst);
        Self { number: before.wrapping_add(BEGUN) / BEGUN, began_alone: before.is_multiple_of(BEGUN) }
    }

    /// Returns true if no other operation has run since this one began.
    fn is_alone(&self) -> bool {
        fence(Ordering::SeqCst);
        let now = OPERATIONS.load(Ordering::SeqCst) / BEGUN;
        self.began_alone && now == self.number && !IS_UNCOUNTED.load(Ordering::SeqCst)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        OPERATIONS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An operation that runs, and copies of the bytes that it must not write.
pub(crate) struct Watch {
    turn: Turn,
    outside: Vec<Outside>,
}

/// Bytes that a launch must not write, and what they were before it.
struct Outside {
    start: usize,
    before: Vec<u8>,
}

impl Watch {
    /// Begins an operation, before it does anything.
    ///
    /// # Safety
    /// The memory of a launch's arguments must be allocated until the launch is done.
    pub(crate) unsafe fn begin(work: &Task, device: &Shared) -> Self {
        let turn = Turn::begin();
        let lent = lent(work);
        if lent.is_empty() || !turn.is_alone() {
            return Self { turn, outside: Vec::new() };
        }
        let mut ranges = outside(lent, |address| device.memory.device_allocation(address));
        let bytes: usize = ranges.iter().map(Range::len).sum();
        if bytes as u64 > device.memory.free_bytes() {
            ranges.clear();
        }
        // SAFETY: the ranges are parts of the arguments' allocations.
        let outside = ranges.into_iter().filter_map(|range| unsafe { Outside::copy(range) }).collect();
        Self { turn, outside }
    }

    /// Ends the operation. Returns the error if a kernel has written bytes that it must not write.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin), with the same operation.
    pub(crate) unsafe fn end(self, work: &Task, device: &Shared) -> Option<Error> {
        let Task::Launch(launch) = work else { return None };
        // SAFETY: passed on to the caller.
        let changed = self.outside.iter().find_map(|outside| unsafe { outside.first_change() })?;
        // If another operation has begun, it may be the one that has written.
        if !self.turn.is_alone() {
            return None;
        }
        let allocation = device.memory.device_allocation(changed)?;
        let what = written(changed, &allocation, lent(work))?;
        let near = device.memory.describe(changed).unwrap_or_default();
        // SAFETY: the module is loaded while its work is pending.
        let kernel = unsafe { &*launch.function.0 };
        Some(error(
            ErrorKind::DeviceLost,
            format!(
                "kernel `{}` {what}: the byte {near} has changed; pass a view that contains it, or correct the kernel's bounds \
                 and its contract",
                kernel.name
            ),
        ))
    }
}

impl Outside {
    /// Copies bytes. Returns `None` if there is no room for them, and then nothing can be compared.
    ///
    /// # Safety
    /// The range must be allocated. If something writes there meanwhile, the copy must not be used.
    unsafe fn copy(range: Range<usize>) -> Option<Self> {
        let mut before = Vec::new();
        before.try_reserve_exact(range.len()).ok()?;
        // SAFETY: the source is allocated, and there is room for its bytes, which are then initialised.
        unsafe {
            std::ptr::copy_nonoverlapping(range.start as *const u8, before.as_mut_ptr(), range.len());
            before.set_len(range.len());
        }
        Some(Self { start: range.start, before })
    }

    /// Returns the address of the first byte that has changed.
    ///
    /// # Safety
    /// The range must be allocated. If something writes there meanwhile, the result must not be used.
    unsafe fn first_change(&self) -> Option<usize> {
        let now = self.start as *const u8;
        // SAFETY: both have this many bytes.
        if unsafe { libc::memcmp(now.cast(), self.before.as_ptr().cast(), self.before.len()) } == 0 {
            return None;
        }
        // SAFETY: as above.
        let at =
            self.before.iter().enumerate().position(|(at, byte)| unsafe { now.add(at).read() } != *byte)?;
        Some(self.start + at)
    }
}

/// Returns the memory of a launch's arguments, if it is known.
fn lent(work: &Task) -> &[ArgumentMemory] {
    match work {
        Task::Launch(launch) => launch.lent.as_ref().map_or(&[], |lent| lent),
        _ => &[],
    }
}

fn range_of(memory: &ArgumentMemory) -> Range<usize> {
    memory.address.0..memory.address.0 + memory.bytes
}

/// Returns what lies outside of all writable views, in the allocations that `allocation_at` finds for the
/// arguments' addresses.
fn outside(
    lent: &[ArgumentMemory],
    allocation_at: impl Fn(usize) -> Option<Range<usize>>,
) -> Vec<Range<usize>> {
    let mut allocations: Vec<_> = lent.iter().filter_map(|memory| allocation_at(memory.address.0)).collect();
    allocations.sort_by_key(|allocation| allocation.start);
    allocations.dedup();
    let mut writable: Vec<_> = lent.iter().filter(|memory| memory.writes).map(range_of).collect();
    writable.sort_by_key(|range| range.start);
    let mut outside = Vec::new();
    for allocation in allocations {
        let mut at = allocation.start;
        for range in writable.iter().filter(|range| allocation.contains(&range.start)) {
            if at < range.start {
                outside.push(at..range.start);
            }
            at = at.max(range.end);
        }
        if at < allocation.end {
            outside.push(at..allocation.end);
        }
    }
    outside
}

/// Says which element a kernel has written at an address, counted from the nearest argument in the same
/// allocation. An argument that contains the address is the nearest.
fn written(address: usize, allocation: &Range<usize>, lent: &[ArgumentMemory]) -> Option<String> {
    let distance = |memory: &&ArgumentMemory| {
        let range = range_of(memory);
        let apart = if address < range.start {
            range.start - address
        } else {
            (address + 1).saturating_sub(range.end)
        };
        // An overrun is more probable behind a view that the kernel writes.
        (apart, !memory.writes)
    };
    let nearest = lent.iter().filter(|memory| allocation.contains(&memory.address.0)).min_by_key(distance)?;
    let element = nearest.element.max(1);
    let from_start = address as i128 - nearest.address.0 as i128;
    let (index, number, len) =
        (from_start.div_euclid(element as i128), nearest.argument + 1, nearest.bytes / element);
    Some(if range_of(nearest).contains(&address) {
        format!("writes element {index} of argument {number}, which it may only read")
    } else {
        format!("writes element {index} of argument {number}, whose view has {len} elements")
    })
}

#[cfg(test)]
mod tests {
    use gpustream_hal::RawBuffer;

    use super::*;

    fn memory(argument: usize, range: Range<usize>, writes: bool) -> ArgumentMemory {
        let (address, bytes) = (RawBuffer(range.start), range.len());
        ArgumentMemory { argument, address, bytes, element: 4, writes }
    }

    #[test]
    fn writable_views_of_one_allocation_are_merged() {
        let allocation_at = |address: usize| {
            [100..200, 300..340].into_iter().find(|range: &Range<usize>| range.contains(&address))
        };
        let lent = [
            memory(0, 180..200, true),
            memory(1, 120..140, true),
            memory(2, 140..160, false),
            memory(3, 130..150, true),
            memory(4, 300..340, false),
            memory(5, 900..999, true),
        ];
        assert_eq!(outside(&lent, allocation_at), [100..120, 150..180, 300..340]);
        assert!(outside(&lent[3..4], |_| Some(130..150)).is_empty());
    }

    #[test]
    fn element_is_counted_from_the_nearest_argument() {
        let lent = [memory(0, 120..140, false), memory(1, 160..180, true)];
        let said = |address| written(address, &(100..200), &lent).unwrap();
        assert_eq!(said(183), "writes element 5 of argument 2, whose view has 5 elements");
        assert_eq!(said(159), "writes element -1 of argument 2, whose view has 5 elements");
        assert_eq!(said(141), "writes element 5 of argument 1, whose view has 5 elements");
        assert_eq!(said(139), "writes element 4 of argument 1, which it may only read");
        assert_eq!(said(150), "writes element -3 of argument 2, whose view has 5 elements");
        assert_eq!(written(250, &(240..260), &lent), None);
    }
}
