//! Another library's work in your streams: ordered, waited for and reported like a launch.

mod host;
mod operands;

use std::fmt;
use std::sync::Arc;

use gpustream_core::failures as core;
use gpustream_core::memory::Access;
use gpustream_core::operation::{DriverCalls, ExternalKey, HostWait, Operation, call_site, named};
use gpustream_core::stream::{StreamEntry, StreamWatcher};
use gpustream_core::track::Point;
use gpustream_core::{lint, reentrancy};
use gpustream_hal::cold_path::cold_path;
use gpustream_hal::{Error, ErrorKind, RawEvent, RawStream, Result};
use smallvec::SmallVec;

use crate::launch::Arg;
use crate::stream::Stream;

pub use host::Part;
pub use operands::{Operand, Operands};

/// Checks that this thread may call this library and wait.
///
/// A library on top of this one asks this before it takes a lock of its own that other threads hold while they wait for the
/// device. Otherwise a host closure that needs the lock could wait for a thread that waits for the closure. This only reads a
/// thread-local variable.
///
/// ```
/// use gpustream::{ErrorKind, interop::check_outside_closures};
/// # let stream = gpustream::Device::open("cpu")?.stream()?;
/// check_outside_closures()?;
/// stream.host_fn(|| assert_eq!(check_outside_closures().unwrap_err().kind(), ErrorKind::InHostClosure))?;
/// stream.synchronize()?;
/// # Ok::<(), gpustream::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InHostClosure`] inside a host closure or the closure of [`Stream::external`].
#[inline]
#[track_caller]
pub fn check_outside_closures() -> Result<()> {
    named(call_site("check_outside_closures"), || reentrancy::check_outside().map(drop))
}

type Accesses<'a> = SmallVec<[&'a Access<'a>; 8]>;

impl Stream {
    /// Enqueues another library's work as one operation: a routine of a vendor library, a kernel of other bindings, a copy. It
    /// is ordered like a launch: after all work that `memory` needs, and before later work. Does not block unless `call` does.
    ///
    /// We call `call` once, before this function returns, with the driver's stream. The device's context is current on this
    /// thread. `call` must enqueue the work there, without waiting for it. You get its value or its error back unchanged. The
    /// error type can be anything that this library's [`Error`] converts into, for example `anyhow::Error`. If your closure
    /// returns this library's errors, wrap other errors with `map_err(Error::external)`.
    ///
    /// `memory` names the memory that the work touches: `(&a, &b, &mut c)` if it reads `a` and `b` and writes `c`. `call` gets
    /// the addresses in the same order, so the two cannot disagree ([`Operands`](crate::interop::Operands) lists what you can
    /// pass). Allocate workspace with [`Stream::alloc`] before the call and name it too, because inside `call` the stream is
    /// locked and calls to this library are errors.
    ///
    /// In a capture the driver records what `call` enqueues. In a run of a [`Replay`](crate::Replay) the operation ends a
    /// segment, and `call` is called again in every run, unless you give a [key](Self::external_keyed). If you build a graph
    /// node by node, use [`GraphBuilder::external`](crate::GraphBuilder::external).
    ///
    /// ```
    /// use gpustream::hal::{FillPattern, RawBuffer, RawStream};
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// // A library with its own C interface, which takes a stream and an address.
    /// fn set_all(device: &gpustream::Device, to: *mut u32, count: usize, stream: RawStream) -> gpustream::Result<()> {
    ///     // SAFETY: the caller's memory and stream.
    ///     unsafe { device.raw().fill(RawBuffer(to as usize), FillPattern::U32(7), count, stream) }
    /// }
    ///
    /// let mut y = stream.alloc::<u32>(100)?;
    /// // SAFETY: the fill goes to the stream that it is given, and only writes `y`.
    /// unsafe { stream.external("set_all", &mut y, |raw, y| set_all(&device, y, 100, raw)) }?;
    /// assert_eq!(stream.download(&y)?, [7; 100]);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of `call`; [`ErrorKind::DeviceMismatch`] if the stream's device cannot reach the memory. If `call` fails, the
    /// operation still counts as submitted, because a part of the work may have been enqueued.
    ///
    /// # Safety
    /// * The work must go to the stream that `call` gets. If some of it goes to other streams, those must first wait for what
    ///   this stream was given before, and this stream must then wait for them.
    /// * The work may only touch memory of this library that `memory` names, and only write what you pass for writing.
    /// * Everything else that it uses (handles, host memory) must live until the work is done. In a capture, it must live as
    ///   long as the graph.
    /// * `call` must not begin or end a capture of the stream. Under `GPUSTREAM_LINT=1` we check this.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Begun`")]
    #[track_caller]
    pub unsafe fn external<'a, M: Operands<'a>, R, E: From<Error>>(
        &self,
        label: &'static str,
        memory: M,
        call: impl FnOnce(RawStream, M::Addresses) -> Result<R, E>,
    ) -> Result<R, E> {
        let entry = self.enter(call_site(label))?;
        let (memory, addresses) = memory.split();
        let accesses = self.accesses(&entry, memory.as_ref())?;
        let call = |raw| call(raw, addresses);
        let begun = if lint::is_on() { None } else { entry.begin(&accesses, HostWait::Alone)? };
        let Some(begun) = begun else {
            cold_path();
            // SAFETY: by this function's contract.
            let submit = |submission: &mut Operation<'_>| unsafe { entry.submit_elsewhere(submission) };
            return self.submit_external(&entry, &accesses, call, None, submit).map(|(value, ())| value);
        };
        let outcome = match self.core.device.enter() {
            Ok(()) => Ok(reentrancy::run_external(|| call(self.core.raw()))),
            Err(error) => Err(error),
        };
        let enqueued = if matches!(outcome, Ok(Ok(_))) { Ok(()) } else { Err(not_enqueued()) };
        let accesses = accesses.iter().copied();
        let finished = entry.finish(begun, accesses, HostWait::Alone, enqueued);
        // The stream is unlocked now, because `E::from` is your code. Your own error comes first.
        match outcome {
            Ok(outcome) => outcome.and_then(|value| finished.map(|()| value).map_err(E::from)),
            Err(error) => entry.named(Err(error)).map_err(E::from),
        }
    }

    /// Like [`external`](Self::external), for work that a [`Replay`](crate::Replay) can record: you promise that calls with the
    /// same label, the same key and the same memory do the same work. Does not block unless `call` does.
    ///
    /// In a run of a replay, [`external`](Self::external) ends a segment, because the replay cannot know what `call` would do.
    /// With a key it goes on: in the second run we record what `call` enqueues, as one node of the step's graph, and later runs
    /// launch that graph without calling `call`. If key or memory change, we call it again. Everywhere else this is the same as
    /// [`external`](Self::external).
    ///
    /// For example, a library of matrix products can number the combinations of shape, scalars and settings that it meets, and
    /// use that number as the key. A hash would not do, because two combinations might have the same. If the number is not
    /// at hand, ask [`is_in_step`](Self::is_in_step) first, because elsewhere the key is not used.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use gpustream::hal::{FillPattern, RawBuffer};
    /// # fn main() -> gpustream::Result<()> {
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// let (mut x, mut replay, calls) = (stream.zeros::<u32>(8)?, device.replay(), Cell::new(0));
    /// let theirs = |raw, x: *mut u32| {
    ///     calls.set(calls.get() + 1);
    ///     // SAFETY: `x` has 8 elements, and the fill goes to the stream that we are given.
    ///     unsafe { device.raw().fill(RawBuffer(x as usize), FillPattern::U32(7), 8, raw) }
    /// };
    /// for _ in 0..10 {
    ///     // SAFETY: `theirs` only enqueues a fill of `x` in the stream that it gets, and always the same.
    ///     replay.run(&stream, |s| unsafe { s.external_keyed("theirs", &mut x, 0, theirs) })?;
    /// }
    /// assert_eq!((stream.download(&x)?, calls.get()), (vec![7; 8], 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`external`](Self::external); if the driver cannot capture the calls, its error in the run that records them.
    ///
    /// # Safety
    /// As for [`external`](Self::external), with these additions:
    /// * Equal labels, keys and memory must mean equal work. This includes everything that decides what is enqueued, for example
    ///   scalars, and the contents of host memory that `call` reads.
    /// * Everything else that the work uses must live as long as the [`Replay`](crate::Replay).
    /// * If the work uses state of a library's handle, for example a workspace, `memory` must name it, because the recording
    ///   may run while `call` is called for another stream.
    #[track_caller]
    pub unsafe fn external_keyed<'a, M: Operands<'a>, E: From<Error>>(
        &self,
        label: &'static str,
        memory: M,
        key: u64,
        call: impl FnOnce(RawStream, M::Addresses) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.core.is_in_step() {
            // SAFETY: by this function's contract.
            return unsafe { self.external(label, memory, call) };
        }
        let entry = self.enter(call_site(label))?;
        let (memory, addresses) = memory.split();
        let accesses = self.accesses(&entry, memory.as_ref())?;
        let call = |raw| call(raw, addresses);
        // SAFETY: by this function's contract.
        let submit = |submission: &mut Operation<'_>| unsafe { entry.submit_elsewhere(submission) };
        self.submit_external(&entry, &accesses, call, Some((key, ())), submit).map(drop)
    }

    /// Like [`external`](Self::external), for work that a library has to watch. Also returns a [`StreamWatcher`], which tells
    /// whether the operation has begun and whether it is done. Does not block unless `call` does.
    ///
    /// Watching needs events on the stream, and these delay the work after them: on an H100, small kernels take up to 2
    /// microseconds longer each. So if operations follow each other directly, let them share one section: pass the previous
    /// operation's watcher as `grown`. If nothing else was submitted since, and you have not yet asked whether that section is
    /// done, this operation joins it and you get `None`. We record the events as late as we can, which is before something else
    /// is submitted or when you ask. They never cover more than the section.
    ///
    /// ```
    /// use gpustream::{Arg, Result};
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let stream = device.stream()?;
    /// # let mut y = stream.zeros::<f32>(100)?;
    /// let routine = |_, _| -> Result<()> { Ok(()) };
    /// // SAFETY: nothing is enqueued.
    /// let ((), first) = unsafe { stream.external_watched("first", &mut y, None, routine) }?;
    /// let first = first.expect("there is none to grow");
    /// // SAFETY: nothing is enqueued.
    /// let ((), second) = unsafe { stream.external_watched("second", &mut y, Some(&first), routine) }?;
    /// assert!(second.is_none());
    ///
    /// stream.synchronize()?;
    /// assert!(first.has_begun()? && first.is_done()?);
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`external`](Self::external); [`ErrorKind::Captured`] if the stream is being recorded. After an error the
    /// section of `grown` may or may not include the operation.
    ///
    /// # Safety
    /// As for [`external`](Self::external).
    #[track_caller]
    pub unsafe fn external_watched<'a, M: Operands<'a>, R, E: From<Error>>(
        &self,
        label: &'static str,
        memory: M,
        grown: Option<&StreamWatcher>,
        call: impl FnOnce(RawStream, M::Addresses) -> Result<R, E>,
    ) -> Result<(R, Option<StreamWatcher>), E> {
        let entry = self.enter(call_site(label))?;
        let (memory, addresses) = memory.split();
        let accesses = self.accesses(&entry, memory.as_ref())?;
        let call = |raw| call(raw, addresses);
        // SAFETY: by this function's contract.
        let submit =
            |submission: &mut Operation<'_>| unsafe { entry.submit_watched(&self.core, submission, grown) };
        self.submit_external(&entry, &accesses, call, None, submit)
    }

    /// Like [`external_watched`](Self::external_watched), but without a closure: you get the driver's stream, and the other
    /// library enqueues the work elsewhere.
    ///
    /// Use this if one call enqueues work in many streams at once, such as the end of an NCCL group. Call this function on each
    /// stream before and after that call. The first operation makes the stream wait for the memory, and the second makes later
    /// work wait for what was enqueued. This does not make the device's context current. Does not block.
    ///
    /// ```
    /// use gpustream::hal::FillPattern;
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let (a, b) = (device.stream()?, device.stream()?);
    /// let (mut x, mut y) = (a.zeros::<u32>(100)?, b.zeros::<u32>(100)?);
    /// let (to_x, to_y, raw) = (x.as_raw(), y.as_raw(), device.raw());
    /// // SAFETY: between the two operations each stream only gets a fill of its own memory.
    /// unsafe {
    ///     let (raw_a, in_front_a) = a.external_elsewhere("fill", &mut x, None)?;
    ///     let (raw_b, in_front_b) = b.external_elsewhere("fill", &mut y, None)?;
    ///     raw.fill(to_x, FillPattern::U32(1), 100, raw_a)?;
    ///     raw.fill(to_y, FillPattern::U32(2), 100, raw_b)?;
    ///     // Nothing was submitted in between, so the sections grow.
    ///     assert!(a.external_elsewhere("fill", &mut x, in_front_a.as_ref())?.1.is_none());
    ///     assert!(b.external_elsewhere("fill", &mut y, in_front_b.as_ref())?.1.is_none());
    /// }
    /// // Each stream waits for the other's fill.
    /// assert_eq!((b.download(&x)?, a.download(&y)?), (vec![1; 100], vec![2; 100]));
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`external_watched`](Self::external_watched).
    ///
    /// # Safety
    /// As for [`external`](Self::external), for the work that is enqueued between the two operations.
    #[track_caller]
    pub unsafe fn external_elsewhere<'a>(
        &self,
        label: &'static str,
        memory: impl Operands<'a>,
        grown: Option<&StreamWatcher>,
    ) -> Result<(RawStream, Option<StreamWatcher>)> {
        let entry = self.enter(call_site(label))?;
        let (memory, _) = memory.split();
        let accesses = self.accesses(&entry, memory.as_ref())?;
        let mut submission = Operation::new(&entry.caller, &accesses, DriverCalls::Elsewhere);
        // SAFETY: nothing is enqueued here.
        let section = entry.named(unsafe { entry.submit_watched(&self.core, &mut submission, grown) })?;
        Ok((self.core.raw(), section))
    }

    /// Submits another library's operation through `submit`. A step that has recorded calls with a key does not make them again,
    /// and then we return the value beside the key.
    #[inline(never)]
    fn submit_external<R, S, E: From<Error>>(
        &self,
        entry: &StreamEntry<'_>,
        accesses: &[&Access<'_>],
        call: impl FnOnce(RawStream) -> Result<R, E>,
        key: Option<(u64, R)>,
        submit: impl FnOnce(&mut Operation<'_>) -> Result<S>,
    ) -> Result<(R, S), E> {
        let (key, recorded) =
            key.map(|(key, value)| (ExternalKey::new(entry.caller.call_site, key), value)).unzip();
        let (mut call, mut outcome) = (Some(call), None);
        let mut calls = |raw| {
            let Some(call) = call.take() else { return Err(called_twice()) };
            let checked = lint::is_on().then(|| self.is_driver_capturing(raw));
            let result = call(raw);
            let failed = result.is_err();
            outcome = Some(result);
            if checked.is_some_and(|before| before != self.is_driver_capturing(raw)) {
                return Err(capture_changed());
            }
            if failed { Err(not_enqueued()) } else { Ok(()) }
        };
        let submitted = submit(&mut Operation::new(
            &entry.caller,
            accesses,
            DriverCalls::External { calls: &mut calls, key },
        ));
        match (outcome, submitted, recorded) {
            (Some(Ok(value)), Ok(submitted), _) | (None, Ok(submitted), Some(value)) => {
                Ok((value, submitted))
            }
            (Some(Err(error)), ..) => Err(error),
            (_, submitted, _) => {
                entry.named(Err(submitted.err().unwrap_or_else(not_enqueued))).map_err(E::from)
            }
        }
    }

    /// Makes the work that you submit from now on wait for another library's event (`cuStreamWaitEvent`), which must have been
    /// recorded. Does not block. For the other direction there is [`Event::as_raw`](crate::Event::as_raw).
    ///
    /// # Errors
    /// [`ErrorKind::NotANode`] in a node of a graph that you build.
    ///
    /// # Safety
    /// `event` must be alive and recorded. It must belong to this device's context, or to one whose events this driver can wait
    /// for. In a capture, it must have been recorded in that capture.
    #[track_caller]
    pub unsafe fn wait_raw(&self, event: RawEvent) -> Result<()> {
        let device = self.device.raw();
        // SAFETY: the caller promises this of the event; the call goes to the stream that it is given.
        unsafe { self.external("wait_raw", (), |raw, ()| device.stream_wait_event(raw, event)) }
    }

    /// Returns a place to report that another library's work has failed. It is for work that was submitted to this stream
    /// before this call.
    ///
    /// Work that was enqueued without an error may still fail later, for example because a connection to another host ended.
    /// Then only a wait can report it. If you keep the failure here, the next wait for this stream returns it, and so does the
    /// next wait for each stream that comes after the work. The place may outlive the stream.
    ///
    /// ```
    /// use gpustream::{Error, ErrorKind};
    /// # let device = gpustream::Device::open("cpu")?;
    /// # let (stream, other) = (device.stream()?, device.stream()?);
    /// let x = stream.upload(&[1.0f32, 2.0])?;
    /// let failures = stream.failures();
    /// other.wait(&stream.record()?)?;
    /// // Later, on a thread that watches the work:
    /// failures.keep(Error::external("the other host is gone"));
    ///
    /// for stream in [stream, other] {
    ///     let error = stream.synchronize().unwrap_err();
    ///     assert_eq!((error.kind(), error.message()), (ErrorKind::External, "the other host is gone"));
    ///     stream.synchronize()?;                        // each stream reports a failure once
    /// }
    /// # Ok::<(), gpustream::Error>(())
    /// ```
    pub fn failures(&self) -> Failures {
        let point = Point { stream: self.core.id, number: self.core.counted() };
        Failures { list: self.core.failures.clone(), point }
    }

    /// Returns true if work that you submit now is recorded, into a capture or a node, instead of being run. A library asks
    /// this before it allocates or waits.
    pub fn is_recorded(&self) -> bool {
        self.core.is_recorded()
    }

    /// Returns true while a [`Replay`](crate::Replay) runs a step on this stream. A library asks this before it computes a
    /// [key](Self::external_keyed), because nobody reads the key anywhere else.
    pub fn is_in_step(&self) -> bool {
        self.core.is_in_step()
    }

    /// Returns true if the driver is capturing the stream, or `None` if it does not say.
    #[cold]
    fn is_driver_capturing(&self, raw: RawStream) -> Option<bool> {
        // SAFETY: the stream is alive.
        unsafe { self.device.raw().is_capturing(raw) }.ok()
    }

    /// Returns the accesses among `memory`, without the values.
    #[inline]
    pub(crate) fn accesses<'a>(
        &self,
        entry: &StreamEntry<'_>,
        memory: &'a [Arg<'_>],
    ) -> Result<Accesses<'a>> {
        let mut uses = Accesses::new();
        for (access, device) in memory.iter().filter_map(Arg::access) {
            entry.named(self.check_reaches(device, access.block.kind, "memory of an external operation"))?;
            uses.push(access);
        }
        Ok(uses)
    }
}

/// Returns the error that we give the core if another library's calls failed. The caller gets the calls' own error.
#[cold]
fn called_twice() -> Error {
    Error::new(ErrorKind::Driver, "another library's calls were to be made twice; please report this bug")
}

#[cold]
fn not_enqueued() -> Error {
    Error::new(ErrorKind::Driver, "another library's calls failed")
}

/// The place for failures of other libraries' work in a stream, which later waits report: see [`Stream::failures`].
///
/// A `Failures` is `Send` and `Sync`. Dropping it reports nothing.
#[derive(Clone)]
pub struct Failures {
    list: Arc<core::Failures>,
    /// The last operation of the stream when this value was made.
    point: Point,
}

impl Failures {
    /// Keeps a failure until a wait reports it: [`Stream::synchronize`], a download, [`Event::synchronize`](crate::Event), or a
    /// future of the stream. If you have kept several, that wait reports the last one, as with host closures that panicked.
    /// Other streams that come after the work report the first one that this stream has not reported yet. The process keeps 64
    /// failures for them.
    pub fn keep(&self, error: Error) {
        self.list.keep_at(self.point, error);
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failures").finish_non_exhaustive()
    }
}

#[cold]
fn capture_changed() -> Error {
    Error::new(
        ErrorKind::Captured,
        "another library's calls began or ended a capture of the stream that they were given; capture around the whole call \
         with `Stream::capture`",
    )
}
