//! Ends the process if a driver hangs in its exit handler.
//!
//! A driver shuts itself down in exit handlers, on the thread that ends the process. There it may wait for its own threads,
//! for locks that other threads hold, or for the device, and such a wait may never end. So a thread of our own watches. If
//! the driver takes too long, our thread prints a line and ends the process with the exit code that it was going to have.
//!
//! We watch only while a driver's code runs, because your own exit handlers may take as long as they like. C runs handlers
//! in the reverse order of their registration. So we register two for each backend. We register the one that lifts the
//! watch before we open the driver, and the one that sets it after the driver has registered its own.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{atexit, is_forked};

/// How many seconds each driver may take at the end of the process; 0 for any time.
static SECONDS: AtomicU64 = AtomicU64::new(30);

/// The exit code of the process, once we know it.
static CODE: AtomicI64 = AtomicI64::new(UNKNOWN);
const UNKNOWN: i64 = i64::MAX;

/// The watching thread, if a watch is set.
static WATCH: Mutex<Watch> = Mutex::new(Watch { is_set: false, thread: None });
static LIFTED: Condvar = Condvar::new();

struct Watch {
    is_set: bool,
    thread: Option<JoinHandle<()>>,
}

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets how long drivers may take. `None` changes nothing.
pub(super) fn bound(seconds: Option<u64>) {
    if let Some(seconds) = seconds {
        SECONDS.store(seconds, Ordering::Relaxed);
    }
}

/// Returns how long drivers may take, or `None` if they may take any time.
pub(super) fn patience() -> Option<Duration> {
    Some(SECONDS.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

/// Registers the handler that lifts the watch, before a driver is opened.
pub(super) fn before_opening() {
    // SAFETY: the handler does not unwind, and C runs it at the end of the process, or before this library is unloaded. If
    // C has no room for one more handler, the watch lasts longer than it needs to.
    let _ = unsafe { atexit(driver_is_down) };
}

/// Registers the handler that sets the watch, after a driver has been opened.
pub(super) fn after_opening() {
    // SAFETY: as above. If there is no room, we don't watch.
    let _ = unsafe { atexit(driver_goes_down) };
}

/// Makes sure that we learn the exit code before the handlers run that are registered by now. Only glibc tells it.
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

/// Sets the watch: ends the process if the watch is not lifted in time. The message then names `what`.
pub(super) fn set(what: &'static str) {
    let Some(patience) = patience() else { return };
    if is_forked() {
        return;
    }
    lift();
    let mut state = lock();
    state.is_set = true;
    // If we cannot start the thread, we don't watch.
    let thread = thread::Builder::new().name("gpustream-exit".into());
    state.thread = thread.spawn(move || watch(what, patience)).ok();
}

/// Lifts the watch, and waits for its thread, which must have ended before this library is unloaded.
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
        "{what} has not returned within {} s, so the process ends now, with exit code {code}. Set GPUSTREAM_EXIT_SECONDS to \
         another number of seconds, or to 0 for no limit",
        patience.as_secs()
    ));
    // SAFETY: nothing of this process runs after the call.
    unsafe { libc::_exit(code) }
}

/// Writes a line to standard error, unless that would block. Takes no lock, because a thread that hangs may hold it.
pub(super) fn say(text: &str) {
    let line = format!("gpustream: {text}\n");
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the first pointer is to one entry, the second to `line.len()` bytes.
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
        // SAFETY: `register` passed the address of a static.
        unsafe { &*code_of_process.cast::<AtomicI64>() }.store(code.into(), Ordering::Relaxed);
    }

    /// Registers [`note`], unless this code may be unloaded before the process ends.
    pub(super) fn register() {
        if stays() {
            // SAFETY: the handler does not unwind, and its code stays until the end of the process.
            let _ = unsafe { on_exit(note, (&raw const CODE).cast_mut().cast()) };
        }
    }

    /// Returns true if this code stays loaded until the process ends, because it is part of the program, or because we
    /// could pin its library.
    fn stays() -> bool {
        // SAFETY: `dladdr` fills in the struct, which may be all zero, and its name is a C string; the library is open.
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
