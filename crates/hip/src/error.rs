//! From HIP's return codes to errors.

use std::ffi::{CStr, c_char};

use gpustream_hal::{Error, ErrorKind, Result};

use crate::api::Api;

/// The backend's name, in errors and device names.
pub(crate) const BACKEND: &str = "hip";

/// What a HIP function returned: `hipError_t` as an integer, because ROCm 6 and 7 return codes that the
/// bindings' enumeration lacks, and a Rust enumeration may not hold those.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    pub(crate) const GRAPH_EXEC_UPDATE_FAILURE: Self = Self(910);
}

#[cfg(feature = "hip-runtime-sys")]
const _: () = {
    use hip_runtime_sys::hipError_t as Bound;
    assert!(size_of::<Status>() == size_of::<Bound>());
    assert!(Status::SUCCESS.0 == Bound::hipSuccess as u32);
    assert!(Status::INVALID_VALUE.0 == Bound::hipErrorInvalidValue as u32);
    assert!(Status::NO_DEVICE.0 == Bound::hipErrorNoDevice as u32);
    assert!(Status::INVALID_DEVICE.0 == Bound::hipErrorInvalidDevice as u32);
    assert!(Status::NOT_READY.0 == Bound::hipErrorNotReady as u32);
    assert!(Status::PEER_ACCESS_ALREADY_ENABLED.0 == Bound::hipErrorPeerAccessAlreadyEnabled as u32);
    assert!(Status::GRAPH_EXEC_UPDATE_FAILURE.0 == Bound::hipErrorGraphExecUpdateFailure as u32);
};

/// A HIP function as the library's users know it.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its symbol.
    pub(crate) name: &'static str,
    /// The HIP version it appeared in.
    pub(crate) since: &'static str,
}

/// What became of one call: its status, or nothing where the library lacks the function.
///
/// Only return codes are looked at, never `hipGetLastError`: a success resets it up to ROCm 6, and nothing
/// does from 7 on.
#[must_use]
pub(crate) struct Answer<'a> {
    pub(crate) api: &'a Api,
    pub(crate) function: &'static Function,
    pub(crate) status: Option<Status>,
}

impl Answer<'_> {
    /// Success, or the error.
    #[inline]
    pub(crate) fn ok(self) -> Result<()> {
        if self.status == Some(Status::SUCCESS) { Ok(()) } else { Err(self.error()) }
    }

    /// Whether what was asked about is done: `hipErrorNotReady` is an answer, not a failure.
    #[inline]
    pub(crate) fn ready(self) -> Result<bool> {
        match self.status {
            Some(Status::SUCCESS) => Ok(true),
            Some(Status::NOT_READY) => Ok(false),
            _ => Err(self.error()),
        }
    }

    /// Success for a launch: HIP answers "invalid value" where the shape is at fault.
    #[inline]
    pub(crate) fn launched(self) -> Result<()> {
        match self.status {
            Some(Status::SUCCESS) => Ok(()),
            Some(Status::INVALID_VALUE) => Err(self.error_of_kind(ErrorKind::InvalidLaunch)),
            _ => Err(self.error()),
        }
    }

    #[cold]
    fn error(self) -> Error {
        let kind = match self.status {
            None => ErrorKind::Unsupported,
            Some(Status(code)) => ErrorKind::from_driver_code(i64::from(code)),
        };
        self.error_of_kind(kind)
    }

    #[cold]
    fn error_of_kind(self, kind: ErrorKind) -> Error {
        let Function { name, since } = *self.function;
        let Some(status) = self.status else {
            let message =
                format!("this library has no {name}, which HIP {since} brought: install a newer ROCm");
            return Error::new(ErrorKind::Unsupported, message).with_backend(BACKEND);
        };
        let mut message = self.api.describe(status);
        let advice = advice(kind);
        if !advice.is_empty() {
            message.push_str("; ");
            message.push_str(advice);
        }
        Error::new(kind, message).with_backend(BACKEND).with_call(name, i64::from(status.0))
    }
}

/// What to do about a kind of failure; empty where nothing general can be said.
const fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::OutOfMemory => "free buffers, use smaller ones, or work through the data in pieces",
        ErrorKind::InvalidLaunch => "see the device's and the kernel's limits; smaller blocks need less",
        ErrorKind::NoImageForDevice => "build the kernels for this device's processor as well",
        ErrorKind::DeviceLost => {
            "a kernel or the hardware did this, at some point before this call; the device works again in a new \
             process; GPUSTREAM_BLOCKING=1 names the launch"
        }
        _ => "",
    }
}

/// An error of this backend that no driver call caused.
#[cold]
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).with_backend(BACKEND)
}

/// A string the library owns, or nothing for null.
///
/// # Safety
/// `text` is null or a C string that lives for the whole program.
pub(crate) unsafe fn library_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and a C string by this function's contract.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
