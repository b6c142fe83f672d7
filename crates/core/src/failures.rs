//! Failures that a driver does not know of, on their way from the work to the waits that come after it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::{Error, Result};
use smallvec::SmallVec;

use crate::deferred_drop::Untold;
use crate::sync::{Mutex, lock};
use crate::track::{Clock, Point, StreamId};

/// The most failures that are kept for other streams.
const MOST: usize = 64;

/// The last failure of a stream's host closures, or of another library's work in it. The next wait for the stream reports
/// it.
#[derive(Default)]
pub struct Failures {
    /// Whether there may be one: waits look here first.
    any: AtomicBool,
    last: Mutex<Option<Untold>>,
}

/// A failure of work at a point, for the streams that come after it.
struct Placed {
    point: Point,
    error: Untold,
    /// The streams whose waits have reported it.
    told: SmallVec<[StreamId; 4]>,
}

/// The last failures of the process whose points are known. Locked behind a stream's.
static PLACED: Mutex<VecDeque<Placed>> = Mutex::new(VecDeque::new());
/// Whether there are any: waits look here first.
static ANY_PLACED: AtomicBool = AtomicBool::new(false);

impl Failures {
    /// Keeps a failure for the next wait.
    pub fn keep(&self, error: Error) {
        *lock(&self.last) = Some(Untold::new(error));
        self.any.store(true, Ordering::Release);
    }

    /// Keeps the failure of the work at `point` for the stream's next wait, and for the next one of each stream that comes after
    /// it. Other streams are told the first of several failures that come before the stream's next wait.
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

    /// Takes out the failure, so that it is reported once.
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

/// Whether [`report_before`] may have something to report.
#[inline]
pub fn any_placed() -> bool {
    ANY_PLACED.load(Ordering::Acquire)
}

/// Reports the failures of work on other streams that `stream`, whose clock this is, comes after: each once to each stream.
///
/// # Errors
/// The last one that the stream has not been told.
pub fn report_before(stream: StreamId, clock: &Clock) -> Result<()> {
    let mut newest = None;
    for Placed { point, error, told } in lock(&PLACED).iter_mut() {
        // A clock may have its own stream, as others know it.
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

    /// An error of the program. Its destructor looks at the failures, and tells on which thread that was.
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
    fn nothing_is_locked_when_an_error_is_dropped_that_nobody_was_told() {
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
        // The list of the process is full in the end.
        for number in 1..=MOST as u64 + 1 {
            let list = Arc::new(Failures::default());
            let stream = StreamId::nth(u64::from(u32::MAX) + number);
            list.keep_at(Point { stream, number }, error(&Arc::default()));
            drop(list);
        }
        elsewhere();
        // One that the program is told is the program's.
        let list = Arc::new(Failures::default());
        list.keep(error(&Arc::default()));
        let told = list.report();
        assert!(told.is_err());
    }
}
