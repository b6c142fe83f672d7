//! Asking again once work is done, for memory whose owner waits to be dropped: a program that drops its last buffer may
//! never call the pools again.

use std::sync::{Arc, OnceLock, Weak};
use std::task::{Wake, Waker};

use super::Pools;
use crate::reactor::{self, Awaited, Wait};
use crate::reentrancy;
use crate::stream::{StreamTable, known_done};
use crate::track::Uses;

/// The wish of some pools to ask again. Part of a circle with its wait, which ends when the wait does.
struct Again {
    pools: Weak<Pools>,
    wait: OnceLock<Arc<Wait>>,
}

impl Wake for Again {
    /// Does nothing where the work failed: then it is not known to be done.
    fn wake(self: Arc<Self>) {
        if let Some(pools) = self.pools.upgrade() {
            pools.drop_unused();
        }
    }
}

/// Has the pools drop memory that nothing uses any more as soon as these uses are done.
pub(super) fn drop_unused_after(pools: Weak<Pools>, mut uses: Uses) {
    uses.retain(|old| !known_done(old.point));
    if !uses.is_empty() {
        // This thread may hold the lock of a stream, since buffers can be dropped anywhere.
        reentrancy::elsewhere(move || watch(pools, &uses));
    }
}

fn watch(pools: Weak<Pools>, uses: &Uses) {
    let marked = uses.iter().filter_map(|old| {
        let stream = StreamTable::shared().get(old.point.stream)?;
        // Without a mark, as on a stream that is captured, the next call to the pools asks.
        let mark = stream.mark_for(old.point.number).ok()??;
        Some((stream, mark))
    });
    let marked: Vec<_> = marked.collect();
    let again = Arc::new(Again { pools, wait: OnceLock::new() });
    if marked.is_empty() {
        return again.wake();
    }
    let wait = again.wait.get_or_init(|| Wait::new(marked.len())).clone();
    if wait.poll(&Waker::from(again)).is_none() {
        let _ = reactor::watch(marked.into_iter().map(|(stream, mark)| Awaited {
            stream,
            mark,
            wait: wait.clone(),
        }));
    }
}
