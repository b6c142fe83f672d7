//! A `fork` leaves nothing of a device: its threads stay with the parent, and so do the locks that they hold.
//!
//! The child's copies of the parent's devices are lost from the start: each call on them is an error before it takes a
//! lock or waits. Memory that they hold stays allocated. A device that the child opens is a new one, with threads of
//! its own.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::shared::Shared;

/// The process's devices, the last one first. They are there for good.
static DEVICES: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
static WATCH: Once = Once::new();

/// Enters a device that is to be lost in a child.
pub(crate) fn enter(device: &'static Shared) {
    WATCH.call_once(|| {
        // SAFETY: the function may run in a child: it touches atomics only. Where the system has no memory for the
        // entry, a child's calls wait as they would without the entry.
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
    // SAFETY: devices live for good, and are entered complete.
    while let Some(device) = unsafe { next.as_ref() } {
        device.leave_to_parent();
        next = device.previous.load(Ordering::Relaxed);
    }
}
