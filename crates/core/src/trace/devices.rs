//! The traced devices, and how many listeners each one has.
//!
//! Every thread that submits looks here, so we must not call a driver while we hold the lock.

use std::sync::Arc;

use gpustream_hal as hal;

use super::device::TracedDevice;
use crate::sync::{Mutex, lock};

static DEVICES: Mutex<Vec<Traced>> = Mutex::new(Vec::new());

struct Traced {
    device: Arc<TracedDevice>,
    listeners: usize,
}

impl Traced {
    fn is(&self, device: &Arc<dyn hal::Device>) -> bool {
        Arc::ptr_eq(&self.device.raw, device)
    }
}

/// Returns the traced device, or `None` if it has no listener.
pub(super) fn find(device: &Arc<dyn hal::Device>) -> Option<Arc<TracedDevice>> {
    lock(&DEVICES).iter().find(|traced| traced.is(device)).map(|traced| traced.device.clone())
}

/// Returns all traced devices.
pub(super) fn all() -> Vec<Arc<TracedDevice>> {
    lock(&DEVICES).iter().map(|traced| traced.device.clone()).collect()
}

/// Counts one more listener of a device. Returns `None` if it is not traced yet.
pub(super) fn join(device: &Arc<dyn hal::Device>) -> Option<Arc<TracedDevice>> {
    let mut devices = lock(&DEVICES);
    let traced = devices.iter_mut().find(|traced| traced.is(device))?;
    traced.listeners += 1;
    Some(traced.device.clone())
}

/// Adds a device with one listener.
pub(super) fn add(device: Arc<TracedDevice>) {
    lock(&DEVICES).push(Traced { device, listeners: 1 });
}

/// Counts one listener less. Returns true if it was the last.
pub(super) fn leave(device: &Arc<TracedDevice>) -> bool {
    let mut devices = lock(&DEVICES);
    let Some(at) = devices.iter().position(|traced| Arc::ptr_eq(&traced.device, device)) else {
        return false;
    };
    devices[at].listeners -= 1;
    let is_last = devices[at].listeners == 0;
    if is_last {
        devices.swap_remove(at);
    }
    is_last
}
