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

/// A device, and the library that we use it through.
pub(crate) struct HipDevice {
    pub(crate) driver: Arc<Driver>,
    /// The driver's functions, for calls on this device.
    pub(crate) api: Api,
    pub(crate) arch: Arch,
    pub(crate) info: DeviceInfo,
    /// The images of loaded modules. We must keep them, because HIP has pointers into them until the module is
    /// unloaded.
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

    /// Makes this the calling thread's device. Nearly every method must do this first.
    #[inline]
    pub(crate) fn enter(&self) -> Result<&Api> {
        self.api.make_current(self.ordinal())?;
        Ok(&self.api)
    }

    /// Returns HIP's number for the device.
    pub(crate) fn ordinal(&self) -> c_int {
        self.info.ordinal as c_int
    }
}

// SAFETY: the facts and answers come from the HIP driver, for this device.
unsafe impl Device for HipDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn context(&self) -> usize {
        // One for each device in a library. It is larger than any number of devices.
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
        // HIP takes the two from different places, so free memory may seem to be more than there is: we saw that on an
        // emulated device.
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
