//! The library's locks. They all come from here, so that `tests/interleavings` can replace them with those of `shuttle`,
//! and run the library with its threads interleaved in many ways.
//!
//! This is the lowest layer: it knows nothing else of the library. Only `process` and the table of streams use locks of the
//! standard library directly.

use std::cell::UnsafeCell;
use std::hint;
use std::marker::PhantomData;
use std::num::{NonZeroU64, NonZeroUsize};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(not(shuttle))]
use parking_lot::lock_api::RawMutex as _;
#[cfg(shuttle)]
pub use shuttle::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
#[cfg(not(shuttle))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

/// Locks a mutex. Use it only for data that stays consistent even if a holder panics, because it ignores poisoning.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a number that no other living thread has, namely the address of a thread-local value.
#[inline]
pub(crate) fn this_thread() -> NonZeroUsize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| NonNull::from_ref(here).addr())
}

/// A mutex without a value, which you unlock by hand. Unlike the standard library's mutex it is never poisoned: checking
/// for panics would make up a tenth of the instructions in a launch and touch two more cache lines. It is also fair in the
/// long run. If a thread locks it again and again, a waiting thread still gets it every half a millisecond or so.
#[cfg(not(shuttle))]
pub(crate) struct RawMutex(parking_lot::RawMutex);

#[cfg(not(shuttle))]
impl RawMutex {
    pub(crate) const fn new() -> Self {
        Self(parking_lot::RawMutex::INIT)
    }

    #[inline]
    pub(crate) fn lock(&self) {
        self.0.lock();
    }

    /// Locks the mutex if it is free. Returns false otherwise.
    pub(crate) fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    /// # Safety
    /// The caller has locked the mutex.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.0.unlock() }
    }
}

/// The same, for tests under `shuttle`.
#[cfg(shuttle)]
pub(crate) struct RawMutex {
    locked: Mutex<bool>,
    unlocked: Condvar,
}

#[cfg(shuttle)]
impl RawMutex {
    pub(crate) const fn new() -> Self {
        Self { locked: Mutex::new(false), unlocked: Condvar::new() }
    }

    pub(crate) fn lock(&self) {
        let mut locked = lock(&self.locked);
        while *locked {
            locked = self.unlocked.wait(locked).unwrap_or_else(PoisonError::into_inner);
        }
        *locked = true;
    }

    pub(crate) fn try_lock(&self) -> bool {
        !std::mem::replace(&mut *lock(&self.locked), true)
    }

    /// # Safety
    /// The caller has locked the mutex.
    pub(crate) unsafe fn unlock(&self) {
        *lock(&self.locked) = false;
        self.unlocked.notify_one();
    }
}

impl RawMutex {
    /// Locks the mutex until the guard is dropped.
    #[inline]
    pub(crate) fn hold(&self) -> RawMutexGuard<'_> {
        self.lock();
        RawMutexGuard { mutex: self, not_send: PhantomData }
    }
}

/// Keeps a [`RawMutex`] locked.
pub(crate) struct RawMutexGuard<'a> {
    mutex: &'a RawMutex,
    /// The thread that locked a mutex must unlock it.
    not_send: PhantomData<*const ()>,
}

impl Drop for RawMutexGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard has locked the mutex.
        unsafe { self.mutex.unlock() };
    }
}

/// A lock of one byte, which you may hold only for a few dozen instructions that call nothing and never wait.
///
/// A latch costs one atomic swap where a mutex costs two, and a launch takes one latch per buffer. Two threads meet at
/// a latch only if they submit *reads* of one allocation at the same instant, because a writer holds the allocation
/// exclusively by Rust's own rules.
// We fix the order, so that the fields that each operation reads lie next to the beginning of the value.
#[repr(C)]
pub struct Latch<T> {
    /// A number, or zero for none. You may read it without the lock, but only change it with the lock held.
    hint: AtomicU64,
    /// Like `hint`, but any change of the value clears it.
    epoch: AtomicU64,
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only reached through a `LatchGuard`, and `taken` admits one guard at a time.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            hint: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn hint(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.hint.load(Ordering::Acquire))
    }

    /// Returns the number that `set_epoch` stored, if the value has not changed since then.
    #[inline]
    pub(crate) fn epoch(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.epoch.load(Ordering::Acquire))
    }

    #[inline]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        // `shuttle` may switch threads here.
        #[cfg(shuttle)]
        thread::yield_now();
        if self.taken.swap(true, Ordering::Acquire) {
            self.wait();
        }
        LatchGuard { latch: self }
    }

    /// Returns the value without locking, because `self` is borrowed mutably. Clears the hint and the epoch.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        *self.hint.get_mut() = 0;
        *self.epoch.get_mut() = 0;
        self.value.get_mut()
    }

    /// Waits until the latch is free, and takes it.
    #[cold]
    fn wait(&self) {
        let mut spins = 0u32;
        while self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins.is_multiple_of(64) { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}

/// Access to a latch's value. Dropping it unlocks the latch.
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
}

impl<T> LatchGuard<'_, T> {
    #[inline]
    pub(crate) fn hint(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.latch.hint.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_hint(&self, hint: Option<NonZeroU64>) {
        self.latch.hint.store(hint.map_or(0, NonZeroU64::get), Ordering::Release);
    }

    /// Stores a number that stands for the value as it is now. The next change clears it.
    #[inline]
    pub(crate) fn set_epoch(&self, epoch: NonZeroU64) {
        self.latch.epoch.store(epoch.get(), Ordering::Release);
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, so nothing else reaches the value.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.latch.epoch.store(0, Ordering::Release);
        // SAFETY: this guard is the only one, and it is borrowed mutably.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.latch.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latch_excludes() {
        let latch = Latch::new((0u64, 0u64));
        let rounds = if cfg!(miri) { 100 } else { 10_000 };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut both = latch.lock();
                        both.0 += 1;
                        hint::spin_loop();
                        both.1 += 1;
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
        assert_eq!(latch.lock().0, 4 * rounds);
    }
}
