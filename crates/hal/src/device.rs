//! Devices: what they can do, and how a backend finds and opens them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{
    Buffers, Events, Exports, Fill, Graphs, Identity, Launch, Modules, PciAddress, RawStream, Result,
    Streams, Textures, Traces, Work,
};

/// How much device memory there is right now, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that the driver can still give out.
    pub free: u64,
    /// Bytes that the device has.
    pub total: u64,
}

/// The range of stream priorities. Lower numbers are more urgent. Both are 0 if the device has no priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPriorities {
    /// The least urgent priority, the largest number.
    pub least: i32,
    /// The most urgent priority, the smallest number.
    pub greatest: i32,
}

/// An opened device: all the traits together, and the facts that we know about the device.
///
/// Threads share an implementation, and everything that you make from it keeps it alive.
///
/// # Safety
/// Depending on these answers, the safe crate frees memory, lends it to the host or hands it to other work. So if you
/// implement this, you promise what the documentation of every method and of [`DeviceInfo`] says, and in particular:
/// [`synchronize`](Self::synchronize) succeeds, or answers [`DeviceLost`](crate::ErrorKind::DeviceLost), only when nothing
/// on this device touches memory any more; the facts in [`info`](Self::info) never change; and
/// [`can_access_peer`](Self::can_access_peer) is true only for devices whose handles this one understands.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Device:
    Streams + Events + Buffers + Exports + Textures + Modules + Launch + Graphs + Traces + Send + Sync
{
    /// Returns the facts about the device. The backend read them once, when it opened the device.
    fn info(&self) -> &DeviceInfo;

    /// Returns a number for the driver's context. If two devices of a backend return the same number, they share the
    /// context's streams: a handle means the same driver stream on both.
    fn context(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Makes the driver's context current on this thread (`cuCtxSetCurrent`, `hipSetDevice`), so that you can call other
    /// libraries. The methods of these traits do not need it.
    ///
    /// # Errors
    /// The driver's failure.
    fn enter(&self) -> Result<()> {
        Ok(())
    }

    /// Blocks until all work on the device is done or has failed (`cuCtxSynchronize`, `hipDeviceSynchronize`). If some has
    /// failed, other work may still be running: see [`has_stopped`](Self::has_stopped).
    ///
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) if any of it failed.
    fn synchronize(&self) -> Result<()>;

    /// Returns true if the device is lost, and we know that it runs nothing now and never will. Then you can free the memory
    /// that its work could reach, or let others use it. You cannot conclude that from a wait that fails with
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost), because drivers report a fault while kernels on other streams may still
    /// be running. If a backend cannot tell, it must answer no, and the process keeps the memory that pending work could
    /// reach.
    fn has_stopped(&self) -> bool {
        false
    }

    /// Returns how much device memory is free right now, and how much there is (`cuMemGetInfo`, `hipMemGetInfo`).
    ///
    /// # Errors
    /// The driver's failure.
    fn memory(&self) -> Result<MemoryInfo>;

    /// Returns true if this device can read and write the memory of `other`, a device of the same backend
    /// (`cuDeviceCanAccessPeer`, `hipDeviceCanAccessPeer`). A device is not its own peer.
    ///
    /// # Errors
    /// [`NoDevice`](crate::ErrorKind::NoDevice) if the driver finds no device `other`; otherwise the driver's failure.
    fn can_access_peer(&self, other: usize) -> Result<bool> {
        Ok(false)
    }

    /// Makes the memory of `other` reachable from this device (`cuCtxEnablePeerAccess`). Succeeds if it already is.
    ///
    /// # Errors
    /// [`NoDevice`](crate::ErrorKind::NoDevice) if there is no device `other`;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if this device cannot reach that memory.
    fn enable_peer_access(&self, other: usize) -> Result<()> {
        Err(crate::Error::unsupported("peer access"))
    }
}

impl Work<'_> {
    /// Submits the operation to `stream`, with one driver call.
    ///
    /// # Errors
    /// The errors of the method of `device` that the operation names.
    ///
    /// # Safety
    /// As for the method of `device` that the operation names.
    #[inline]
    pub unsafe fn enqueue(&self, device: &dyn Device, stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe {
            match *self {
                Self::Kernel { function, config, args } => device.launch(function, config, args, stream),
                Self::Copy(copy) => copy.enqueue(device, stream),
                Self::CopyInline { dst, src, bytes } => device.copy_inline(dst, src, bytes, stream),
                Self::CopyFromPeer { dst, src, src_ordinal, bytes } => {
                    device.copy_from_peer(dst, src, src_ordinal, bytes, stream)
                }
                Self::Copy3d(copy) => device.copy_3d(copy, stream),
                Self::Fill(Fill { dst, pattern, count }) => device.fill(dst, pattern, count, stream),
                Self::Host { function, data } => device.stream_host_fn(stream, function, data),
                Self::HostParts { function, data, parts } => {
                    device.stream_host_parts(stream, function, data, parts)
                }
                Self::Prefetch { buffer, bytes, to_device } => {
                    device.managed_prefetch(buffer, bytes, to_device, stream)
                }
                Self::WaitValue { address, until } => device.stream_wait_value32(stream, address, until),
                Self::WriteValue { address, value } => device.stream_write_value32(stream, address, value),
            }
        }
    }
}

/// The name of a backend, as you write it in `GPUSTREAM_DEVICE`.
///
/// ```
/// use gpustream_hal::BackendName;
///
/// assert_eq!(BackendName::CUDA.to_string(), "cuda");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendName(&'static str);

impl BackendName {
    /// The threads of this machine.
    pub const CPU: Self = Self("cpu");
    /// NVIDIA, through libcuda.
    pub const CUDA: Self = Self("cuda");
    /// AMD, through libamdhip64.
    pub const HIP: Self = Self("hip");

    /// Makes the name of another backend.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name as text.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl From<BackendName> for &'static str {
    fn from(name: BackendName) -> Self {
        name.0
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A vendor's driver: finds and opens devices. One static value per backend crate.
///
/// # Safety
/// The safe crate passes handles between devices with the same [`DeviceInfo::backend`], and treats the streams of one
/// [`Device`] value as the streams of one handle. So if you implement this, you promise that [`open`](Self::open) makes a
/// new value each time, that its devices have [`name`](Self::name) as their backend and the ordinal that you opened, and
/// that no other driver's devices have that name.
pub unsafe trait Backend: Send + Sync {
    /// Returns the name that you write in `GPUSTREAM_DEVICE`: `cpu`, `cuda`, `hip`.
    fn name(&self) -> BackendName;

    /// Returns how many devices the driver has.
    ///
    /// # Errors
    /// [`DriverMissing`](crate::ErrorKind::DriverMissing) if we found no library, with what we tried and what to install;
    /// [`NoDevice`](crate::ErrorKind::NoDevice) if there are zero devices. After any other error, such as
    /// [`DriverUnusable`](crate::ErrorKind::DriverUnusable), there may be a device, so the safe crate does not go on to
    /// another backend by itself.
    fn device_count(&self) -> Result<usize>;

    /// Opens device `ordinal`. If you open it twice, you get two values that share one primary context.
    ///
    /// # Errors
    /// As for [`device_count`](Self::device_count); [`NoDevice`](crate::ErrorKind::NoDevice) if the number is too high;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the environment has a setting that is not allowed.
    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>>;

    /// Returns the names that the vendor's tools use for device `ordinal`. It must not open the device, because a context
    /// takes time and memory, and most devices that we ask are not the one that you want.
    ///
    /// # Errors
    /// As for [`open`](Self::open). If the driver cannot tell a name, that is not an error.
    fn identity(&self, ordinal: usize) -> Result<Identity> {
        let _ = ordinal;
        Ok(Identity::default())
    }

    /// Returns the driver library that is open. `None` if there is none, or if the backend needs none.
    fn library(&self) -> Option<DriverLibrary> {
        None
    }

    /// Says that the process is going to be traced, because a library that measures may have to be there before the driver
    /// starts. We call it before anything else of the backend, and may call it again. If the library is missing,
    /// [`trace_begin`](crate::Traces::trace_begin) reports that.
    fn expect_traces(&self) {}

    /// Returns what we found of the driver and the run-time compiler, so that you can see what is wrong. Never fails.
    fn probe(&self) -> Probe;
}

/// The driver library that a backend has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverLibrary {
    /// Its file.
    pub path: PathBuf,
    /// The name that led us there: a name that the linker resolved, a path, or an environment variable and the path in it.
    pub found_by: String,
}

/// What a backend found on this machine, as `gpustream doctor` prints it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Probe {
    /// The driver library that was opened.
    pub library: Option<PathBuf>,
    /// The names and paths that we tried, in order.
    pub tried: Vec<String>,
    /// Driver version as the vendor writes it.
    pub driver_version: Option<String>,
    /// Run-time version as the vendor writes it.
    pub runtime_version: Option<String>,
    /// The run-time compiler's library and version, if one was found.
    pub runtime_compiler: Option<String>,
    /// The library that measures when operations run, with its version, if we found one. Otherwise we measure with events.
    pub tracer: Option<String>,
    /// Why you cannot use the backend, and what to do about it.
    pub problem: Option<String>,
}

/// What we know about a device, and what it can do.
///
/// Sizes are in bytes. If a backend cannot tell a value, the field holds the least ability.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The backend that opened the device.
    pub backend: BackendName,
    /// The device's number within its backend.
    pub ordinal: usize,
    /// The vendor's product name.
    pub name: String,
    /// The target that kernels are compiled for: `sm_90`, `gfx942`, `x86-64-v3`, `aarch64`.
    pub arch: String,
    /// The driver's version, as the vendor writes it.
    pub driver: String,
    /// The UUID as the vendor's tools write it. A MIG instance has its own: see [`Identity::uuid`]. `None` if the driver
    /// does not tell.
    pub uuid: Option<String>,
    /// Where it is on the PCI bus. All instances of a divided GPU have the GPU's place. `None` if the driver does not tell.
    pub pci: Option<PciAddress>,
    /// Total device memory.
    pub total_memory: u64,
    /// Multiprocessors (CUDA), compute units (HIP), worker threads (CPU).
    pub multiprocessors: u32,
    /// Threads that execute in lockstep: 32, or 64 on AMD's data-centre devices.
    pub warp_size: u32,
    /// What a kernel, a block or a stream can have at most.
    pub limits: DeviceLimits,
    /// What the device and its driver can do.
    pub features: DeviceFeatures,
    /// What is peculiar about the device or its driver, so that you and we can use it well.
    pub quirks: DeviceQuirks,
}

/// What a kernel, a block or a stream can have at most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// How many threads one block can have, over all dimensions.
    pub max_threads_per_block: u32,
    /// How many threads can be resident on one multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// How many threads a block can have in each dimension.
    pub max_block: [u32; 3],
    /// How many blocks a grid can have in each dimension.
    pub max_grid: [u32; 3],
    /// How many bytes a kernel's parameters can have.
    pub parameter_bytes: u32,
    /// How much shared memory a block may use without asking.
    pub shared_memory_per_block: u32,
    /// How much shared memory a block may use after opting in. At least as much as the field above.
    pub shared_memory_per_block_optin: u32,
    /// Shared memory of one multiprocessor.
    pub shared_memory_per_multiprocessor: u32,
    /// Second-level cache.
    pub l2_cache: u32,
    /// How many copy engines can run at the same time as kernels: 0 none, 1 one direction at a time, 2 or more both.
    pub async_engine_count: u32,
    /// The priorities that streams can have.
    pub stream_priorities: StreamPriorities,
    /// How many hardware queues the streams share. If a stream is blocked by a host function or a kernel that waits, it
    /// holds up the streams that share its queue. 0 if a blocked stream can only hold up itself.
    pub hardware_queues: u32,
    /// How many bytes [`copy_inline`](crate::Buffers::copy_inline) can take so that it costs no more than a copy from
    /// page-locked memory. 0 if there is no such copy.
    pub inline_copies: usize,
}

/// What a device and its driver can do. [`Default`] has none of it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceFeatures {
    /// Whether kernels of different streams can run at the same time.
    pub concurrent_kernels: bool,
    /// Whether the driver has stream-ordered memory pools.
    pub memory_pools: bool,
    /// Whether host and device can use managed (migrating) memory at the same time.
    pub managed_memory: bool,
    /// Whether a cooperative launch (grid-wide barrier) is possible.
    pub cooperative_launch: bool,
    /// Whether blocks can be grouped into clusters.
    pub cluster_launch: bool,
    /// Whether a kernel can start before its predecessor in the stream has ended.
    pub early_dependent_launch: bool,
    /// Whether this device can reach the memory of at least one other device of its backend.
    pub peer_access: bool,
    /// Whether host functions of different streams run at the same time. If not, one waits until another ends, and you
    /// cannot rely on the order in which you submitted them.
    pub concurrent_host_functions: bool,
    /// Whether a stream can wait for a word in memory (`cuStreamWaitValue32`).
    pub stream_wait_value: bool,
    /// Whether graphs can have conditional nodes (`CU_GRAPH_NODE_TYPE_CONDITIONAL`).
    pub conditional_nodes: bool,
    /// Whether kernels can use textures and surfaces (`hipDeviceAttributeImageSupport`).
    pub textures: bool,
    /// Whether memory can be shared with other processes.
    pub shared_memory: bool,
}

/// What is peculiar to a device or its driver. [`Default`] has none of it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceQuirks {
    /// Whether the threads of a block run one after the other. If so, use few threads with long contiguous work.
    pub serial_threads: bool,
    /// Whether the device looks for accesses outside allocations, and outside of the memory that
    /// [`launch_within`](crate::Launch::launch_within) names. If so, we ask it for the exact length of each allocation,
    /// which may be zero. It aligns an allocation to 16 bytes, or to the largest power of two up to 256 that divides the
    /// length.
    pub checked: bool,
    /// Whether freeing (`cuMemFree`) waits for all work of the device.
    pub free_synchronizes: bool,
    /// A known fault in this driver's graphs, if there is one. Then we do not use graphs just because they are faster, and
    /// the text says why.
    pub graph_fault: Option<&'static str>,
    /// True if, during a capture, you must not use the events that were recorded earlier on its streams. In HIP an event
    /// remembers its stream. While that stream is captured, the capture breaks if a thread asks about the event or waits for
    /// it (`hipErrorCapturedEvent`), and HIP refuses to let another stream wait for it (`hipErrorStreamCaptureIsolation`).
    /// The newest sources no longer break the capture, but they still refuse the wait. So we capture another stream instead.
    pub capture_closes_events: bool,
    /// True if a capture cannot end once its streams have waited for each other in a circle. For each stream but the first,
    /// every version of HIP so far notes which stream it waited for. HIP ends a stream together with those that waited for
    /// it, and follows a circle until the thread's stack is full (`hip::Stream::EndCapture`). So we route such waits through
    /// the capture's first stream.
    pub capture_follows_waits: bool,
}

impl Default for DeviceLimits {
    /// Returns limits that every device has.
    fn default() -> Self {
        Self {
            max_threads_per_block: 1024,
            max_threads_per_multiprocessor: 1024,
            max_block: [1024, 1024, 64],
            max_grid: [0x7fff_ffff, 65_535, 65_535],
            parameter_bytes: 4096,
            shared_memory_per_block: 48 << 10,
            shared_memory_per_block_optin: 48 << 10,
            shared_memory_per_multiprocessor: 48 << 10,
            l2_cache: 0,
            async_engine_count: 0,
            stream_priorities: StreamPriorities { least: 0, greatest: 0 },
            hardware_queues: 0,
            inline_copies: 0,
        }
    }
}

impl DeviceInfo {
    /// Returns facts with the least abilities; backends fill in what they know.
    pub fn new(backend: BackendName, ordinal: usize) -> Self {
        Self {
            backend,
            ordinal,
            name: String::new(),
            arch: String::new(),
            driver: String::new(),
            uuid: None,
            pci: None,
            total_memory: 0,
            multiprocessors: 1,
            warp_size: 32,
            limits: DeviceLimits::default(),
            features: DeviceFeatures::default(),
            quirks: DeviceQuirks::default(),
        }
    }
}

impl fmt::Display for DeviceInfo {
    /// `cuda:0 NVIDIA H200 (sm_90, 139.8 GiB, 132 multiprocessors)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = self.total_memory as f64 / (1u64 << 30) as f64;
        write!(
            f,
            "{}:{} {} ({}, {gib:.1} GiB, {} multiprocessors)",
            self.backend, self.ordinal, self.name, self.arch, self.multiprocessors
        )
    }
}
