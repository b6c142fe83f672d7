//! The fault of a device: whether the program was told of it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Whether the errors that this thread makes now go to nobody.
    static UNHEARD: Cell<bool> = const { Cell::new(false) };
}

/// Whether a device's fault was reported; shared by all handles of the device. [`Error::with_fault`](crate::Error::with_fault)
/// makes the reports.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<AtomicBool>);

impl Fault {
    /// Returns whether the fault was reported.
    pub(crate) fn is_reported(&self) -> bool {
        // The flag alone is shared, and nothing is ordered by it.
        self.0.load(Ordering::Relaxed)
    }

    /// Notes a report of the fault, unless nobody hears it. Returns whether there was one before.
    pub(crate) fn report(&self) -> bool {
        if UNHEARD.get() { self.is_reported() } else { self.0.swap(true, Ordering::Relaxed) }
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
