//! Keeps calls for graphs apart, because some of them would deadlock with CUPTI.
//!
//! From its first use on, CUPTI takes part in the driver's calls. With CUPTI 13.0 and driver 580, a thread that makes an
//! executable graph holds CUPTI's lock and waits for the context's. A thread that launches or destroys one holds the
//! context's lock and waits for CUPTI's. So we make an executable only while no other thread is in a call for one. A process
//! that is not traced takes no lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CALLS: RwLock<()> = RwLock::new(());

/// Whether we ever used CUPTI. It stays in the driver's calls even if it no longer measures.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Notes that CUPTI is used from now on.
pub(super) fn note_use() {
    IS_USED.store(true, Ordering::Release);
}

/// If CUPTI is in use, waits until no thread is in a call for an executable graph, and keeps others out.
pub(crate) fn alone() -> Option<RwLockWriteGuard<'static, ()>> {
    is_used().then(|| CALLS.write().unwrap_or_else(PoisonError::into_inner))
}

/// If CUPTI is in use, waits until no thread is making an executable graph, and keeps others from it.
#[inline]
pub(crate) fn together() -> Option<RwLockReadGuard<'static, ()>> {
    is_used().then(|| CALLS.read().unwrap_or_else(PoisonError::into_inner))
}

#[inline]
fn is_used() -> bool {
    IS_USED.load(Ordering::Acquire)
}
