//! The names of a device.

use std::ffi::{CStr, c_char, c_int};

use gpustream_hal::identity::uuid_text;
use gpustream_hal::{Identity, Result};

use crate::api::Api;
use crate::ffi::hipUUID;

/// Returns the names that AMD's tools use for a device.
pub(crate) fn identity(api: &Api, device: c_int) -> Identity {
    let mut uuid = hipUUID { bytes: [0; 16] };
    // SAFETY: the pointer is to a local.
    let numbered = unsafe { api.hipDeviceGetUuid(&raw mut uuid, device) }.ok().is_ok();
    let mut text: [c_char; 32] = [0; 32];
    let room = text.len() as c_int - 1;
    // SAFETY: the buffer is that large, and a zero follows.
    let placed = unsafe { api.hipDeviceGetPCIBusId(text.as_mut_ptr(), room, device) }.ok().is_ok();
    // SAFETY: the last byte is zero, whatever the driver wrote before it.
    let place = unsafe { CStr::from_ptr(text.as_ptr()) };
    Identity {
        uuid: Some(uuid.bytes).filter(|_| numbered).and_then(uuid_of),
        pci: place.to_str().ok().filter(|_| placed).and_then(|place| place.parse().ok()),
    }
}

/// Returns the UUID for HIP's bytes. AMD's runtime writes the last 16 letters of `GPU-0123456789abcdef`, or `XX` if the device
/// has no number. Other vendors write numbers.
fn uuid_of(bytes: [u8; 16]) -> Option<String> {
    match bytes {
        bytes if bytes.iter().all(u8::is_ascii_hexdigit) => {
            Some(format!("GPU-{}", String::from_utf8_lossy(&bytes)))
        }
        [0, ..] | [b'X', b'X', 0, ..] => None,
        bytes => Some(uuid_text("GPU-", bytes)),
    }
}

pub(crate) fn name(api: &Api, device: c_int) -> Result<String> {
    let mut name: [c_char; 256] = [0; 256];
    let room = name.len() as c_int - 1;
    // SAFETY: the buffer is that large, and a zero follows.
    unsafe { api.hipDeviceGetName(name.as_mut_ptr(), room, device) }.ok()?;
    // SAFETY: the last byte is zero, whatever the driver wrote before it.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::uuid_of;

    #[test]
    fn amds_letters_are_the_name_that_its_tools_write() {
        assert_eq!(uuid_of(*b"0123456789abcdef").as_deref(), Some("GPU-0123456789abcdef"));
        let mut none = [0; 16];
        assert_eq!(uuid_of(none), None);
        none[..2].copy_from_slice(b"XX");
        assert_eq!(uuid_of(none), None);
        assert_eq!(uuid_of([0x9a; 16]).as_deref(), Some("GPU-9a9a9a9a-9a9a-9a9a-9a9a-9a9a9a9a9a9a"));
    }
}
