//! Turns HIP's return codes into errors. A code alone cannot tell you what to do, so the common kinds get advice.

use gpustream_hal::driver::{Codes, Status};
use gpustream_hal::{BackendName, Error, ErrorKind, Fault};

use crate::api::Api;

/// The backend's name, in errors and device names.
pub(crate) const BACKEND: &str = BackendName::HIP.as_str();

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
    assert!(Status::NOT_SUPPORTED.0 == Bound::hipErrorNotSupported as u32);
    assert!(Status::GRAPH_EXEC_UPDATE_FAILURE.0 == Bound::hipErrorGraphExecUpdateFailure as u32);
};

impl Codes for Api {
    const BACKEND: &'static str = BACKEND;
    const INTERFACE: &'static str = "HIP";
    const PRODUCT: &'static str = "ROCm";

    fn kind(status: Status) -> ErrorKind {
        ErrorKind::from_driver_code(i64::from(status.0))
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn describe(&self, status: Status) -> String {
        match (self.hipGetErrorName(status), self.hipGetErrorString(status)) {
            (Some(name), Some(text)) if name != text => format!("{text} ({name})"),
            (Some(name), _) => name,
            (None, _) => format!("HIP error {}", status.0),
        }
    }

    fn advice(_: Status, kind: ErrorKind) -> &'static str {
        match kind {
            ErrorKind::OutOfMemory => "free buffers, use smaller ones, or work through the data in pieces",
            ErrorKind::InvalidLaunch => {
                "compare it with the limits of the device and the kernel; smaller blocks need less"
            }
            ErrorKind::NoImageForDevice => "build the kernels for this device's processor as well",
            ErrorKind::DeviceLost => {
                "a kernel or the hardware did this, at some point before this call; the device works again in a \
                 new process; GPUSTREAM_BLOCKING=1 names the launch"
            }
            _ => "",
        }
    }
}

/// Returns an error from this backend, for a failure that no driver call caused.
#[cold]
pub(crate) fn error(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).with_backend(BACKEND)
}
