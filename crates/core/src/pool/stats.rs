//! Figures about memory, and who holds it.

use std::collections::HashMap;
use std::fmt;

use gpustream_hal::{Bytes, CallSite};

use super::Holder;

/// Figures about one kind of memory that the library holds. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The size of all live allocations, each rounded up to the pool's granule of 512 bytes.
    pub used: u64,
    /// The highest value that `used` has had.
    pub peak: u64,
    /// The memory that we took from the driver: `used`, and what we keep for later allocations.
    pub reserved: u64,
    /// The highest value that `reserved` has had.
    pub peak_reserved: u64,
    /// The size of the longest free piece.
    pub longest_free: u64,
    /// The number of live allocations.
    pub live: u64,
    /// How many allocations we served from reserved memory.
    pub hits: u64,
    /// How many allocations had to ask the driver.
    pub misses: u64,
}

impl MemoryStats {
    /// Counts an allocation of `size` bytes.
    #[inline]
    pub(super) fn hand_out(&mut self, size: usize) {
        self.used += size as u64;
        self.live += 1;
        self.peak = self.peak.max(self.used);
    }

    /// Counts `size` bytes that came back.
    #[inline]
    pub(super) fn take_back(&mut self, size: usize) {
        self.used -= size as u64;
        self.live -= 1;
    }

    /// Counts a request that had to ask the driver. We have now taken `reserved` bytes from it.
    pub(super) fn miss(&mut self, reserved: usize) {
        self.misses += 1;
        self.peak_reserved = self.peak_reserved.max(reserved as u64);
    }

    /// Adds the memory that comes from another source.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self {
            used: self.used + other.used,
            peak: self.peak + other.peak,
            reserved: self.reserved + other.reserved,
            peak_reserved: self.peak_reserved + other.peak_reserved,
            longest_free: self.longest_free.max(other.longest_free),
            live: self.live + other.live,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
        }
    }

    /// Returns how scattered the free memory is: 0 if it is one piece, towards 1 if no piece is long.
    pub fn fragmentation(&self) -> f64 {
        let free = self.reserved.saturating_sub(self.used);
        if free == 0 { 0.0 } else { 1.0 - self.longest_free as f64 / free as f64 }
    }
}

/// The memory that one line of your program holds.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Holding {
    /// The call that allocated, with its line.
    pub call_site: CallSite,
    /// How many live allocations were made there.
    pub count: usize,
    /// How many bytes all of these asked for.
    pub bytes: u64,
}

/// Who holds a device's memory right now, as `Device::memory_snapshot` returns it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MemorySnapshot {
    /// The figures for this memory.
    pub stats: MemoryStats,
    /// The holders, one per line of your program, most bytes first.
    pub holders: Vec<Holding>,
}

impl MemorySnapshot {
    pub(crate) fn new<'a>(stats: MemoryStats, live: impl Iterator<Item = (usize, &'a Holder)>) -> Self {
        let mut by_line: HashMap<(&str, &str, u32, u32), Holding> = HashMap::new();
        for (_, holder) in live {
            let CallSite { label, location } = holder.call_site;
            let key = (label, location.file(), location.line(), location.column());
            let entry =
                by_line.entry(key).or_insert(Holding { call_site: holder.call_site, count: 0, bytes: 0 });
            entry.count += 1;
            entry.bytes += holder.requested as u64;
        }
        let mut holders: Vec<Holding> = by_line.into_values().collect();
        holders.sort_by_key(|holding| (std::cmp::Reverse(holding.bytes), holding.call_site.location.line()));
        Self { stats, holders }
    }

    /// Returns one sentence with the largest `most` holders.
    pub(crate) fn summary(&self, most: usize) -> String {
        let MemoryStats { used, reserved, live, longest_free, .. } = self.stats;
        let mut text = format!(
            "{live} live allocations hold {}, and the pool has {} more, {} in one piece",
            Bytes(used),
            Bytes(reserved - used),
            Bytes(longest_free)
        );
        for (index, holding) in self.holders.iter().take(most).enumerate() {
            text += if index == 0 { "; most is held by " } else { ", " };
            text += &holding.to_string();
        }
        text
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} in {})", self.call_site, Bytes(self.bytes), self.count)
    }
}

impl fmt::Display for MemorySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary(0))?;
        self.holders.iter().try_for_each(|holding| writeln!(f, "  {holding}"))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    #[test]
    fn holders_are_summed_by_line_and_sorted() {
        let here = CallSite { label: "alloc", location: Location::caller() };
        let there = CallSite { label: "upload", location: Location::caller() };
        let holder = |operation, requested| Holder { requested, call_site: operation };
        let live = [holder(here, 1 << 10), holder(there, 10 << 10), holder(here, 2 << 10)];
        let snapshot = MemorySnapshot::new(MemoryStats::default(), live.iter().map(|it| (512, it)));
        let found: Vec<_> =
            snapshot.holders.iter().map(|it| (it.call_site.label, it.count, it.bytes)).collect();
        assert_eq!(found, [("upload", 1, 10 << 10), ("alloc", 2, 3 << 10)]);
        let text = snapshot.summary(1);
        assert!(text.contains("`upload` at") && !text.contains("`alloc`"), "{text}");
        assert!(snapshot.to_string().contains("(3 KiB in 2)"), "{snapshot}");
    }
}
