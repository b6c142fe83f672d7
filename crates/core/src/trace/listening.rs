//! A listener's life: it begins to listen, adds devices, and ends.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};

use gpustream_hal::{self as hal, Result};
use gpustream_timeline::Nanos;

use super::collector::{COLLECTOR, Finished, Listener, collect, end};
use super::device::TracedDevice;
use super::{LISTENERS, RANGES, thread};
use crate::sync::lock;
use crate::{process, reentrancy};

/// How often we look at the end of a trace, a millisecond apart, before we make the backends hand over what they have.
const LOOKS: u32 = 20;

/// Keeps a listener listening. Dropping it ends that without waiting for pending operations.
pub struct Listening {
    id: u64,
    devices: Vec<Arc<TracedDevice>>,
}

impl Listening {
    /// Begins to tell `listener` of these devices, and of all threads. Blocks until we know each device's clock.
    ///
    /// # Errors
    /// A driver's failure.
    pub fn begin(listener: Box<dyn Listener>, devices: &[Arc<dyn hal::Device>]) -> Result<Self> {
        static AT_END: Once = Once::new();
        let id = lock(&COLLECTOR).get_or_insert_default().admit(listener);
        LISTENERS.fetch_add(1, Ordering::SeqCst);
        let mut listening = Self { id, devices: Vec::new() };
        devices.iter().try_for_each(|device| listening.add(device))?;
        AT_END.call_once(|| process::before_end(end));
        thread::run();
        Ok(listening)
    }

    /// Adds a device.
    ///
    /// # Errors
    /// A driver's failure.
    pub fn add(&mut self, device: &Arc<dyn hal::Device>) -> Result<()> {
        if !self.devices.iter().any(|known| Arc::ptr_eq(&known.raw, device)) {
            self.devices.push(lock(&COLLECTOR).get_or_insert_default().trace(self.id, device)?);
        }
        Ok(())
    }

    /// Tells the listener of all operations that were submitted before `until`, a time on the clock of [`now`](super::now).
    /// The devices must be done with them. Blocks for some milliseconds.
    pub fn finish(&self, until: Nanos) {
        let devices = &self.devices;
        // If we make a backend hand over everything now, it loses the operations that other threads are submitting. So we
        // first ask for complete measurements, until none is missing or the rest does not seem to come.
        for _ in 0..LOOKS {
            if collect(&Finished { devices, until, is_last: false }) {
                return;
            }
            thread::pause();
        }
        collect(&Finished { devices, until, is_last: true });
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let (id, devices) = (self.id, mem::take(&mut self.devices));
        // This calls drivers and waits for a lock. A host closure may do neither.
        reentrancy::outside(move || {
            let mut slot = lock(&COLLECTOR);
            // We stop counting this listener before we throw the notes away, so that no thread adds to them afterwards.
            let is_last = LISTENERS.fetch_sub(1, Ordering::SeqCst) & !RANGES == 1;
            let listener = slot.as_mut().and_then(|collector| collector.dismiss(id, &devices, is_last));
            drop(slot);
            // Dropped with no lock held, because this closes a file.
            drop(listener);
        });
    }
}
