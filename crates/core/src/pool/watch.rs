//! Asks again once work is done, for memory that cannot be dropped yet. We need this because a program that drops its last
//! buffer may never call the pools again.

use std::sync::{Arc, OnceLock, Weak};
use std::task::{Wake, Waker};

use super::Pools;
use crate::reactor::{self, Awaited, Wait};
use crate::reentrancy;
use crate::stream::{StreamTable, known_done};
use crate::track::Uses;

/// Remembers that some pools want to ask again. It is part of a circle with its wait, and the circle ends when the wait
/// does.
struct Again {
    pools: Weak<Pools>,
    wait: OnceLock<Arc<Wait>>,
}

impl Wake for Again {
    /// If the work failed, does nothing, because then we do not know that it is done.
    fn wake(self: Arc<Self>) {
        if let Some(pools) = self.pools.upgrade() {
            pools.drop_unused();
        }
    }
}

/// Makes the pools drop memory that nothing uses any more, as soon as these uses are done.
pub(super) fn drop_unused_after(pools: Weak<Pools>, mut uses: Uses) {
    uses.retain(|old| !known_done(old.point));
    if !uses.is_empty() {
        // This thread may hold the lock of a stream, because you can drop buffers anywhere.
        reentrancy::elsewhere(move || watch(pools, &uses));
    }
}

fn watch(pools: Weak<Pools>, uses: &Uses) {
    let marked = uses.iter().filter_map(|old| {
        let stream = StreamTable::shared().get(old.point.stream)?;
        // If there is no mark, for example because the stream is captured, the next call to the pools asks.
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
