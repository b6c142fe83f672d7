//! The standard library's means of sharing between threads.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex};
use std::sync::{MutexGuard, PoisonError};

/// Locks a mutex, even if another thread has panicked, because the data behind these locks is consistent at
/// every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
