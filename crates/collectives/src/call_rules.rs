//! The time limit for calls of a communicator, and whether the ranks compare them.

use std::time::Duration;

/// What the ranks of a communicator of several processes have agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRules {
    /// How long a call, or its work, may take.
    pub(crate) limit: Duration,
    /// True if the ranks compare their calls.
    pub(crate) checked: bool,
}
