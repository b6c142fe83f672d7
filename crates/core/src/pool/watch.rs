//! Looking again once work is done, for memory whose owner waits to be dropped: a program that drops its last buffer may
//! never call the pools again.

use std::sync::{Arc, OnceLock, Weak};
use std::task::{Wake, Waker};

use super::Pools;
use crate::inside;
use crate::queue::{StreamTable, known_done};
use crate::reactor::{self, Entry, Wait};
use crate::track::Uses;

/// The wish of some pools to look again. Part of a circle with its wait, which ends when the wait does.
struct Look {
    pools: Weak<Pools>,
    wait: OnceLock<Arc<Wait>>,
}

impl Wake for Look {
    /// Does nothing where the work failed: then it is not known to be done.
    fn wake(self: Arc<Self>) {
        if let Some(pools) = self.pools.upgrade() {
            pools.sweep();
        }
    }
}

/// Has the pools drop memory that nothing uses any more as soon as these uses are done.
pub(super) fn sweep_after(pools: Weak<Pools>, mut uses: Uses) {
    uses.retain(|old| !known_done(old.point));
    if !uses.is_empty() {
        // This thread may hold the lock of a stream, since buffers can be dropped anywhere.
        inside::elsewhere(move || watch(pools, &uses));
    }
}

fn watch(pools: Weak<Pools>, uses: &Uses) {
    let marked = uses.iter().filter_map(|old| {
        let stream = StreamTable::shared().get(old.point.stream)?;
        // Without a mark, as on a stream that is captured, the next call to the pools looks.
        let mark = stream.mark_for(old.point.number).ok()??;
        Some((stream, mark))
    });
    let marked: Vec<_> = marked.collect();
    let look = Arc::new(Look { pools, wait: OnceLock::new() });
    if marked.is_empty() {
        return look.wake();
    }
    let wait = look.wait.get_or_init(|| Wait::new(marked.len())).clone();
    if wait.poll(&Waker::from(look)).is_none() {
        let _ = reactor::watch(marked.into_iter().map(|(stream, mark)| Entry {
            stream,
            mark,
            wait: wait.clone(),
        }));
    }
}
