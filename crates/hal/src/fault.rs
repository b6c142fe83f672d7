//! The fault of a device: whether the program was told of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::notice::{self, Level, Notice};

/// Whether a device's fault was reported; shared by all handles of the device. [`Error::with_fault`](crate::Error::with_fault)
/// makes the reports.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<State>);

#[derive(Debug, Default)]
struct State {
    reported: AtomicBool,
    /// Whether listeners were told, which they are once.
    told: AtomicBool,
    /// The device, `cuda:0`.
    device: Option<String>,
}

impl Fault {
    /// Returns the fault to be of a device.
    #[must_use]
    pub fn of(backend: &str, ordinal: usize) -> Self {
        Self(Arc::new(State { device: Some(format!("{backend}:{ordinal}")), ..State::default() }))
    }

    /// Has listeners told of the fault, unless they were.
    pub(crate) fn tell(&self, message: &str) {
        if !self.0.told.swap(true, Ordering::Relaxed) {
            // Errors are made under all kinds of locks.
            notice::later(Level::Error, || Notice::Fault {
                device: self.0.device.clone(),
                message: message.to_owned(),
            });
        }
    }

    /// Returns whether the fault was reported.
    pub(crate) fn is_reported(&self) -> bool {
        // The flag alone is shared, and nothing is ordered by it.
        self.0.reported.load(Ordering::Relaxed)
    }

    /// Returns the first report of the fault, unless there was one.
    pub(crate) fn first_report(&self) -> Option<FirstReport> {
        let known = self.0.reported.swap(true, Ordering::Relaxed);
        (!known).then(|| FirstReport { fault: self.clone(), seen: AtomicBool::new(false) })
    }
}

/// The first report of a fault, which an error and its clones own together. A report counts only once somebody has
/// looked at one of these.
#[derive(Debug)]
pub(crate) struct FirstReport {
    fault: Fault,
    seen: AtomicBool,
}

impl FirstReport {
    pub(crate) fn set_seen(&self) {
        self.seen.store(true, Ordering::Relaxed);
    }
}

impl Drop for FirstReport {
    fn drop(&mut self) {
        if !*self.seen.get_mut() {
            self.fault.0.reported.store(false, Ordering::Relaxed);
        }
    }
}
