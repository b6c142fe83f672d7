//! Calls for graphs beside CUPTI, which some of them would deadlock with.
//!
//! From its first use on, CUPTI takes part in the driver's calls. With CUPTI 13.0 and driver 580, a thread that makes an
//! executable graph holds CUPTI's lock and waits for the context's. A thread that launches or destroys one holds the
//! context's lock and waits for CUPTI's. So we make an executable only while no other thread is in a call for one. A process
//! that is not traced takes no lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CALLS: RwLock<()> = RwLock::new(());

/// Whether CUPTI was ever used. It stays in the driver's calls when it measures no more.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Notes that CUPTI is used from now on.
pub(super) fn note_use() {
    IS_USED.store(true, Ordering::Release);
}

/// Waits until no thread is in a call for an executable graph, if CUPTI is in use, and keeps it so.
pub(crate) fn alone() -> Option<RwLockWriteGuard<'static, ()>> {
    is_used().then(|| CALLS.write().unwrap_or_else(PoisonError::into_inner))
}

/// Waits until no thread is making an executable graph, if CUPTI is in use, and keeps it so.
#[inline]
pub(crate) fn together() -> Option<RwLockReadGuard<'static, ()>> {
    is_used().then(|| CALLS.read().unwrap_or_else(PoisonError::into_inner))
}

#[inline]
fn is_used() -> bool {
    IS_USED.load(Ordering::Acquire)
}
