//! The tool that rocprofiler-sdk knows us as. We must set it up once in the process, before HIP starts.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use gpustream_hal::{Error, ErrorKind, Result};

use super::api::{
    Api, CODE_OBJECT, HSA_TABLE, LOSSLESS, Library, REQUESTS, rocprofiler_buffer_id_t,
    rocprofiler_context_id_t, rocprofiler_tool_configure_result_t,
};
use super::record::kind;
use super::{buffers, names, operation};
use crate::error::error;

/// The process's one tool.
pub(crate) struct Tool {
    pub(crate) library: Library,
    /// Set within `rocprofiler_force_configure`.
    services: OnceLock<Result<Services>>,
    /// Set when HSA, the layer below HIP, has started and lets the library watch. It orders nothing else, because we only read
    /// the flag.
    watches: AtomicBool,
    /// Set when the library has taken itself down, at the end of the process. It orders nothing else.
    is_over: AtomicBool,
}

/// What the library made for the tool.
#[derive(Clone, Copy)]
pub(crate) struct Services {
    /// We start this context to measure.
    pub(crate) times: rocprofiler_context_id_t,
    pub(crate) buffer: rocprofiler_buffer_id_t,
}

static TOOL: OnceLock<Tool> = OnceLock::new();

impl Tool {
    /// Sets the tool up. Call it once in a process.
    ///
    /// # Errors
    /// `Unsupported` if the library is missing, was set up before, or fails.
    pub(crate) fn set_up() -> Result<&'static Self> {
        let library = Library::open()?;
        let tool = TOOL.get_or_init(|| Self {
            library,
            services: OnceLock::new(),
            watches: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        // SAFETY: the library can call the function on any thread, and its argument stays for good. It calls `setenv`, as a
        // program does at its start, because HIP has no other way to find rocprofiler-sdk.
        let answer = unsafe { tool.library.api.rocprofiler_force_configure(configure) };
        answer.ok_or(ErrorKind::Unsupported).map_err(|failure| {
            failure.with_context(
                "rocprofiler-sdk cannot be set up: another tool measures this process (rocprofv3, JAX's profiler), or saw \
                 HIP start before",
            )
        })?;
        // The library does not report that the tool failed.
        tool.services()?;
        Ok(tool)
    }

    /// Returns what the library made.
    ///
    /// # Errors
    /// The failure of making that.
    pub(crate) fn services(&self) -> Result<Services> {
        match self.services.get() {
            Some(made) => made.as_ref().copied().map_err(Error::clone),
            None => {
                Err(error(ErrorKind::Unsupported, "rocprofiler-sdk did not let this library be its tool"))
            }
        }
    }

    /// Returns true if we get records of what HIP runs.
    pub(crate) fn watches(&self) -> bool {
        self.watches.load(Ordering::Relaxed)
    }

    /// Returns true if we must not call the library any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Services {
    /// Makes everything that we need. The library allows that only within [`initialize`].
    fn make(Library { api, version, .. }: &Library) -> Result<Self> {
        let none = ptr::null_mut();
        let times = context(api)?;
        let mut buffer = 0;
        // SAFETY: the pointer is to a local; the callback has the library's type.
        unsafe {
            api.rocprofiler_create_buffer(
                times,
                buffers::SIZE,
                buffers::WATERMARK,
                LOSSLESS,
                buffers::deliver,
                none,
                &raw mut buffer,
            )
        }
        .ok()?;
        for kind in [kind::KERNEL_DISPATCH, kind::MEMORY_COPY] {
            // SAFETY: without a list, we ask for all operations of a kind.
            unsafe { api.rocprofiler_configure_buffer_tracing_service(times, kind, ptr::null(), 0, buffer) }
                .ok()?;
        }
        // SAFETY: there are as many kinds as we say, and the function has the library's type.
        unsafe {
            api.rocprofiler_configure_external_correlation_id_request_service(
                times,
                REQUESTS.as_ptr(),
                REQUESTS.len(),
                operation::asked,
                none,
            )
        }
        .ok()?;
        // This context is separate and we never stop it, because the library tells a kernel's name only once, when its module is
        // loaded. Without names we still have times.
        let _ = context(api).and_then(|names| {
            let taker = names::taker(*version);
            // SAFETY: without a list, we ask for all operations of the kind; the function is the one for this version.
            unsafe {
                api.rocprofiler_configure_callback_tracing_service(
                    names,
                    CODE_OBJECT,
                    ptr::null(),
                    0,
                    taker,
                    none,
                )
                .ok()?;
                api.rocprofiler_start_context(names).ok()
            }
        });
        Ok(Self { times, buffer })
    }
}

fn context(api: &Api) -> Result<rocprofiler_context_id_t> {
    let mut context = 0;
    // SAFETY: the pointer is to a local that is zero, as the library asks.
    unsafe { api.rocprofiler_create_context(&raw mut context) }.ok()?;
    Ok(context)
}

/// Tells the library what to call (`rocprofiler_configure_func_t`).
unsafe extern "C" fn configure(
    _version: u32,
    _words: *const c_char,
    _priority: u32,
    _client: *mut c_void,
) -> *mut rocprofiler_tool_configure_result_t {
    let Some(tool) = TOOL.get() else { return ptr::null_mut() };
    // Only here does the library tell of every start. If this fails, the flag is never set. SAFETY: the function has the
    // library's type.
    let _ = unsafe {
        tool.library.api.rocprofiler_at_intercept_table_registration(started, HSA_TABLE, ptr::null_mut())
    };
    // The library makes a copy, and never frees this one.
    Box::into_raw(Box::new(rocprofiler_tool_configure_result_t {
        size: size_of::<rocprofiler_tool_configure_result_t>(),
        initialize,
        finalize,
        tool_data: ptr::null_mut(),
    }))
}

/// Makes the tool's services (`rocprofiler_tool_initialize_t`).
unsafe extern "C" fn initialize(_finalize: *const c_void, _data: *mut c_void) -> c_int {
    let Some(tool) = TOOL.get() else { return -1 };
    if tool.services.get_or_init(|| Services::make(&tool.library)).is_ok() { 0 } else { -1 }
}

/// Notes that the library ends (`rocprofiler_tool_finalize_t`).
unsafe extern "C" fn finalize(_data: *mut c_void) {
    if let Some(tool) = TOOL.get() {
        tool.is_over.store(true, Ordering::Relaxed);
    }
}

/// Notes that HSA starts (`rocprofiler_intercept_library_cb_t`).
unsafe extern "C" fn started(_: u32, _: u64, _: u64, _: *mut *mut c_void, _: u64, _: *mut c_void) {
    if let Some(tool) = TOOL.get() {
        tool.watches.store(true, Ordering::Relaxed);
    }
}
