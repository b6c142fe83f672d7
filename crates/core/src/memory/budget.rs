//! Your limit on a device's memory, and how much of it is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpustream_hal::{Bytes, Error, ErrorKind, Result};

/// How many bytes of device memory are taken, and how many may be.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    most: Option<u64>,
    /// The bytes that are taken or that we are asking for. 0 if there is no limit.
    taken: AtomicU64,
}

/// Bytes of a budget. They count until you drop this.
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

    /// Counts bytes that we are about to ask for. They count until you [give them back](Self::give_back).
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if that exceeds the limit; then nothing is counted.
    pub(crate) fn take(&self, bytes: usize) -> Result<()> {
        let Some(most) = self.most else { return Ok(()) };
        let fits = |taken: u64| taken.checked_add(bytes as u64).filter(|&sum| sum <= most);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|taken| over(most, taken))
    }

    /// Stops counting these bytes.
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
    /// If the driver took more bytes than we asked for, counts them too.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if that exceeds the limit; then the share stays as it was.
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

/// Returns the error for a request that exceeds the limit. The caller adds how much it asked for.
#[cold]
fn over(most: u64, taken: u64) -> Error {
    let message = format!(
        "this device's limit of {} leaves {}; drop some memory, or raise `DeviceOptions::memory_limit`",
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
