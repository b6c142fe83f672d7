//! How the process ends, and what happens if it forks. This module knows threads, but no devices or streams.
//!
//! Drivers shut themselves down in exit handlers, and some crash if a thread calls them meanwhile. Our threads may be
//! calling them at that moment. So we only call drivers inside [`at_driver`], also in destructors. When the process exits,
//! a handler that runs before the drivers' own lets no more threads in, and waits for those inside. It never waits for
//! longer than a fixed time: see `watch`.

mod watch;

use std::cell::Cell;
use std::ffi::c_int;
use std::mem;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gpustream_hal::{Error, ErrorKind, Result};

/// How long the end of the process waits for calls that are under way. We cannot wait longer, because a call may itself
/// wait for work that never ends, or for the host closure that called `exit`.
const PATIENCE: Duration = Duration::from_secs(5);

/// True once no more threads are let in. A thread that enters first counts itself in `INSIDE` and then reads this. The
/// handler first sets this and then reads `INSIDE`. So at least one of the two sees the other.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The number of threads inside [`at_driver`], and of holds.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// The id of the process that opened the first device; 0 if none has.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// True if this thread is counted in `INSIDE`. It must not have a destructor, because we read it until the very end of
    /// the thread.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// Counts this thread in `INSIDE` until it is dropped, unless the thread was counted already.
struct DriverCallCount {
    counted: bool,
}

impl DriverCallCount {
    fn new() -> Option<Self> {
        if HERE.get() {
            return Some(Self { counted: false });
        }
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if ENDING.load(Ordering::SeqCst) {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        HERE.set(true);
        Some(Self { counted: true })
    }
}

impl Drop for DriverCallCount {
    fn drop(&mut self) {
        if self.counted {
            HERE.set(false);
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Runs `work`, which may call drivers. If the process is ending, leaks `work` and everything that it owns instead.
#[inline]
pub(crate) fn at_driver<T>(work: impl FnOnce() -> T) -> Option<T> {
    if let Some(_entry) = DriverCallCount::new() {
        Some(work())
    } else {
        mem::forget(work);
        None
    }
}

/// Runs a piece of your code. The end of the process does not wait for it, because your code may itself call `exit`, or
/// wait for a thread that did. If the process is ending when your code returns, this function does not return.
pub(crate) fn users_code<T>(work: impl FnOnce() -> T) -> T {
    /// Counts the thread again, even if the code panics.
    struct Return;
    impl Drop for Return {
        fn drop(&mut self) {
            INSIDE.fetch_add(1, Ordering::SeqCst);
            if ENDING.load(Ordering::SeqCst) {
                INSIDE.fetch_sub(1, Ordering::SeqCst);
                loop {
                    thread::park();
                }
            }
            HERE.set(true);
        }
    }
    if !HERE.replace(false) {
        return work();
    }
    INSIDE.fetch_sub(1, Ordering::SeqCst);
    let _return = Return;
    work()
}

/// Makes the end of the process wait, as if a thread were calling the driver.
#[derive(Debug)]
#[must_use = "the process is held for as long as the value lives"]
pub struct ExitHold(());

impl ExitHold {
    /// Returns a hold on the process, or `None` if the process is ending. Never blocks for long.
    ///
    /// `library` names the library that you are going to call. Take the first hold with that name after you have opened the
    /// library: only then does the process wait before the library's own exit handlers run.
    pub fn of(library: &'static str) -> Option<Self> {
        register(library, || {});
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let hold = Self(());
        // If the process is ending, this drops the hold, which takes the count back.
        (!ENDING.load(Ordering::SeqCst)).then_some(hold)
    }
}

impl Drop for ExitHold {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns true if the process is ending.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// A backend, a kind of thread, or one of your libraries.
struct Registered {
    name: &'static str,
    /// Wakes our thread of this kind if it sleeps, so that it notices the end of the process.
    wake: fn(),
}

/// Opens a driver with `open`, and registers our handlers before and after the driver's own exit handlers. `seconds` is how
/// long those may take, if you have set it; 0 stands for any time.
///
/// # Errors
/// The error of `open`.
pub fn opening<T>(name: &'static str, seconds: Option<u64>, open: impl FnOnce() -> Result<T>) -> Result<T> {
    watch::bound(seconds);
    let is_new = !is_registered(name);
    if is_new {
        watch::before_opening();
    }
    let opened = open()?;
    if is_new {
        watch::after_opening();
        register(name, || {});
    }
    Ok(opened)
}

fn is_registered(name: &str) -> bool {
    let registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    registered.iter().any(|known| known.name == name)
}

static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// Registers [`end`] to run when the process ends, and `wake` for `end` to call. C runs handlers in the reverse order of
/// their registration, and drivers register theirs when they are opened. So we call this for each backend once its first
/// device is open, and for each kind of thread.
pub fn register(name: &'static str, wake: fn()) {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !registered.iter().any(|known| known.name == name) {
        registered.push(Registered { name, wake });
        // SAFETY: the handler does not unwind, and C runs it at the end of the process, or before this library is unloaded.
        // If C has no room for one more handler, there is nothing else that we could do.
        let _ = unsafe { atexit(end) };
        watch::learn_exit_code();
    }
}

/// The functions to call before the end, once each.
static BEFORE: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Calls `handler` when the process ends, at a time when it may still call drivers. The handler must not unwind. It must
/// not wait for a thread that may be the one that ends the process.
pub(crate) fn before_end(handler: fn()) {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).push(handler);
}

/// Lets no more threads in, and waits for those inside. The calling thread, which ends the process, does not count.
extern "C" fn end() {
    if is_forked() {
        return;
    }
    // We only try the locks, because the thread that holds one may be this one.
    let before = BEFORE.try_lock().map(|mut before| mem::take(&mut *before));
    if let Ok(before) = before
        && !before.is_empty()
    {
        watch::set("a driver that was asked for the last times of a trace");
        for handler in before {
            handler();
        }
        watch::lift();
    }
    if ENDING.swap(true, Ordering::SeqCst) {
        return;
    }
    if let Ok(registered) = REGISTERED.try_lock() {
        registered.iter().for_each(|known| (known.wake)());
    }
    let patience = watch::patience().map_or(PATIENCE, |bound| bound.min(PATIENCE));
    let begun = Instant::now();
    loop {
        let others = INSIDE.load(Ordering::SeqCst).saturating_sub(usize::from(HERE.get()));
        if others == 0 {
            return;
        }
        if begun.elapsed() >= patience {
            return watch::say(&format!(
                "the process exits although {others} of the library's calls to a driver have not returned within {} s",
                patience.as_secs()
            ));
        }
        // Most calls return soon, and spinning would only take time from them.
        thread::sleep(Duration::from_micros(50));
    }
}

fn is_forked() -> bool {
    let opened_by = OPENED_BY.load(Ordering::Relaxed);
    opened_by != 0 && opened_by != process::id()
}

/// Notes that this process opens a device, and checks that it may.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the process was forked from one that had opened a device.
pub fn check_not_forked() -> Result<()> {
    let _ = OPENED_BY.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
    if is_forked() { Err(forked()) } else { Ok(()) }
}

#[cold]
fn forked() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "process {} was forked from process {}, which had opened a device; neither drivers nor the library's threads \
             survive a fork. Open devices after forking, or let the child execute a program",
            process::id(),
            OPENED_BY.load(Ordering::Relaxed)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_the_program_is_not_counted() {
        let counted = |nested: bool| (HERE.get(), nested);
        let seen = at_driver(|| {
            let outer = counted(false);
            let inner = at_driver(|| users_code(|| counted(true)));
            (outer, inner, HERE.get())
        });
        assert_eq!(seen, Some(((true, false), Some((false, true)), true)));
        assert!(!HERE.get());
        let panicked =
            at_driver(|| std::panic::catch_unwind(|| users_code(|| panic!("on purpose"))).is_err());
        assert_eq!((panicked, HERE.get()), (Some(true), false));
        assert!(!users_code(|| HERE.get()));
    }
}
