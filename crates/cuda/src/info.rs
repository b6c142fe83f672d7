//! Reading a device's name, limits and abilities.

use std::ffi::CStr;

use cudarc::driver::sys::CUdevice;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use gpustream_hal::driver::Status;
use gpustream_hal::{DeviceInfo, Result, StreamPriorities};

use crate::driver::Driver;
use crate::error::BACKEND;

/// Reads everything once. The device's context is current, which the priority range needs.
pub(crate) fn read(driver: &Driver, device: CUdevice, ordinal: usize) -> Result<DeviceInfo> {
    // An attribute that the driver does not know is an ability that the driver does not have.
    let attribute = |which: Attribute| -> Result<u32> {
        let mut value = 0;
        // SAFETY: the pointer is to a local; the device was counted by the driver.
        let answer = unsafe { driver.api.cuDeviceGetAttribute(&raw mut value, which, device) };
        if let Some(Status::INVALID_VALUE | Status::NOT_SUPPORTED) = answer.status {
            return Ok(0);
        }
        answer.ok()?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let ability = |which: Attribute| attribute(which).map(|value| value != 0);

    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let mut total = 0;
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: all pointers are to locals; a context of the device is current.
    unsafe {
        driver.api.cuDeviceTotalMem_v2(&raw mut total, device).ok()?;
        driver.api.cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest).ok()?;
    }

    let mut info = DeviceInfo::new(BACKEND, ordinal);
    info.name = name(driver, device)?;
    info.arch = format!("sm_{major}{minor}");
    info.driver = match kernel_driver() {
        Some(version) => format!("{version}, CUDA {}", driver.version),
        None => format!("CUDA {}", driver.version),
    };
    info.total_memory = total as u64;
    info.multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    info.warp_size = attribute(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    info.max_threads_per_block = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
    info.max_threads_per_multiprocessor =
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
    info.max_block = [
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
    ];
    info.max_grid = [
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
    ];
    info.shared_memory_per_block = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
    info.shared_memory_per_block_optin =
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
            .max(info.shared_memory_per_block);
    info.shared_memory_per_multiprocessor =
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?;
    info.l2_cache = attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
    info.async_engine_count = attribute(Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?;
    info.concurrent_kernels = ability(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)?;
    info.stream_priorities = StreamPriorities { least, greatest };
    info.memory_pools = ability(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?;
    info.managed_memory = ability(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)?;
    info.cooperative_launch = ability(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)?;
    info.cluster_launch = ability(Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)?;
    info.early_dependent_launch = major >= 9;
    info.peer_access = any_peer(driver, device, ordinal)?;
    info.free_synchronizes = true;
    info.inline_copies = if driver.api.cuMemcpyBatchAsync.is_some() { INLINE_COPIES } else { 0 };
    Ok(info)
}

/// The size up to which a copy's bytes go along with the command. On an H200 such a copy takes 1.0 µs for a byte, 1.7
/// µs for 4 KiB and 2.3 µs for 16 KiB; one through page-locked memory takes 2.3 to 3 µs, and less from 64 KiB on.
const INLINE_COPIES: usize = 32 << 10;

fn name(driver: &Driver, device: CUdevice) -> Result<String> {
    let mut bytes = [0u8; 256];
    // SAFETY: the driver writes at most the length it is given, one byte less than there is, so that the last
    // one stays NUL.
    unsafe { driver.api.cuDeviceGetName(bytes.as_mut_ptr().cast(), bytes.len() as i32 - 1, device) }.ok()?;
    Ok(CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned()))
}

fn any_peer(driver: &Driver, device: CUdevice, ordinal: usize) -> Result<bool> {
    for other in (0..driver.contexts.len()).filter(|&other| other != ordinal) {
        let mut peer = 0;
        let mut can = 0;
        // SAFETY: both pointers are to locals; the ordinals are ones the driver counted.
        unsafe {
            driver.api.cuDeviceGet(&raw mut peer, other as i32).ok()?;
            driver.api.cuDeviceCanAccessPeer(&raw mut can, device, peer).ok()?;
        }
        if can != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the kernel module's version, such as `580.159.03`, where the system shows it.
pub(crate) fn kernel_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    // NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue …
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}
