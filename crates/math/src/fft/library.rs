//! cuFFT and hipFFT: their functions, and how we find them.

use std::ffi::{c_int, c_longlong, c_void};
use std::sync::OnceLock;

use gpustream::hal::driver::list_missing;
use gpustream::{Device, Error, ErrorKind, Result};

use crate::library::{CUFFT, HIPFFT, Opened, VendorLibrary};
use crate::table::{Names, Vendor, vendor_functions};

/// The handle of a plan of cuFFT.
pub(super) type CudaHandle = c_int;
/// The handle of a plan of hipFFT.
pub(super) type HipHandle = *mut c_void;

vendor_functions! {
    /// The functions of one FFT library.
    Api<Handle = c_int | *mut c_void>, cudarc: [cudarc::cufft::sys];
    text "" | "";
    required {
        create: cufftCreate | hipfftCreate(handle: *mut Handle);
        destroy: cufftDestroy | hipfftDestroy(handle: Handle);
        set_auto_allocation: cufftSetAutoAllocation | hipfftSetAutoAllocation(handle: Handle, automatic: c_int);
        make_plan: cufftMakePlanMany64 | hipfftMakePlanMany64(
            handle: Handle, rank: c_int, lens: *mut c_longlong, input_array: *mut c_longlong, input_step: c_longlong,
            input_distance: c_longlong, output_array: *mut c_longlong, output_step: c_longlong,
            output_distance: c_longlong, kind: u32, batch: c_longlong, work: *mut usize,
        );
        set_stream: cufftSetStream | hipfftSetStream(handle: Handle, stream: *mut c_void);
        set_work_area: cufftSetWorkArea | hipfftSetWorkArea(handle: Handle, memory: *mut c_void);
        complex: cufftExecC2C | hipfftExecC2C(handle: Handle, x: *mut c_void, y: *mut c_void, direction: c_int);
        complex_double: cufftExecZ2Z | hipfftExecZ2Z(
            handle: Handle, x: *mut c_void, y: *mut c_void, direction: c_int
        );
        real_to_half: cufftExecR2C | hipfftExecR2C(handle: Handle, x: *mut c_void, y: *mut c_void);
        real_to_half_double: cufftExecD2Z | hipfftExecD2Z(handle: Handle, x: *mut c_void, y: *mut c_void);
        half_to_real: cufftExecC2R | hipfftExecC2R(handle: Handle, x: *mut c_void, y: *mut c_void);
        half_to_real_double: cufftExecZ2D | hipfftExecZ2D(handle: Handle, x: *mut c_void, y: *mut c_void);
    }
    optional {}
    // For `f16`. The prototypes come from `cufftXt.h` and `hipfftXt.h`.
    unproved {
        make_plan_of_types: cufftXtMakePlanMany | hipfftXtMakePlanMany(
            handle: Handle, rank: c_int, lens: *mut c_longlong, input_array: *mut c_longlong, input_step: c_longlong,
            input_distance: c_longlong, input_type: u32, output_array: *mut c_longlong, output_step: c_longlong,
            output_distance: c_longlong, output_type: u32, batch: c_longlong, work: *mut usize, computed_in: u32,
        );
        transform: cufftXtExec | hipfftXtExec(handle: Handle, x: *mut c_void, y: *mut c_void, direction: c_int);
    }
}

/// Returns the vendor whose library transforms on this device, or `None` for the CPU.
pub(super) fn vendor_of(device: &Device) -> Option<Vendor> {
    Vendor::of(device.info().backend)
}

/// Opens the library for a device, if that is not done.
pub(super) fn prepare(device: &Device) -> Result<()> {
    match vendor_of(device) {
        None => Ok(()),
        Some(Vendor::Nvidia) => nvidia().map(drop),
        Some(Vendor::Amd) => amd().map(drop),
    }
}

/// Returns cuFFT. It is opened once, and stays open.
pub(super) fn nvidia() -> Result<&'static Api<CudaHandle>> {
    static OPENED: OnceLock<Result<Api<CudaHandle>>> = OnceLock::new();
    OPENED.get_or_init(|| open(Vendor::Nvidia, &CUFFT)).as_ref().map_err(Error::clone)
}

/// Returns hipFFT. It is opened once, and stays open.
pub(super) fn amd() -> Result<&'static Api<HipHandle>> {
    static OPENED: OnceLock<Result<Api<HipHandle>>> = OnceLock::new();
    OPENED.get_or_init(|| open(Vendor::Amd, &HIPFFT)).as_ref().map_err(Error::clone)
}

fn open<Handle: Copy>(vendor: Vendor, names: &VendorLibrary) -> Result<Api<Handle>> {
    let Opened { library, name } = names.open()?;
    // SAFETY: it was opened as the vendor's FFT library, and is never closed.
    let (api, missing) = unsafe { Api::load(&library, vendor, Names::Current) };
    if missing.is_empty() {
        return Ok(api);
    }
    let message = format!(
        "{name} cannot be used as {}: it lacks {}; {}",
        names.name,
        list_missing(&missing),
        names.install
    );
    Err(Error::new(ErrorKind::DriverUnusable, message))
}

impl<Handle: Copy> Api<Handle> {
    /// Returns the error for a status, or for a function that the library lacks. Both libraries have the same numbers.
    #[cold]
    pub(super) fn failure(&self, function: &'static str, status: Option<u32>) -> Error {
        let product = match self.vendor {
            Vendor::Nvidia => "cufft",
            Vendor::Amd => "hipfft",
        };
        let Some(status) = status else {
            let message = format!("this library has no function {function}; install a newer version");
            return Error::new(ErrorKind::Unsupported, message).with_backend(product);
        };
        let (kind, words) = match status {
            2 => (ErrorKind::OutOfMemory, "it could not allocate memory"),
            4 => (ErrorKind::InvalidArgument, "an argument is invalid"),
            5 => (ErrorKind::External, "an internal error of the library or the driver"),
            6 => (ErrorKind::External, "the transform failed on the device"),
            7 => (ErrorKind::External, "the library could not be initialised"),
            8 => (ErrorKind::InvalidArgument, "a length is invalid"),
            14 | 16 => (ErrorKind::Unsupported, "the library has no such transform"),
            _ => (ErrorKind::External, "the library gives no reason"),
        };
        let words = self.words(status).unwrap_or_else(|| words.to_owned());
        Error::new(kind, words).with_backend(product).with_call(function, i64::from(status))
    }
}
