//! Keeps captures and waits for a whole context apart. A driver breaks a capture if any thread waits for the context
//! meanwhile, so we refuse one while the other is going on.

use std::collections::BTreeMap;

use gpustream_hal::{self as hal, Error, ErrorKind, Result};

use crate::operation::refused;
use crate::sync::{Mutex, lock, thread};

type Key = (hal::BackendName, usize);

/// How many captures, or how many waits, are going on in a context.
enum Use {
    Captures(usize),
    Waits(usize),
}

/// How often a new capture looks if the wait for its context has ended, before we refuse it.
const TRIES: usize = if cfg!(shuttle) { 2 } else { 10_000 };

static CONTEXTS: Mutex<BTreeMap<Key, Use>> = Mutex::new(BTreeMap::new());

/// A permit to capture in a context, or to wait for all of it. It lasts until you drop it.
pub(crate) struct ContextHold(Key);

impl ContextHold {
    /// If a host thread is waiting for the context, gives it a short time to finish. We do not wait longer, because it may
    /// depend on something that this thread does later.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] while a host thread waits for the context.
    pub(crate) fn for_capture(device: &dyn hal::Device) -> Result<Self> {
        for _ in 0..TRIES {
            if let Some(hold) = Self::enter(device, Use::Captures(1)) {
                return Ok(hold);
            }
            thread::yield_now();
        }
        Err(Error::new(
            ErrorKind::Captured,
            "you cannot begin a capture while a host thread waits for the whole device; let that thread wait for a stream \
             or an event instead",
        ))
    }

    /// # Errors
    /// [`ErrorKind::Captured`] while a stream of the context is being captured, through any handle of the device.
    pub(crate) fn for_wait(device: &dyn hal::Device) -> Result<Self> {
        Self::enter(device, Use::Waits(1)).ok_or_else(|| {
            refused("wait for the whole device; wait for a stream or an event, or end the capture first")
        })
    }

    fn enter(device: &dyn hal::Device, new: Use) -> Option<Self> {
        let key = (device.info().backend, device.context());
        let mut contexts = lock(&CONTEXTS);
        match (contexts.entry(key).or_insert(Use::Captures(0)), new) {
            (Use::Captures(count), Use::Captures(_)) | (Use::Waits(count), Use::Waits(_)) => *count += 1,
            (free @ (Use::Captures(0) | Use::Waits(0)), new) => *free = new,
            _ => return None,
        }
        Some(Self(key))
    }
}

impl Drop for ContextHold {
    fn drop(&mut self) {
        let mut contexts = lock(&CONTEXTS);
        if let Some(Use::Captures(count) | Use::Waits(count)) = contexts.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                contexts.remove(&self.0);
            }
        }
    }
}
