//! The program's limit of a device's memory, and who takes how much of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpustream_hal::{Bytes, Error, ErrorKind, Result};

/// The bytes of a device's memory that are taken, and the most that may be.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    most: Option<u64>,
    /// The bytes that are taken or being asked for; 0 if there is no limit.
    taken: AtomicU64,
}

/// Bytes of a budget, which count until the value is dropped.
#[derive(Debug)]
#[must_use = "the bytes count until this is dropped"]
pub struct BudgetShare {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(most: Option<u64>) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicU64::new(0) })
    }

    /// Counts bytes that are being asked for. They count until they are [given back](Self::give_back).
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] beyond the limit; nothing is counted then.
    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        let Some(most) = self.most else { return Ok(()) };
        let fits = |taken: u64| taken.checked_add(bytes as u64).filter(|&sum| sum <= most);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|taken| over(most, taken))
    }

    /// Counts bytes no longer.
    pub(crate) fn give_back(&self, bytes: usize) {
        if self.most.is_some() {
            self.taken.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Counts bytes for as long as the share lives.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub(crate) fn share(self: &Arc<Self>, bytes: usize) -> Result<BudgetShare> {
        self.take(bytes)?;
        Ok(BudgetShare { budget: self.clone(), bytes })
    }
}

impl BudgetShare {
    /// Counts as many bytes as the driver really took, if these are more.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] beyond the limit; the share stays as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes);
        self.budget.take(more)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Returns the error of a request beyond the limit. Who asks says for how much.
#[cold]
fn over(most: u64, taken: u64) -> Error {
    let message = format!(
        "the limit of {} for this device leaves {}; drop memory, or raise `DeviceOptions::memory_limit`",
        Bytes(most),
        Bytes(most.saturating_sub(taken))
    );
    Error::new(ErrorKind::OutOfMemory, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_until_they_are_dropped() {
        let budget = Budget::new(Some(100));
        let mut share = budget.share(40).unwrap();
        assert_eq!(budget.share(61).unwrap_err().kind(), ErrorKind::OutOfMemory);
        share.grow(30).unwrap();
        share.grow(100).unwrap();
        assert!(share.grow(101).is_err() && budget.take(1).is_err());
        drop(share);
        budget.take(100).unwrap();
        budget.give_back(100);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let budget = Budget::new(None);
        assert!((0..10).all(|_| budget.take(usize::MAX).is_ok()));
        drop(budget.share(usize::MAX).unwrap());
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
    }
}
