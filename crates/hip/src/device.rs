//! One opened device.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

use gpustream_hal::device_parts::DeviceParts;
use gpustream_hal::driver::Status;
use gpustream_hal::{Device, DeviceInfo, MemoryInfo, Result};

use crate::api::Api;
use crate::arch::Arch;
use crate::driver::Driver;
use crate::info;

/// A device, and the library that it is used through.
pub(crate) struct HipDevice {
    pub(crate) driver: Arc<Driver>,
    /// The driver's functions, for calls on this device.
    pub(crate) api: Api,
    pub(crate) arch: Arch,
    pub(crate) info: DeviceInfo,
    /// Images of loaded modules: HIP keeps pointing into the memory it was given until the module is unloaded.
    pub(crate) images: Mutex<HashMap<usize, Box<[u8]>>>,
    pub(crate) shares: DeviceParts,
}

impl HipDevice {
    /// Opens device `ordinal` of `count`, and reads its description.
    pub(crate) fn open(driver: Arc<Driver>, ordinal: usize, count: usize) -> Result<Self> {
        let api = driver.api_of(ordinal);
        let arch = info::read_arch(&driver, &api, ordinal as c_int)?;
        let info = info::read(&driver, &api, &arch, ordinal, count)?;
        Ok(Self { driver, api, arch, info, images: Mutex::default(), shares: DeviceParts::default() })
    }

    /// Makes this the calling thread's device: the first thing that nearly every method does.
    #[inline]
    pub(crate) fn enter(&self) -> Result<&Api> {
        self.api.make_current(self.ordinal())?;
        Ok(&self.api)
    }

    /// Returns the number by which HIP knows the device.
    pub(crate) fn ordinal(&self) -> c_int {
        self.info.ordinal as c_int
    }
}

// SAFETY: the facts and answers are the HIP driver's, for this device.
unsafe impl Device for HipDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn context(&self) -> usize {
        // One for each device of a library, which is larger than there are devices.
        Arc::as_ptr(&self.driver).addr() + self.info.ordinal
    }

    fn enter(&self) -> Result<()> {
        Self::enter(self).map(drop)
    }

    fn synchronize(&self) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: no requirement.
        unsafe { api.hipDeviceSynchronize() }.ok()
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let api = self.enter()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: both pointers are to locals.
        unsafe { api.hipMemGetInfo(&raw mut free, &raw mut total) }.ok()?;
        // HIP takes the two from different places: an emulated device had more free than it has.
        Ok(MemoryInfo { free: free.min(total) as u64, total: total as u64 })
    }

    fn can_access_peer(&self, other: usize) -> Result<bool> {
        let (api, mut can) = (&self.api, 0);
        // SAFETY: the pointer is to a local.
        unsafe { api.hipDeviceCanAccessPeer(&raw mut can, self.ordinal(), other as c_int) }.ok()?;
        Ok(can != 0)
    }

    fn enable_peer_access(&self, other: usize) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: no requirement; the flags must be zero.
        let answer = unsafe { api.hipDeviceEnablePeerAccess(other as c_int, 0) };
        if answer.status == Some(Status::PEER_ACCESS_ALREADY_ENABLED) {
            return Ok(());
        }
        answer.ok()
    }
}
