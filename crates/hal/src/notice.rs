//! Notices: what the library does by itself and operators want to know.
//!
//! Backends and the core tell; the crate `gpustream` passes it on, as events of the crate `tracing`. While nobody listens, a
//! notice costs one load, and all of them are on paths that are slow anyway.
//!
//! A listener is the program's code: it may call the library, block, and panic. So it must not run while a lock of the library
//! is held. [`now`] tells on the calling thread, from places that hold none. Everywhere else [`later`] hands the notice over, and
//! it is told on another thread.

use std::panic::Location;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// How much a notice matters, most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the usual words")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// Something that the library did, or found.
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
        /// The driver's library, if there is one, and the name that led to it.
        library: Option<(PathBuf, String)>,
        /// What made the library choose it.
        why: String,
    },
    /// The choice of a device went on to the next backend.
    PassedOver {
        /// The backend's name.
        backend: &'static str,
        /// The reason that it gave.
        why: String,
    },
    /// The cache has no image of a source for a device.
    CacheMiss {
        /// The source's name.
        source: String,
        /// The target to compile for.
        arch: String,
        /// The cache's folder; `None` if there is none that this user alone can write to.
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
        /// The time that it took.
        took: Duration,
    },
    /// A pool took memory from the driver.
    PoolGrew {
        /// The device, `cuda:0`.
        device: String,
        /// The kind of memory.
        memory: &'static str,
        /// The bytes that were taken.
        bytes: u64,
        /// All bytes of this kind that the pool has taken by now.
        reserved: u64,
        /// The line that asked for memory.
        location: &'static Location<'static>,
    },
    /// A device failed: nothing works on it any more.
    Fault {
        /// The device, `cuda:0`; `None` if the backend does not say.
        device: Option<String>,
        /// The driver's words, and what to do.
        message: String,
    },
    /// A line of the program makes operations wait for each other (`GPUSTREAM_LINT`).
    Serialises {
        /// The line.
        location: &'static Location<'static>,
        /// The reason.
        why: String,
    },
}

/// The way to whoever listens.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    /// Returns true if anyone wants notices of this level. You can call this anywhere, so it must not run the program's
    /// code.
    pub wants: fn(Level) -> bool,
    /// Tells the program, on this thread.
    pub now: fn(&Notice),
    /// Lets another thread tell the program. You can call this anywhere, so it must not block or run the program's code.
    pub later: fn(Notice),
}

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Has all notices go to this listener. The first listener stays.
pub fn listen(listener: Listener) {
    let _ = LISTENER.set(listener);
}

/// Tells listeners about something on this thread, which must not hold any of the library's locks.
pub fn now(level: Level, make: impl FnOnce() -> Notice) {
    if let Some(listener) = wanted(level) {
        (listener.now)(&make());
    }
}

/// Has listeners told of something. This thread may hold any lock.
pub fn later(level: Level, make: impl FnOnce() -> Notice) {
    if let Some(listener) = wanted(level) {
        (listener.later)(make());
    }
}

#[inline]
fn wanted(level: Level) -> Option<&'static Listener> {
    LISTENER.get().filter(|listener| (listener.wants)(level))
}
