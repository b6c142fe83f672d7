//! Values that libraries keep with a device: kernels, handles, plans.
//!
//! Such a value usually holds handles of its own device, and handles keep their device open. If the device simply owned the
//! value, neither would ever go. So there are two kinds of handles. A program's handles, and everything made from them, *keep*
//! the extensions: the last one that goes drops them. The function that makes a value gets a handle that only *sees* them, and
//! so does everything made from that one. It keeps the device open, but not the extensions.
//!
//! No lock is held while a value is made or dropped. Threads that make values are on a list, and a thread that wants a value which
//! another thread is making waits for it. Such waits could close a circle (`A` asks for `B`, and `B` on another thread for
//! `A`), so the list also tells what its threads wait for, and a wait that would close one is an error.

use std::any::{Any, TypeId, type_name};
use std::sync::{Arc, PoisonError, Weak};

use gpustream_core::deferred_drop::drop_outside;
use gpustream_core::device_core::DeviceCore;
use gpustream_core::operation::{call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::sync::{Condvar, Mutex, lock, thread};
use gpustream_hal::{Error, ErrorKind, Result};

use crate::device::Device;

type Value = Arc<dyn Any + Send + Sync>;

/// The extensions of one opened device, which the program's handles keep.
pub(crate) struct Extensions {
    /// In the order in which they were made: a value may use those before it. The type is that of the value inside.
    values: Mutex<Vec<(TypeId, Value)>>,
    /// Keeps the device open until the values are dropped.
    _device: Arc<DeviceCore>,
}

impl Drop for Extensions {
    fn drop(&mut self) {
        let values = self.values.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut values = std::mem::take(values);
        if !values.is_empty() {
            values.reverse();
            drop_outside(values);
        }
    }
}

impl Extensions {
    fn get(&self, kind: TypeId) -> Option<Value> {
        lock(&self.values).iter().find(|(known, _)| *known == kind).map(|(_, value)| value.clone())
    }
}

/// What a handle of a device is to the extensions.
#[derive(Clone)]
pub(crate) enum ExtensionLink {
    Keeps(Arc<Extensions>),
    Sees(Weak<Extensions>),
}

impl ExtensionLink {
    /// Returns the link of a newly opened device's first handle.
    pub(crate) fn new(device: &Arc<DeviceCore>) -> Self {
        Self::Keeps(Arc::new(Extensions { values: Mutex::default(), _device: device.clone() }))
    }

    fn extensions(&self) -> Option<Arc<Extensions>> {
        match self {
            Self::Keeps(extensions) => Some(extensions.clone()),
            Self::Sees(extensions) => extensions.upgrade(),
        }
    }
}

/// An extension's name: the address of its device's [`Extensions`], and its type.
type Key = (usize, TypeId);

/// An extension that a thread makes.
struct Making {
    key: Key,
    by: thread::ThreadId,
}

/// What the threads of the process make, and wait for.
struct Threads {
    making: Vec<Making>,
    waiting: Vec<Making>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { making: Vec::new(), waiting: Vec::new() });
/// Notified when a thread has made a value, or has failed to.
static MADE: Condvar = Condvar::new();

impl Threads {
    /// Returns whether `thread` makes the value, or the thread that does waits for `thread`, directly or through others.
    fn is_circle(&self, key: Key, thread: thread::ThreadId) -> bool {
        let Some(making) = self.making.iter().find(|making| making.key == key) else { return false };
        making.by == thread
            || self.waiting.iter().any(|wait| wait.by == making.by && self.is_circle(wait.key, thread))
    }
}

/// The calling thread's right to make a value. Others wait while it lives.
struct Turn(Key);

impl Turn {
    /// Waits for its turn. Returns `None` if it has waited: the value may be there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the value is being made on a thread that waits for this one, or is this one.
    fn take(key: Key, what: &str) -> Result<Option<Self>> {
        let this = thread::current().id();
        let mut threads = lock(&THREADS);
        if threads.is_circle(key, this) {
            return Err(circle(what));
        }
        if threads.making.iter().all(|making| making.key != key) {
            threads.making.push(Making { key, by: this });
            return Ok(Some(Self(key)));
        }
        threads.waiting.push(Making { key, by: this });
        while threads.making.iter().any(|making| making.key == key) {
            threads = MADE.wait(threads).unwrap_or_else(PoisonError::into_inner);
        }
        threads.waiting.retain(|wait| wait.by != this);
        Ok(None)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&THREADS).making.retain(|making| making.key != self.0);
        MADE.notify_all();
    }
}

impl Device {
    /// Returns the device's extension of type `T`. The first call makes it, by `make`; the device keeps it.
    ///
    /// A library on top of this one keeps its kernels, another library's handles, and plans here, so that its functions need
    /// nothing but a stream. `T` should be a type of your own: all users of the same type share one value.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use gpustream::{Buffer, Device, Result, Stream};
    ///
    /// /// What our library keeps for a device.
    /// struct Tables {
    ///     squares: Buffer<u32>,
    /// }
    ///
    /// fn tables(device: &Device) -> Result<Arc<Tables>> {
    ///     device.extension(|device| {
    ///         let squares: Vec<u32> = (0..100).map(|i| i * i).collect();
    ///         Ok(Tables { squares: device.stream()?.upload(&squares)? })
    ///     })
    /// }
    ///
    /// fn squares(stream: &Stream) -> Result<Vec<u32>> {
    ///     stream.download(&tables(stream.device())?.squares)
    /// }
    ///
    /// let stream = Device::open("cpu")?.stream()?;
    /// assert_eq!(squares(&stream)?[9], 81);
    /// assert!(Arc::ptr_eq(&tables(stream.device())?, &tables(stream.device())?));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// **Use the handle that `make` gets** for everything that `T` holds. It keeps the device open but not its extensions, and the
    /// same holds for the streams, buffers and modules that you make from it. If `T` holds a handle of yours instead, such as a
    /// clone of the device on which you call this, then each keeps the other, and the device stays open until the process ends.
    ///
    /// The extensions are dropped when the last of the program's handles goes, streams and buffers included, on the thread
    /// that drops it (or on a thread of the library, if that happens inside a host closure). The last one that was made
    /// goes first, and the device is open until all of them are gone. Work that uses them may still be pending then: memory and
    /// modules of this library stay until it is done, and if `T` frees something else, its `Drop` waits before, for example by
    /// [`synchronize`](Self::synchronize). If you hold an `Arc` of the value, it lives as long as that.
    ///
    /// `make` runs on the calling thread, with nothing locked, and may call everything, also for other extensions. If two threads
    /// ask at once, one makes the value and the other blocks until it is there. If `make` fails or panics, nothing is kept,
    /// and the next call tries again, or the one that waits, with its own `make`. In a capture or a replayed step `make`
    /// runs like any other code of yours; work that it submits to the captured stream would become part of the graph and not
    /// run, so give it a stream of its own, or ask for the extension once before.
    ///
    /// # Errors
    /// The errors of `make`. [`ErrorKind::InvalidArgument`] if `make` asks for its own extension, directly or through others that
    /// are being made; or if the handle came from `make` and the program has dropped its last one.
    /// [`ErrorKind::InHostClosure`] inside a closure that may not call the library.
    #[track_caller]
    pub fn extension<T: Any + Send + Sync>(&self, make: impl FnOnce(&Self) -> Result<T>) -> Result<Arc<T>> {
        named(call_site("extension"), || {
            reentrancy::check_outside()?;
            let what = type_name::<T>();
            let extensions = self.1.extensions().ok_or_else(|| gone(what))?;
            let kind = TypeId::of::<T>();
            let key = (Arc::as_ptr(&extensions).addr(), kind);
            loop {
                if let Some(value) = extensions.get(kind) {
                    // The type is the key, so the value has it.
                    return value.downcast().map_err(|_| gone(what));
                }
                let Some(turn) = Turn::take(key, what)? else { continue };
                // Another thread may have made the value before this one's turn.
                if extensions.get(kind).is_some() {
                    continue;
                }
                let device = Self(self.0.clone(), ExtensionLink::Sees(Arc::downgrade(&extensions)));
                let value = Arc::new(make(&device).map_err(|error| in_capture(error, what))?);
                lock(&extensions.values).push((kind, value.clone()));
                drop(turn);
                return Ok(value);
            }
        })
    }
}

#[cold]
fn circle(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "the extension `{what}` is needed to make itself: the function that makes it asks for it, or for an extension that \
             asks for it; make one of them without the other"
        ),
    )
}

#[cold]
fn gone(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "the extension `{what}` was asked for by a handle that another extension holds, and the program has dropped its own \
             handles, so that the device's extensions are gone; keep a handle of the device while you use its extensions"
        ),
    )
}

/// Says what to do if making the value failed because of a recording.
#[cold]
fn in_capture(error: Error, what: &str) -> Error {
    if !matches!(error.kind(), ErrorKind::Captured | ErrorKind::NotANode) {
        return error;
    }
    error.with_context(format_args!(
        "the extension `{what}` cannot be made while a graph is recorded; ask for it once before the capture or the node"
    ))
}
