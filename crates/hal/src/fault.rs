//! The fault of a device: whether the program was told of it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::notice::{self, Level, Notice};

thread_local! {
    /// Whether the errors that this thread makes now go to nobody.
    static UNHEARD: Cell<bool> = const { Cell::new(false) };
}

/// Whether a device's fault was reported; shared by all handles of the device. [`Error::with_fault`](crate::Error::with_fault)
/// makes the reports.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<FaultState>);

#[derive(Debug, Default)]
struct FaultState {
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
        Self(Arc::new(FaultState { device: Some(format!("{backend}:{ordinal}")), ..FaultState::default() }))
    }

    /// Has listeners told of the fault, unless they were.
    fn tell(&self, message: &str) {
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

    /// Notes a report of the fault, unless nobody hears it, and tells listeners of the fault, once. Returns whether there was
    /// a report before.
    pub(crate) fn report(&self, message: &str) -> bool {
        self.tell(message);
        if UNHEARD.get() { self.is_reported() } else { self.0.reported.swap(true, Ordering::Relaxed) }
    }
}

/// Does `work` and drops its errors, so that none of them counts as the first report of a device's fault: the program is to get
/// that in the fault's own words.
pub fn unheard<T>(work: impl FnOnce() -> T) -> T {
    /// The way back, also if the work panics.
    struct Return(bool);
    impl Drop for Return {
        fn drop(&mut self) {
            UNHEARD.set(self.0);
        }
    }
    let _return = Return(UNHEARD.replace(true));
    work()
}
