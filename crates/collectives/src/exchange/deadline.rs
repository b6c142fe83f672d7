//! The end of a time limit.

use std::io;
use std::time::{Duration, Instant};

/// The time at which a wait ends; `None` where the limit is beyond what the clock can tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    pub(super) const NEVER: Self = Self(None);

    /// Returns the time that is `limit` from now.
    pub(super) fn after(limit: Duration) -> Self {
        Self(Instant::now().checked_add(limit))
    }

    /// Returns the earlier one of this time and the time that is `limit` from now.
    pub(super) fn or_after(self, limit: Duration) -> Self {
        let other = Self::after(limit);
        Self(self.0.into_iter().chain(other.0).min())
    }

    /// Returns the time that is left, `None` if there is no end, and an error of kind [`io::ErrorKind::TimedOut`] if the
    /// end has passed.
    pub(super) fn left(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        match end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    pub(super) fn has_passed(self) -> bool {
        self.left().is_err()
    }

    /// Blocks for `pause`, or until the deadline if that is sooner.
    pub(super) fn sleep(self, pause: Duration) {
        if let Ok(left) = self.left() {
            std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
        }
    }
}

/// The pauses between attempts: each twice as long as the one before, up to the longest.
pub(super) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(super) fn new(longest: Duration) -> Self {
        Self { next: Duration::from_millis(1).min(longest), longest }
    }

    /// Blocks for the next pause, or until the deadline if that is sooner.
    pub(super) fn pause(&mut self, deadline: Deadline) {
        deadline.sleep(self.next);
        self.next = (self.next * 2).min(self.longest);
    }
}
