//! The streams of a device.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::{Stream, StreamKind};
use crate::shared::{Interrupt, Shared};
use crate::sync::lock;

/// All streams of a device, for the legacy stream's rules and for waking all waiters.
#[derive(Default)]
pub(crate) struct Registry {
    all: Mutex<Vec<Weak<Stream>>>,
    blocking: Mutex<Vec<Weak<Stream>>>,
    legacy: OnceLock<Arc<Stream>>,
}

impl Registry {
    pub(super) fn add(&self, stream: &Arc<Stream>, blocking: bool) {
        let add = |list: &Mutex<Vec<Weak<Stream>>>| {
            let mut list = lock(list);
            if list.len() == list.capacity() {
                list.retain(|stream| stream.strong_count() > 0);
            }
            list.push(Arc::downgrade(stream));
        };
        add(&self.all);
        if blocking {
            add(&self.blocking);
        }
    }

    /// Returns every stream that is alive.
    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        lock(&self.all).iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn blocking(&self) -> Vec<Arc<Stream>> {
        lock(&self.blocking).iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the legacy stream. Its first use creates it.
    pub(crate) fn legacy_of(&'static self, shared: &'static Shared) -> &'static Arc<Stream> {
        self.legacy.get_or_init(|| Stream::new(shared, self, 0, StreamKind::Legacy, None))
    }

    /// Returns the legacy stream if it was ever used.
    pub(super) fn legacy(&self) -> Option<Arc<Stream>> {
        self.legacy.get().cloned()
    }
}

impl Interrupt for Registry {
    fn interrupt(&self) {
        for stream in self.all() {
            stream.progress.interrupt();
        }
    }
}
