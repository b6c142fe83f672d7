//! Devices: finding, opening, and what belongs to one.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use gpustream_hal::{
    self as hal, Backend, DefaultStream, DeviceInfo, Error, ErrorKind, PinnedOptions, RawStream, Result,
    StreamOptions, WaitPolicy,
};

use crate::host_call;
use crate::lint;
use crate::memory::Kind;
use crate::pinned::Pinned;
use crate::pool::{Memory, MemoryOptions, MemoryPool, MemorySnapshot, MemoryStats};
use crate::staging::{self, Staging, StagingOptions};
use crate::stream::Stream;
use crate::stream_core::{StreamCore, StreamTable};
use crate::sync::lock;
use crate::track::{Point, StreamId};
use crate::{Flag, Module, ModuleSource};

/// Who orders operations that touch the same memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tracking {
    /// The library: it adds the waits that are missing, and only those.
    #[default]
    Auto,
    /// The user: a missing wait is an [`ErrorKind::Hazard`] that names both operations with file and line.
    Strict,
    /// Nobody checks; see [`DeviceOptions::without_tracking`].
    #[doc(hidden)]
    Off,
}

/// How to open a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    tracking: Tracking,
    wait: WaitPolicy,
    memory: MemoryOptions,
    staging: StagingOptions,
}

impl DeviceOptions {
    /// Sets who orders operations.
    #[must_use]
    pub fn tracking(mut self, tracking: Tracking) -> Self {
        if tracking != Tracking::Off {
            self.tracking = tracking;
        }
        self
    }

    /// Sets how host threads wait, for streams, events and pinned memory; [`Stream::record_with`] sets it for one
    /// event. The driver's own setting belongs to the whole process and stays as it is.
    #[must_use]
    pub fn wait(mut self, wait: WaitPolicy) -> Self {
        self.wait = wait;
        self
    }

    /// Sets where device memory comes from. Without this, the environment variable `GPUSTREAM_POOL` (`driver`,
    /// `none`) may.
    #[must_use]
    pub fn pool(mut self, pool: MemoryPool) -> Self {
        self.memory.pool = pool;
        self
    }

    /// Sets how many bytes of device memory this device may reserve at most; beyond that allocations fail as if the
    /// device had no more.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory.limit = Some(bytes);
        self
    }

    /// Sets how many bytes of pinned memory a stream's uploads may have under way: past that they wait for the
    /// device. Without this it is `GPUSTREAM_STAGING_MIB`, or else 4 MiB for each thread that copies. Of that a stream
    /// keeps at most a quarter, and 4 MiB, for its next copies, until [`Device::trim`] or, where several threads have
    /// copied, ten seconds without such a copy.
    #[must_use]
    pub fn staging_ring(mut self, bytes: usize) -> Self {
        self.staging.ring = bytes;
        self
    }

    /// Sets how many threads copy ordinary slices, the calling one included. Without this it is
    /// `GPUSTREAM_STAGING_THREADS`, or else half of the machine's cores, at most 8. The others are started by the
    /// first copy that is worth it, and end when there has been none for ten seconds; the pinned memory goes with
    /// them.
    #[must_use]
    pub fn staging_threads(mut self, threads: usize) -> Self {
        self.staging.threads = threads;
        self
    }

    /// Neither adds waits nor checks for them. Memory is still freed only after its last use.
    ///
    /// # Safety
    /// The caller orders all operations of different streams that touch the same memory, host access included.
    #[must_use]
    pub unsafe fn without_tracking(mut self) -> Self {
        self.tracking = Tracking::Off;
        self
    }
}

/// Something whose last handle is gone, and the ends of all streams at that moment: once those are reached
/// nothing uses it any more.
struct Parked {
    /// Only ever dropped.
    _what: Box<dyn Send>,
    until: Vec<Point>,
}

/// What all handles of one opened device share.
pub(crate) struct DeviceCore {
    pub(crate) raw: Arc<dyn hal::Device>,
    pub(crate) info: DeviceInfo,
    pub(crate) tracking: Tracking,
    pub(crate) wait: WaitPolicy,
    /// Every operation is waited for, so that a fault is reported by the one that caused it.
    pub(crate) blocking: bool,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) staging: Staging,
    parked: Mutex<Vec<Parked>>,
    /// Other devices of the backend by ordinal, and whether this one reaches their memory.
    peers: Mutex<HashMap<usize, bool>>,
    /// Whether streams of other devices have used this one's memory.
    visited: AtomicBool,
}

impl DeviceCore {
    #[inline]
    pub(crate) fn stream(&self, id: StreamId) -> Option<Arc<StreamCore>> {
        self.streams.get(id)
    }

    pub(crate) fn own_streams(&self) -> Vec<Arc<StreamCore>> {
        self.streams.filter(|stream| self.owns(stream))
    }

    /// Whether this device's streams may use memory of `other`: its own, or that of a device of the same backend
    /// which it can reach. Access is turned on at the first use.
    #[inline]
    pub(crate) fn reaches(&self, other: &Self, kind: Kind) -> Result<bool> {
        if std::ptr::eq(self, other) { Ok(true) } else { self.reaches_peer(other, kind) }
    }

    #[cold]
    fn reaches_peer(&self, other: &Self, kind: Kind) -> Result<bool> {
        host_call::check_outside()?;
        if self.info.backend != other.info.backend {
            return Ok(false);
        }
        let ordinal = other.info.ordinal;
        // What the driver's pool gives is not among the memory that access is turned on for.
        if ordinal != self.info.ordinal && other.memory.is_of_driver(kind) {
            return Ok(false);
        }
        let mut peers = lock(&self.peers);
        let known = peers.get(&ordinal).copied();
        let reaches = if let Some(known) = known {
            known
        } else {
            // Opened twice, it is one device with one address space.
            let same = ordinal == self.info.ordinal;
            let reaches = same || self.raw.can_access_peer(ordinal)?;
            if reaches && !same {
                self.raw.enable_peer_access(ordinal)?;
            }
            peers.insert(ordinal, reaches);
            reaches
        };
        drop(peers);
        if reaches {
            other.visit();
        }
        Ok(reaches)
    }

    /// Those that may use what belongs to this device: its own, and the backend's others if any has.
    fn users(&self) -> Vec<Arc<StreamCore>> {
        let visited = self.visited.load(Ordering::Acquire);
        self.streams.filter(|stream| {
            self.owns(stream) || visited && stream.device.info().backend == self.info.backend
        })
    }

    /// Those of them that are other devices'.
    pub(crate) fn visitors(&self) -> Vec<Arc<StreamCore>> {
        let mut users = self.users();
        users.retain(|stream| !self.owns(stream));
        users
    }

    fn owns(&self, stream: &StreamCore) -> bool {
        Arc::ptr_eq(&stream.device, &self.raw)
    }

    /// A stream of another device uses memory of this one.
    pub(crate) fn visit(&self) {
        self.visited.store(true, Ordering::Release);
    }

    /// Asks the driver which streams are idle, and lets go of what waited for that.
    pub(crate) fn refresh(&self) {
        for stream in self.own_streams() {
            // An error says nothing about being done; whoever waits next is told.
            let _ = stream.query();
        }
        self.sweep();
    }

    /// Asks the driver how far each stream has come, and marks its end so that the next look can tell more.
    pub(crate) fn look(&self) {
        for stream in self.users() {
            stream.look();
        }
        self.sweep();
    }

    fn sweep(&self) {
        if host_call::is_inside() {
            return;
        }
        self.streams.sweep(&self.raw);
        let done = |parked: &Parked| parked.until.iter().all(|&point| self.streams.is_known_done(point));
        let free: Vec<Parked> = lock(&self.parked).extract_if(.., |parked| done(parked)).collect();
        // Dropped with no lock held: a graph's closures may own anything.
        drop(free);
    }

    /// Keeps `what` until everything submitted so far is done.
    fn park(&self, what: Box<dyn Send>) {
        // Streams of another device matter only if they have used what belongs to this one; nobody asks the driver
        // about them here, so this would wait for them without need.
        let until =
            self.users().into_iter().map(|stream| Point { stream: stream.id, number: stream.submitted() });
        let until = until.collect();
        lock(&self.parked).push(Parked { _what: what, until });
        self.refresh();
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        let streams = self.wait_idle()?;
        streams.iter().try_for_each(|stream| stream.report_panic())
    }

    /// As [`synchronize`](Self::synchronize), and leaves it to a later wait to report what panicked.
    pub(crate) fn wait_idle(&self) -> Result<Vec<Arc<StreamCore>>> {
        host_call::check_outside()?;
        let streams = self.own_streams();
        streams
            .iter()
            .try_for_each(|stream| stream.check_not_capturing("make the host wait for the whole device"))?;
        let ends: Vec<u64> = streams.iter().map(|stream| stream.submitted()).collect();
        self.raw.synchronize()?;
        streams.iter().zip(ends).for_each(|(stream, end)| stream.set_done(end));
        Ok(streams)
    }
}

/// Whether a wait with this outcome says that nothing runs any more: on a lost device nothing does.
pub(crate) fn has_ended(waited: &Result<()>) -> bool {
    waited.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::DeviceLost)
}

impl Drop for DeviceCore {
    /// Waits for the device's work, then returns everything to the driver.
    fn drop(&mut self) {
        let raw = self.raw.clone();
        let (table, streams) = (self.streams.clone(), self.own_streams());
        let visitors = self.visitors();
        let parked = std::mem::take(self.parked.get_mut().unwrap_or_else(PoisonError::into_inner));
        let memory = self.memory.clone();
        host_call::outside(move || {
            let idle = has_ended(&raw.synchronize()) || streams.iter().all(|it| has_ended(&it.wait_idle()));
            if !idle || !visitors.iter().all(|it| has_ended(&it.wait_for_end())) {
                // What may be in use stays with the process, and in the table the streams that may use it.
                return std::mem::forget((parked, memory));
            }
            // Not before: what is not in the table counts as done.
            table.take(|stream| Arc::ptr_eq(&stream.device, &raw));
            drop(parked);
            memory.close();
            for stream in &streams {
                stream.close();
            }
            drop(streams);
        });
    }
}

/// An opened device. Clones are handles of the same one; everything made from it keeps it open.
///
/// Dropping the last handle, streams and buffers included, waits for the device's work.
///
/// ```
/// let device = gpustream::Device::open("cpu")?;
/// println!("{device}");
/// # Ok::<(), gpustream::Error>(())
/// ```
#[derive(Clone)]
pub struct Device(pub(crate) Arc<DeviceCore>);

/// The backends compiled in, in the order in which [`Device::best`] tries them.
pub fn backends() -> Vec<&'static dyn Backend> {
    vec![
        #[cfg(feature = "cuda")]
        gpustream_cuda::backend(),
        #[cfg(feature = "hip")]
        gpustream_hip::backend(),
        #[cfg(feature = "cpu")]
        gpustream_cpu::backend(),
    ]
}

fn next_stream() -> StreamId {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    StreamId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Splits `cuda:1` into backend and ordinal.
fn parse_name(name: &str) -> Result<(&str, usize)> {
    let (backend, ordinal) = name.split_once(':').unwrap_or((name, "0"));
    let ordinal = ordinal.parse().map_err(|_| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "`{name}` is no device name; write a backend and a number, such as `cuda:0`, `hip:1` or `cpu`"
            ),
        )
    })?;
    Ok((backend, ordinal))
}

impl Device {
    /// Opens the device that the environment variable `GPUSTREAM_DEVICE` names, or else the first one present
    /// of `cuda:0`, `hip:0`, `cpu:0`.
    ///
    /// # Errors
    /// Whatever stands in the way of the named device. Without the variable, [`ErrorKind::NoDevice`] with every
    /// backend's own reason.
    pub fn best() -> Result<Self> {
        Self::best_with(DeviceOptions::default())
    }

    /// As [`best`](Self::best), with options.
    pub fn best_with(options: DeviceOptions) -> Result<Self> {
        host_call::check_outside()?;
        if let Some(name) = std::env::var_os("GPUSTREAM_DEVICE").filter(|name| !name.is_empty()) {
            let name = name.to_string_lossy();
            return Self::open_with(&name, options)
                .map_err(|error| error.with_context(format_args!("GPUSTREAM_DEVICE={name}")));
        }
        let mut reasons = String::new();
        for backend in backends() {
            match Self::open_on(backend, 0, options) {
                Ok(device) => return Ok(device),
                Err(error) => reasons += &format!("\n  {}: {}", backend.name(), error.message()),
            }
        }
        if reasons.is_empty() {
            reasons += "\n  no backend is compiled in: turn on one of the features `cpu`, `cuda`, `hip`";
        }
        Err(Error::new(ErrorKind::NoDevice, format!("no device can be opened:{reasons}")))
    }

    /// Opens a device by name: `cpu`, `cuda:0`, `hip:1`.
    ///
    /// Opening one device twice gives two values that share the driver's context and no objects.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a malformed name, [`ErrorKind::Unsupported`] for a backend that is not
    /// compiled in, [`ErrorKind::DriverMissing`] and [`ErrorKind::NoDevice`] with what was looked for.
    pub fn open(name: &str) -> Result<Self> {
        Self::open_with(name, DeviceOptions::default())
    }

    /// As [`open`](Self::open), with options.
    pub fn open_with(name: &str, options: DeviceOptions) -> Result<Self> {
        let (wanted, ordinal) = parse_name(name)?;
        let all = backends();
        if let Some(backend) = all.iter().find(|backend| backend.name() == wanted) {
            return Self::open_on(*backend, ordinal, options);
        }
        let names: Vec<_> = all.iter().map(|backend| backend.name()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "no backend named `{wanted}`: this program has {names}; the others are features of the crate \
                 gpustream (`cpu`, `cuda`, `hip`)"
            ),
        ))
    }

    /// Opens a device of any backend, a third party's included.
    pub fn open_on(backend: &dyn Backend, ordinal: usize, options: DeviceOptions) -> Result<Self> {
        host_call::check_outside()?;
        let raw = backend.open(ordinal).map_err(|error| error.with_backend(backend.name()))?;
        let info = raw.info().clone();
        let streams = StreamTable::shared().clone();
        let memory = Memory::new(raw.clone(), streams.clone(), options.memory.or_environment());
        Ok(Self(Arc::new(DeviceCore {
            raw,
            info,
            tracking: options.tracking,
            wait: options.wait,
            blocking: std::env::var_os("GPUSTREAM_BLOCKING").is_some_and(|value| value == "1"),
            streams,
            memory,
            staging: Staging::new(options.staging),
            parked: Mutex::default(),
            peers: Mutex::default(),
            visited: AtomicBool::new(false),
        })))
    }

    /// Opens every device of every backend; what cannot be opened is left out. Inside a host closure, that is all.
    pub fn all() -> Vec<Self> {
        let mut devices = Vec::new();
        if host_call::is_inside() {
            return devices;
        }
        for backend in backends() {
            let count = backend.device_count().unwrap_or(0);
            devices.extend(
                (0..count)
                    .filter_map(|ordinal| Self::open_on(backend, ordinal, DeviceOptions::default()).ok()),
            );
        }
        devices
    }

    /// Keeps `what` until everything submitted so far is done.
    pub(crate) fn park(&self, what: Box<dyn Send>) {
        let device = self.clone();
        // Asks the streams how far they are.
        host_call::outside(move || device.0.park(what));
    }

    /// What the device is and can do.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Makes a non-blocking stream of ordinary priority (`cuStreamCreateWithPriority`).
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// Makes a stream. The priority is clamped to what the device has.
    #[track_caller]
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        host_call::check_outside()?;
        if options.blocking_with_default {
            lint::serialises(
                "a stream that waits for the legacy default stream, and which that stream waits for",
            );
        }
        let (least, greatest) = self.0.info.stream_priorities;
        let options = options.with_priority(options.priority.clamp(greatest.min(least), least.max(greatest)));
        let raw = self.0.raw.stream_create(options)?;
        Ok(self.adopt(raw, true))
    }

    /// A stream the driver made: the legacy default stream, or this host thread's.
    ///
    /// A thread's stream can be used on that thread alone: on any other, submitting to it and waiting for it is an
    /// [`ErrorKind::InvalidArgument`]. Each submission to it records an event.
    ///
    /// Work on the legacy stream and on streams made with
    /// [`blocking_with_default`](StreamOptions::blocking_with_default) wait for each other.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the backend has none.
    #[track_caller]
    pub fn default_stream(&self, which: DefaultStream) -> Result<Stream> {
        host_call::check_outside()?;
        if which == DefaultStream::Legacy {
            lint::serialises("the legacy default stream waits for every blocking stream, and they for it");
        }
        let raw = self.0.raw.stream_default(which)?;
        if which == DefaultStream::Legacy {
            return Ok(self.adopt(raw, false));
        }
        let core = StreamCore::of_this_thread(next_stream(), raw, self.0.raw.clone(), self.0.wait);
        Ok(self.enter(core))
    }

    /// A stream that another library made and keeps: cudarc's, `PyTorch`'s, one that cuBLAS or hipBLAS was given. What
    /// either side submits runs in one order. It is not destroyed with the value.
    ///
    /// What the other side does to memory is not tracked.
    ///
    /// # Safety
    /// `raw` is a stream of this device's primary context, outlives the value (a leaked value lives on) and all work
    /// submitted through it, and is not being captured. The value is not dropped inside a host closure.
    pub unsafe fn stream_from_raw(&self, raw: RawStream) -> Stream {
        self.adopt(raw, false)
    }

    pub(crate) fn adopt(&self, raw: RawStream, owned: bool) -> Stream {
        self.enter(StreamCore::new(next_stream(), raw, self.0.raw.clone(), self.0.wait, owned))
    }

    fn enter(&self, core: StreamCore) -> Stream {
        let core = Arc::new(core);
        self.0.sweep();
        self.0.streams.insert(core.clone());
        Stream { core, device: self.clone() }
    }

    /// Allocates page-locked host memory for `len` elements, all zero bytes.
    #[track_caller]
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>> {
        Pinned::zeroed(self, len, PinnedOptions::default())
    }

    /// As [`pinned`](Self::pinned), with options.
    #[track_caller]
    pub fn pinned_with<T: Pod>(&self, len: usize, options: PinnedOptions) -> Result<Pinned<T>> {
        Pinned::zeroed(self, len, options)
    }

    /// Allocates page-locked host memory and copies `values` into it, on this thread.
    #[track_caller]
    pub fn pinned_from<T: Pod>(&self, values: &[T]) -> Result<Pinned<T>> {
        Pinned::from_slice(self, values)
    }

    /// Page-locks memory that the program allocated itself, in place (`cuMemHostRegister`): nothing is copied. Takes
    /// about as long as filling it would.
    ///
    /// The device may be using it when the value goes, so the value owns the memory: it is unlocked and freed at the
    /// first look after the last use is done, and leaking the value leaks the memory.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the driver cannot; the memory is freed on any failure.
    pub fn register<T: Pod>(&self, values: Vec<T>) -> Result<Pinned<T>> {
        Pinned::register(self, values)
    }

    /// Makes a flag that the host and running kernels can both read and write at any time.
    #[track_caller]
    pub fn flag(&self) -> Result<Flag> {
        Flag::new(self)
    }

    /// Loads kernels: the best of the images for this device, or the source compiled at run time.
    ///
    /// # Errors
    /// [`ErrorKind::NoImageForDevice`] with the images there are and what the device wants;
    /// [`ErrorKind::InvalidModule`] for damaged bytes or source that does not compile.
    pub fn load_module(&self, source: &ModuleSource<'_>) -> Result<Module> {
        Module::load(self, source)
    }

    /// Blocks until all work of the device is done, this process's other users of its context included
    /// (`cuCtxSynchronize`).
    ///
    /// # Errors
    /// [`ErrorKind::DeviceLost`] where any of it failed, [`ErrorKind::HostPanic`] where a host closure panicked.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        lint::serialises("waiting for the whole device; wait for a stream or an event instead");
        self.0.synchronize()
    }

    /// Free and total device memory at this moment, in bytes (`cuMemGetInfo`). What this library keeps for the
    /// next allocations counts as taken; see [`trim`](Self::trim).
    pub fn memory(&self) -> Result<(u64, u64)> {
        host_call::check_outside()?;
        self.0.raw.memory()
    }

    /// How much device memory this library holds.
    pub fn memory_stats(&self) -> MemoryStats {
        self.0.memory.stats(Kind::Device)
    }

    /// How much page-locked host memory this library holds for this device, write-combined memory not included.
    pub fn pinned_stats(&self) -> MemoryStats {
        self.0.memory.stats(Kind::Pinned)
    }

    /// Who holds the device memory: by line of the program, most bytes first.
    pub fn memory_snapshot(&self) -> MemorySnapshot {
        self.0.memory.snapshot(Kind::Device)
    }

    /// Returns slabs of which nothing is used any more to the driver, pinned ones too; says how many bytes. May synchronise the
    /// device (`cuMemFree` does). Inside a host closure it does nothing.
    #[track_caller]
    pub fn trim(&self) -> u64 {
        if host_call::is_inside() {
            return 0;
        }
        if self.0.info.free_synchronizes {
            lint::serialises("returning memory to the driver waits for all work of the device");
        }
        self.0.refresh();
        staging::let_go(&self.0);
        self.0.memory.trim_all(&self.0)
    }

    /// Whether both are handles of one opened device.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The backend's own device, for calls this crate does not offer.
    pub fn raw(&self) -> &Arc<dyn hal::Device> {
        &self.0.raw
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}:{})", self.0.info.backend, self.0.info.ordinal)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.info.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(parse_name("cpu").unwrap(), ("cpu", 0));
        assert_eq!(parse_name("hip:3").unwrap(), ("hip", 3));
        for bad in ["cuda:", "cuda:x", "cuda:-1", "cuda:1:2"] {
            assert_eq!(parse_name(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad}");
        }
    }
}
