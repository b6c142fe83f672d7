//! The process as a whole, with its threads but no devices or streams: its end, after which the library calls no
//! driver, and its copies by `fork`.
//!
//! Drivers shut themselves down in exit handlers, and some crash if a thread calls them meanwhile. Our threads run at the
//! same time as yours, so they only call drivers inside [`at_driver`], and so do destructors. When the process exits, a
//! handler that runs before the drivers' own lets no more threads in, and waits for those inside. Every such wait has a
//! bound: see `watch`.

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

/// The time that the end of the process waits for calls that are under way. A call that waits for work that never ends,
/// or for the host closure that called `exit`, must not keep the process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Set when no more threads are let in. Pairs with `INSIDE`: a thread that enters counts itself and then reads this,
/// and the handler sets this and then reads the count, so that one of the two sees the other.
static ENDING: AtomicBool = AtomicBool::new(false);

/// The number of threads inside [`at_driver`], and of holds.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// The id of the process that opened the first device; 0 before.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread is counted in `INSIDE`. Has no destructor, since it is read until the thread's very end.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> c_int;
}

/// An entry of this thread in the count while the value lives; nothing where the thread was counted already.
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

/// Runs `work`, which may call drivers. Once the process is ending, `work` is leaked instead, with all that it owns.
#[inline]
pub(crate) fn at_driver<T>(work: impl FnOnce() -> T) -> Option<T> {
    if let Some(_entry) = DriverCallCount::new() {
        Some(work())
    } else {
        mem::forget(work);
        None
    }
}

/// Runs a piece of the program's own code, which the end of the process does not wait for: the code may itself call
/// `exit`, or wait for a thread that did. If the process is ending when the code returns, this function does not
/// return.
pub(crate) fn users_code<T>(work: impl FnOnce() -> T) -> T {
    /// The thread's way back into the count, also where the code panics.
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

/// A hold counts like a thread that calls the driver.
#[derive(Debug)]
#[must_use = "the process is held for as long as the value lives"]
pub struct ExitHold(());

impl ExitHold {
    /// Returns a hold on the process; `None` once the process is ending. Never blocks for long.
    ///
    /// `library` names the library that is called. The first hold with its name is taken when the library has been opened, so
    /// that the process waits before the library's own exit handlers run.
    pub fn of(library: &'static str) -> Option<Self> {
        register(library, || {});
        INSIDE.fetch_add(1, Ordering::SeqCst);
        let hold = Self(());
        // A hold that comes too late is given back.
        (!ENDING.load(Ordering::SeqCst)).then_some(hold)
    }
}

impl Drop for ExitHold {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns whether the process is ending.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// A backend, a kind of thread, or one of your libraries.
struct Registered {
    name: &'static str,
    /// Wakes the thread of this kind, if there is one that sleeps, so that the thread sees the end of the process.
    wake: fn(),
}

/// Opens a driver by `open`, and registers what the end of the process needs around the driver's own exit handlers. `seconds`
/// is the time that these may take, if the user has set one; 0 for any time.
///
/// # Errors
/// That of `open`.
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

/// Registers [`end`] for the end of the process, and `wake` for `end` to call. Handlers run in the reverse order of
/// their registration, and drivers register theirs when they are opened; so this is called once for each backend, when
/// its first device is open, and for each kind of thread.
pub fn register(name: &'static str, wake: fn()) {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !registered.iter().any(|known| known.name == name) {
        registered.push(Registered { name, wake });
        // SAFETY: the handler does not unwind, and C runs it at the end of the process, or before this library is
        // unloaded. Where there is no room for one more handler, nothing else can be done.
        let _ = unsafe { atexit(end) };
        watch::learn_exit_code();
    }
}

/// The functions to call before the end; each is called once.
static BEFORE: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Has `handler` called when the process ends, while drivers may still be called. The handler must not unwind, nor wait for
/// threads that may be the one that ends the process.
pub(crate) fn before_end(handler: fn()) {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).push(handler);
}

/// Lets no more threads in, and waits for those inside, except the calling thread, which ends the process.
extern "C" fn end() {
    if is_forked() {
        return;
    }
    // The locks are tried and not waited for: the thread that holds one may be the one that ends the process.
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
        // Most calls are over at once; spinning would take time from them.
        thread::sleep(Duration::from_micros(50));
    }
}

fn is_forked() -> bool {
    let opened_by = OPENED_BY.load(Ordering::Relaxed);
    opened_by != 0 && opened_by != process::id()
}

/// Notes that this process opens a device.
///
/// # Errors
/// [`ErrorKind::Unsupported`] in a process that was forked from one that had opened a device.
pub fn check_not_forked() -> Result<()> {
    let _ = OPENED_BY.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
    if is_forked() { Err(forked()) } else { Ok(()) }
}

#[cold]
fn forked() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "process {} was forked from process {}, which had opened a device: neither drivers nor the library's threads \
             survive a fork; open devices after forking, or have the child execute a program",
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
