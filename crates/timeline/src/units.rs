//! Times, bytes and rates as people read them.

use std::fmt;

use crate::Nanos;

/// A length of time with three or four digits: `12.35 ms`, `870 ns`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Nanos);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (nanos / 1e3, "µs"),
            1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
            _ => (nanos / 1e9, "s"),
        };
        let digits = if value < 10.0 { 3 } else { usize::from(value < 100.0) + 1 };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

/// A number of bytes in the unit that leaves few digits: `512 B`, `256 MiB`, `1.5 GiB`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >> shift > 0 {
                let text = format!("{:.2}", self.0 as f64 / (1u64 << shift) as f64);
                let text = text.trim_end_matches('0').trim_end_matches('.');
                return f.pad(&format!("{text} {unit}"));
            }
        }
        f.pad(&format!("{} B", self.0))
    }
}

/// Bytes in a time, as gigabytes per second; nothing where no time passed.
pub(crate) fn rate(bytes: u64, time: Nanos) -> String {
    if time == 0 || bytes == 0 {
        return String::new();
    }
    // A byte per nanosecond is a gigabyte per second.
    let rate = bytes as f64 / time as f64;
    if rate < 10.0 { format!("{rate:.2} GB/s") } else { format!("{rate:.1} GB/s") }
}

/// Part of a whole in percent; nothing where there is no whole.
pub(crate) fn percent(part: Nanos, whole: Nanos) -> String {
    if whole == 0 {
        return String::new();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_bytes_have_few_digits() {
        let times = [0, 999, 1_000, 12_345, 123_456_789, 61_000_000_000].map(|time| Time(time).to_string());
        assert_eq!(times, ["0 ns", "999 ns", "1.000 µs", "12.35 µs", "123.5 ms", "61.00 s"]);
        let bytes = [0, 1023, 1024, 1536, 268_435_456].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(bytes, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "256 MiB"]);
        assert_eq!([rate(5_000, 100), rate(5_000, 0)], ["50.0 GB/s", ""]);
        assert_eq!([percent(1, 8), percent(1, 100), percent(0, 0)], ["12 %", "1.0 %", ""]);
    }
}
