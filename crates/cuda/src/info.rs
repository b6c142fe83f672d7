//! Reads a device's name, limits, features and quirks.

use std::ffi::c_int;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};
use gpustream_hal::driver::Status;
use gpustream_hal::{BackendName, DeviceInfo, Identity, Result, StreamPriorities};

use crate::api::Api;
use crate::context::Context;
use crate::driver::Driver;
use crate::identity::{identity, name};
use crate::version::Version;

/// Reads everything once, so that later calls need not ask the driver. The device's context must be current, because
/// the priority range needs it.
pub(crate) fn read(driver: &Driver, context: &Context, ordinal: usize) -> Result<DeviceInfo> {
    let &Context { ref api, device, .. } = context;
    let attribute = |which| attribute_of(api, which, device).map(|value| u32::try_from(value).unwrap_or(0));
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let mut info = DeviceInfo::new(BackendName::CUDA, ordinal);
    info.name = name(api, device)?;
    info.arch = format!("sm_{major}{minor}");
    info.driver = match kernel_driver() {
        Some(version) => format!("{version}, CUDA {}", driver.version),
        None => format!("CUDA {}", driver.version),
    };
    let Identity { uuid, pci } = identity(api, device, &info.name);
    (info.uuid, info.pci) = (uuid, pci);
    info.total_memory = total_memory(api, device)?;
    info.multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    info.warp_size = attribute(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    info.limits.max_threads_per_block = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    info.limits.max_block = [
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
    ];
    info.limits.max_grid = [
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
    ];
    info.limits.shared_memory_per_block =
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;

    let ability = |which| attribute(which).map(|value| value != 0);
    info.limits.max_threads_per_multiprocessor =
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?
            .max(info.limits.max_threads_per_block);
    info.limits.shared_memory_per_block_optin =
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
            .max(info.limits.shared_memory_per_block);
    info.limits.shared_memory_per_multiprocessor =
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?
            .max(info.limits.shared_memory_per_block);
    info.limits.l2_cache = attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
    info.limits.async_engine_count = attribute(Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?;
    info.features.concurrent_kernels = ability(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)?;
    info.features.memory_pools = ability(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?;
    info.features.managed_memory = ability(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)?;
    info.features.cooperative_launch = ability(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)?;
    info.features.cluster_launch = ability(Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)?;
    info.features.early_dependent_launch = major >= 9;
    // From compute capability 7.0 and driver 12.1 on, a launch can take more than 4096 bytes.
    if major >= 7 && driver.version >= Version(12_010) {
        info.limits.parameter_bytes = 32_764;
    }
    info.quirks.free_synchronizes = true;
    info.limits.inline_copies = if api.cuMemcpyBatchAsync.is_some() { INLINE_COPIES } else { 0 };
    // Every device can, through these functions. Only the older functions with the same names had an attribute for it.
    info.features.stream_wait_value = true;
    info.features.textures = true;
    info.features.shared_memory = api.cuMemCreate.is_some()
        && ability(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?;
    // Before 12.4 a body could only hold kernels.
    info.features.conditional_nodes = driver.version >= Version(12_040)
        && api.cuGraphAddNode.is_some()
        && api.cuGraphConditionalHandleCreate.is_some();
    info.limits.stream_priorities = stream_priorities(api)?;
    info.features.peer_access = any_peer(driver, context, ordinal)?;
    Ok(info)
}

/// Up to this size, a copy's bytes travel with the command. On an H200 such a copy takes 1.0 µs for a byte, 1.7 µs for 4 KiB and
/// 2.3 µs for 16 KiB. One through page-locked memory takes 2.3 to 3 µs, and is faster from 64 KiB on.
const INLINE_COPIES: usize = 32 << 10;

fn total_memory(api: &Api, device: CUdevice) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: the pointer is to a local.
    unsafe { api.cuDeviceTotalMem_v2(&raw mut bytes, device) }.ok()?;
    Ok(bytes as u64)
}

fn stream_priorities(api: &Api) -> Result<StreamPriorities> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: both pointers are to locals.
    unsafe { api.cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest) }.ok()?;
    Ok(StreamPriorities { least, greatest })
}

fn any_peer(driver: &Driver, context: &Context, ordinal: usize) -> Result<bool> {
    let &Context { ref api, device, .. } = context;
    for other in (0..driver.contexts.len()).filter(|&other| other != ordinal) {
        let (mut peer, mut can): (CUdevice, c_int) = (0, 0);
        // SAFETY: both pointers are to locals; the driver counted the ordinals.
        unsafe {
            api.cuDeviceGet(&raw mut peer, other as c_int).ok()?;
            api.cuDeviceCanAccessPeer(&raw mut can, device, peer).ok()?;
        }
        if can != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn attribute_of(api: &Api, which: Attribute, device: CUdevice) -> Result<c_int> {
    let mut value: c_int = 0;
    // SAFETY: the pointer is to a local; the driver counted the device.
    let answer = unsafe { api.cuDeviceGetAttribute(&raw mut value, which, device) };
    // If the driver does not know an attribute, it cannot have the feature either.
    if !matches!(answer.status, Some(Status::INVALID_VALUE | Status::NOT_SUPPORTED)) {
        answer.ok()?;
    }
    Ok(value)
}

/// Returns the kernel module's version, such as `580.159.03`, if the system shows it.
pub(crate) fn kernel_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    // NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue …
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}
