//! Reports of a device's fault: the first has the fault's own words, and later errors say that the device failed earlier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;

/// The words in front of an error that comes after the first report of the device's fault.
pub(crate) const EARLIER: &str = "the device failed earlier: ";

/// Whether a device's fault was reported; shared by all handles of the device.
#[derive(Clone, Debug, Default)]
pub struct Fault(Arc<AtomicBool>);

impl Fault {
    /// Returns the error that a call on the device answers with, which says so where the device's fault was reported
    /// before. An error that is dropped before anybody has looked at it is no report.
    #[cold]
    #[must_use]
    pub fn report(&self, error: Error) -> Error {
        // The flag alone is shared, and nothing is ordered by it.
        let known = if error.is_loss() {
            self.0.swap(true, Ordering::Relaxed)
        } else {
            self.0.load(Ordering::Relaxed)
        };
        match (known, error.is_loss()) {
            (true, _) => error.after_fault(),
            (false, true) => {
                error.with_first_report(FirstReport { fault: self.clone(), seen: AtomicBool::new(false) })
            }
            (false, false) => error,
        }
    }
}

/// The first report of a fault, which an error and its clones own together.
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
            self.fault.0.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn loss() -> Error {
        Error::new(ErrorKind::DeviceLost, "illegal address")
    }

    #[test]
    fn second_report_says_that_the_device_failed_earlier() {
        let fault = Fault::default();
        assert_eq!(fault.report(Error::unsupported("x")).message(), "x is not supported here");
        let first = fault.report(loss());
        assert_eq!(first.clone().message(), "illegal address");
        assert_eq!(fault.report(loss()).message(), "the device failed earlier: illegal address");
        let other = fault.clone().report(Error::unsupported("x")).with_context("opening");
        assert_eq!(other.message(), "the device failed earlier: opening: x is not supported here");
        assert_eq!(Fault::default().report(loss()).message(), "illegal address", "of another device");
    }

    #[test]
    fn an_error_that_nobody_looks_at_is_no_report() {
        let fault = Fault::default();
        drop(fault.report(loss()));
        let first = fault.report(loss());
        drop(first.clone());
        assert_eq!(first.kind(), ErrorKind::DeviceLost);
        drop(first);
        assert_eq!(fault.report(loss()).message(), "the device failed earlier: illegal address");
    }
}
