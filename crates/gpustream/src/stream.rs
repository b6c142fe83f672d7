//! Streams: submitting, recording, waiting, synchronizing.

use std::fmt;
use std::sync::Arc;

use gpustream_core::host_call::{self, HostCall, RepeatedCall};
use gpustream_core::lint;
use gpustream_core::memory::{Access, MemoryKind};
use gpustream_core::operation::{DriverCalls, Operation, Retained, call_site, named, on_behalf};
use gpustream_core::reentrancy;
use gpustream_core::stream::{StreamCore, StreamEntry, StreamTable};
use gpustream_core::trace;
use gpustream_hal::{BackendName, CallSite, Error, ErrorKind, RawStream, Result, WaitPolicy};

use crate::device::Device;
use crate::event::{Event, TimedEvent};

/// A queue of work. The device runs it in order, at the same time as other streams.
///
/// A call only enqueues work and returns, unless its documentation says that it *blocks*. If you drop a stream, its work still
/// finishes, and the host does not wait for it.
///
/// A stream can hold about a thousand unfinished operations (1024 on the CPU); a graph's launch counts as one. When it is full,
/// the next call blocks until there is room. So if your thread submits that many operations after a kernel, a closure or a wait
/// that only this thread can release, for example with [`Flag::set`](crate::Flag::set), it blocks forever.
/// [`room_async`](Self::room_async) waits for room without blocking, and the guide [Servers](crate::guide::servers) lists all
/// calls that may block.
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
/// A `Stream` is `Send` and `Sync`. If several threads submit to one stream, they take turns, and each call gets one place in
/// its order.
pub struct Stream {
    pub(crate) core: Arc<StreamCore>,
    pub(crate) device: Device,
}

/// Returns the process's streams.
pub(crate) fn streams() -> &'static StreamTable {
    // SAFETY: streams only leave this crate as a `Stream`, which checks what the core relies on.
    unsafe { StreamTable::of_process() }
}

impl Stream {
    /// Returns the device that the stream belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the stream's number, which no other stream of the process ever has. A library that keeps something for a stream
    /// finds it by this number.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// let (a, b) = (device.stream()?, device.stream()?);
    /// assert_eq!(a.id(), a.id());
    /// assert_ne!(a.id(), b.id());
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    pub fn id(&self) -> u64 {
        self.core.id.get().get()
    }

    /// Gives the stream a name, which traces, reports and pictures show from its next operation on instead of a number. All
    /// values of the stream share the name.
    ///
    /// ```
    /// # let device = gpustream::Device::open("cpu")?;
    /// let halo = device.stream()?;
    /// halo.set_name("halo");
    /// let trace = device.trace()?;
    /// let x = halo.upload(&[1, 2, 3])?;
    /// assert_eq!(trace.stop()?.streams[0].name, "halo");
    /// # drop(x);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    pub fn set_name(&self, name: impl Into<String>) {
        self.core.name.set(name.into());
    }

    /// Returns the name that you gave to the stream, or `None` if it has none.
    pub fn name(&self) -> Option<String> {
        self.core.name.get()
    }

    /// Returns another value for the same stream.
    pub(crate) fn share(&self) -> Self {
        Self { core: streams().share(&self.core), device: self.device.clone() }
    }

    /// Returns the driver's handle, if you need a driver call that this crate does not offer. Work that you submit through the
    /// handle runs in this stream's order, but we cannot track which memory it uses; [`external`](Self::external) lets you say
    /// so.
    ///
    /// In a run of a [`Replay`](crate::Replay), take the handle inside the closure, because from then on the run defers
    /// nothing. In a [`capture`](Self::capture), take it inside the closure too, and only use it there. HIP captures a second
    /// stream in place of this one, unless you took the handle before.
    pub fn as_raw(&self) -> RawStream {
        self.core.handle()
    }

    /// Returns how many multiprocessors the stream's kernels run on. If you made the stream
    /// [on a part of the device](gpustream_hal::StreamOptions::multiprocessors), it is the number that the driver gave to it.
    /// Otherwise it is the whole device's, also for a stream that another library restricted, because we cannot know that.
    pub fn multiprocessors(&self) -> u32 {
        self.core.part().unwrap_or(self.device.info().multiprocessors)
    }

    /// Checks that this call may use the stream.
    ///
    /// # Errors
    /// [`ErrorKind::InHostClosure`] inside a closure that must not call the library; [`ErrorKind::InvalidArgument`] if the
    /// stream is another thread's default stream.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the path of a launch")]
    pub(crate) fn enter(&self, call_site: CallSite) -> Result<StreamEntry<'_>> {
        self.core.enter(self.device.0.rules, call_site)
    }

    /// Records an event at this point of the stream (`cuEventRecord`).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if the device failed.
    #[track_caller]
    pub fn record(&self) -> Result<Event> {
        named(call_site("record"), || Ok(Event::new(&self.core, self.core.record_event()?)))
    }

    /// Like [`record`](Self::record), but a host thread waits for this event by the policy `wait`, whatever the device's
    /// options say.
    ///
    /// # Errors
    /// As for [`record`](Self::record).
    #[track_caller]
    pub fn record_with(&self, wait: WaitPolicy) -> Result<Event> {
        named(call_site("record_with"), || Ok(Event::new(&self.core, self.core.record_event_with(wait)?)))
    }

    /// Records an event that also takes the device's time at this point.
    ///
    /// # Errors
    /// As for [`record`](Self::record); [`ErrorKind::Captured`] inside a capture, because events in a graph cannot take the
    /// time.
    #[track_caller]
    pub fn record_timed(&self) -> Result<TimedEvent> {
        named(call_site("record_timed"), || {
            Ok(TimedEvent(Event::new(&self.core, self.core.record_timed_event(self.device.0.wait)?)))
        })
    }

    /// Makes all work that you submit to this stream from now on wait for `event` (`cuStreamWaitEvent`). Does not block. If the
    /// stream already comes after the event, we make no driver call.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMismatch`] if the event belongs to another backend.
    #[track_caller]
    pub fn wait(&self, event: &Event) -> Result<()> {
        named(call_site("wait"), || {
            if self.device.info().backend != event.stream.device.info().backend {
                return Err(self.foreign_event(&event.stream));
            }
            self.core.wait_event(&event.stream, event.contents())
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

    /// Returns true if everything submitted so far is done (`cuStreamQuery`). Never blocks.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if any of it failed, so that you can tell "failed" from "not done".
    #[track_caller]
    pub fn is_done(&self) -> Result<bool> {
        named(call_site("is_done"), || self.core.is_done())
    }

    /// Blocks until everything submitted so far is done (`cuStreamSynchronize`).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] if any of it failed; [`ErrorKind::HostPanic`] if a host closure panicked.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let call = call_site("synchronize");
        self.core.wait().map_err(|error| error.with_call_site(call))
    }

    /// Runs `closure` on a thread of the driver, in the order of the stream (`cuLaunchHostFunc`).
    ///
    /// Later work on the stream waits for the closure. If the closure panics, we catch the panic and report it at the next wait
    /// on this stream. After a device fault the closure may never run, and then it is leaked.
    ///
    /// A closure must not call the driver. So if you make a call there that needs the driver, or that waits, it returns
    /// [`ErrorKind::InHostClosure`]. You may drop anything and use flags. You can also get a guard on pinned memory, if its
    /// last use comes before the closure in this stream's order.
    ///
    /// Be careful with closures that wait, because they can easily wait forever:
    ///
    /// * **For another stream's closure.** Closures of different streams run at the same time only if
    ///   [`DeviceFeatures::concurrent_host_functions`](gpustream_hal::DeviceFeatures::concurrent_host_functions) says so, as on
    ///   the CPU. CUDA may run them one after another, and HIP runs all of them on one thread in an order of its own.
    /// * **For work on other streams.** A closure that blocks holds up its own stream. On HIP it also holds up the streams that
    ///   share a hardware queue with it ([`DeviceLimits::hardware_queues`](gpustream_hal::DeviceLimits::hardware_queues); you
    ///   can set their number with the variable `GPU_MAX_HW_QUEUES`).
    /// * **For another thread that calls the library.** Some driver calls, such as those that free memory (`cuMemFree`), wait
    ///   until the device is idle, closures included, and block the calls of all other threads meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] inside a capture, because the graph would run the closure many times.
    #[track_caller]
    pub fn host_fn(&self, closure: impl FnOnce() + Send + 'static) -> Result<()> {
        // SAFETY: the closure is safe code, which cannot reach memory of the device.
        unsafe { self.call_host(&self.enter(call_site("host_fn"))?, &[], closure) }
    }

    /// Enqueues a host closure that touches the memory of `accesses`.
    ///
    /// # Safety
    /// The closure must not touch other memory of the device.
    pub(crate) unsafe fn call_host(
        &self,
        entry: &StreamEntry<'_>,
        accesses: &[&Access<'_>],
        closure: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let once = "run a closure only once, because a graph runs it in every launch; use `host_fn_repeat`";
        entry.check_running(once)?;
        if !self.device.info().features.concurrent_host_functions {
            lint::serialises("the driver may run the closures of all streams one after the other");
        }
        let call = HostCall::new(closure, &self.core.failures, self.core.past());
        // We drop this while nothing is locked, because the closure may own graphs or modules, which query this stream when
        // dropped.
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
                    // SAFETY: the driver refused the call, so it is still ours alone.
                    .inspect_err(|_| refused = Some(unsafe { HostCall::from_raw(data) }))
            },
        )
    }

    /// Like [`host_fn`](Self::host_fn), but the closure may run many times. So you can also call this inside a capture: the
    /// closure becomes a node of the graph, and the graph owns it.
    ///
    /// # Errors
    /// [`ErrorKind::Captured`] if another thread is capturing the stream.
    #[track_caller]
    pub fn host_fn_repeat(&self, closure: impl Fn() + Send + Sync + 'static) -> Result<()> {
        let entry = self.enter(call_site("host_fn"))?;
        if !entry.named(self.core.is_recorded_here())? {
            // SAFETY: the closure is safe code, which cannot reach memory of the device.
            return unsafe { self.call_host(&entry, &[], closure) };
        }
        // SAFETY: the closure is safe code, which cannot reach memory of the device; the stream is recorded.
        unsafe { record_call(&entry, &[], RepeatedCall::new(closure)) }
    }

    #[cold]
    fn foreign_event(&self, recorded_on: &StreamCore) -> Error {
        let (own, other) = (self.device.info().backend, recorded_on.device.info().backend);
        Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "a stream of {own} was told to wait for an event of {other}, and the two cannot wait for each other; make the \
                 host wait for the event first: `event.synchronize()`"
            ),
        )
    }

    /// Checks that this stream's device can reach memory of `device`. `what` names the memory in the error.
    #[inline]
    pub(crate) fn check_reaches(&self, device: &Device, kind: MemoryKind, what: &str) -> Result<()> {
        if self.device.0.reaches(&device.0, kind)? { Ok(()) } else { Err(self.foreign(what, device)) }
    }

    /// Returns the error for memory of another device, which this stream's device cannot reach.
    #[cold]
    pub(crate) fn foreign(&self, what: &str, owner: &Device) -> Error {
        let (here, there) = (&self.device.0.info, &owner.0.info);
        let is_peer = here.backend == there.backend && here.ordinal != there.ordinal;
        let why = if is_peer && here.quirks.checked {
            " in checked mode (`GPUSTREAM_CHECK=1`), because GPUs without peer access could not either"
        } else {
            ""
        };
        let remedy = if is_peer {
            "copy it to memory of the stream's device first (`stream.copy`, or through the host), or use a stream of the device \
             that has it"
        } else {
            "use one device, or copy through the host"
        };
        Error::new(
            ErrorKind::DeviceMismatch,
            format!(
                "{what} belongs to {}, which {}, this stream's device, cannot reach{why}; {remedy}",
                owner.place(),
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
fn foreign_stream(own: BackendName, other: BackendName) -> Error {
    Error::new(
        ErrorKind::DeviceMismatch,
        format!(
            "a stream of {own} cannot wait for a stream of {other}; let the host wait for that one first: \
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
        match self.name() {
            Some(name) => write!(f, "Stream({name} of {:?})", self.device),
            None => write!(f, "Stream({} of {:?})", self.core.id, self.device),
        }
    }
}
