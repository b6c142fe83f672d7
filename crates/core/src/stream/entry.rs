//! The way into a stream. Each of your calls is checked once, and carries the proof down.

use gpustream_hal::{CallSite, Result};

use super::StreamCore;
use crate::operation::{Caller, Rules};

/// One call's permission to use a stream: its thread may use the stream, and is not in a closure that must not call the
/// library. So nothing below checks that again.
#[derive(Clone, Copy)]
pub struct StreamEntry<'s> {
    pub stream: &'s StreamCore,
    pub caller: Caller,
}

impl StreamCore {
    /// Lets one of your calls in.
    ///
    /// # Errors
    /// Those of [`check_thread`](Self::check_thread).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub fn enter(&self, rules: Rules, call_site: CallSite) -> Result<StreamEntry<'_>> {
        match self.check_thread() {
            Ok(outside) => Ok(StreamEntry { stream: self, caller: Caller { call_site, rules, outside } }),
            Err(error) => Err(error.with_call_site(call_site)),
        }
    }
}

impl StreamEntry<'_> {
    /// If `outcome` is an error, names the call in it.
    ///
    /// # Errors
    /// The error in `outcome`, with the call's name and line.
    #[inline]
    pub fn named<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| error.with_call_site(self.caller.call_site))
    }

    /// Refuses a recorded stream early. `what` completes the error "you cannot …". Another thread may begin a capture as
    /// soon as this returns, so later steps must check again.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`](gpustream_hal::ErrorKind::Captured) in a capture, and
    /// [`ErrorKind::NotANode`](gpustream_hal::ErrorKind::NotANode) on a stream of nodes.
    #[inline]
    pub fn check_running(&self, what: &str) -> Result<()> {
        if self.stream.is_recorded() { self.named(Err(self.stream.refusal(what))) } else { Ok(()) }
    }
}
