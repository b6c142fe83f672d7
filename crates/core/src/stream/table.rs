//! The process's streams, by number.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use gpustream_hal as hal;

use super::StreamCore;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::track::{Clock, History, Point, StreamId};

/// All streams of the process by number. A dropped stream stays until its work is done. Devices share one table, because
/// one device may reach the memory of another one and wait for its events.
///
/// A stream looks here while it is locked. So you must not lock a stream while you hold the table.
#[derive(Default)]
pub struct StreamTable {
    streams: RwLock<HashMap<StreamId, Arc<StreamCore>>>,
    /// Held while a stream that is not ours gets a core or loses its last `Stream`, so that each driver stream has only one
    /// core. Lock this before any stream.
    adopting: Mutex<()>,
}

/// The lock under which we count the `Stream`s of streams that are not ours.
pub(crate) struct Adopting<'a>(#[allow(dead_code)] MutexGuard<'a, ()>);

impl StreamTable {
    /// Returns the process's table.
    ///
    /// # Safety
    /// The caller keeps [the crate's contract](crate#safety).
    pub unsafe fn of_process() -> &'static Self {
        Self::shared()
    }

    /// Returns the process's table.
    pub(crate) fn shared() -> &'static Self {
        static TABLE: OnceLock<StreamTable> = OnceLock::new();
        TABLE.get_or_init(Self::default)
    }

    pub fn get(&self, id: StreamId) -> Option<Arc<StreamCore>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Notes that everything up to these points is done.
    pub fn set_done(&self, clock: &Clock) {
        if clock.len() == 0 {
            return;
        }
        let table = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        for point in clock.points() {
            if let Some(stream) = table.get(&point.stream) {
                stream.set_done(point.number);
            }
        }
    }

    pub(crate) fn adopting(&self) -> Adopting<'_> {
        Adopting(lock(&self.adopting))
    }

    /// Enters a stream that is not ours. If the driver's stream already has a core, returns that one, because with two
    /// cores for one stream, one would not know of a capture on the other.
    pub fn adopt(&self, stream: Arc<StreamCore>) -> Arc<StreamCore> {
        let adopting = self.adopting();
        let mut known = self.filter(|known| known.is_same_stream(&stream)).into_iter();
        if let Some(known) = known.find(|known| known.add_handle(&adopting)) {
            return known;
        }
        self.insert(stream.clone());
        stream
    }

    /// Counts one more `Stream` for an existing core.
    pub fn share(&self, stream: &Arc<StreamCore>) -> Arc<StreamCore> {
        if !stream.is_ours() {
            stream.add_handle(&self.adopting());
        }
        stream.clone()
    }

    pub fn insert(&self, stream: Arc<StreamCore>) {
        self.streams.write().unwrap_or_else(PoisonError::into_inner).insert(stream.id, stream);
    }

    /// Returns the streams that pass `which`.
    pub(crate) fn filter(&self, which: impl Fn(&Arc<StreamCore>) -> bool) -> Vec<Arc<StreamCore>> {
        let table = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        table.values().filter(|stream| which(stream)).cloned().collect()
    }

    /// Drops the device's streams that only the table holds and whose work is done. Also drops such foreign streams of the
    /// same context, because the device handle that adopted one may be closed.
    pub(crate) fn drop_orphans(&self, device: &Arc<dyn hal::Device>) {
        let is_of = |stream: &StreamCore| {
            Arc::ptr_eq(&stream.device, device) || !stream.is_ours() && stream.is_in_context_of(&**device)
        };
        let orphans = self.filter(|stream| stream.is_orphan() && is_of(stream));
        for stream in orphans {
            // This asks the driver, so the table must not be locked.
            let Ok(Some(clock)) = stream.poll_clock() else { continue };
            self.set_done(&clock);
            // An orphan cannot get a new handle.
            self.streams.write().unwrap_or_else(PoisonError::into_inner).remove(&stream.id);
            stream.short_copies.close();
        }
    }

    pub(crate) fn take(&self, which: impl Fn(&StreamCore) -> bool) -> Vec<Arc<StreamCore>> {
        let mut table = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        table.extract_if(|_, stream| which(stream)).map(|(_, stream)| stream).collect()
    }
}

/// Returns true if we know that the work at `point` is done, on whatever stream it is.
pub fn known_done(point: Point) -> bool {
    let table = StreamTable::shared().streams.read().unwrap_or_else(PoisonError::into_inner);
    // A stream leaves the table when all its work is done. So if it is not here, it has none left.
    table.get(&point.stream).is_none_or(|stream| stream.known_done(point.number))
}

/// Forgets the uses that we know are done.
pub fn prune(history: &mut History) {
    history.prune(known_done);
}
