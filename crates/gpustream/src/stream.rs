//! Streams as users hold them: submitting, recording, waiting, synchronizing.

use std::fmt;
use std::sync::Arc;

use gpustream_core::host_call::{self, HostCall, RepeatedCall};
use gpustream_core::lint;
use gpustream_core::memory::{Access, MemoryKind};
use gpustream_core::operation::{DriverCalls, Operation, Retained, call_site, named};
use gpustream_core::reentrancy;
use gpustream_core::stream::{StreamCore, StreamEntry, StreamTable};
use gpustream_core::trace;
use gpustream_hal::{CallSite, Error, ErrorKind, RawStream, Result, WaitPolicy, Work};

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
        named(call_site("record"), || Ok(Event::new(&self.core, self.core.record_event()?)))
    }

    /// Records an event as [`record`](Self::record) does; host threads wait for it by the policy `wait`, not by the
    /// device's.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    #[track_caller]
    pub fn record_with(&self, wait: WaitPolicy) -> Result<Event> {
        named(call_site("record_with"), || Ok(Event::new(&self.core, self.core.record_event_with(wait)?)))
    }

    /// Records an event that takes the device's time when this point is reached.
    ///
    /// # Errors
    /// As for [`record`](Self::record); [`ErrorKind::Captured`] inside a capture, where events take no time.
    #[track_caller]
    pub fn record_timed(&self) -> Result<TimedEvent> {
        named(call_site("record_timed"), || {
            Ok(TimedEvent(Event::new(&self.core, self.core.record_timed_event(self.device.0.wait)?)))
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
            self.core.wait_event(&event.stream, event.contents())
        })
    }

    /// Returns whether everything submitted so far is done (`cuStreamQuery`). Never blocks.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where any of it failed: "not done" and "failed" are different answers.
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || self.core.is_done())
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
    /// [`DeviceFeatures::concurrent_host_functions`](gpustream_hal::DeviceInfo) says so, as on the CPU. CUDA may run them
    /// one after the other, and HIP runs all of them on one thread, in an order of its own: a closure that waits for
    /// another stream's closure may then wait for ever. A closure that blocks holds up its own stream, and on HIP the
    /// streams that share a hardware queue with it too ([`DeviceLimits::hardware_queues`](gpustream_hal::DeviceInfo); the
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
        if !self.device.info().features.concurrent_host_functions {
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
        if !entry.named(self.core.is_recorded_here())? {
            // SAFETY: the closure is safe code, which reaches no memory of the device's.
            return unsafe { self.call_host(&entry, &[], closure) };
        }
        // Dropped here, with nothing locked, where it is refused.
        let closure = Arc::new(RepeatedCall::new(closure));
        let data = Arc::as_ptr(&closure).cast_mut().cast();
        let call = DriverCalls::Work(Work::Host { function: host_call::run_repeated, data });
        let mut submission =
            Operation { kept: Retained::Closure(&closure), ..Operation::new(&entry.caller, &[], call) };
        // SAFETY: `run_repeated` takes a pointer to a `RepeatedCall`, which the recording keeps; the stream is
        // recorded.
        unsafe { entry.submit(&mut submission) }
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
