//! Failures that a driver does not know of, on their way from the work to the next wait for its stream.

use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::{Error, Result};

use crate::sync::{Mutex, lock};

/// The last failure of a stream's host closures, or of another library's work in it, until a wait for the stream reports it.
#[derive(Default)]
pub struct Failures {
    /// Whether there may be one: waits look here first.
    any: AtomicBool,
    last: Mutex<Option<Error>>,
}

impl Failures {
    /// Keeps a failure for the next wait.
    pub fn keep(&self, error: Error) {
        *lock(&self.last) = Some(error);
        self.any.store(true, Ordering::Release);
    }

    /// Takes out the failure, so that it is reported once.
    ///
    /// # Errors
    /// The failure, if there was one.
    pub fn report(&self) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut last = lock(&self.last);
        self.any.store(false, Ordering::Relaxed);
        last.take().map_or(Ok(()), Err)
    }
}
