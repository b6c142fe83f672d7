//! Turns the driver's return codes into errors. A code alone cannot tell you what to do, so the common ones get advice.

use std::ffi::c_char;
use std::ptr;

use gpustream_hal::driver::{Codes, Status, text};
use gpustream_hal::{BackendName, Error, ErrorKind, Fault};

use crate::api::Api;
use crate::log;

/// The backend's name, in errors and device names.
pub(crate) const BACKEND: &str = BackendName::CUDA.as_str();

const _: () = {
    use cudarc::driver::sys::CUresult as Bound;
    assert!(size_of::<Status>() == size_of::<Bound>());
    assert!(Status::SUCCESS.0 == Bound::CUDA_SUCCESS as u32);
    assert!(Status::INVALID_VALUE.0 == Bound::CUDA_ERROR_INVALID_VALUE as u32);
    assert!(Status::NO_DEVICE.0 == Bound::CUDA_ERROR_NO_DEVICE as u32);
    assert!(Status::INVALID_DEVICE.0 == Bound::CUDA_ERROR_INVALID_DEVICE as u32);
    assert!(Status::NOT_READY.0 == Bound::CUDA_ERROR_NOT_READY as u32);
    assert!(Status::PEER_ACCESS_ALREADY_ENABLED.0 == Bound::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32);
    assert!(Status::NOT_SUPPORTED.0 == Bound::CUDA_ERROR_NOT_SUPPORTED as u32);
    assert!(Status::CAPTURE_INVALIDATED.0 == Bound::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED as u32);
    assert!(Status::GRAPH_EXEC_UPDATE_FAILURE.0 == Bound::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE as u32);
};

impl Codes for Api {
    const BACKEND: &'static str = BACKEND;
    const INTERFACE: &'static str = "CUDA";
    const PRODUCT: &'static str = "NVIDIA driver";

    fn kind(status: Status) -> ErrorKind {
        match status.0 {
            // Not initialised or shutting down, a stub library, a device without a licence; not ready, compatibility and
            // multi-process service.
            3 | 34 | 102 | 802 | 804..=808 => ErrorKind::DriverUnusable,
            // No compiler in the driver.
            221 => ErrorKind::NoImageForDevice,
            // Uncorrectable link error, contained and unrecoverable faults of newer devices; tensor memory leak;
            // external device failure.
            220 | 226 | 227 | 721 | 911 => ErrorKind::DeviceLost,
            code => ErrorKind::from_driver_code(code as i64),
        }
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn describe(&self, status: Status) -> String {
        let mut words = [ptr::null::<c_char>(); 2];
        let [name, string] = &mut words;
        // SAFETY: both functions take any integer, and write null or a pointer to a static string.
        let _ = unsafe { (self.cuGetErrorName(status, name), self.cuGetErrorString(status, string)) };
        // SAFETY: null, or the driver's own string.
        match words.map(|word| unsafe { text(word) }) {
            [Some(name), Some(text)] => format!("{text} ({name})"),
            _ => format!("CUDA error {}", status.0),
        }
    }

    fn reason(&self, function: &str, status: Status) -> Option<String> {
        log::reason_for(self, function, status)
    }

    fn advice(status: Status, _: ErrorKind) -> &'static str {
        match status.0 {
            2 => "free buffers, use smaller ones, or work through the data in pieces",
            3 => "the driver is shutting down: do not call it while the process exits",
            34 => {
                "the library found is the toolkit's stub, made for linking only: take its folder (…/stubs) off \
                 LD_LIBRARY_PATH and install the NVIDIA driver"
            }
            35 => "install a newer NVIDIA driver",
            46 => "another process holds the device exclusively, or compute mode forbids it: see nvidia-smi",
            100 => {
                "no NVIDIA device is visible: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's GPU access"
            }
            101 => "the device number is out of range: check CUDA_VISIBLE_DEVICES",
            200 => "the image is damaged or not for CUDA: build the kernels again",
            209 => "build the kernels for this device's architecture, or with PTX",
            214 => "the memory hardware failed: see nvidia-smi -q and the system log",
            218 => {
                "the PTX was refused: build the kernels again, with the toolkit version of the driver or older"
            }
            221 => {
                "the driver's libnvidia-ptxjitcompiler is not installed: install it, or build for this architecture"
            }
            222 => "the PTX is newer than the driver: build for this architecture, or install a newer driver",
            223 => "just-in-time compilation is disabled (CUDA_DISABLE_PTX_JIT): build for this architecture",
            700 | 716 | 717 | 718 | 719 | 715 | 714 | 227 => {
                "a kernel did this, at some point before this call; nothing on this device works until the process \
                 ends; GPUSTREAM_BLOCKING=1 names the launch, compute-sanitizer the line"
            }
            701 => {
                "the kernel needs more registers or shared memory than a block of this size can have: use smaller blocks"
            }
            702 => {
                "the kernel ran longer than the display's watchdog allows: use a device without a display, or shorter kernels"
            }
            710 => "an assert in a kernel failed; its message is on standard error",
            720 => {
                "the grid does not fit on the device at once: ask occupancy for the largest cooperative grid"
            }
            802 => "the fabric manager may not run: start it (nvidia-fabricmanager), and see nvidia-smi",
            803 => {
                "the kernel module and the library come from different driver versions: reboot, or reload the nvidia module"
            }
            804 => {
                "the forward-compatibility package does not support this device: remove it from the library path"
            }
            805..=808 => "the multi-process service failed: check it with nvidia-cuda-mps-control",
            900 => {
                "this call is not allowed while a stream is being captured: move it before or after the capture"
            }
            901 => "an earlier call broke the capture: see that call's error",
            904 => {
                "another stream has captured work that was not joined: record an event there, and wait for it before the capture ends"
            }
            905 => "a capture cannot depend on work outside it: record the event and wait for it inside",
            907 => {
                "the event was recorded in a capture, so it only has a meaning there: record it again outside"
            }
            908 => "another thread began the capture: end it on that thread",
            912 => "a cluster is too large: look up the limits of the device",
            999 => {
                "the driver does not say more: if this is its first call, check that the nvidia kernel modules are loaded"
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
