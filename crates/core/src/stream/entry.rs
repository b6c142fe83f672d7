//! The way into a stream: one check per call of the program's, handed down through the call.

use gpustream_hal::{CallSite, Result};

use super::StreamCore;
use crate::operation::{Caller, Rules};

/// One call's way into a stream. The call's thread may use the stream, outside of closures that may not call the library;
/// nothing below asks again.
#[derive(Clone, Copy)]
pub struct StreamEntry<'s> {
    pub stream: &'s StreamCore,
    pub caller: Caller,
}

impl StreamCore {
    /// Lets a call of the program's in.
    ///
    /// # Errors
    /// Those of [`check_thread`](Self::check_thread).
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub fn enter(&self, rules: Rules, operation: CallSite) -> Result<StreamEntry<'_>> {
        match self.check_thread() {
            Ok(outside) => {
                Ok(StreamEntry { stream: self, caller: Caller { call_site: operation, rules, outside } })
            }
            Err(error) => Err(error.with_call_site(operation)),
        }
    }
}

impl StreamEntry<'_> {
    /// Names the call in an error.
    ///
    /// # Errors
    /// That of `outcome`, with the call's name and line.
    #[inline]
    pub fn named<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| error.with_call_site(self.caller.call_site))
    }

    /// Refuses a recorded stream early; `what` completes the error "one cannot …". Another thread may begin a capture as soon
    /// as this returns, so later calls check again.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`](gpustream_hal::ErrorKind::Captured) in a capture, and
    /// [`ErrorKind::NotANode`](gpustream_hal::ErrorKind::NotANode) on a stream of nodes.
    #[inline]
    pub fn check_running(&self, what: &str) -> Result<()> {
        if self.stream.is_recorded() { self.named(Err(self.stream.refusal(what))) } else { Ok(()) }
    }
}
