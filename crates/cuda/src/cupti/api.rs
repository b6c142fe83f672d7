//! The CUPTI functions that this backend calls, and how we find the library.
//!
//! We write the types ourselves. With its own, cudarc would take twice as long to compile. So only our tests use them,
//! to check ours.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::ptr;

use cudarc::driver::sys::CUcontext;
use gpustream_hal::driver::{Codes, Status, list_missing, text};
use gpustream_hal::library::{Search, file_of};
use gpustream_hal::{ErrorKind, Result, functions};

use super::record::kind;
#[cfg(test)]
use crate::api::prove;
use crate::driver::found;
use crate::error::{BACKEND, error};
use crate::library::cupti_names;

#[cfg(test)]
mod bindings {
    pub(super) use cudarc::cupti::sys::*;
    pub(super) use cudarc::driver::sys::CUcontext;
}

/// CUPTI's own names.
#[allow(non_camel_case_types)]
mod types {
    use super::{CUcontext, Status, c_void};

    pub(crate) type CUptiResult = Status;
    pub(crate) type CUpti_ActivityKind = u32;
    pub(crate) type CUpti_ExternalCorrelationKind = u32;
    pub(crate) type CUpti_CallbackId = u32;
    pub(crate) type CUpti_ActivityAttribute = u32;
    /// We read this as bytes, because its layout depends on the kind.
    pub(crate) type CUpti_Activity = c_void;
    pub(crate) type CUpti_SubscriberHandle = *mut c_void;
    pub(crate) type CUpti_CallbackFunc =
        Option<unsafe extern "C" fn(*mut c_void, u32, CUpti_CallbackId, *const c_void)>;
    pub(crate) type CUpti_TimestampCallbackFunc = Option<unsafe extern "C" fn() -> u64>;
    pub(crate) type CUpti_BuffersCallbackRequestFunc =
        Option<unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize)>;
    pub(crate) type CUpti_BuffersCallbackCompleteFunc =
        Option<unsafe extern "C" fn(CUcontext, u32, *mut u8, usize, usize)>;
}
#[allow(clippy::wildcard_imports)] // CUPTI's own names.
pub(crate) use types::*;

/// Compares the prototypes with cudarc's if tests are built.
macro_rules! prove_in_tests {
    ($($table:tt)*) => {
        #[cfg(test)]
        prove! { $($table)* }
    };
}

functions! {
    /// The functions of one CUPTI.
    Api -> CUptiResult, proved by prove_in_tests;
    texts { }
    required "12.0" {
        cuptiGetVersion(version: *mut u32);
        cuptiGetResultString(status: CUptiResult, text: *mut *const c_char);
        cuptiSubscribe(subscriber: *mut CUpti_SubscriberHandle, callback: CUpti_CallbackFunc, data: *mut c_void);
        cuptiUnsubscribe(subscriber: CUpti_SubscriberHandle);
        cuptiActivityRegisterTimestampCallback(timestamp: CUpti_TimestampCallbackFunc);
        cuptiActivityRegisterCallbacks(
            requested: CUpti_BuffersCallbackRequestFunc, completed: CUpti_BuffersCallbackCompleteFunc
        );
        cuptiActivityEnable(kind: CUpti_ActivityKind);
        cuptiActivityDisable(kind: CUpti_ActivityKind);
        cuptiActivityPushExternalCorrelationId(kind: CUpti_ExternalCorrelationKind, id: u64);
        cuptiActivityPopExternalCorrelationId(kind: CUpti_ExternalCorrelationKind, last: *mut u64);
        cuptiActivityFlushAll(flags: u32);
        cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut CUpti_Activity);
        cuptiActivityGetNumDroppedRecords(context: CUcontext, stream: u32, dropped: *mut usize);
    }

    optional "12.5" {
        cuptiActivityEnableDriverApi(function: CUpti_CallbackId, enable: u8);
        cuptiActivitySetAttribute(attribute: CUpti_ActivityAttribute, size: *mut usize, value: *mut c_void);
    }
}

/// The attribute that gives each thread its own buffers.
pub(crate) const PER_THREAD_BUFFERS: CUpti_ActivityAttribute = 9;

/// The flag that makes `cuptiActivityFlushAll` also return buffers with unfinished records.
pub(crate) const FLUSH_FORCED: u32 = 1;
/// The marker that tells our numbers from those of other tools. We avoid the first two, because PyTorch's profiler gives them to
/// users.
pub(crate) const CORRELATION_KIND: CUpti_ExternalCorrelationKind = 5;

/// The kinds of records that we ask for. Without the driver's functions, CUPTI writes no external correlations.
pub(crate) const KINDS: [CUpti_ActivityKind; 6] = [
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMCPY2,
    kind::MEMSET,
    kind::EXTERNAL_CORRELATION,
    kind::DRIVER,
];

/// Defines a list of driver functions. If tests are built, it also compares their numbers with cudarc's.
macro_rules! driver_functions {
    ($(#[$meta:meta])* $list:ident: $($name:ident = $number:literal,)*) => {
        $(#[$meta])*
        pub(crate) const $list: &[CUpti_CallbackId] = &[$($number),*];
        #[cfg(test)]
        const _: () = { $( assert!(bindings::CUpti_driver_api_trace_cbid_enum::$name as u32 == $number); )* };
    };
}

driver_functions! {
    /// The driver functions that we call often, but that give the device nothing to run. To record them would only take time.
    SILENT:
    CUPTI_DRIVER_TRACE_CBID_cuEventCreate = 118,
    CUPTI_DRIVER_TRACE_CBID_cuEventRecord = 119,
    CUPTI_DRIVER_TRACE_CBID_cuEventQuery = 120,
    CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize = 121,
    CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime = 123,
    CUPTI_DRIVER_TRACE_CBID_cuStreamQuery = 125,
    CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize = 126,
    CUPTI_DRIVER_TRACE_CBID_cuMemGetInfo_v2 = 242,
    CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent = 295,
    CUPTI_DRIVER_TRACE_CBID_cuCtxSetCurrent = 303,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent = 304,
    CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttribute = 310,
    CUPTI_DRIVER_TRACE_CBID_cuEventDestroy_v2 = 325,
    CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing = 499,
    CUPTI_DRIVER_TRACE_CBID_cuStreamGetCaptureInfo_v2 = 629,
    CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams_v2 = 692,
}

const OUT_OF_MEMORY: u32 = 8;
/// What `cuptiActivityGetNextRecord` returns after the last record.
pub(crate) const MAX_LIMIT_REACHED: Status = Status(12);

impl Codes for Api {
    const BACKEND: &'static str = BACKEND;
    const INTERFACE: &'static str = "CUPTI of CUDA";
    const PRODUCT: &'static str = "CUDA toolkit";

    fn kind(status: Status) -> ErrorKind {
        if status.0 == OUT_OF_MEMORY { ErrorKind::OutOfMemory } else { ErrorKind::Unsupported }
    }

    fn describe(&self, status: Status) -> String {
        let mut words = ptr::null();
        // SAFETY: the pointer is to a local; the function takes any number.
        let answer = unsafe { self.cuptiGetResultString(status, &raw mut words) };
        let known = answer.status == Some(Status::SUCCESS);
        // SAFETY: after a success, it is null or a string in the library, which we never close.
        let words = if known { unsafe { text(words) } } else { None };
        words.unwrap_or_else(|| format!("CUPTI error {}", status.0))
    }

    fn advice(status: Status, _: ErrorKind) -> &'static str {
        match status.0 {
            14 | 15 => {
                "this CUPTI does not fit the driver: install the toolkit with the version of the driver"
            }
            35 | 40 => {
                "the driver only lets administrators measure: load the nvidia module with \
                 NVreg_RestrictProfilingToAdminUsers=0"
            }
            39 => {
                "another tool measures this process (Nsight Systems, Nsight Compute, a debugger, PyTorch's profiler), but \
                 CUPTI can only serve one: stop the other tool"
            }
            _ => "",
        }
    }
}

/// A version of CUPTI, as `cuptiGetVersion` returns it: 19 to 28 in CUDA 12, then 130000 for 13.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(pub(crate) u32);

impl Version {
    /// Returns true if we can read records from this version, because we have compared their layouts with what `record`
    /// reads. The tests do so up to 13.4. We compared 13.5 by hand with its headers, because cudarc has no bindings for
    /// it yet.
    pub(crate) const fn is_known(self) -> bool {
        matches!(self.0, 19..=28 | 130_000..=130_599)
    }
}

impl fmt::Display for Version {
    /// `CUPTI 13.0`; older numbers have no point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            old @ ..10_000 => write!(f, "CUPTI v{old}"),
            new => write!(f, "CUPTI {}.{}", new / 10_000, new / 100 % 100),
        }
    }
}

/// A CUPTI that was found.
pub(crate) struct Library {
    pub(crate) api: Api,
    pub(crate) version: Version,
    pub(crate) path: Option<PathBuf>,
}

impl Library {
    /// Opens the library that the environment names, or else the first one installed.
    ///
    /// # Errors
    /// `Unsupported`, with each name that we tried, if there is no known version.
    pub(crate) fn open() -> Result<Self> {
        let driver_major = found().driver.as_ref().map_or(13, |driver| driver.version.major());
        // SAFETY: the names are CUPTI's.
        let search = unsafe { Search::open("GPUSTREAM_CUPTI_LIBRARY", cupti_names(driver_major)) };
        let Some(library) = search.library.map(ManuallyDrop::new) else {
            let message = format!(
                "measuring when operations run needs CUPTI, which was not found; install it (part of the CUDA toolkit, or \
                 the Python package nvidia-cuda-cupti), or set GPUSTREAM_CUPTI_LIBRARY; tried: {}",
                search.tried.join("; ")
            );
            return Err(error(ErrorKind::Unsupported, message));
        };
        // SAFETY: we open it as CUPTI and never close it.
        let (api, missing) = unsafe { Api::load(&library) };
        let path = api.cuptiGetVersion.and_then(|function| file_of(function as usize));
        if !missing.is_empty() {
            let message = format!(
                "this CUPTI is too old, because it lacks {}: install a newer one",
                list_missing(&missing)
            );
            return Err(error(ErrorKind::Unsupported, message));
        }
        let mut version = 0;
        // SAFETY: the pointer is to a local.
        unsafe { api.cuptiGetVersion(&raw mut version) }.ok_or(ErrorKind::Unsupported)?;
        let version = Version(version);
        if !version.is_known() {
            let message = format!(
                "we only know the records of CUPTI from CUDA 12.0 to 13.5, but found {version}: set GPUSTREAM_CUPTI_LIBRARY to one \
                 of those"
            );
            return Err(error(ErrorKind::Unsupported, message));
        }
        Ok(Self { api, version, path })
    }
}

#[cfg(test)]
const _: () = {
    use bindings::{CUpti_ActivityFlag, CUpti_ExternalCorrelationKind as Correlation, CUptiResult as Bound};
    assert!(size_of::<CUptiResult>() == size_of::<Bound>());
    assert!(Status::SUCCESS.0 == Bound::CUPTI_SUCCESS as u32);
    assert!(OUT_OF_MEMORY == Bound::CUPTI_ERROR_OUT_OF_MEMORY as u32);
    assert!(MAX_LIMIT_REACHED.0 == Bound::CUPTI_ERROR_MAX_LIMIT_REACHED as u32);
    assert!(FLUSH_FORCED == CUpti_ActivityFlag::CUPTI_ACTIVITY_FLAG_FLUSH_FORCED as u32);
    assert!(CORRELATION_KIND == Correlation::CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 as u32);
};
