//! Green contexts: parts of a device. Each is a group of multiprocessors, and you can make streams in it. So a long
//! kernel there cannot take the other multiprocessors.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;

use cudarc::driver::sys::CUdevice;
use cudarc::driver::sys::CUstream_flags::CU_STREAM_NON_BLOCKING;
use gpustream_hal::driver::Status;
use gpustream_hal::lock::lock;
use gpustream_hal::{RawStream, Result};

use crate::api::Api;
use crate::declarations::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
use crate::declarations::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM;
use crate::declarations::{CUdevResource, CUgreenCtx};

/// Some multiprocessors of a device, as the driver describes them.
#[derive(Clone, Copy)]
pub(crate) struct SmGroup(MaybeUninit<CUdevResource>);

impl SmGroup {
    /// Newer drivers have fields after the ones that we know: zero, or null.
    const EMPTY: Self = Self(MaybeUninit::zeroed());

    /// Splits a device into groups with at least this many multiprocessors; the driver may round the number up. There is always
    /// at least one group: if no smaller one is large enough, it is the whole device.
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
        // SAFETY: every byte was zero or came from the driver, and this field can hold any number.
        unsafe { (&raw const (*self.0.as_ptr()).__bindgen_anon_1.sm.smCount).read() }
    }
}

/// A green context. It is a part of the primary context, which owns modules, memory and events.
#[derive(Clone, Copy)]
pub(crate) struct GreenContext(CUgreenCtx);

// SAFETY: the driver accepts this handle from any thread.
unsafe impl Send for GreenContext {}

/// A device's green contexts, by the number of multiprocessors and by the group's index among those of that size.
///
/// We keep them until the process ends, and all streams on a group share its context, because driver 580 never returns the 4 MiB
/// of device memory that a green context takes. A stream in one takes nothing. We measured this on an H100.
#[derive(Default)]
pub(crate) struct GreenContexts(Mutex<HashMap<(u32, usize), GreenContext>>);

impl GreenContexts {
    /// Returns the context for a group. The first call makes it.
    pub(crate) fn of(
        &self,
        api: &Api,
        device: CUdevice,
        key: (u32, usize),
        mut group: SmGroup,
    ) -> Result<GreenContext> {
        let mut greens = lock(&self.0);
        if let Some(&known) = greens.get(&key) {
            return Ok(known);
        }
        let (mut descriptor, mut raw) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the pointers are to locals; the driver made the group.
        unsafe {
            api.cuDevResourceGenerateDesc(&raw mut descriptor, group.0.as_mut_ptr(), 1).ok()?;
            api.cuGreenCtxCreate(&raw mut raw, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM as u32)
                .ok()?;
        }
        Ok(*greens.entry(key).or_insert(GreenContext(raw)))
    }
}

impl GreenContext {
    pub(crate) fn stream(self, api: &Api, priority: i32) -> Result<RawStream> {
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is to a local; we never destroy the context.
        unsafe {
            api.cuGreenCtxStreamCreate(&raw mut stream, self.0, CU_STREAM_NON_BLOCKING as u32, priority)
        }
        .ok()?;
        Ok(RawStream(stream as usize))
    }
}
