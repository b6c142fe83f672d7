//! One opened device.

use gpustream_hal::cold_path::cold_path;
use gpustream_hal::device_parts::DeviceParts;
use gpustream_hal::driver::Status;
use gpustream_hal::{Device, DeviceInfo, MemoryInfo, RawStream, Result};

use crate::api::Api;
use crate::context::Context;
use crate::driver::Driver;
use crate::info;
use crate::version::Version;

/// A device and its primary context.
pub(crate) struct CudaDevice {
    pub(crate) driver: &'static Driver,
    pub(crate) context: &'static Context,
    pub(crate) info: DeviceInfo,
    pub(crate) shares: DeviceParts,
}

impl CudaDevice {
    /// Opens device `ordinal` with its primary context, and reads its description.
    pub(crate) fn open(driver: &'static Driver, ordinal: usize) -> Result<Self> {
        let context = driver.context(ordinal)?;
        context.make_current()?;
        let info = info::read(driver, context, ordinal)?;
        Ok(Self { driver, context, info, shares: DeviceParts::default() })
    }

    /// Makes the device's context current on this thread. Nearly every method must do this first.
    #[inline]
    pub(crate) fn enter(&self) -> Result<&'static Api> {
        self.context.make_current()?;
        Ok(&self.context.api)
    }

    /// Returns the driver's functions, for a short call whose handles already tell the driver the context. We need not
    /// look at the thread's context then, and we do not want to, because that would take a tenth of the call's time.
    /// From CUDA 13.0 on we saw such calls succeed on a thread without any context. But the default streams depend on
    /// the thread's context, so for them we must make ours current.
    #[inline]
    pub(crate) fn enter_for(&self, stream: RawStream) -> Result<&'static Api> {
        const LAST_DEFAULT_STREAM: usize = 2;
        if self.driver.version >= Version(13_000) && stream.0 > LAST_DEFAULT_STREAM {
            return Ok(&self.context.api);
        }
        cold_path();
        self.enter()
    }
}

// SAFETY: the facts and answers come from the CUDA driver, for this device.
unsafe impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn context(&self) -> usize {
        self.context.raw.addr()
    }

    fn enter(&self) -> Result<()> {
        Self::enter(self).map(drop)
    }

    fn synchronize(&self) -> Result<()> {
        let api = self.enter()?;
        // SAFETY: no requirement.
        unsafe { api.cuCtxSynchronize() }.ok()
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let api = self.enter()?;
        let (mut free, mut total) = (0_usize, 0_usize);
        // SAFETY: both pointers are to locals.
        unsafe { api.cuMemGetInfo_v2(&raw mut free, &raw mut total) }.ok()?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn can_access_peer(&self, other: usize) -> Result<bool> {
        let (api, mut peer, mut can) = (&self.context.api, 0, 0);
        // SAFETY: both pointers are to locals; if the ordinal is out of range, cuDeviceGet returns an error.
        unsafe {
            api.cuDeviceGet(&raw mut peer, other as i32).ok()?;
            api.cuDeviceCanAccessPeer(&raw mut can, self.context.device, peer).ok()?;
        }
        Ok(can != 0)
    }

    fn enable_peer_access(&self, other: usize) -> Result<()> {
        let peer = self.driver.context(other)?;
        let api = self.enter()?;
        // SAFETY: we never release the peer's context; the flags must be zero.
        let answer = unsafe { api.cuCtxEnablePeerAccess(peer.raw, 0) };
        if answer.status == Some(Status::PEER_ACCESS_ALREADY_ENABLED) {
            return Ok(());
        }
        answer.ok()
    }
}
