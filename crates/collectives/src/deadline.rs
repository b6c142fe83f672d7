//! Time limits.

use std::io;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// When a wait must end. `None` if the limit is beyond what the clock can represent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) const NEVER: Self = Self(None);

    pub(crate) fn after(limit: Duration) -> Self {
        Self(Instant::now().checked_add(limit))
    }

    /// Returns the earlier of this deadline and the one `limit` from now.
    pub(crate) fn or_after(self, limit: Duration) -> Self {
        let other = Self::after(limit);
        Self(self.0.into_iter().chain(other.0).min())
    }

    /// Returns how much time is left, or `None` if there is no deadline. Returns an error of kind
    /// [`io::ErrorKind::TimedOut`] if it has passed.
    pub(crate) fn left(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        match end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    pub(crate) fn has_passed(self) -> bool {
        self.left().is_err()
    }

    /// Blocks while `waits` is true for the state, at most until the deadline. `changed` must be notified of
    /// changes.
    pub(crate) fn wait_while<'a, T>(
        self,
        changed: &Condvar,
        state: MutexGuard<'a, T>,
        waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        match self.left() {
            Ok(None) => changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner),
            Ok(Some(left)) => {
                changed.wait_timeout_while(state, left, waits).unwrap_or_else(PoisonError::into_inner).0
            }
            Err(_) => state,
        }
    }
}

/// The pauses between attempts. Each is twice as long as the last, up to a maximum.
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// Sleeps for the next pause, or until the deadline if that is sooner.
    pub(crate) fn pause(&mut self, deadline: Deadline) {
        if let Ok(left) = deadline.left() {
            thread::sleep(left.map_or(self.next, |left| left.min(self.next)));
        }
        self.next = (self.next * 2).min(self.longest);
    }
}
