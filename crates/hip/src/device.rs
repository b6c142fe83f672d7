//! Finding, opening and describing devices.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use gpustream_hal::{
    Backend, Device, DeviceInfo, Error, ErrorKind, MemoryInfo, Probe, Result, StreamPriorities,
};

use crate::arch::Arch;
use crate::error::{BACKEND, Status, error};
#[allow(clippy::wildcard_imports)] // A score of attributes under HIP's own names.
use crate::ffi::*;
use crate::library::{Found, Runtime, Version};

/// The backend for the libamdhip64 that is installed, or that `GPUSTREAM_HIP_LIBRARY` names.
pub fn backend() -> &'static dyn Backend {
    static HIP: Hip = Hip { choice: None, found: OnceLock::new() };
    &HIP
}

/// HIP, as one libamdhip64 offers it. The library is opened on first use and never closed.
pub struct Hip {
    choice: Option<PathBuf>,
    found: OnceLock<Found>,
}

impl Hip {
    /// HIP through the library at `path` alone.
    ///
    /// # Safety
    /// `path` names a libamdhip64, or something that behaves as one. Devices of two libraries carry the same name and do
    /// not understand each other's handles, so they are not used together.
    pub unsafe fn at(path: impl Into<PathBuf>) -> Self {
        Self { choice: Some(path.into()), found: OnceLock::new() }
    }

    fn found(&self) -> &Found {
        // SAFETY: a choice comes from `at`, whose caller vouches for it.
        self.found.get_or_init(|| unsafe { Found::open(self.choice.as_deref()) })
    }

    fn runtime(&self) -> Result<&Arc<Runtime>> {
        self.found().runtime.as_ref().map_err(Error::clone)
    }
}

// SAFETY: each opening makes a device of its own, under this name.
unsafe impl Backend for Hip {
    fn name(&self) -> &'static str {
        BACKEND
    }

    fn device_count(&self) -> Result<usize> {
        self.runtime()?.device_count()
    }

    fn open(&self, ordinal: usize) -> Result<Arc<dyn Device>> {
        let runtime = self.runtime()?;
        let count = runtime.device_count()?;
        if ordinal >= count {
            let message = format!("there is no device hip:{ordinal}: devices are hip:0 to hip:{}", count - 1);
            return Err(error(ErrorKind::NoDevice, message));
        }
        Ok(Arc::new(HipDevice::open(Arc::clone(runtime), ordinal, count)?))
    }

    fn probe(&self) -> Probe {
        let mut probe = Probe::default();
        probe.tried.clone_from(&self.found().tried);
        match self.runtime() {
            Ok(runtime) => {
                probe.library = Some(runtime.path.clone());
                probe.runtime_version = Some(runtime.version.to_string());
                let mut driver: c_int = 0;
                // SAFETY: the pointer is to a live integer.
                let answer = unsafe { runtime.api.hipDriverGetVersion(&raw mut driver) };
                let version = || Version(u32::try_from(driver).unwrap_or(0)).to_string();
                probe.driver_version = answer.ok().ok().map(|()| version());
                probe.runtime_compiler = runtime.hiprtc().ok().map(crate::hiprtc::Hiprtc::describe);
                probe.problem = runtime.device_count().err().map(|failure| failure.to_string());
            }
            Err(failure) => probe.problem = Some(failure.to_string()),
        }
        probe
    }
}

/// One AMD GPU.
pub(crate) struct HipDevice {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) arch: Arch,
    /// Images of loaded modules: HIP keeps pointing into the memory it was given until the module is unloaded.
    pub(crate) images: Mutex<HashMap<usize, Box<[u8]>>>,
    ordinal: c_int,
    info: DeviceInfo,
}

impl HipDevice {
    fn open(runtime: Arc<Runtime>, ordinal: usize, count: usize) -> Result<Self> {
        let arch = read_arch(&runtime, ordinal as c_int)?;
        let info = DeviceInfo::new(BACKEND, ordinal);
        let mut device = Self { runtime, arch, images: Mutex::default(), ordinal: ordinal as c_int, info };
        device.describe(count)?;
        Ok(device)
    }

    /// Makes this the calling thread's device, which HIP asks of nearly every call; `hipGetDevice` reads a
    /// thread-local, so a thread that stays with one device pays that alone.
    #[inline]
    pub(crate) fn bind(&self) -> Result<()> {
        let api = &self.runtime.api;
        let mut current: c_int = -1;
        // SAFETY: the pointer is to a live integer.
        unsafe { api.hipGetDevice(&raw mut current) }.ok()?;
        if current == self.ordinal {
            return Ok(());
        }
        // SAFETY: no requirement.
        unsafe { api.hipSetDevice(self.ordinal) }.ok()
    }

    pub(crate) fn ordinal(&self) -> c_int {
        self.ordinal
    }

    fn attribute(&self, attribute: hipDeviceAttribute_t) -> Result<u32> {
        attribute_of(&self.runtime, attribute, self.ordinal).map(|value| value.max(0) as u32)
    }

    fn describe(&mut self, count: usize) -> Result<()> {
        let mut info = self.info.clone();
        info.name = self.name()?;
        self.arch.processor().clone_into(&mut info.arch);
        info.driver = self.runtime.version.to_string();
        info.total_memory = self.total_memory()?;
        info.multiprocessors = self.attribute(hipDeviceAttributeMultiprocessorCount)?;
        info.warp_size = self.attribute(hipDeviceAttributeWarpSize)?;
        info.max_threads_per_block = self.attribute(hipDeviceAttributeMaxThreadsPerBlock)?;
        info.max_block = [
            self.attribute(hipDeviceAttributeMaxBlockDimX)?,
            self.attribute(hipDeviceAttributeMaxBlockDimY)?,
            self.attribute(hipDeviceAttributeMaxBlockDimZ)?,
        ];
        info.max_grid = [
            self.attribute(hipDeviceAttributeMaxGridDimX)?,
            self.attribute(hipDeviceAttributeMaxGridDimY)?,
            self.attribute(hipDeviceAttributeMaxGridDimZ)?,
        ];
        info.shared_memory_per_block = self.attribute(hipDeviceAttributeMaxSharedMemoryPerBlock)?;

        // What a version may not know is the least ability, not a failure.
        let number = |attribute| self.attribute(attribute).unwrap_or(0);
        let flag = |attribute| number(attribute) != 0;
        // RDNA devices report workgroup processors, of two compute units each, and count occupancy per compute unit.
        info.multiprocessors =
            info.multiprocessors.max(number(hipDeviceAttributePhysicalMultiProcessorCount));
        info.max_threads_per_multiprocessor =
            number(hipDeviceAttributeMaxThreadsPerMultiProcessor).max(info.max_threads_per_block);
        info.shared_memory_per_block_optin =
            number(hipDeviceAttributeSharedMemPerBlockOptin).max(info.shared_memory_per_block);
        info.shared_memory_per_multiprocessor = number(hipDeviceAttributeMaxSharedMemoryPerMultiprocessor)
            .max(number(hipDeviceAttributeSharedMemPerMultiprocessor))
            .max(info.shared_memory_per_block);
        info.l2_cache = number(hipDeviceAttributeL2CacheSize);
        info.async_engine_count = number(hipDeviceAttributeAsyncEngineCount);
        info.concurrent_kernels = flag(hipDeviceAttributeConcurrentKernels);
        info.memory_pools = flag(hipDeviceAttributeMemoryPoolsSupported);
        info.managed_memory =
            flag(hipDeviceAttributeManagedMemory) && flag(hipDeviceAttributeConcurrentManagedAccess);
        info.cooperative_launch = flag(hipDeviceAttributeCooperativeLaunch);
        info.free_synchronizes = true;
        info.hardware_queues = hardware_queues(std::env::var("GPU_MAX_HW_QUEUES").ok().as_deref());
        info.stream_priorities = self.stream_priorities().unwrap_or_default();
        info.peer_access =
            (0..count).any(|other| other != info.ordinal && self.can_access_peer(other).unwrap_or(false));
        self.info = info;
        Ok(())
    }

    fn name(&self) -> Result<String> {
        let mut name: [c_char; 256] = [0; 256];
        let room = name.len() as c_int - 1;
        // SAFETY: the buffer has that room, and a zero after it.
        unsafe { self.runtime.api.hipDeviceGetName(name.as_mut_ptr(), room, self.ordinal) }.ok()?;
        // SAFETY: the last byte is zero whatever was written before it.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn total_memory(&self) -> Result<u64> {
        let mut bytes = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { self.runtime.api.hipDeviceTotalMem(&raw mut bytes, self.ordinal) }.ok()?;
        Ok(bytes as u64)
    }

    fn stream_priorities(&self) -> Result<StreamPriorities> {
        self.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both pointers are to live integers.
        unsafe { self.runtime.api.hipDeviceGetStreamPriorityRange(&raw mut least, &raw mut greatest) }
            .ok()?;
        Ok(StreamPriorities { least, greatest })
    }
}

// SAFETY: the facts and answers are the HIP driver's, for this device.
unsafe impl Device for HipDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn context(&self) -> usize {
        // One for each device of a library, which is larger than there are devices.
        Arc::as_ptr(&self.runtime).addr() + self.info.ordinal
    }

    fn synchronize(&self) -> Result<()> {
        self.bind()?;
        // SAFETY: no requirement.
        unsafe { self.runtime.api.hipDeviceSynchronize() }.ok()
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.bind()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: both pointers are to live integers.
        unsafe { self.runtime.api.hipMemGetInfo(&raw mut free, &raw mut total) }.ok()?;
        // HIP takes the two from different places: an emulated device had more free than it has.
        Ok(MemoryInfo { free: free.min(total) as u64, total: total as u64 })
    }

    fn can_access_peer(&self, other: usize) -> Result<bool> {
        let mut can: c_int = 0;
        // SAFETY: the pointer is to a live integer.
        unsafe { self.runtime.api.hipDeviceCanAccessPeer(&raw mut can, self.ordinal, other as c_int) }
            .ok()?;
        Ok(can != 0)
    }

    fn enable_peer_access(&self, other: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: no requirement; the flags must be zero.
        let answer = unsafe { self.runtime.api.hipDeviceEnablePeerAccess(other as c_int, 0) };
        if answer.status == Some(Status::PEER_ACCESS_ALREADY_ENABLED) {
            return Ok(());
        }
        answer.ok()
    }
}

/// How many queues HIP gives its streams, by the variable `GPU_MAX_HW_QUEUES`: it has no call that tells.
fn hardware_queues(variable: Option<&str>) -> u32 {
    const USUAL: u32 = 4;
    variable.and_then(|text| text.trim().parse().ok()).filter(|&queues| queues > 0).unwrap_or(USUAL)
}

fn attribute_of(runtime: &Runtime, attribute: hipDeviceAttribute_t, ordinal: c_int) -> Result<c_int> {
    let mut value: c_int = 0;
    // SAFETY: the pointer is to a live integer.
    unsafe { runtime.api.hipDeviceGetAttribute(&raw mut value, attribute, ordinal) }.ok()?;
    Ok(value)
}

/// Reads the processor's name, which no attribute tells, out of the device's properties.
///
/// Their layout changed in 6.0: `hipGetDevicePropertiesR0600` fills the new one, `hipGetDeviceProperties` the old
/// one in every version. A layout is believed only if two numbers read through it equal the attributes.
fn read_arch(runtime: &Runtime, ordinal: c_int) -> Result<Arch> {
    let warp_size = attribute_of(runtime, hipDeviceAttributeWarpSize, ordinal)?;
    let multiprocessors = attribute_of(runtime, hipDeviceAttributeMultiprocessorCount, ordinal)?;
    let layouts: &[PropertyLayout] = if runtime.api.has_r0600() {
        &[PropertyLayout::R0600, PropertyLayout::R0000]
    } else {
        &[PropertyLayout::R0000]
    };
    for layout in layouts {
        let mut properties = Box::new(hipDeviceProp_t([0; 4096]));
        let target: *mut hipDeviceProp_t = &raw mut *properties;
        // SAFETY: the buffer is larger than the struct of any version, and as aligned.
        let answer = unsafe {
            if *layout == PropertyLayout::R0600 {
                runtime.api.hipGetDevicePropertiesR0600(target, ordinal)
            } else {
                runtime.api.hipGetDeviceProperties(target, ordinal)
            }
        };
        answer.ok()?;
        let bytes = &properties.0;
        if integer(bytes, layout.warp_size) == Some(warp_size)
            && integer(bytes, layout.multiprocessors) == Some(multiprocessors)
            && let Some(arch) = text(bytes, layout.arch_name).and_then(Arch::parse)
        {
            return Ok(arch);
        }
    }
    let message = format!(
        "HIP {} ({}) describes its devices in a layout that this version of gpustream does not know: update \
         gpustream, or use ROCm 5, 6 or 7",
        runtime.version,
        runtime.path.display(),
    );
    Err(error(ErrorKind::Unsupported, message))
}

fn integer(bytes: &[u8], offset: usize) -> Option<c_int> {
    let field = bytes.get(offset..offset + size_of::<c_int>())?;
    Some(c_int::from_ne_bytes(field.try_into().ok()?))
}

fn text(bytes: &[u8], offset: usize) -> Option<&str> {
    CStr::from_bytes_until_nul(bytes.get(offset..)?).ok()?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::hardware_queues;

    #[test]
    fn streams_share_four_queues_unless_the_variable_says_otherwise() {
        assert_eq!([None, Some(""), Some("0"), Some("many")].map(hardware_queues), [4; 4]);
        assert_eq!(hardware_queues(Some(" 8 ")), 8);
    }
}
