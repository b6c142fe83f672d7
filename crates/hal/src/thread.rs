//! Starts the library's threads so that they leave your program's signals alone.
//!
//! The system hands a signal for the whole process to any thread that does not block it. If your program waits for
//! `SIGTERM` with `sigwait`, it blocks the signal on its own threads. But if one of our threads does not block it too, the
//! system may pick that thread, and the process ends although your program is waiting. A new thread inherits the mask of
//! the thread that starts it, so we block the signals around the start.

/// Calls `start` with your program's signals blocked, so that the threads that it starts block them for good. Afterwards
/// the calling thread gets its own mask back.
///
/// We do not block faults (`SIGSEGV` and the like), because the CPU backend turns them into errors, nor `SIGPROF` and
/// `SIGVTALRM`, because profilers sample threads with them.
///
/// ```
/// use std::thread;
///
/// use gpustream_hal::thread::with_signals_blocked;
///
/// let thread = with_signals_blocked(|| thread::Builder::new().name("worker".into()).spawn(|| 5))?;
/// assert_eq!(thread.join().unwrap(), 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    #[cfg(unix)]
    let _mask = unix::Mask::block();
    start()
}

#[cfg(unix)]
mod unix {
    use std::mem::MaybeUninit;
    use std::ptr;

    /// Signals that we do not block.
    const LEFT: [i32; 9] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
        libc::SIGPROF,
        libc::SIGVTALRM,
    ];

    /// The mask that this thread had before. It comes back when the value is dropped.
    pub(super) struct Mask(libc::sigset_t);

    impl Mask {
        pub(super) fn block() -> Self {
            let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            // SAFETY: the calls fill and read sets on this function's stack. They only fail for unknown signals.
            unsafe {
                libc::sigfillset(all.as_mut_ptr());
                for signal in LEFT {
                    libc::sigdelset(all.as_mut_ptr(), signal);
                }
                libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
                Self(before.assume_init())
            }
        }
    }

    impl Drop for Mask {
        fn drop(&mut self) {
            // SAFETY: the set was filled by the system.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
}
