//! Keys and values in the memory of one process, and how threads wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gpustream::Result;

use super::ExchangeError;
use crate::deadline::Deadline;

/// How many bytes a store can hold, keys included.
const CAPACITY: usize = 256 << 20;
/// Roughly how much memory an entry takes on top of its bytes.
const ENTRY: usize = 128;

/// A growing table, and the threads that wait for entries.
#[derive(Default)]
pub(super) struct Store {
    state: Mutex<StoreState>,
    changed: Condvar,
}

#[derive(Default)]
struct StoreState {
    entries: HashMap<String, Arc<[u8]>>,
    /// Roughly how much memory all entries take.
    bytes: usize,
    /// Set when nothing will be put or waited for anymore.
    closed: bool,
}

/// The result of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Stored,
    Twice,
    Full,
}

impl Put {
    /// Turns the result into what the caller gets. `key` is the key that was put.
    pub(super) fn of(self, key: &str) -> Result<()> {
        let key = key.to_owned();
        match self {
            Self::Stored => Ok(()),
            Self::Twice => Err(ExchangeError::PutTwice { key }.into()),
            Self::Full => Err(ExchangeError::Full { key, capacity: CAPACITY }.into()),
        }
    }
}

impl Store {
    pub(super) fn put(&self, key: &str, bytes: &[u8]) -> Put {
        let mut state = self.lock();
        if state.entries.contains_key(key) {
            return Put::Twice;
        }
        let size = key.len() + bytes.len() + ENTRY;
        if state.bytes + size > CAPACITY {
            return Put::Full;
        }
        state.bytes += size;
        state.entries.insert(key.to_owned(), bytes.into());
        self.changed.notify_all();
        Put::Stored
    }

    /// Waits for `key` and returns its bytes. Returns `None` if the deadline passes or the store is closed.
    pub(super) fn wait(&self, key: &str, deadline: Deadline) -> Option<Arc<[u8]>> {
        let waits = |state: &mut StoreState| !state.closed && !state.entries.contains_key(key);
        let state = deadline.wait_while(&self.changed, self.lock(), waits);
        state.entries.get(key).cloned()
    }

    /// Ends all waits, present and future.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_store_takes_no_more_and_keeps_what_it_has() {
        let store = Store::default();
        store.lock().bytes = CAPACITY - ENTRY - 6;
        assert_eq!(store.put("key", &[1; 4]), Put::Full);
        assert_eq!(store.put("key", &[1; 3]), Put::Stored);
        assert_eq!(store.put("k", &[]), Put::Full);
        assert_eq!(store.put("key", &[]), Put::Twice);
        assert_eq!(store.wait("key", Deadline::NEVER).as_deref(), Some(&[1; 3][..]));
    }

    #[test]
    fn closing_ends_a_wait_without_an_end() {
        let store = Store::default();
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| store.wait("key", Deadline::NEVER));
            store.close();
            assert_eq!(waiter.join().unwrap(), None);
        });
    }
}
