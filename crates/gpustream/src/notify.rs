//! Futures that resolve when the device is done.
//!
//! A future owns the points that it waits for and borrows nothing, so you can drop or leak one without harm. The work is
//! already under way before the first poll, and goes on if you drop the future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{hint, mem};

use gpustream_core::memory::{self, Block};
use gpustream_core::operation::{call_site, on_behalf};
use gpustream_core::reactor::{self, Awaited, Wait};
use gpustream_core::reentrancy;
use gpustream_core::stream::{Mark, StreamCore};
use gpustream_core::trace::{self, InstantKind};
use gpustream_core::track::Mode;
use gpustream_hal::{CallSite, Error, Result};
use smallvec::SmallVec;

use crate::event::{Event, TimedEvent};
use crate::pinned::Pinned;
use crate::plain::Plain;
use crate::stream::{Stream, streams};
use crate::view::{AsView, AsViewMut, View};

/// How long the first poll spins. Waking a sleeping executor costs several microseconds, so if work is nearly done, spinning is
/// faster. If other futures already wait, we don't spin, because that would hold them up.
const FIRST_LOOK: Duration = Duration::from_micros(20);

type Points = SmallVec<[(Arc<StreamCore>, Mark); 1]>;

type Streams = SmallVec<[Arc<StreamCore>; 1]>;

/// A future that resolves when certain points have been reached, or with the error if the device fails. Made by
/// [`Stream::synchronize_async`], and by the functions of the same name on events and memory.
///
/// It works on any executor.
///
/// A `Synchronize` is `Send` and `Sync`. If you drop it, only the waiting stops. The device works on.
#[must_use = "the device works on by itself; only `.await` tells when it is done"]
pub struct Synchronize {
    state: FutureState,
    /// The call that made the future, so that its error can name it.
    call_site: CallSite,
}

enum FutureState {
    Fresh(Points),
    Waiting {
        wait: Arc<Wait>,
        streams: Streams,
    },
    /// There is nothing more to wait for. We report an error once.
    Ended(Result<()>),
}

impl Synchronize {
    #[track_caller]
    fn new(points: Result<Points>) -> Self {
        Self::named(call_site("synchronize_async"), points)
    }

    fn named(call_site: CallSite, points: Result<Points>) -> Self {
        let state = points.map_or_else(|error| FutureState::Ended(Err(error)), FutureState::Fresh);
        Self { state, call_site }
    }

    /// Makes a future that waits for one point of a stream, if there is one.
    pub(crate) fn at(call_site: CallSite, stream: &Arc<StreamCore>, mark: Result<Option<Mark>>) -> Self {
        let points = mark.map(|mark| mark.into_iter().map(|mark| (stream.clone(), mark)).collect());
        Self::named(call_site, points)
    }

    /// Blocks this thread until the points have been reached, at most for `timeout`. Returns false if they have not been reached
    /// by then; you can wait again. For threads that run no executor.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let x = stream.zeros::<f32>(1 << 20)?;
    /// let mut done = stream.synchronize_async();
    /// while !done.wait_timeout(Duration::from_secs(1))? {
    ///     println!("still at work");
    /// }
    /// # drop(x);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Stream::synchronize`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<bool> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }

        // A timeout that no clock can hold is none.
        let deadline = Instant::now().checked_add(timeout);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            if let Poll::Ready(outcome) = Pin::new(&mut *self).poll(&mut Context::from_waker(&waker)) {
                return outcome.map(|()| true);
            }
            match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Ok(false),
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }

    /// Polls the points, and lets the reactor watch those that are not reached soon.
    fn start(points: Points, call_site: CallSite, cx: &Context<'_>) -> Result<FutureState> {
        reentrancy::check_outside()?;
        let streams: Streams = points.iter().map(|(stream, _)| stream.clone()).collect();
        let mut ahead = points;
        let started = Instant::now();
        loop {
            let mut index = 0;
            while let Some((stream, mark)) = ahead.get(index) {
                if stream.poll_mark(mark)? {
                    ahead.remove(index);
                } else {
                    index += 1;
                }
            }
            if ahead.is_empty() {
                return Ok(FutureState::Ended(report(&streams)));
            }
            if !reactor::is_idle() || started.elapsed() > FIRST_LOOK {
                break;
            }
            hint::spin_loop();
        }
        if trace::is_on() {
            trace::instant("future waits", Some(call_site.location), InstantKind::Future);
        }
        let wait = Wait::new(ahead.len());
        // We must store the waker before the reactor can call it.
        let _ = wait.poll(cx.waker());
        reactor::watch(ahead.into_iter().map(|(stream, mark)| Awaited { stream, mark, wait: wait.clone() }))?;
        Ok(FutureState::Waiting { wait, streams })
    }
}

impl Future for Synchronize {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let operation = self.call_site;
        let named = |error: Error| error.with_call_site(operation);
        match &mut self.state {
            FutureState::Fresh(points) => {
                let points = mem::take(points);
                self.state =
                    Self::start(points, operation, cx).unwrap_or_else(|error| FutureState::Ended(Err(error)));
            }
            FutureState::Waiting { wait, streams } => {
                let Some(outcome) = wait.poll(cx.waker()) else {
                    // Inside a host closure you may be blocking on a future that waits for that very closure.
                    return reentrancy::check_outside()
                        .map_or_else(|error| Poll::Ready(Err(named(error))), |_| Poll::Pending);
                };
                self.state = FutureState::Ended(outcome.and_then(|()| report(streams)));
            }
            FutureState::Ended(_) => {}
        }
        match &mut self.state {
            FutureState::Ended(outcome) => Poll::Ready(mem::replace(outcome, Ok(())).map_err(named)),
            FutureState::Fresh(_) | FutureState::Waiting { .. } => Poll::Pending,
        }
    }
}

/// Reports failures of these streams that their drivers do not know of.
fn report(streams: &[Arc<StreamCore>]) -> Result<()> {
    streams.iter().try_for_each(|stream| stream.report_failures())
}

impl Drop for Synchronize {
    fn drop(&mut self) {
        if let FutureState::Waiting { wait, .. } = &self.state {
            wait.leave();
        }
    }
}

impl fmt::Debug for Synchronize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Synchronize")
    }
}

impl Stream {
    /// Returns a future that resolves when everything submitted so far is done. It is [`synchronize`](Self::synchronize)
    /// without blocking. "So far" means until this call, not until the first poll.
    ///
    /// ```
    /// # async fn work() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// let stream = device.stream()?;
    /// let x = stream.zeros::<f32>(1 << 20)?;
    /// stream.synchronize_async().await?;
    /// # drop(x); Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn synchronize_async(&self) -> Synchronize {
        let mark = || {
            self.core.check_thread()?;
            let mark = self.core.end_mark("wait for a stream that is being captured")?;
            Ok(Points::from_buf([(self.core.clone(), mark)]))
        };
        Synchronize::new(mark())
    }

    /// Copies `src` to the host in the stream's order, and returns a future that resolves with the elements. The copy is
    /// submitted by this call, even if you never await the future. The future owns as much pinned memory as `src` has. Does not
    /// block.
    ///
    /// ```
    /// # async fn work() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.upload(&[1, 2, 3])?;
    /// let values = stream.download_async(&x);
    /// stream.fill(&mut x, 0)?;                       // after the copy
    /// assert_eq!(values.await?, [1, 2, 3]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The future resolves with the errors of [`download`](Self::download), also if the copy could not be submitted.
    #[track_caller]
    pub fn download_async<T: Plain>(&self, src: &(impl AsView<T> + ?Sized)) -> Download<T> {
        let call_site = call_site("download_async");
        let failed = |error| Download { finished: Synchronize::new(Err(error)), host: None };
        let mut download = self.begin_download(call_site, src.view()).unwrap_or_else(failed);
        download.finished.call_site = call_site;
        download
    }

    #[track_caller]
    fn begin_download<T: Plain>(&self, call_site: CallSite, src: View<'_, T>) -> Result<Download<T>> {
        // A graph would write this memory in every launch, and may not have been launched when you poll the future.
        let entry = self.enter(call_site)?;
        entry.check_running("wait for a download, not even with a future; copy to pinned memory instead")?;
        let mut host = self.device.pinned::<T>(src.len())?;
        self.copy_for(&entry, &src, &host.view_mut().view())?;
        Ok(Download { finished: host.synchronize_async(), host: Some(host) })
    }
}

impl Event {
    /// Returns a future that resolves when the point has been reached. It is [`synchronize`](Event::synchronize) without
    /// blocking.
    #[track_caller]
    pub fn synchronize_async(&self) -> Synchronize {
        let points = Points::from_buf([(self.stream.clone(), self.mark().clone())]);
        Synchronize::new(self.check_not_captured().map(|()| points))
    }
}

/// Makes `.await` on these types mean [`synchronize_async`](Event::synchronize_async). You can await a borrowed event several
/// times.
macro_rules! awaited {
    ($($event:ty),*) => {$(
        impl IntoFuture for $event {
            type Output = Result<()>;
            type IntoFuture = Synchronize;

            /// Calls [`synchronize_async`](Event::synchronize_async).
            #[track_caller]
            fn into_future(self) -> Synchronize {
                self.synchronize_async()
            }
        }
    )*};
}
awaited!(Event, &Event, TimedEvent, &TimedEvent);

impl<T: Plain> View<'_, T> {
    /// Returns a future that resolves when the device has finished writing here, so that [`read`](Self::read) then returns at
    /// once.
    #[track_caller]
    pub fn synchronize_async(&self) -> Synchronize {
        Synchronize::new(points(self.block, &self.bytes()))
    }
}

fn points(block: &Block, range: &std::ops::Range<usize>) -> Result<Points> {
    let mut points = Points::new();
    for point in memory::pending(block, range, Mode::Read) {
        if let Some(stream) = streams().get(point.stream)
            && !stream.known_done(point.number)
            && let Some(mark) = stream.mark_for(point.number)?
        {
            points.push((stream, mark));
        }
    }
    Ok(points)
}

/// A future that resolves with the elements that [`Stream::download_async`] copies.
///
/// A `Download` is `Send` and `Sync`. Dropping it returns at once. The copy is still made, and its memory is reused afterwards.
#[must_use = "the copy is under way; only `.await` hands over its elements"]
#[derive(Debug)]
pub struct Download<T> {
    finished: Synchronize,
    host: Option<Pinned<T>>,
}

impl<T: Plain> Future for Download<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(Pin::new(&mut self.finished).poll(cx))?;
        let (host, operation) = (self.host.take(), self.finished.call_site);
        let read = |host: Pinned<T>| on_behalf(operation, || host.read().map(|values| values.to_vec()));
        Poll::Ready(host.map_or(Ok(Vec::new()), read))
    }
}

impl<T> Unpin for Download<T> {}
