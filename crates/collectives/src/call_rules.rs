//! The terms of communicators.

use std::time::Duration;

/// The terms of a communicator of several processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRules {
    /// The time that a call, or the work of one, may take.
    pub(crate) limit: Duration,
    /// Whether the ranks compare their calls.
    pub(crate) checked: bool,
}
