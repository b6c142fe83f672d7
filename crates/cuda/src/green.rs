//! Green contexts: parts of a device, each a group of multiprocessors, in which streams can be made.

use std::mem::MaybeUninit;
use std::ptr;

use cudarc::driver::sys::CUdevice;
use cudarc::driver::sys::CUstream_flags::CU_STREAM_NON_BLOCKING;
use gpustream_hal::driver::Status;
use gpustream_hal::{RawStream, Result};

use crate::api::Api;
use crate::declarations::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
use crate::declarations::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM;
use crate::declarations::{CUdevResource, CUgreenCtx};

/// Multiprocessors of a device, as the driver describes them.
#[derive(Clone, Copy)]
pub(crate) struct Group(MaybeUninit<CUdevResource>);

impl Group {
    /// Newer drivers have fields behind the ones that are known here: zero, or null.
    const EMPTY: Self = Self(MaybeUninit::zeroed());

    /// Splits a device into groups of at least so many multiprocessors; the driver rounds the number up. There is at least
    /// one group: the whole device where no smaller one has that size.
    pub(crate) fn split(api: &Api, device: CUdevice, least: u32) -> Result<Vec<Self>> {
        let (mut all, mut count) = (Self::EMPTY, 0);
        let (no_list, no_rest) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the pointers are to locals; without a list the driver only counts.
        let counted = unsafe {
            api.cuDeviceGetDevResource(device, all.0.as_mut_ptr(), CU_DEV_RESOURCE_TYPE_SM).ok()?;
            api.cuDevSmResourceSplitByCount(no_list, &raw mut count, all.0.as_ptr(), no_rest, 0, least)
        };
        if counted.status != Some(Status::INVALID_RESOURCE_CONFIGURATION) {
            counted.ok()?;
        }
        let mut groups = vec![Self::EMPTY; count as usize];
        if count > 0 {
            let list = groups.as_mut_ptr().cast();
            // SAFETY: the pointers are to locals; the list has room for `count` groups.
            let split = unsafe {
                api.cuDevSmResourceSplitByCount(list, &raw mut count, all.0.as_ptr(), no_rest, 0, least)
            };
            split.ok()?;
            groups.truncate(count as usize);
        }
        if groups.is_empty() {
            groups.push(all);
        }
        Ok(groups)
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        // SAFETY: every byte was zero or the driver's, and any number is one of this field.
        unsafe { (&raw const (*self.0.as_ptr()).__bindgen_anon_1.sm.smCount).read() }
    }
}

/// A green context of one stream. Modules, memory and events are the primary context's, of which it is a part.
pub(crate) struct Green(CUgreenCtx);

// SAFETY: a handle, which the driver accepts from any thread, from one at a time; a value is moved and never shared.
unsafe impl Send for Green {}

impl Green {
    /// Makes a context on a group of the device, and a stream in it.
    pub(crate) fn with_stream(
        api: &Api,
        device: CUdevice,
        mut group: Group,
        priority: i32,
    ) -> Result<(RawStream, Self)> {
        let (mut descriptor, mut green, mut stream) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (with_default, non_blocking) =
            (CU_GREEN_CTX_DEFAULT_STREAM as u32, CU_STREAM_NON_BLOCKING as u32);
        // SAFETY: the pointers are to locals; the group is one that the driver made.
        unsafe {
            api.cuDevResourceGenerateDesc(&raw mut descriptor, group.0.as_mut_ptr(), 1).ok()?;
            api.cuGreenCtxCreate(&raw mut green, descriptor, device, with_default).ok()?;
        }
        let green = Self(green);
        // SAFETY: the pointer is to a local, and the context was just made.
        let made = unsafe { api.cuGreenCtxStreamCreate(&raw mut stream, green.0, non_blocking, priority) };
        if let Err(refused) = made.ok() {
            // SAFETY: the context has no stream. A failure leaves nothing to do.
            let _ = unsafe { green.destroy(api) };
            return Err(refused);
        }
        Ok((RawStream(stream as usize), green))
    }

    /// Destroys the context, whose stream is gone (`cuGreenCtxDestroy`).
    ///
    /// # Safety
    /// The context's stream has been destroyed, with its work done; no graph has nodes from the stream.
    pub(crate) unsafe fn destroy(self, api: &Api) -> Result<()> {
        // SAFETY: by this function's contract.
        unsafe { api.cuGreenCtxDestroy(self.0) }.ok()
    }
}
