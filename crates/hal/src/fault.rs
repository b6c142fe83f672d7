//! A device's fault, and if we have reported it to you.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::notice::{self, Level, Notice};

thread_local! {
    /// True while the errors that this thread makes are dropped unseen.
    static UNHEARD: Cell<bool> = const { Cell::new(false) };
}

/// Knows if a device's fault was reported. All handles of the device share this.
/// [`Error::with_fault`](crate::Error::with_fault) makes the reports.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<FaultState>);

#[derive(Debug, Default)]
struct FaultState {
    reported: AtomicBool,
    /// True if we have told listeners. We tell them once.
    told: AtomicBool,
    /// The device, `cuda:0`.
    device: Option<String>,
}

impl Fault {
    /// Makes the fault of a device, which has not happened yet.
    #[must_use]
    pub fn of(backend: &str, ordinal: usize) -> Self {
        Self(Arc::new(FaultState { device: Some(format!("{backend}:{ordinal}")), ..FaultState::default() }))
    }

    /// Tells listeners of the fault, unless we have done so already.
    fn tell(&self, message: &str) {
        if !self.0.told.swap(true, Ordering::Relaxed) {
            // We make errors under all kinds of locks, so another thread tells them.
            notice::later(Level::Error, || Notice::Fault {
                device: self.0.device.clone(),
                message: message.to_owned(),
            });
        }
    }

    /// Returns true if the fault was reported.
    pub(crate) fn is_reported(&self) -> bool {
        // Relaxed, because no other memory depends on the flag.
        self.0.reported.load(Ordering::Relaxed)
    }

    /// Notes a report of the fault, unless it will be dropped [`unheard`]. Also tells listeners of the fault, once. Returns
    /// true if there was a report before.
    pub(crate) fn report(&self, message: &str) -> bool {
        self.tell(message);
        if UNHEARD.get() { self.is_reported() } else { self.0.reported.swap(true, Ordering::Relaxed) }
    }
}

/// Runs `work`, and you will drop its errors. So if one of them reports that a device failed, that does not count as the
/// first report. We keep the first report for an error that you see, because it has the fault's own words.
pub fn unheard<T>(work: impl FnOnce() -> T) -> T {
    /// Restores the state, even if the work panics.
    struct Return(bool);
    impl Drop for Return {
        fn drop(&mut self) {
            UNHEARD.set(self.0);
        }
    }
    let _return = Return(UNHEARD.replace(true));
    work()
}
