//! Notices: things that the library does by itself and that operators want to know.
//!
//! Backends and the core make notices, and the crate `gpustream` passes them on as events of the crate `tracing`. If there
//! is no listener, a notice costs one load, and all notices are on paths that are slow anyway.
//!
//! A listener is your code, so it may call the library, block or panic. We must not call it while we hold any lock. In
//! places without a lock, [`now`] calls it on this thread. Everywhere else, [`later`] passes the notice to another thread,
//! which calls the listener.

use std::panic::Location;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// How much a notice matters. The most important level comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the usual words")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// Something that the library did or found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// A device was opened.
    Opened {
        /// The device, `cuda:0`.
        device: String,
        /// The product's name.
        name: String,
        /// The target that kernels are compiled for.
        arch: String,
        /// The driver's version.
        driver: String,
        /// The UUID, if the driver tells it.
        uuid: Option<String>,
        /// The PCI address, if the driver tells it.
        pci: Option<String>,
        /// The driver's library, if there is one, and the name under which we found it.
        library: Option<(PathBuf, String)>,
        /// Why we chose it.
        why: String,
    },
    /// While choosing a device, we went on to the next backend.
    PassedOver {
        /// The backend's name.
        backend: &'static str,
        /// The reason that it gave.
        why: String,
    },
    /// The cache has no image for a source and a device.
    CacheMiss {
        /// The source's name.
        source: String,
        /// The target to compile for.
        arch: String,
        /// The cache's folder; `None` if there is none that only this user can write to.
        folder: Option<PathBuf>,
    },
    /// A source was compiled at run time.
    Compiled {
        /// The source's name.
        source: String,
        /// The target it was compiled for.
        arch: String,
        /// The compiler's name and version.
        compiler: String,
        /// How long that took.
        took: Duration,
    },
    /// A pool took memory from the driver.
    PoolGrew {
        /// The device, `cuda:0`.
        device: String,
        /// The kind of memory.
        memory: &'static str,
        /// How many bytes it took.
        bytes: u64,
        /// How many bytes of this kind the pool has taken in all.
        reserved: u64,
        /// The line that asked for memory.
        location: &'static Location<'static>,
    },
    /// A device failed, so nothing works on it any more.
    Fault {
        /// The device, `cuda:0`; `None` if the backend does not say.
        device: Option<String>,
        /// The driver's words, and what to do.
        message: String,
    },
    /// A line of your program makes operations wait for each other (`GPUSTREAM_LINT`).
    Serialises {
        /// The line.
        location: &'static Location<'static>,
        /// The reason.
        why: String,
    },
}

/// How to reach the listeners.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// Returns true if there is a listener for notices of this level. We call this anywhere, so it must not run your
    /// program's code.
    pub wants: fn(Level) -> bool,
    /// Tells your program on this thread.
    pub now: fn(&Notice),
    /// Lets another thread tell your program. We call this anywhere, so it must not block or run your program's code.
    pub later: fn(Notice),
}

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Sends all notices to this listener. If there is one already, that one stays.
pub fn listen(listener: Listener) {
    let _ = LISTENER.set(listener);
}

/// Tells listeners about something, on this thread. The thread must not hold any lock of the library.
pub fn now(level: Level, make: impl FnOnce() -> Notice) {
    if let Some(listener) = wanted(level) {
        (listener.now)(&make());
    }
}

/// Lets another thread tell listeners about something. You may hold any lock.
pub fn later(level: Level, make: impl FnOnce() -> Notice) {
    if let Some(listener) = wanted(level) {
        (listener.later)(make());
    }
}

#[inline]
fn wanted(level: Level) -> Option<&'static Listener> {
    LISTENER.get().filter(|listener| (listener.wants)(level))
}
