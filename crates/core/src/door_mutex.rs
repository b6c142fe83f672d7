//! A mutex with a side door.

use std::cell::UnsafeCell;
use std::hint;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::hint::cold_path;

use crate::sync::{RawMutex, thread};

/// A mutex whose value can also be reached by a side door, with one atomic swap, while the door is unlocked.
///
/// The door is for a few dozen instructions that never wait for the mutex. The holder of the mutex keeps the door shut
/// while the door is unlocked. So a locked door leaves the value to the holder of the mutex, an unlocked one to the
/// thread that shut it, and `unlocked` is changed by a thread that did both.
pub struct DoorMutex<T> {
    mutex: RawMutex,
    unlocked: AtomicBool,
    /// Whether a thread has shut the door.
    shut: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only reached through a guard, of which there is one at a time: see the type.
unsafe impl<T: Send> Sync for DoorMutex<T> {}

impl<T> DoorMutex<T> {
    /// Creates a mutex whose door is locked.
    pub(crate) fn new(value: T) -> Self {
        Self {
            mutex: RawMutex::new(),
            unlocked: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns whether the door is unlocked, as far as one can know without the mutex.
    #[inline]
    pub(crate) fn is_unlocked(&self) -> bool {
        self.unlocked.load(Ordering::Acquire)
    }

    #[inline]
    pub fn lock(&self) -> DoorMutexGuard<'_, T> {
        self.mutex.lock();
        self.guard()
    }

    /// Locks the mutex unless somebody has it.
    pub(crate) fn try_lock(&self) -> Option<DoorMutexGuard<'_, T>> {
        self.mutex.try_lock().then(|| self.guard())
    }

    #[inline]
    fn guard(&self) -> DoorMutexGuard<'_, T> {
        // The mutex is needed to change this.
        if self.is_unlocked() {
            self.shut_door();
        }
        DoorMutexGuard { mutex: self, not_send: PhantomData }
    }

    #[cold]
    fn shut_door(&self) {
        let mut spins = 0u32;
        while self.shut.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins.is_multiple_of(64) { thread::yield_now() } else { hint::spin_loop() }
        }
    }

    /// Takes the value by the side door, unless the door is locked or somebody has the value.
    #[inline]
    pub(crate) fn enter(&self) -> Option<DoorGuard<'_, T>> {
        // The model may switch threads here.
        #[cfg(shuttle)]
        thread::yield_now();
        if self.shut.swap(true, Ordering::Acquire) {
            return None;
        }
        let guard = DoorGuard { mutex: self };
        // The door must be shut to change this, and we keep it shut.
        if self.is_unlocked() { Some(guard) } else { None }
    }
}

/// Access to the value of a [`DoorMutex`] that is locked.
pub struct DoorMutexGuard<'a, T> {
    mutex: &'a DoorMutex<T>,
    /// A mutex is unlocked by the thread that locked it.
    not_send: PhantomData<*const ()>,
}

impl<T> DoorMutexGuard<'_, T> {
    /// Unlocks the mutex, in the function that calls this: a guard's drop may be a call of another function.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub(crate) fn unlock(self) {
        self.release();
        mem::forget(self);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as above")]
    fn release(&self) {
        if self.mutex.is_unlocked() {
            cold_path();
            self.mutex.shut.store(false, Ordering::Release);
        }
        // SAFETY: the guard holds the mutex, and is used no more.
        unsafe { self.mutex.mutex.unlock() };
    }

    /// Unlocks the side door, or locks it.
    pub(crate) fn unlock_door(&mut self, unlock: bool) {
        if unlock == self.mutex.is_unlocked() {
            return;
        }
        if unlock {
            self.mutex.shut_door();
            self.mutex.unlocked.store(true, Ordering::Release);
        } else {
            self.mutex.unlocked.store(false, Ordering::Release);
            self.mutex.shut.store(false, Ordering::Release);
        }
    }
}

impl<T> Deref for DoorMutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so nothing else reaches the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for DoorMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for DoorMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

/// Access to the value of a [`DoorMutex`] that was entered by the side door.
pub(crate) struct DoorGuard<'a, T> {
    mutex: &'a DoorMutex<T>,
}

impl<T> Deref for DoorGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so nothing else reaches the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for DoorGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for DoorGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.shut.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread locks the door and unlocks it again, two lock the mutex, and two come by the door.
    #[test]
    fn both_ways_exclude() {
        let mutex = DoorMutex::new((0u64, 0u64));
        let rounds = if cfg!(miri) { 100 } else { 10_000 };
        let count = |both: &mut (u64, u64)| {
            both.0 += 1;
            hint::spin_loop();
            both.1 += 1;
            assert_eq!(both.0, both.1);
        };
        let entered = std::sync::atomic::AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..5 {
                let (mutex, entered) = (&mutex, &entered);
                scope.spawn(move || {
                    for round in 0..rounds {
                        match thread {
                            0 => mutex.lock().unlock_door(round % 2 == 0),
                            1 | 2 => count(&mut mutex.lock()),
                            _ => {
                                if let Some(mut both) = mutex.enter() {
                                    count(&mut both);
                                    entered.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(mutex.lock().0, 2 * rounds + entered.into_inner());
    }
}
