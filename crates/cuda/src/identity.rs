//! The names of a device.

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{CUdevice, CUuuid};
use gpustream_hal::driver::Answer;
use gpustream_hal::identity::uuid_text;
use gpustream_hal::{Identity, Result};

use crate::api::Api;

/// Returns the names that NVIDIA's tools use for a device with this product name. Needs no context.
pub(crate) fn identity(api: &Api, device: CUdevice, name: &str) -> Identity {
    // SAFETY: the pointers are to a local.
    let of_gpu = uuid(|to| unsafe { api.cuDeviceGetUuid(to, device) });
    // SAFETY: as above.
    let own = uuid(|to| unsafe { api.cuDeviceGetUuid_v2(to, device) });
    let is_instance = own != of_gpu && of_gpu.is_some() || name.split_whitespace().any(|word| word == "MIG");
    let prefix = if is_instance { "MIG-" } else { "GPU-" };
    let mut text: [c_char; 32] = [0; 32];
    let room = text.len() as c_int - 1;
    // SAFETY: the buffer is that large, and a zero follows.
    let placed = unsafe { api.cuDeviceGetPCIBusId(text.as_mut_ptr(), room, device) }.ok().is_ok();
    // SAFETY: the last byte is zero, whatever the driver wrote before it.
    let place = unsafe { CStr::from_ptr(text.as_ptr()) };
    Identity {
        uuid: own.map(|bytes| uuid_text(prefix, bytes)),
        pci: place.to_str().ok().filter(|_| placed).and_then(|place| place.parse().ok()),
    }
}

fn uuid<'a>(ask: impl FnOnce(*mut CUuuid) -> Answer<'a, Api>) -> Option<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    ask(&raw mut uuid).ok().ok()?;
    Some(uuid.bytes.map(|byte| byte as u8))
}

pub(crate) fn name(api: &Api, device: CUdevice) -> Result<String> {
    let mut name: [c_char; 256] = [0; 256];
    let room = name.len() as c_int - 1;
    // SAFETY: the buffer is that large, and a zero follows.
    unsafe { api.cuDeviceGetName(name.as_mut_ptr(), room, device) }.ok()?;
    // SAFETY: the last byte is zero, whatever the driver wrote before it.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}
