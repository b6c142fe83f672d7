//! Captures beside waits for a whole context. A driver breaks a capture when any thread waits for the context meanwhile, so
//! one is refused while the other goes on.

use std::collections::BTreeMap;

use gpustream_hal::{self as hal, Error, ErrorKind, Result};

use crate::operation::refused;
use crate::sync::{Mutex, lock, thread};

type Key = (hal::BackendName, usize);

/// The captures, or the waits, that go on in a context, with their number.
enum Use {
    Captures(usize),
    Waits(usize),
}

/// The number of times that a new capture looks for the end of a wait for its context before it is refused.
const TRIES: usize = if cfg!(shuttle) { 2 } else { 10_000 };

static CONTEXTS: Mutex<BTreeMap<Key, Use>> = Mutex::new(BTreeMap::new());

/// A permit to capture in a context, or to wait for all of it, until dropped.
pub(crate) struct ContextHold(Key);

impl ContextHold {
    /// Lets a host thread's wait for the context go first where that wait is short. A longer one may depend on something
    /// that this thread does later.
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
            "no capture can begin while a host thread waits for the whole device; wait for a stream or an event instead",
        ))
    }

    /// # Errors
    /// [`ErrorKind::Captured`] while a stream of the context is being captured, by any handle of the device.
    pub(crate) fn for_wait(device: &dyn hal::Device) -> Result<Self> {
        Self::enter(device, Use::Waits(1)).ok_or_else(|| refused("make the host wait for the whole device"))
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
