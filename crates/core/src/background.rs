//! Work on a thread of its own, for a future that waits for it.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use gpustream_hal::thread::with_signals_blocked;
use gpustream_hal::{Error, ErrorKind, Result};

use crate::process;
use crate::reactor::Wait;
use crate::sync::{Mutex, lock};

/// Work that another thread does. If you drop this, only the waiting stops: the thread goes on, and drops the value.
pub struct Background<T> {
    wait: Arc<Wait>,
    value: Arc<Mutex<Option<T>>>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts a thread for `work`, which may call the driver for seconds. If the process ends before, `work` is leaked.
    ///
    /// # Errors
    /// [`ErrorKind::Driver`] if the thread cannot be started.
    pub fn start(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Self> {
        process::register("background work", || {});
        let background = Self { wait: Wait::new(1), value: Arc::default() };
        let (wait, value) = (background.wait.clone(), background.value.clone());
        // Listeners are the program's code, and may panic in the work.
        let run = move || {
            let outcome = panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
                std::mem::forget(panic);
                let text = "your code, for example a listener, panicked on this library's thread, so the work has no \
                            outcome; the panic's message is on standard error";
                Err(Error::new(ErrorKind::HostPanic, text))
            });
            wait.reach(outcome.map(|made| *lock(&value) = Some(made)));
        };
        let builder = thread::Builder::new().name("gpustream-work".into());
        with_signals_blocked(|| builder.spawn(move || process::at_driver(run))).map_err(|error| {
            let text = format!(
                "this library could not start a thread for the work ({error}); let the process start one more, or use the \
                 call that blocks"
            );
            Error::new(ErrorKind::Driver, text)
        })?;
        Ok(background)
    }

    /// Returns the outcome if there is one. Otherwise `waker` is called as soon as there is one. The value is handed out once.
    pub fn poll(&self, waker: &Waker) -> Option<Result<T>> {
        let outcome = self.wait.poll(waker)?;
        let taken = || {
            let text = "the future was polled again after it had resolved; await it once";
            Error::new(ErrorKind::InvalidArgument, text)
        };
        Some(outcome.and_then(|()| lock(&self.value).take().ok_or_else(taken)))
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.wait.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_the_work_is_an_error_and_a_second_poll_is_too() {
        let outcome = |work: fn() -> Result<u32>| {
            let background = Background::start(work).unwrap();
            loop {
                if let Some(outcome) = background.poll(Waker::noop()) {
                    return (outcome, background.poll(Waker::noop()).unwrap().is_err());
                }
                thread::yield_now();
            }
        };
        assert_eq!(outcome(|| Ok(5)).0.unwrap(), 5);
        assert!(outcome(|| Ok(5)).1);
        let (panicked, _) = outcome(|| panic!("on purpose"));
        assert_eq!(panicked.unwrap_err().kind(), ErrorKind::HostPanic);
    }
}
