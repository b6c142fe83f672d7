//! Reads a device's name, limits, features and quirks.

use std::ffi::{CStr, c_int};

use gpustream_hal::{BackendName, DeviceInfo, ErrorKind, Identity, Result, StreamPriorities};

use crate::api::Api;
use crate::arch::Arch;
use crate::driver::Driver;
use crate::error::error;
#[allow(clippy::wildcard_imports)] // A score of attributes under HIP's own names.
use crate::ffi::*;
use crate::identity::{identity, name};
use crate::version::Version;

/// Reads everything once.
pub(crate) fn read(
    driver: &Driver,
    api: &Api,
    arch: &Arch,
    ordinal: usize,
    count: usize,
) -> Result<DeviceInfo> {
    let device = ordinal as c_int;
    let attribute = |which| attribute_of(api, which, device).map(|value| u32::try_from(value).unwrap_or(0));
    let mut info = DeviceInfo::new(BackendName::HIP, ordinal);
    info.name = name(api, device)?;
    arch.processor().clone_into(&mut info.arch);
    info.driver = driver.version.to_string();
    let Identity { uuid, pci } = identity(api, device);
    (info.uuid, info.pci) = (uuid, pci);
    info.total_memory = total_memory(api, device)?;
    info.multiprocessors = attribute(hipDeviceAttributeMultiprocessorCount)?;
    info.warp_size = attribute(hipDeviceAttributeWarpSize)?;
    info.limits.max_threads_per_block = attribute(hipDeviceAttributeMaxThreadsPerBlock)?;
    info.limits.max_block = [
        attribute(hipDeviceAttributeMaxBlockDimX)?,
        attribute(hipDeviceAttributeMaxBlockDimY)?,
        attribute(hipDeviceAttributeMaxBlockDimZ)?,
    ];
    info.limits.max_grid = [
        attribute(hipDeviceAttributeMaxGridDimX)?,
        attribute(hipDeviceAttributeMaxGridDimY)?,
        attribute(hipDeviceAttributeMaxGridDimZ)?,
    ];
    info.limits.shared_memory_per_block = attribute(hipDeviceAttributeMaxSharedMemoryPerBlock)?;

    // A version may not know an attribute. That is not a failure: we must then assume the least.
    let number = |which| attribute(which).unwrap_or(0);
    let ability = |which| number(which) != 0;
    // RDNA devices report workgroup processors, which have two compute units each, but they count occupancy per compute
    // unit. So we must ask for the compute units.
    info.multiprocessors = info.multiprocessors.max(number(hipDeviceAttributePhysicalMultiProcessorCount));
    info.limits.max_threads_per_multiprocessor =
        number(hipDeviceAttributeMaxThreadsPerMultiProcessor).max(info.limits.max_threads_per_block);
    info.limits.shared_memory_per_block_optin =
        number(hipDeviceAttributeSharedMemPerBlockOptin).max(info.limits.shared_memory_per_block);
    info.limits.shared_memory_per_multiprocessor = number(hipDeviceAttributeMaxSharedMemoryPerMultiprocessor)
        .max(number(hipDeviceAttributeSharedMemPerMultiprocessor))
        .max(info.limits.shared_memory_per_block);
    info.limits.l2_cache = number(hipDeviceAttributeL2CacheSize);
    info.limits.async_engine_count = number(hipDeviceAttributeAsyncEngineCount);
    info.features.concurrent_kernels = ability(hipDeviceAttributeConcurrentKernels);
    info.features.memory_pools = ability(hipDeviceAttributeMemoryPoolsSupported);
    info.features.managed_memory =
        ability(hipDeviceAttributeManagedMemory) && ability(hipDeviceAttributeConcurrentManagedAccess);
    info.features.cooperative_launch = ability(hipDeviceAttributeCooperativeLaunch);
    // HIP states no limit, because a code object says how many bytes its kernels take.
    info.limits.parameter_bytes = u32::MAX;
    info.features.textures = api.hipTexObjectCreate.is_some() && ability(hipDeviceAttributeImageSupport);
    info.features.shared_memory =
        api.hipMemCreate.is_some() && ability(hipDeviceAttributeVirtualMemoryManagementSupported);
    info.quirks.free_synchronizes = true;
    info.quirks.capture_closes_events = true;
    info.quirks.capture_follows_waits = true;
    info.quirks.graph_fault = driver.version.graph_fault();
    info.features.stream_wait_value =
        api.hipStreamWaitValue32.is_some() && ability(hipDeviceAttributeCanUseStreamWaitValue);
    info.limits.hardware_queues = hardware_queues(std::env::var("GPU_MAX_HW_QUEUES").ok().as_deref());
    info.limits.stream_priorities = stream_priorities(api, device).unwrap_or_default();
    info.features.peer_access = any_peer(api, ordinal, count);
    Ok(info)
}

fn total_memory(api: &Api, device: c_int) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: the pointer is to a local.
    unsafe { api.hipDeviceTotalMem(&raw mut bytes, device) }.ok()?;
    Ok(bytes as u64)
}

fn stream_priorities(api: &Api, device: c_int) -> Result<StreamPriorities> {
    api.make_current(device)?;
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: both pointers are to locals.
    unsafe { api.hipDeviceGetStreamPriorityRange(&raw mut least, &raw mut greatest) }.ok()?;
    Ok(StreamPriorities { least, greatest })
}

fn any_peer(api: &Api, ordinal: usize, count: usize) -> bool {
    (0..count).filter(|&other| other != ordinal).any(|other| {
        let mut can: c_int = 0;
        // SAFETY: the pointer is to a local.
        let answer = unsafe { api.hipDeviceCanAccessPeer(&raw mut can, ordinal as c_int, other as c_int) };
        answer.ok().is_ok() && can != 0
    })
}

/// Returns how many queues HIP gives its streams. We must read the variable `GPU_MAX_HW_QUEUES`, because we cannot ask
/// HIP.
fn hardware_queues(variable: Option<&str>) -> u32 {
    const USUAL: u32 = 4;
    variable.and_then(|text| text.trim().parse().ok()).filter(|&queues| queues > 0).unwrap_or(USUAL)
}

/// Returns how many bits a stream's mask has. Each stands for a compute unit, or on RDNA for a workgroup processor.
pub(crate) fn maskable_units(api: &Api, device: c_int) -> Result<u32> {
    attribute_of(api, hipDeviceAttributeMultiprocessorCount, device)
        .map(|units| u32::try_from(units).unwrap_or(0).max(1))
}

fn attribute_of(api: &Api, which: hipDeviceAttribute_t, device: c_int) -> Result<c_int> {
    let mut value: c_int = 0;
    // SAFETY: the pointer is to a local.
    unsafe { api.hipDeviceGetAttribute(&raw mut value, which, device) }.ok()?;
    Ok(value)
}

/// Reads the processor's name from the device's properties, because no attribute tells it.
///
/// Their layout changed in 6.0: `hipGetDevicePropertiesR0600` fills the new one, and `hipGetDeviceProperties` the old
/// one in every version. We may trust a layout only if two numbers that we read through it equal the attributes.
pub(crate) fn read_arch(driver: &Driver, api: &Api, device: c_int) -> Result<Arch> {
    let warp_size = attribute_of(api, hipDeviceAttributeWarpSize, device)?;
    let multiprocessors = attribute_of(api, hipDeviceAttributeMultiprocessorCount, device)?;
    let layouts: &[PropertyLayout] = if api.hipGetDevicePropertiesR0600.is_some() {
        &[PropertyLayout::R0600, PropertyLayout::R0000]
    } else {
        &[PropertyLayout::R0000]
    };
    for layout in layouts {
        let mut properties = Box::new(hipDeviceProp_t([0; 4096]));
        let target: *mut hipDeviceProp_t = &raw mut *properties;
        // SAFETY: the buffer is larger than any version's struct, and aligned like it.
        let answer = unsafe {
            if *layout == PropertyLayout::R0600 {
                api.hipGetDevicePropertiesR0600(target, device)
            } else {
                api.hipGetDeviceProperties(target, device)
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
        driver.version,
        driver.path.display(),
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

/// Returns the kernel driver's version, if HIP tells it.
pub(crate) fn kernel_driver(api: &Api) -> Option<String> {
    let mut version: c_int = 0;
    // SAFETY: the pointer is to a local.
    unsafe { api.hipDriverGetVersion(&raw mut version) }.ok().ok()?;
    Some(Version::from(version).to_string())
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
