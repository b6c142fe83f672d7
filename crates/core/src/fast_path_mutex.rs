//! A mutex with a fast path of one atomic swap.

use std::cell::UnsafeCell;
use std::hint;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::cold_path::cold_path;

use crate::sync::{RawMutex, thread};

/// A mutex with a second, cheaper way to its value: one atomic swap of `busy`, while the fast path is enabled.
///
/// The fast path is for a few dozen instructions that never wait for the mutex. While it is enabled, the holder of the mutex
/// also holds `busy`. So if it is disabled, the value belongs to the holder of the mutex, and if it is enabled, to the thread
/// that set `busy`. Only a thread that has both changes `enabled`.
pub struct FastPathMutex<T> {
    mutex: RawMutex,
    enabled: AtomicBool,
    /// True while a thread uses the value by the fast path, or holds the mutex with the fast path enabled.
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only reached through a guard, and there is one guard at a time: see the type.
unsafe impl<T: Send> Sync for FastPathMutex<T> {}

impl<T> FastPathMutex<T> {
    /// Creates a mutex with the fast path disabled.
    pub(crate) fn new(value: T) -> Self {
        Self {
            mutex: RawMutex::new(),
            enabled: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns true if the fast path is enabled. Without the mutex, that may have changed by the time you look at the
    /// answer.
    #[inline]
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    #[inline]
    pub fn lock(&self) -> FastPathMutexGuard<'_, T> {
        self.mutex.lock();
        self.guard()
    }

    /// Locks the mutex if it is free.
    pub(crate) fn try_lock(&self) -> Option<FastPathMutexGuard<'_, T>> {
        self.mutex.try_lock().then(|| self.guard())
    }

    #[inline]
    fn guard(&self) -> FastPathMutexGuard<'_, T> {
        // Only the holder of the mutex changes this, and we hold it.
        if self.is_enabled() {
            self.spin_until_taken();
        }
        FastPathMutexGuard { mutex: self, not_send: PhantomData }
    }

    #[cold]
    fn spin_until_taken(&self) {
        let mut spins = 0u32;
        while self.busy.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins.is_multiple_of(64) { thread::yield_now() } else { hint::spin_loop() }
        }
    }

    /// Takes the value by the fast path. Returns `None` if that is disabled or another thread has the value.
    #[inline]
    pub(crate) fn enter(&self) -> Option<FastPathGuard<'_, T>> {
        // `shuttle` may switch threads here.
        #[cfg(shuttle)]
        thread::yield_now();
        if self.busy.swap(true, Ordering::Acquire) {
            return None;
        }
        let guard = FastPathGuard { mutex: self };
        // Only the holder of `busy` changes this, and we hold it.
        if self.is_enabled() { Some(guard) } else { None }
    }
}

/// Access to the value of a locked [`FastPathMutex`].
pub struct FastPathMutexGuard<'a, T> {
    mutex: &'a FastPathMutex<T>,
    /// The thread that locked a mutex must unlock it.
    not_send: PhantomData<*const ()>,
}

impl<T> FastPathMutexGuard<'_, T> {
    /// Unlocks the mutex. This is inlined into the caller, because dropping a guard may be a call to another function.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub(crate) fn unlock(self) {
        self.release();
        mem::forget(self);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as above")]
    fn release(&self) {
        if self.mutex.is_enabled() {
            cold_path();
            self.mutex.busy.store(false, Ordering::Release);
        }
        // SAFETY: the guard holds the mutex, and is not used again.
        unsafe { self.mutex.mutex.unlock() };
    }

    /// Enables or disables the fast path.
    pub(crate) fn enable_fast_path(&mut self, enable: bool) {
        if enable == self.mutex.is_enabled() {
            return;
        }
        if enable {
            self.mutex.spin_until_taken();
            self.mutex.enabled.store(true, Ordering::Release);
        } else {
            self.mutex.enabled.store(false, Ordering::Release);
            self.mutex.busy.store(false, Ordering::Release);
        }
    }
}

impl<T> Deref for FastPathMutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so nothing else reaches the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for FastPathMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for FastPathMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

/// Access to the value of a [`FastPathMutex`], taken by the fast path.
pub(crate) struct FastPathGuard<'a, T> {
    mutex: &'a FastPathMutex<T>,
}

impl<T> Deref for FastPathGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so nothing else reaches the value.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for FastPathGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for FastPathGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread disables the fast path and enables it again, two lock the mutex, and two take the fast path.
    #[test]
    fn both_ways_exclude() {
        let mutex = FastPathMutex::new((0u64, 0u64));
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
                            0 => mutex.lock().enable_fast_path(round % 2 == 0),
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
