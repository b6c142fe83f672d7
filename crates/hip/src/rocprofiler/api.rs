//! The rocprofiler-sdk functions that this backend calls, and how we find the library.
//!
//! No crate has bindings for them. We once compared the prototypes and constants, with a C compiler, with the headers
//! of 0.4.0 (ROCm 6.2), 0.5.0, 0.6.0 (ROCm 6.4) and 1.0.0 (ROCm 7.0). They differ only in `const` and in one sign:
//! whether the number of an operation may be negative.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::PathBuf;

use gpustream_hal::driver::{Codes, Status, list_missing};
use gpustream_hal::library::{Search, expose, file_of};
use gpustream_hal::{ErrorKind, Result, functions};

use crate::error::{BACKEND, error};
use crate::library::rocprofiler_names;

/// rocprofiler-sdk's own names. A handle is a struct with one integer, so we pass that integer.
#[allow(non_camel_case_types)]
mod types {
    use super::{Status, c_char, c_int, c_void};

    pub(crate) type rocprofiler_status_t = Status;
    pub(crate) type rocprofiler_context_id_t = u64;
    pub(crate) type rocprofiler_buffer_id_t = u64;
    pub(crate) type rocprofiler_timestamp_t = u64;
    pub(crate) type rocprofiler_buffer_policy_t = u32;
    pub(crate) type rocprofiler_buffer_tracing_kind_t = u32;
    pub(crate) type rocprofiler_callback_tracing_kind_t = u32;
    pub(crate) type rocprofiler_tracing_operation_t = u32;
    pub(crate) type rocprofiler_external_correlation_id_request_kind_t = u32;
    /// Its record is passed by value, and depends on the version.
    pub(crate) type rocprofiler_callback_tracing_cb_t = *const c_void;

    /// The fields of `rocprofiler_tool_configure_result_t`.
    #[repr(C)]
    pub(crate) struct rocprofiler_tool_configure_result_t {
        pub(crate) size: usize,
        pub(crate) initialize: unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int,
        pub(crate) finalize: unsafe extern "C" fn(*mut c_void),
        pub(crate) tool_data: *mut c_void,
    }

    pub(crate) type rocprofiler_configure_func_t =
        unsafe extern "C" fn(
            u32,
            *const c_char,
            u32,
            *mut c_void,
        ) -> *mut rocprofiler_tool_configure_result_t;
    pub(crate) type rocprofiler_intercept_library_cb_t =
        unsafe extern "C" fn(u32, u64, u64, *mut *mut c_void, u64, *mut c_void);
    pub(crate) type rocprofiler_external_correlation_id_request_cb_t = unsafe extern "C" fn(
        u64,
        rocprofiler_context_id_t,
        rocprofiler_external_correlation_id_request_kind_t,
        rocprofiler_tracing_operation_t,
        u64,
        *mut u64,
        *mut c_void,
    ) -> c_int;

    /// The front of a record in a buffer.
    #[repr(C)]
    pub(crate) struct rocprofiler_record_header_t {
        pub(crate) category: u32,
        pub(crate) kind: u32,
        pub(crate) payload: *const c_void,
    }

    pub(crate) type rocprofiler_buffer_tracing_cb_t = unsafe extern "C" fn(
        rocprofiler_context_id_t,
        rocprofiler_buffer_id_t,
        *mut *mut rocprofiler_record_header_t,
        usize,
        *mut c_void,
        u64,
    );
}
#[allow(clippy::wildcard_imports)] // rocprofiler-sdk's own names.
pub(crate) use types::*;

/// Other tables are compared with bindings at this point.
macro_rules! unproved {
    ($($table:tt)*) => {};
}

functions! {
    /// The functions of one rocprofiler-sdk.
    Api -> rocprofiler_status_t, proved by unproved;
    texts { rocprofiler_get_status_name, rocprofiler_get_status_string }
    required "0.4" {
        rocprofiler_get_version(major: *mut u32, minor: *mut u32, patch: *mut u32);
        rocprofiler_get_timestamp(time: *mut rocprofiler_timestamp_t);
        rocprofiler_force_configure(configure: rocprofiler_configure_func_t);
        rocprofiler_at_intercept_table_registration(
            callback: rocprofiler_intercept_library_cb_t, libraries: c_int, data: *mut c_void
        );
        rocprofiler_create_context(context: *mut rocprofiler_context_id_t);
        rocprofiler_start_context(context: rocprofiler_context_id_t);
        rocprofiler_stop_context(context: rocprofiler_context_id_t);
        rocprofiler_create_buffer(
            context: rocprofiler_context_id_t, size: usize, watermark: usize, policy: rocprofiler_buffer_policy_t,
            callback: rocprofiler_buffer_tracing_cb_t, data: *mut c_void, buffer: *mut rocprofiler_buffer_id_t
        );
        rocprofiler_flush_buffer(buffer: rocprofiler_buffer_id_t);
        rocprofiler_configure_buffer_tracing_service(
            context: rocprofiler_context_id_t, kind: rocprofiler_buffer_tracing_kind_t,
            operations: *const rocprofiler_tracing_operation_t, count: usize, buffer: rocprofiler_buffer_id_t
        );
        rocprofiler_configure_callback_tracing_service(
            context: rocprofiler_context_id_t, kind: rocprofiler_callback_tracing_kind_t,
            operations: *const rocprofiler_tracing_operation_t, count: usize,
            callback: rocprofiler_callback_tracing_cb_t, data: *mut c_void
        );
        rocprofiler_configure_external_correlation_id_request_service(
            context: rocprofiler_context_id_t,
            kinds: *const rocprofiler_external_correlation_id_request_kind_t, count: usize,
            callback: rocprofiler_external_correlation_id_request_cb_t, data: *mut c_void
        );
    }
}

/// When this library starts, records will come (`ROCPROFILER_HSA_TABLE`).
pub(crate) const HSA_TABLE: c_int = 1;
/// If the buffer is full, this blocks the library's own thread (`ROCPROFILER_BUFFER_POLICY_LOSSLESS`). The other policy discards
/// records, but it makes only one of the two buffers that the library writes to in turns. When 0.4 comes to the other buffer it
/// ends the process, and 1.0 drops its records without counting them.
pub(crate) const LOSSLESS: rocprofiler_buffer_policy_t = 2;
/// `ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT`
pub(crate) const CODE_OBJECT: rocprofiler_callback_tracing_kind_t = 10;
/// `ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY` and `…_KERNEL_DISPATCH`
pub(crate) const REQUESTS: [rocprofiler_external_correlation_id_request_kind_t; 2] = [10, 11];

impl Codes for Api {
    const BACKEND: &'static str = BACKEND;
    const INTERFACE: &'static str = "rocprofiler-sdk";
    const PRODUCT: &'static str = "ROCm";

    fn kind(_: Status) -> ErrorKind {
        ErrorKind::Unsupported
    }

    /// We must take the texts from the library, because the numbers of the codes may change from version to version.
    fn describe(&self, status: Status) -> String {
        match (self.rocprofiler_get_status_name(status), self.rocprofiler_get_status_string(status)) {
            (Some(name), Some(text)) => format!("{text} ({name})"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => format!("rocprofiler-sdk error {}", status.0),
        }
    }
}

/// A version of rocprofiler-sdk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// Returns true if we can read records from this version, because `record` and `names` know their layouts. No
    /// release of ROCm had 0.7, and the next major version may change everything.
    pub(crate) const fn is_known(self) -> bool {
        matches!((self.major, self.minor), (0, 4..=6) | (1, _))
    }
}

impl fmt::Display for Version {
    /// `rocprofiler-sdk 1.0.0`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rocprofiler-sdk {}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A rocprofiler-sdk that was found.
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
        // SAFETY: the names are rocprofiler-sdk's.
        let search = unsafe { Search::open("GPUSTREAM_ROCPROFILER_LIBRARY", rocprofiler_names()) };
        let Some(library) = search.library.map(ManuallyDrop::new) else {
            let message = format!(
                "measuring when operations run needs rocprofiler-sdk, which was not found; install it (package \
                 rocprofiler-sdk of ROCm 6.2 or later), or set GPUSTREAM_ROCPROFILER_LIBRARY; tried: {}",
                search.tried.join("; ")
            );
            return Err(error(ErrorKind::Unsupported, message));
        };
        // SAFETY: we open it as rocprofiler-sdk and never close it.
        let (api, missing) = unsafe { Api::load(&library) };
        if !missing.is_empty() {
            let (name, missing) = (search.tried.join("; "), list_missing(&missing));
            let message =
                format!("{name} is not a rocprofiler-sdk of ROCm 6.2 or later, because it lacks {missing}");
            return Err(error(ErrorKind::Unsupported, message));
        }
        let mut version = Version { major: 0, minor: 0, patch: 0 };
        let Version { major, minor, patch } = &mut version;
        // SAFETY: the pointers are to locals.
        unsafe { api.rocprofiler_get_version(major, minor, patch) }.ok()?;
        if !version.is_known() {
            let message = format!(
                "we only know the records of rocprofiler-sdk 0.4 to 0.6 (ROCm 6.2 to 6.4) and 1 (ROCm 7), but found {version}: \
                 set GPUSTREAM_ROCPROFILER_LIBRARY to one of those"
            );
            return Err(error(ErrorKind::Unsupported, message));
        }
        let path = api.rocprofiler_get_version.and_then(|function| file_of(function as usize));
        // HIP looks for the library's entry among the symbols that the whole process can see. If it does not find the entry
        // there, it opens the library by its plain name, and ends the process if there is none.
        if let Some(path) = &path {
            expose(path);
        }
        Ok(Self { api, version, path })
    }
}
