//! Failures that the driver does not know of: a host closure panicked, or another library's work failed. We keep them until
//! a wait that comes after the work reports them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::{Error, Result};
use smallvec::SmallVec;

use crate::deferred_drop::Untold;
use crate::sync::{Mutex, lock};
use crate::track::{Clock, Point, StreamId};

/// How many failures we keep for other streams.
const MOST: usize = 64;

/// The last such failure on a stream. The next wait for the stream reports it.
#[derive(Default)]
pub struct Failures {
    /// True if there may be one. Waits read this first, because it is cheaper than the lock.
    any: AtomicBool,
    last: Mutex<Option<Untold>>,
}

/// A failure of the work at a point, for the streams that come after it.
struct Placed {
    point: Point,
    error: Untold,
    /// The streams whose waits have reported it.
    told: SmallVec<[StreamId; 4]>,
}

/// The process's last failures whose points we know. Lock a stream's failures first.
static PLACED: Mutex<VecDeque<Placed>> = Mutex::new(VecDeque::new());
/// True if there are any. Waits read this first.
static ANY_PLACED: AtomicBool = AtomicBool::new(false);

impl Failures {
    /// Keeps a failure for the next wait.
    pub fn keep(&self, error: Error) {
        *lock(&self.last) = Some(Untold::new(error));
        self.any.store(true, Ordering::Release);
    }

    /// Keeps the failure of the work at `point` for the next wait on its stream, and for the next wait on each stream that
    /// comes after it. If there are several failures before the stream's next wait, other streams hear of the first one.
    pub fn keep_at(&self, point: Point, error: Error) {
        let error = Untold::new(error);
        let mut last = lock(&self.last);
        let mut placed = lock(&PLACED);
        let is_before =
            |placed: &Placed| placed.point.stream == point.stream && placed.point.number <= point.number;
        if last.is_none() || !placed.iter().any(is_before) {
            if placed.len() == MOST {
                placed.pop_front();
            }
            placed.push_back(Placed { point, error: error.clone(), told: SmallVec::new() });
            ANY_PLACED.store(true, Ordering::Release);
        }
        *last = Some(error);
        self.any.store(true, Ordering::Release);
    }

    /// Takes out the failure and returns it, so that it is reported once.
    ///
    /// # Errors
    /// The failure, if there was one.
    pub fn report(&self) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut last = lock(&self.last);
        self.any.store(false, Ordering::Relaxed);
        last.take().map_or(Ok(()), Untold::tell)
    }
}

/// Returns true if [`report_before`] may have something to report.
#[inline]
pub fn any_placed() -> bool {
    ANY_PLACED.load(Ordering::Acquire)
}

/// Reports failures of other streams' work that `stream`, whose clock this is, comes after. It reports each failure once to
/// each stream.
///
/// # Errors
/// The last failure that was not reported to the stream yet.
pub fn report_before(stream: StreamId, clock: &Clock) -> Result<()> {
    let mut newest = None;
    for Placed { point, error, told } in lock(&PLACED).iter_mut() {
        // A clock may contain its own stream, because it is merged from clocks of others.
        if point.stream != stream && clock.covers(*point) && !told.contains(&stream) {
            told.push(stream);
            newest = Some(error.clone());
        }
    }
    newest.map_or(Ok(()), Untold::tell)
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    /// An error whose destructor reports failures and sends the id of its thread.
    struct Mine(Arc<Failures>, mpsc::Sender<thread::ThreadId>);

    impl fmt::Debug for Mine {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Mine")
        }
    }

    impl fmt::Display for Mine {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("mine")
        }
    }

    impl std::error::Error for Mine {}

    impl Drop for Mine {
        fn drop(&mut self) {
            let stream = StreamId::nth(u64::from(u32::MAX));
            let point = Point { stream: StreamId::nth(u64::from(u32::MAX) - 1), number: 1 };
            self.0.keep_at(point, Error::unsupported("a destructor"));
            let _ = report_before(stream, &Clock::default());
            let _ = self.1.send(thread::current().id());
        }
    }

    #[test]
    fn nothing_is_locked_when_an_unreported_error_is_dropped() {
        let (told, dropped) = mpsc::channel();
        let error = |list: &Arc<Failures>| Error::external(Mine(list.clone(), told.clone()));
        let stream = StreamId::nth(u64::from(u32::MAX) - 2);
        let elsewhere = || assert_ne!(dropped.recv().unwrap(), thread::current().id());

        let list = Arc::new(Failures::default());
        list.keep(error(&list));
        list.keep(Error::unsupported("another"));
        elsewhere();
        list.keep(error(&list));
        list.keep_at(Point { stream, number: 1 }, Error::unsupported("another"));
        elsewhere();
        // In the end the process's list is full.
        for number in 1..=MOST as u64 + 1 {
            let list = Arc::new(Failures::default());
            let stream = StreamId::nth(u64::from(u32::MAX) + number);
            list.keep_at(Point { stream, number }, error(&Arc::default()));
            drop(list);
        }
        elsewhere();
        // An error that was reported belongs to the caller.
        let list = Arc::new(Failures::default());
        list.keep(error(&Arc::default()));
        let told = list.report();
        assert!(told.is_err());
    }
}
