//! A `fork` leaves nothing of a device in the child: its threads stay with the parent, and so do the locks
//! that they hold.
//!
//! In the child, the parent's devices are lost from the start: each call on them returns an error before it
//! takes a lock or waits. Their memory stays allocated. If the child opens a device, it gets a new one with
//! its own threads.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::shared::Shared;

/// The process's devices, newest first. They live forever.
static DEVICES: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
static WATCH: Once = Once::new();

/// Registers a device that must be lost in a child.
pub(crate) fn enter(device: &'static Shared) {
    WATCH.call_once(|| {
        // SAFETY: the function may run in a child, because it only touches atomics. If the system has no
        // memory for the entry, a child's calls wait as they would without it.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    let new = ptr::from_ref(device).cast_mut();
    let mut first = DEVICES.load(Ordering::Acquire);
    loop {
        device.previous.store(first, Ordering::Relaxed);
        match DEVICES.compare_exchange_weak(first, new, Ordering::Release, Ordering::Acquire) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}

unsafe extern "C" fn in_child() {
    let mut next = DEVICES.load(Ordering::Acquire);
    // SAFETY: devices live forever, and are complete when they are registered.
    while let Some(device) = unsafe { next.as_ref() } {
        device.leave_to_parent();
        next = device.previous.load(Ordering::Relaxed);
    }
}
