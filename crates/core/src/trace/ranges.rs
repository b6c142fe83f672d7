//! Ranges with the operations' labels, for the vendors' profilers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpustream_hal::{self as hal, Result};

use super::{LISTENERS, RANGES};

/// Shows each operation's driver calls as a range in the vendor's profiler, until the process ends.
///
/// # Errors
/// [`Unsupported`](hal::ErrorKind::Unsupported) if there is no such profiler. The error says what is missing.
pub fn show_ranges(device: &Arc<dyn hal::Device>) -> Result<()> {
    device.range_begin()?;
    LISTENERS.fetch_or(RANGES, Ordering::Relaxed);
    Ok(())
}

/// A range on this thread, until it is dropped. So the range also ends if the driver call fails or unwinds.
pub(super) struct Range<'a>(Option<&'a dyn hal::Device>);

impl<'a> Range<'a> {
    pub(super) fn begin(device: &'a dyn hal::Device, label: &str) -> Self {
        let shown = LISTENERS.load(Ordering::Relaxed) & RANGES != 0;
        if shown {
            device.range_push(label);
        }
        Self(shown.then_some(device))
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        if let Some(device) = self.0 {
            device.range_pop();
        }
    }
}
