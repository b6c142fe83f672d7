//! The bound of the process's end: a driver that does not answer costs a warning, and not the process.
//!
//! A driver takes itself down in exit handlers, on the thread that ends the process, and waits there for its own threads, for
//! locks that other threads have, or for the device. Nothing ends such a wait but the end of the process. So another thread
//! watches, and ends the process with the exit code that it was to have.
//!
//! The watch lasts only while drivers' code runs, since the program's own exit handlers take as long as they like. C runs all
//! handlers in the reverse order of their registration. So each backend has two: one that lifts the watch is registered before
//! its driver is opened, and one that sets the watch once the driver has registered what it has.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{atexit, is_forked};

/// The seconds that drivers may take in each of their turns at the end of the process; 0 for any time.
static SECONDS: AtomicU64 = AtomicU64::new(30);

/// The code that the process is to exit with, once that is known.
static CODE: AtomicI64 = AtomicI64::new(UNKNOWN);
const UNKNOWN: i64 = i64::MAX;

/// The watching thread; none while no watch is set.
static WATCH: Mutex<Watch> = Mutex::new(Watch { is_set: false, thread: None });
static LIFTED: Condvar = Condvar::new();

struct Watch {
    is_set: bool,
    thread: Option<JoinHandle<()>>,
}

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the bound; `None` leaves it as it is.
pub(super) fn bound(seconds: Option<u64>) {
    if let Some(seconds) = seconds {
        SECONDS.store(seconds, Ordering::Relaxed);
    }
}

/// Returns the bound, unless there is none.
pub(super) fn patience() -> Option<Duration> {
    Some(SECONDS.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// Registers the handler that lifts the watch, before a driver is opened.
pub(super) fn before_opening() {
    // SAFETY: the handler does not unwind, and C runs it at the end of the process, or before this library is unloaded.
    // Where there is no room for one more handler, the watch covers more.
    let _ = unsafe { atexit(driver_is_down) };
}

/// Registers the handler that sets the watch, after a driver has been opened.
pub(super) fn after_opening() {
    // SAFETY: as above. Where there is no room, nobody watches.
    let _ = unsafe { atexit(driver_goes_down) };
}

/// Has the exit code noted before the handlers that are registered by now run. glibc alone tells it.
pub(super) fn learn_exit_code() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    exit_code::register();
}

extern "C" fn driver_goes_down() {
    set("the driver's own exit handler");
}

extern "C" fn driver_is_down() {
    lift();
}

/// Ends the process if the watch is not lifted in time; `what` is named then.
pub(super) fn set(what: &'static str) {
    let Some(patience) = patience() else { return };
    if is_forked() {
        return;
    }
    lift();
    let mut state = lock();
    state.is_set = true;
    // Without a thread nobody watches.
    let thread = thread::Builder::new().name("gpustream-exit".into());
    state.thread = thread.spawn(move || watch(what, patience)).ok();
}

/// Lifts the watch. Its thread has ended then, as it has to before this library is unloaded.
pub(super) fn lift() {
    if is_forked() {
        return;
    }
    let mut state = lock();
    state.is_set = false;
    let thread = state.thread.take();
    drop(state);
    LIFTED.notify_all();
    if let Some(thread) = thread {
        let _ = thread.join();
    }
}

fn watch(what: &str, patience: Duration) {
    let (_state, timeout) = LIFTED
        .wait_timeout_while(lock(), patience, |state| state.is_set)
        .unwrap_or_else(PoisonError::into_inner);
    if !timeout.timed_out() {
        return;
    }
    let known = CODE.load(Ordering::Relaxed);
    let code = if known == UNKNOWN { 1 } else { known as c_int };
    say(&format!(
        "{what} has not returned within {} s, so the process ends now, with exit code {code}; GPUSTREAM_EXIT_SECONDS sets \
         another time, and 0 none",
        patience.as_secs()
    ));
    // SAFETY: nothing of this process runs after the call.
    unsafe { libc::_exit(code) }
}

/// Writes a line to standard error, unless that would block. Takes no lock: a thread that does not go on may have it.
pub(super) fn say(text: &str) {
    let line = format!("gpustream: {text}\n");
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the pointers are to one entry and to so many bytes.
    unsafe {
        if libc::poll(&raw mut stderr, 1, 0) == 1 {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast::<c_void>(), line.len());
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod exit_code {
    use super::{AtomicI64, CODE, Ordering, c_int, c_void};

    unsafe extern "C" {
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), value: *mut c_void) -> c_int;
    }

    extern "C" fn note(code: c_int, code_of_process: *mut c_void) {
        // SAFETY: `register` gave a static's address.
        unsafe { &*code_of_process.cast::<AtomicI64>() }.store(code.into(), Ordering::Relaxed);
    }

    /// Has [`note`] called, unless the library around this code may be unloaded before.
    pub(super) fn register() {
        if stays() {
            // SAFETY: the handler does not unwind, and its code stays until the end of the process.
            let _ = unsafe { on_exit(note, (&raw const CODE).cast_mut().cast()) };
        }
    }

    /// Whether this code is loaded until the end of the process: it is part of the program, or its library can be pinned.
    fn stays() -> bool {
        // SAFETY: `dladdr` fills in the struct, which may be all zero, and its name is a string of C's; the library is open.
        unsafe {
            let mut here = std::mem::zeroed::<libc::Dl_info>();
            if libc::dladdr(note as *const c_void, &raw mut here) == 0 {
                return true;
            }
            let mut main = std::mem::zeroed::<libc::Dl_info>();
            let headers = libc::getauxval(libc::AT_PHDR) as *const c_void;
            let is_main = libc::dladdr(headers, &raw mut main) != 0 && main.dli_fbase == here.dli_fbase;
            let pinned = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
            is_main || !libc::dlopen(here.dli_fname, pinned).is_null()
        }
    }
}
