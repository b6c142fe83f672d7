//! Devices: their abilities, and the way a backend finds and opens them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{
    Buffers, Events, Exports, Graphs, Identity, Launch, Modules, PciAddress, RawStream, Result, Streams,
    Textures, Traces, Work,
};

/// Device memory at a moment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that the driver can still give out.
    pub free: u64,
    /// Bytes that the device has.
    pub total: u64,
}

/// The range of stream priorities; lower numbers are more urgent. Both are 0 where a device has no priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPriorities {
    /// The least urgent priority, the largest number.
    pub least: i32,
    /// The most urgent priority, the smallest number.
    pub greatest: i32,
}

/// An opened device: the sum of the traits, and the facts known about the device.
///
/// Implementations are shared between threads and kept alive by everything made from them.
///
/// # Safety
/// The safe crate frees memory, lends it to the host and hands it to other work on the strength of the answers, so an
/// implementor promises what the documentation of every method and of [`DeviceInfo`] says, and in particular:
/// [`synchronize`](Self::synchronize) succeeds, or answers [`DeviceLost`](crate::ErrorKind::DeviceLost), only when
/// nothing of this device touches memory any more; the facts in [`info`](Self::info) never change;
/// [`can_access_peer`](Self::can_access_peer) is true only of devices whose handles this one understands.
#[expect(unused_variables, reason = "the names in the defaults are documentation")]
pub unsafe trait Device:
    Streams + Events + Buffers + Exports + Textures + Modules + Launch + Graphs + Traces + Send + Sync
{
    /// Returns the facts about the device, which were read once, at opening.
    fn info(&self) -> &DeviceInfo;

    /// Returns a number for the driver's context. Devices of a backend that answer the same share the context's
    /// streams: a stream's handle means one stream of the driver's on all of them.
    fn context(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Makes the driver's context current on this thread (`cuCtxSetCurrent`, `hipSetDevice`), for calls to other libraries.
    /// The methods of these traits need no such call.
    ///
    /// # Errors
    /// The driver's failure.
    fn enter(&self) -> Result<()> {
        Ok(())
    }

    /// Blocks until all work submitted to the device is done (`cuCtxSynchronize`, `hipDeviceSynchronize`), or has
    /// failed, which does not say that all of it has ended: see [`has_stopped`](Self::has_stopped).
    ///
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) if any of it failed.
    fn synchronize(&self) -> Result<()>;

    /// Returns whether the device is lost and known to run nothing any more, nor ever again: memory that its work could
    /// reach may then be freed and used by others. A wait that fails with [`DeviceLost`](crate::ErrorKind::DeviceLost)
    /// does not say so: drivers report a fault while kernels of other streams may still be at work. Where a backend
    /// cannot tell, the answer is no, and memory that pending work could reach stays with the process.
    fn has_stopped(&self) -> bool {
        false
    }

    /// Returns free and total device memory at this moment (`cuMemGetInfo`, `hipMemGetInfo`).
    ///
    /// # Errors
    /// The driver's failure.
    fn memory(&self) -> Result<MemoryInfo>;

    /// Returns whether this device can read and write the memory of `other`, a device of the same backend
    /// (`cuDeviceCanAccessPeer`, `hipDeviceCanAccessPeer`). A device is no peer of its own.
    ///
    /// # Errors
    /// [`NoDevice`](crate::ErrorKind::NoDevice) if the driver finds no device `other`; otherwise its failure.
    fn can_access_peer(&self, other: usize) -> Result<bool> {
        Ok(false)
    }

    /// Makes the memory of `other` reachable from this device (`cuCtxEnablePeerAccess`). Succeeds where
    /// that memory is reachable already.
    ///
    /// # Errors
    /// [`NoDevice`](crate::ErrorKind::NoDevice) if there is no device `other`;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if this device cannot reach the other's memory.
    fn enable_peer_access(&self, other: usize) -> Result<()> {
        Err(crate::Error::unsupported("peer access"))
    }
}

impl Work<'_> {
    /// Submits the operation to `stream`, with the one call that it stands for.
    ///
    /// # Errors
    /// Those of the method of `device` that the operation names.
    ///
    /// # Safety
    /// As for the method of `device` that the operation names.
    #[inline]
    pub unsafe fn enqueue(&self, device: &dyn Device, stream: RawStream) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe {
            match *self {
                Self::Kernel { function, config, args } => device.launch(function, config, args, stream),
                Self::CopyToDevice { dst, src, bytes } => device.copy_to_device(dst, src, bytes, stream),
                Self::CopyInline { dst, src, bytes } => device.copy_inline(dst, src, bytes, stream),
                Self::CopyToHost { dst, src, bytes } => device.copy_to_host(dst, src, bytes, stream),
                Self::CopyOnDevice { dst, src, bytes } => device.copy_on_device(dst, src, bytes, stream),
                Self::CopyFromPeer { dst, src, src_ordinal, bytes } => {
                    device.copy_from_peer(dst, src, src_ordinal, bytes, stream)
                }
                Self::Copy3d(copy) => device.copy_3d(copy, stream),
                Self::Fill { dst, pattern, count } => device.fill(dst, pattern, count, stream),
                Self::Host { function, data } => device.stream_host_fn(stream, function, data),
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
    /// Threads of this machine.
    pub const CPU: Self = Self("cpu");
    /// NVIDIA, through libcuda.
    pub const CUDA: Self = Self("cuda");
    /// AMD, through libamdhip64.
    pub const HIP: Self = Self("hip");

    /// Makes the name of a backend that is not one of these.
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
/// The safe crate passes handles between devices whose [`DeviceInfo::backend`] is the same, and takes the streams of
/// one [`Device`] value for those of one handle. An implementor promises that [`open`](Self::open) makes a new value
/// each time, that its devices carry [`name`](Self::name) as their backend and the ordinal they were opened with, and
/// that no devices of another driver carry that name.
pub unsafe trait Backend: Send + Sync {
    /// Returns the name that users write in `GPUSTREAM_DEVICE`: `cpu`, `cuda`, `hip`.
    fn name(&self) -> BackendName;

    /// Returns how many devices the driver offers.
    ///
    /// # Errors
    /// [`DriverMissing`](crate::ErrorKind::DriverMissing) if no library was found, with what was tried and what to install.
    /// Zero devices is [`NoDevice`](crate::ErrorKind::NoDevice). After any other error, as
    /// [`DriverUnusable`](crate::ErrorKind::DriverUnusable), a device may be there, and the safe crate does not go on to
    /// another backend by itself.
    fn device_count(&self) -> Result<usize>;

    /// Opens device `ordinal`. Opening twice gives two values over the same primary context.
    ///
    /// # Errors
    /// As for [`device_count`](Self::device_count); [`NoDevice`](crate::ErrorKind::NoDevice) for a higher number;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a setting in the environment that is not allowed.
    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>>;

    /// Returns the names by which the vendor's tools know device `ordinal`. Opens no device: a context takes time and
    /// memory, and most devices that are asked are not the wanted one.
    ///
    /// # Errors
    /// As for [`open`](Self::open). A driver that cannot tell a name is none.
    fn identity(&self, ordinal: usize) -> Result<Identity> {
        let _ = ordinal;
        Ok(Identity::default())
    }

    /// Returns the driver library that is open; `None` if there is none, or the backend needs none.
    fn library(&self) -> Option<DriverLibrary> {
        None
    }

    /// Tells that the process is going to be traced: a library that measures may have to be there before the driver starts.
    /// Called before anything else is asked of the backend, and possibly again. A missing library is reported by
    /// [`trace_begin`](crate::Traces::trace_begin).
    fn expect_traces(&self) {}

    /// Returns what was found of the driver and the run-time compiler, for diagnosis. Never fails.
    fn probe(&self) -> Probe;
}

/// The driver library that a backend has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverLibrary {
    /// Its file.
    pub path: PathBuf,
    /// The name that led there: one that the linker resolved, a path, or a path from the environment, with its variable.
    pub found_by: String,
}

/// The findings of a backend on this machine, as `cargo xtask doctor` prints them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Probe {
    /// The driver library that was opened.
    pub library: Option<PathBuf>,
    /// Names and paths that were tried, in order.
    pub tried: Vec<String>,
    /// Driver version as the vendor writes it.
    pub driver_version: Option<String>,
    /// Run-time version as the vendor writes it.
    pub runtime_version: Option<String>,
    /// The run-time compiler's library and version, if one was found.
    pub runtime_compiler: Option<String>,
    /// The library that measures when operations run, and its version, if one was found. Others are measured by events.
    pub tracer: Option<String>,
    /// The obstacle to using the backend, with what to do about it.
    pub problem: Option<String>,
}

/// The facts about a device, and its abilities.
///
/// Sizes are bytes. Fields that a backend cannot answer hold the value of the least ability.
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
    /// The UUID as the vendor's tools write it, of a MIG instance its own: see [`Identity::uuid`]. `None` if the driver does
    /// not tell.
    pub uuid: Option<String>,
    /// The place on the PCI bus; the instances of a divided GPU all have the GPU's. `None` if the driver does not tell.
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
    /// What is peculiar to the device or its driver, and changes how programs or this library best use it.
    pub quirks: DeviceQuirks,
}

/// What a kernel, a block or a stream can have at most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// Most threads in one block, over all dimensions.
    pub max_threads_per_block: u32,
    /// Most threads resident on one multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// Most threads of a block in each dimension.
    pub max_block: [u32; 3],
    /// Most blocks of a grid in each dimension.
    pub max_grid: [u32; 3],
    /// Most bytes of a kernel's parameters.
    pub parameter_bytes: u32,
    /// Shared memory a block may use without asking.
    pub shared_memory_per_block: u32,
    /// Shared memory a block may use after opting in; at least the field above.
    pub shared_memory_per_block_optin: u32,
    /// Shared memory of one multiprocessor.
    pub shared_memory_per_multiprocessor: u32,
    /// Second-level cache.
    pub l2_cache: u32,
    /// Copy engines that run beside kernels: 0 none, 1 one direction at a time, 2 or more both.
    pub async_engine_count: u32,
    /// The priorities that streams can have.
    pub stream_priorities: StreamPriorities,
    /// The number of hardware queues that the streams share: a stream that is blocked (by a host function, or a kernel
    /// that waits) holds up the streams that share its queue. 0 where a blocked stream holds up itself alone.
    pub hardware_queues: u32,
    /// The most bytes that [`copy_inline`](crate::Buffers::copy_inline) takes at no more than the cost of a copy from
    /// page-locked memory; 0 where there is no such copy.
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
    /// Whether managed (migrating) memory can be used by host and device at once.
    pub managed_memory: bool,
    /// Whether a cooperative launch (grid-wide barrier) is possible.
    pub cooperative_launch: bool,
    /// Whether blocks can be grouped into clusters.
    pub cluster_launch: bool,
    /// Whether a kernel can start before its predecessor in the stream has ended.
    pub early_dependent_launch: bool,
    /// Whether this device can reach the memory of at least one other device of its backend.
    pub peer_access: bool,
    /// Whether host functions of different streams run at the same time. Where they do not, one waits for another's
    /// end, in an order that is not that of their submission.
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
    /// Whether the threads of a block run one after the other, so that few threads with long contiguous work are
    /// best.
    pub serial_threads: bool,
    /// Whether the device looks for accesses beside allocations. Such a device is asked for the exact length of each
    /// allocation, which may be zero. It aligns an allocation to 16 bytes, or to the largest power of two up to 256 that
    /// divides the length.
    pub checked: bool,
    /// Whether freeing (`cuMemFree`) waits for all work of the device.
    pub free_synchronizes: bool,
    /// A known fault of this driver's graphs, where there is one. Graphs are then not used where they are only faster,
    /// and the text says why.
    pub graph_fault: Option<&'static str>,
    /// True if a capture forbids all use of the events that were recorded on its streams before. In HIP an event remembers its
    /// stream. While that stream is captured, a question about the event or a host thread's wait for it breaks the capture
    /// (`hipErrorCapturedEvent`), and another stream's wait is refused (`hipErrorStreamCaptureIsolation`). The newest sources
    /// break no capture any more, and still refuse the wait. So another stream is captured in its place.
    pub capture_closes_events: bool,
    /// True if a capture cannot end once its streams waited for each other in a circle. For each stream but the first, every
    /// version of HIP so far notes the stream it waited for. It ends a stream together with those that waited for it, and
    /// follows a circle until the thread's stack is full (`hip::Stream::EndCapture`). So such waits go by the capture's first
    /// stream.
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
