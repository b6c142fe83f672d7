//! Listening: its beginning, the devices that are heard, and its end.

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

/// The looks at the end of a trace, a millisecond apart, before the backends are made to hold nothing back.
const LOOKS: u32 = 20;

/// A listener's place. Dropping it ends the listening, without waiting for what is pending.
pub struct Listening {
    id: u64,
    devices: Vec<Arc<TracedDevice>>,
}

impl Listening {
    /// Begins to tell `listener` of these devices, and of all threads. Blocks until each device's clock is known.
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

    /// Begins to tell of one more device.
    ///
    /// # Errors
    /// A driver's failure.
    pub fn add(&mut self, device: &Arc<dyn hal::Device>) -> Result<()> {
        if !self.devices.iter().any(|known| Arc::ptr_eq(&known.raw, device)) {
            self.devices.push(lock(&COLLECTOR).get_or_insert_default().trace(self.id, device)?);
        }
        Ok(())
    }

    /// Tells the listener of all operations that were submitted before `until`, on the clock of [`now`](super::now). The devices must
    /// have done them. Blocks for some milliseconds.
    pub fn finish(&self, until: Nanos) {
        let devices = &self.devices;
        // A backend that is made to hold nothing back loses the operations that other threads have under way. So the
        // backend is first asked for complete measurements, until none is missing, or the rest seems not to come.
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
        // Drivers are called, and a host closure may have to wait for the lock.
        reentrancy::outside(move || {
            let mut slot = lock(&COLLECTOR);
            // Before the notes are thrown away, to which nobody adds then.
            let is_last = LISTENERS.fetch_sub(1, Ordering::SeqCst) & !RANGES == 1;
            let listener = slot.as_mut().and_then(|collector| collector.dismiss(id, &devices, is_last));
            drop(slot);
            // With no lock held: a file is closed.
            drop(listener);
        });
    }
}
