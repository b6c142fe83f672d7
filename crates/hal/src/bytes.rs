//! Numbers of bytes in readable form.

use std::fmt;

/// A number of bytes. It prints in the largest unit that fits: `512 B`, `256 MiB`, `1.5 GiB`.
///
/// ```
/// use gpustream_hal::Bytes;
/// let bytes = [0, 1023, 1024, 1536, 268_435_456].map(|bytes| Bytes(bytes).to_string());
/// assert_eq!(bytes, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "256 MiB"]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

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
