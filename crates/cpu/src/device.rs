//! Devices: the cores of this machine, presented as one device or as several.

use std::sync::{Arc, Mutex};

use gpustream_hal::{
    Backend, BackendName, Device, DeviceInfo, Error, ErrorKind, MemoryInfo, Probe, Result, WaitPolicy,
    cpu_level,
};

use crate::abi;
use crate::capture;
use crate::error::{error, unsupported};
use crate::fork;
use crate::grid::MAX_GRID_YZ;
use crate::options::{self, CpuOptions};
use crate::queue::{PRIORITY_RANGE, Registry};
use crate::shared::Shared;
use crate::stray;
use crate::sync::lock;

/// A device whose threads are running. It lives forever, because they do.
#[derive(Clone, Copy)]
struct Started {
    shared: &'static Shared,
    streams: &'static Registry,
}

impl Started {
    fn new(ordinal: usize, devices: usize, options: CpuOptions) -> Result<Self> {
        if !options.check {
            stray::stop_comparing();
        }
        let streams: &'static Registry = Box::leak(Box::default());
        let shared: &'static Shared = Box::leak(Box::new(Shared::new(ordinal, devices, options, streams)));
        fork::enter(shared);
        (shared.scheduler.start(shared, ordinal))
            .map_err(|e| error(ErrorKind::Driver, format!("cannot start the threads of the device: {e}")))?;
        Ok(Self { shared, streams })
    }
}

/// An opened CPU device.
pub(crate) struct CpuDevice {
    pub(crate) shared: &'static Shared,
    pub(crate) streams: &'static Registry,
    info: DeviceInfo,
}

impl CpuDevice {
    fn new(Started { shared, streams }: Started, devices: usize) -> Self {
        let workers = shared.options.workers as u32;
        let mut info = DeviceInfo::new(gpustream_hal::BackendName::CPU, shared.ordinal);
        info.name = processor_name();
        info.arch = cpu_level::best().into();
        info.driver = format!("gpustream-cpu {}", env!("CARGO_PKG_VERSION"));
        info.total_memory = shared.memory.total();
        info.multiprocessors = workers;
        info.warp_size = shared.options.warp_size;
        info.limits.max_threads_per_block = abi::MAX_THREADS as u32;
        info.limits.max_threads_per_multiprocessor = abi::MAX_THREADS as u32;
        info.limits.max_block = [abi::MAX_THREADS as u32; 3];
        info.limits.max_grid = [i32::MAX as u32, MAX_GRID_YZ, MAX_GRID_YZ];
        info.limits.parameter_bytes = abi::PARAMS_MAX;
        info.limits.shared_memory_per_block = 48 << 10;
        info.limits.shared_memory_per_block_optin = abi::DYNAMIC_SHARED_MAX;
        info.limits.shared_memory_per_multiprocessor = abi::DYNAMIC_SHARED_MAX;
        info.limits.l2_cache = l2_cache();
        // Any worker can copy. With a single worker, copies in both directions take turns.
        info.limits.async_engine_count = workers.min(2);
        info.features.concurrent_kernels = true;
        info.features.cooperative_launch = true;
        info.limits.stream_priorities = PRIORITY_RANGE;
        info.features.memory_pools = true;
        info.features.managed_memory = true;
        info.features.peer_access = devices > 1 && !shared.options.check;
        info.quirks.serial_threads = true;
        info.quirks.checked = shared.options.check;
        info.features.concurrent_host_functions = true;
        info.features.stream_wait_value = true;
        info.features.conditional_nodes = true;
        info.features.textures = true;
        info.features.shared_memory = true;
        Self { shared, streams, info }
    }
}

// SAFETY: `synchronize` waits for every queue, and the facts are those of the pool of threads.
unsafe impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn context(&self) -> usize {
        std::ptr::from_ref(self.shared).addr()
    }

    fn synchronize(&self) -> Result<()> {
        capture::refuse_block()?;
        if !self.shared.is_forked() {
            // We check every stream, even if the first says that the device is lost, because the others may
            // still be running.
            for stream in self.streams.all() {
                let _ = stream.finish(WaitPolicy::Spin);
            }
        }
        self.shared.alive()
    }

    fn has_stopped(&self) -> bool {
        let has_stopped = || self.streams.all().iter().all(|stream| stream.has_stopped());
        self.shared.is_lost() && !self.shared.is_forked() && has_stopped()
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.shared.alive()?;
        Ok(MemoryInfo { free: self.shared.memory.free_bytes(), total: self.shared.memory.total() })
    }

    /// All devices share the address space. Still, checked mode says no, because many GPUs cannot reach each other, and a
    /// program that relies on it should fail here first.
    fn can_access_peer(&self, other: usize) -> Result<bool> {
        Ok(!self.shared.options.check && other != self.shared.ordinal && other < options::device_count()?)
    }

    fn enable_peer_access(&self, other: usize) -> Result<()> {
        if self.shared.options.check {
            return Err(unsupported("peer access in checked mode"));
        }
        let devices = options::device_count()?;
        if other < devices { Ok(()) } else { Err(no_device(other, devices)) }
    }
}

/// The CPU backend. A device lives from its first opening to the end of the process. If a kernel's failure
/// ended it, the next opening makes a new one, while handles to the old one keep returning its error.
struct Cpu {
    open: Mutex<Vec<Started>>,
    /// Those of its one device, or `None` if the environment has them.
    options: Option<CpuOptions>,
}

static CPU: Cpu = Cpu { open: Mutex::new(Vec::new()), options: None };

/// Returns the CPU backend.
pub fn backend() -> &'static dyn Backend {
    &CPU
}

/// Makes a backend with one device, which has these options. Like the device of [`backend`], all openings share it, and its
/// threads stay until the process ends. Use it in tests and tools.
pub fn backend_with(options: CpuOptions) -> impl Backend {
    Cpu { open: Mutex::default(), options: Some(options) }
}

/// Opens a device with these options. It is separate from all devices that [`backend`] returns.
///
/// Its ordinal is 0, and its memory counts only against the machine's. Use it in tests and tools; its threads
/// stay until the process ends.
///
/// # Errors
/// If the system cannot start threads, or if the number of lanes in a warp is neither 32 nor 64.
pub fn open_with(options: CpuOptions) -> Result<Arc<dyn Device>> {
    check_warp_size(options)?;
    Ok(Arc::new(CpuDevice::new(Started::new(0, 1, options)?, 1)))
}

fn check_warp_size(options: CpuOptions) -> Result<()> {
    if matches!(options.warp_size, 32 | 64) {
        return Ok(());
    }
    let message = format!("a warp cannot have {} lanes: use 32 or 64", options.warp_size);
    Err(error(ErrorKind::InvalidArgument, message))
}

// SAFETY: each opening makes a device of its own, under this name.
unsafe impl Backend for Cpu {
    fn name(&self) -> BackendName {
        BackendName::CPU
    }

    fn device_count(&self) -> Result<usize> {
        if self.options.is_some() { Ok(1) } else { options::device_count() }
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>> {
        let devices = self.device_count()?;
        if ordinal >= devices {
            return Err(no_device(ordinal, devices));
        }
        let mut open = lock(&self.open);
        open.retain(|device| !device.shared.is_lost());
        let found = open.iter().find(|device| device.shared.ordinal == ordinal).copied();
        let device = if let Some(device) = found {
            device
        } else {
            let options = self.options.map_or_else(CpuOptions::try_from_env, Ok)?;
            check_warp_size(options)?;
            let device = Started::new(ordinal, devices, options)?;
            open.push(device);
            device
        };
        Ok(Arc::new(CpuDevice::new(device, devices)))
    }

    fn probe(&self) -> Probe {
        let mut probe = Probe::default();
        probe.driver_version = Some(env!("CARGO_PKG_VERSION").into());
        probe.runtime_version = Some(format!("kernel interface {}", abi::ABI));
        let settings = options::device_count().and_then(|_| CpuOptions::try_from_env());
        probe.problem = settings.err().map(|error| error.message().to_owned());
        probe
    }
}

fn no_device(ordinal: usize, devices: usize) -> Error {
    error(
        ErrorKind::NoDevice,
        format!(
            "there is no CPU device {ordinal}, because there are only {devices}: set GPUSTREAM_CPU_DEVICES to have more"
        ),
    )
}

/// Returns the processor's name, as the system reports it.
fn processor_name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|l| l.split_once(':'));
    name.map_or_else(|| format!("{} processor", std::env::consts::ARCH), |(_, name)| name.trim().into())
}

/// Returns the size of the first core's second-level cache in bytes, or 0 if the system does not say.
fn l2_cache() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").unwrap_or_default();
    let text = text.trim();
    let kib = text.strip_suffix('K').and_then(|n| n.parse::<u32>().ok()).map(|n| n << 10);
    kib.or_else(|| text.strip_suffix('M').and_then(|n| n.parse::<u32>().ok()).map(|n| n << 20)).unwrap_or(0)
}
