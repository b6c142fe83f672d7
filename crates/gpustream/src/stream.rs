//! Streams as users hold them: submitting, recording, waiting, synchronizing.

use std::fmt;
use std::sync::Arc;

use gpustream_core::host_call::{self, HostCall, RepeatedCall};
use gpustream_core::lint;
use gpustream_core::memory::{Access, MemoryKind};
use gpustream_core::operation::{
    DriverCalls, Operation, Retained, call_site, named, no_node, on_behalf, refused,
};
use gpustream_core::reentrancy;
use gpustream_core::stream::{
    EventCell, EventContents, EventKind, Recording, StateGuard, StreamCore, StreamEntry, StreamState,
    StreamTable, known_done,
};
use gpustream_core::trace;
use gpustream_core::track::Point;
use gpustream_hal::{CallSite, Error, ErrorKind, EventOptions, RawStream, Result, WaitPolicy};

use crate::device::Device;
use crate::event::{Event, TimedEvent};

/// A queue of work that the device runs in order, beside the other streams.
///
/// Every call enqueues and returns, except those whose documentation says *blocks*. A dropped stream finishes its work
/// first, without making the host wait.
///
/// A stream holds about a thousand operations that are not done, 1024 on the CPU; a graph's launch is one. A call that
/// submits one more blocks until there is room. A thread that submits so many behind a waiting kernel or closure,
/// or behind a wait for a flag, therefore cannot be the one that releases it, with [`Flag::set`](crate::Flag::set) for
/// instance.
///
/// ```
/// use gpustream::Device;
/// let device = Device::open("cpu")?;
/// let (a, b) = (device.stream()?, device.stream()?);
/// let x = a.upload(&[1.0f32; 1000])?;
/// let mut y = b.alloc::<f32>(1000)?;
/// b.copy(&x, &mut y)?;                 // b waits for a by itself: x was last written there
/// assert_eq!(b.download(&y)?, [1.0; 1000]);
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// A `Stream` is `Send` and `Sync`. Threads that submit to one stream take turns; each call is one place in its order.
pub struct Stream {
    pub(crate) core: Arc<StreamCore>,
    pub(crate) device: Device,
}

/// Returns the process's streams.
pub(crate) fn streams() -> &'static StreamTable {
    // SAFETY: streams leave this crate only as a `Stream`, which checks what the core relies on.
    unsafe { StreamTable::of_process() }
}

impl Stream {
    /// Returns the device that the stream belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns one more value of the same stream.
    pub(crate) fn share(&self) -> Self {
        Self { core: streams().share(&self.core), device: self.device.clone() }
    }

    /// Returns the driver's handle, for calls that this crate does not offer. Work submitted through the handle is
    /// ordered with this stream's, but its use of memory is not tracked: [`external`](Self::external) does that. Within a run of a [`Replay`](crate::Replay), take
    /// the handle inside the closure: from there on the run holds nothing back. Take it inside the closure of a
    /// [`capture`](Self::capture) too, and use it there alone: HIP captures a second stream in this one's place, unless the
    /// handle had been taken before.
    pub fn as_raw(&self) -> RawStream {
        self.core.handle()
    }

    /// Returns the number of multiprocessors that the stream's kernels run on: those that the driver gave to a stream
    /// [on a part of the device](gpustream_hal::StreamOptions::multiprocessors), otherwise the device's. The part of a
    /// stream that was made elsewhere is not known.
    pub fn multiprocessors(&self) -> u32 {
        self.core.part().unwrap_or(self.device.info().multiprocessors)
    }

    /// Lets a call of the program's in.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure that may not call the library; [`ErrorKind::InvalidArgument`] for the
    /// default stream of another thread.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub(crate) fn enter(&self, operation: CallSite) -> Result<StreamEntry<'_>> {
        self.core.enter(self.device.0.rules, operation)
    }

    /// Records an event at this point of the stream (`cuEventRecord`).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where the device failed.
    #[track_caller]
    pub fn record(&self) -> Result<Event> {
        named(call_site("record"), || {
            self.core.check_thread()?;
            let mut state = self.core.state.lock();
            if state.is_recorded() {
                return self.record_inside(state);
            }
            let contents = self.core.event(&mut state)?;
            self.record_contents(&mut state, contents)
        })
    }

    /// Records an event inside a capture: each launch of the graph reaches it anew.
    #[cold]
    fn record_inside(&self, state: StateGuard<'_>) -> Result<Event> {
        let Recording::Capture(capture, _) = state.recording() else { return Err(no_node()) };
        let capture = capture.clone();
        drop(state);
        capture.check_thread()?;
        let cell = EventCell::new(&self.core.device, EventOptions::default())?;
        let kind = EventKind::Captured(capture.record(&self.core, &cell)?);
        Ok(Event::new(&self.core, EventContents::new(cell, kind)))
    }

    /// Records an event as [`record`](Self::record) does; host threads wait for it by the policy `wait`, not by the
    /// device's.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    #[track_caller]
    pub fn record_with(&self, wait: WaitPolicy) -> Result<Event> {
        named(call_site("record_with"), || {
            self.core.check_thread()?;
            let cell = EventCell::new(&self.core.device, EventOptions::default().wait(wait))?;
            let mut state = self.core.state.lock();
            if state.is_recorded() {
                return self.record_inside(state);
            }
            self.record_contents(&mut state, EventContents::new(cell, EventKind::Special))
        })
    }

    /// Records an event at the stream's end.
    #[inline]
    fn record_contents(&self, state: &mut StreamState, mut contents: Box<EventContents>) -> Result<Event> {
        let raw = self.core.caught_up(state)?;
        // SAFETY: event and stream are alive and of this device.
        unsafe { self.core.device.event_record(contents.mark.cell.raw, raw) }?;
        let number = self.core.number_of_end(state);
        state.renew_mark(number, &mut contents.mark);
        Ok(Event::new(&self.core, contents))
    }

    /// Records an event that takes the device's time when this point is reached.
    ///
    /// # Errors
    /// As for [`record`](Self::record); [`ErrorKind::Captured`] inside a capture, where events take no time.
    #[track_caller]
    pub fn record_timed(&self) -> Result<TimedEvent> {
        named(call_site("record_timed"), || {
            self.core.check_thread()?;
            let cell = EventCell::new(
                &self.core.device,
                EventOptions::default().timing(true).wait(self.device.0.wait),
            )?;
            let mut state =
                self.core.running("take the time inside it; record timed events around a launch")?;
            Ok(TimedEvent(self.record_contents(&mut state, EventContents::new(cell, EventKind::Special))?))
        })
    }

    /// Orders all work submitted to this stream from now on after `event` (`cuStreamWaitEvent`). Does not block, and
    /// makes no driver call where that order already holds.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] for an event of another backend.
    #[track_caller]
    pub fn wait(&self, event: &Event) -> Result<()> {
        named(call_site("wait"), || {
            if self.device.info().backend != event.stream.device.info().backend {
                return Err(self.foreign_event(&event.stream));
            }
            self.core.check_thread()?;
            if let EventKind::Captured(point) = event.kind() {
                if !Arc::ptr_eq(&self.core.device, &event.stream.device) {
                    return Err(refused(
                        "have a stream of another device join it; graphs stay on one device",
                    ));
                }
                return point.capture.wait(&self.core, &event.mark().cell, point);
            }
            while let Some(refusal) = self.wait_once(event)? {
                event.stream.outlast_capture(refusal)?;
            }
            Ok(())
        })
    }

    /// Orders all work submitted to this stream from now on after everything submitted to `other` so far: records an event there
    /// and [waits](Self::wait) for it (`cuEventRecord`, `cuStreamWaitEvent`). Does not block.
    ///
    /// The library makes the waits that shared memory needs by itself. This call is for what it does not see: work of
    /// [`external`](Self::external) on memory that was not named, the other side of [`as_raw`](Self::as_raw), and programs
    /// that order their streams themselves. Inside a capture of `other`, this stream joins the capture.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// let (a, b) = (device.stream()?, device.stream()?);
    /// a.host_fn(|| println!("first"))?;
    /// b.wait_for(&a)?;
    /// b.host_fn(|| println!("second"))?;
    /// # b.synchronize()?;
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`record`](Self::record) and [`wait`](Self::wait): [`ErrorKind::DeviceMismatch`] for a stream of another backend,
    /// [`ErrorKind::Captured`] if this stream is captured, and `other` has pending work and is not.
    #[track_caller]
    pub fn wait_for(&self, other: &Self) -> Result<()> {
        on_behalf(call_site("wait_for"), || {
            let (own, others) = (self.device.info().backend, other.device.info().backend);
            if own != others {
                return Err(foreign_stream(own, others));
            }
            self.core.check_thread()?;
            if Arc::ptr_eq(&self.core, &other.core) {
                return Ok(());
            }
            self.wait(&other.record()?)
        })
    }

    /// As [`wait`](Self::wait), for an event outside of captures. Returns the driver's refusal, if there was one.
    fn wait_once(&self, event: &Event) -> Result<Option<Error>> {
        let point = Point { stream: event.stream.id, number: event.mark().number };
        let mut state = self.core.state.lock();
        // An event also stands for the work that its stream waited for, which need not have a number there.
        let mut points = event.mark().clock.points().chain((point.number > 0).then_some(point));
        if state.is_recorded() {
            // A point that has been reached is no dependency of the graph.
            return if points.all(known_done) {
                Ok(None)
            } else {
                Err(self
                    .core
                    .refusal("wait inside it for an event recorded outside; make the launching stream wait"))
            };
        }
        if points.all(|point| point.stream == self.core.id || state.clock.covers(point)) {
            return Ok(None);
        }
        // The host must be able to wait for the last operation without also waiting for `event`.
        self.core.pay(&mut state, &std::iter::empty::<&Access<'_>>())?;
        let raw = self.core.caught_up(&mut state)?;
        // SAFETY: both are alive, and an `Event` has always been recorded.
        if let Err(refusal) = unsafe { self.core.device.stream_wait_event(raw, event.mark().cell.raw) } {
            return Ok(Some(refusal));
        }
        state.clock.merge(&event.mark().clock);
        state.clock.advance(point);
        state.note_wait(point);
        state.prune_clock();
        Ok(None)
    }

    /// Returns whether everything submitted so far is done (`cuStreamQuery`). Never blocks.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where any of it failed: "not done" and "failed" are different answers.
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || {
            self.core.check_thread()?;
            let state = self.core.running("ask whether a captured stream is done")?;
            let Some(clock) = self.core.poll_locked(state)? else { return Ok(false) };
            streams().set_done(&clock);
            self.core.report_failures()?;
            Ok(true)
        })
    }

    /// Blocks until everything submitted so far is done (`cuStreamSynchronize`).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where any of it failed, [`ErrorKind::HostPanic`] where a host closure panicked.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let call = call_site("synchronize");
        self.core.wait().map_err(|error| error.with_call_site(call))
    }

    /// Runs `closure` on a thread of the driver's, in stream order (`cuLaunchHostFunc`).
    ///
    /// Work submitted later waits for the closure. A panic is caught, and the next wait on this stream reports it.
    /// After a device fault the closure may never run, and is then leaked.
    ///
    /// A closure may not call the driver, so calls that would call it, or wait, are an [`ErrorKind::InHostClosure`].
    /// Closures of different streams run at once where
    /// [`DeviceInfo::concurrent_host_functions`](gpustream_hal::DeviceInfo) says so, as on the CPU. CUDA may run them
    /// one after the other, and HIP runs all of them on one thread, in an order of its own: a closure that waits for
    /// another stream's closure may then wait for ever. A closure that blocks holds up its own stream, and on HIP the
    /// streams that share a hardware queue with it too ([`DeviceInfo::hardware_queues`](gpustream_hal::DeviceInfo); the
    /// variable `GPU_MAX_HW_QUEUES` sets how many there are). A closure that waits for another thread may wait for ever if
    /// that thread calls the library: some calls of a driver, such as those that free memory (`cuMemFree`), wait until the
    /// device is idle, closures included, and hold up the calls of every other thread meanwhile.
    ///
    /// A closure may drop anything and use flags. It gets guards on pinned memory whose last use comes before the
    /// closure in this stream's order.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] inside a capture, which would run the closure many times.
    #[track_caller]
    pub fn host_fn(&self, closure: impl FnOnce() + Send + 'static) -> Result<()> {
        // SAFETY: the closure is safe code, which reaches no memory of the device's.
        unsafe { self.call_host(&self.enter(call_site("host_fn"))?, &[], closure) }
    }

    /// Enqueues a host closure that touches the memory of `accesses`.
    ///
    /// # Safety
    /// The closure touches no other memory of the device's.
    pub(crate) unsafe fn call_host(
        &self,
        entry: &StreamEntry<'_>,
        accesses: &[&Access<'_>],
        closure: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let once = "run a closure once that a graph runs many times; use `host_fn_repeat`";
        entry.check_running(once)?;
        if !self.device.info().concurrent_host_functions {
            lint::serialises("the driver may run the closures of all streams one after the other");
        }
        let call = HostCall::new(closure, &self.core.failures, self.core.past());
        // Dropped when nothing is locked: the closure may own graphs or modules, which query this stream when dropped.
        let mut refused = None;
        // A graph would run the closure in every launch.
        entry.submit_outside_captures(
            once,
            trace::WorkKind::Host,
            accesses.iter().copied(),
            |device, stream| {
                let data = call.into_raw();
                // SAFETY: the stream is alive, and `data` stays valid until `host_call::run` frees it.
                unsafe { device.stream_host_fn(stream, host_call::run, data) }
                    // SAFETY: the driver refused the call, so nobody else has it.
                    .inspect_err(|_| refused = Some(unsafe { HostCall::from_raw(data) }))
            },
        )
    }

    /// Runs a closure as [`host_fn`](Self::host_fn) does. The closure can run many times: inside a capture it becomes a
    /// node of the graph, and the graph owns it.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] where another thread captures the stream.
    #[track_caller]
    pub fn host_fn_repeat(&self, closure: impl Fn() + Send + Sync + 'static) -> Result<()> {
        let entry = self.enter(call_site("host_fn"))?;
        if !self.is_recorded_here(&entry)? {
            // SAFETY: the closure is safe code, which reaches no memory of the device's.
            return unsafe { self.call_host(&entry, &[], closure) };
        }
        // SAFETY: as above; the stream is recorded.
        unsafe { record_call(&entry, &[], RepeatedCall::new(closure)) }
    }

    /// Returns whether this thread records the stream, so that no other ends the recording.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] where another thread captures the stream.
    pub(crate) fn is_recorded_here(&self, entry: &StreamEntry<'_>) -> Result<bool> {
        let state = self.core.state.lock();
        match state.recording() {
            Recording::Capture(capture, _) => entry.named(capture.check_thread()).map(|()| true),
            Recording::Node => Ok(true),
            Recording::None => Ok(false),
        }
    }

    #[cold]
    fn foreign_event(&self, recorded_on: &StreamCore) -> Error {
        let (own, other) = (self.device.info().backend, recorded_on.device.info().backend);
        Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "the event was recorded on a stream of {other}, for which a stream of {own} cannot wait; have the host wait \
                 for the event first: `event.synchronize()`"
            ),
        )
    }

    /// Checks that this stream's device reaches memory of `device`; `what` names the memory in the error.
    #[inline]
    pub(crate) fn check_reaches(&self, device: &Device, kind: MemoryKind, what: &str) -> Result<()> {
        if self.device.0.reaches(&device.0, kind)? { Ok(()) } else { Err(self.foreign(what)) }
    }

    /// The error for memory of a device that this stream's cannot reach.
    #[cold]
    pub(crate) fn foreign(&self, what: &str) -> Error {
        Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "{what} belongs to a device that this stream's, {}, cannot reach; use one device, or copy through the host",
                self.device.place()
            ),
        )
    }
}

/// Records a closure's call, which the recording owns.
///
/// # Safety
/// The stream is recorded, on this thread. The closure touches no other memory of the device's than that of `accesses`.
pub(crate) unsafe fn record_call(
    entry: &StreamEntry<'_>,
    accesses: &[&Access<'_>],
    closure: RepeatedCall,
) -> Result<()> {
    // Dropped here, with nothing locked, where it is refused.
    let closure = Arc::new(closure);
    let call = DriverCalls::Work(closure.work());
    let kept = Retained::Closure(&closure);
    // SAFETY: the work is the call, which the recording keeps; the rest is this function's contract.
    unsafe { entry.submit(&mut Operation { kept, ..Operation::new(&entry.caller, accesses, call) }) }
}

#[cold]
fn foreign_stream(own: &str, other: &str) -> Error {
    Error::new(
        ErrorKind::DeviceMismatch,
        format!(
            "a stream of {own} cannot wait for a stream of {other}; have the host wait for that one first: \
             `other.synchronize()`"
        ),
    )
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.core.is_ours() {
            let core = self.core.clone();
            reentrancy::outside(move || core.let_go());
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} of {:?})", self.core.id, self.device)
    }
}
