//! NVTX, which tells a tool such as Nsight Systems about a program's ranges.
//!
//! NVTX is not a library that you link. NVIDIA's headers put a few functions into each program. These open the library that a
//! tool names in the environment, and pass it tables of slots. The tool then writes the functions that it wants us to call into
//! the slots. This module does the same. If there is no tool, it opens nothing.
//!
//! We do not use the crate `nvtx`, because it compiles the headers, so you would need a C compiler and libclang. Nor can we use
//! cudarc's bindings: they call `libnvToolsExt`, which CUDA 12.9 dropped.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use gpustream_hal::library::{Search, symbol};
use gpustream_hal::trace::c_label;
use gpustream_hal::{Error, ErrorKind, Result};

use crate::error::error;

/// A tool names its library in this variable.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
/// A tool attaches itself through this function of its library.
const INITIALIZE: &str = "InitializeInjectionNvtx2";

/// The version of the headers that we took the tables from.
const NVTX_VERSION: u32 = 3;
/// `NvtxExportTableID`.
const ETID_CALLBACKS: u32 = 1;
const ETID_VERSION_INFO: u32 = 3;

/// How long the table of each `NvtxCallbackModule` is, by its number: none, core, CUDA, `OpenCL`, CUDA's run time, domains,
/// synchronisation. The first slot of a table has no function.
const SIZES: [usize; MODULES] = [0, 16, 9, 15, 7, 16, 7];
const MODULES: usize = 7;
const MOST: usize = 16;

const MODULE_CORE: usize = 1;
/// `NvtxCallbackIdCore`.
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;

type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(GetExportTable) -> c_int;
type RangePushA = unsafe extern "C" fn(*const c_char) -> c_int;
type RangePop = unsafe extern "C" fn() -> c_int;

/// A slot for a function of the tool. It is null if the tool wants no calls.
type Slot = AtomicPtr<c_void>;

static SLOTS: [[Slot; MOST]; MODULES] = [const { [const { Slot::new(ptr::null_mut()) }; MOST] }; MODULES];

/// The slots' addresses, with a null after the last one of a module.
struct Tables([[*const Slot; MOST + 1]; MODULES]);

// SAFETY: the addresses never change, and point to atomics that live as long as the program.
unsafe impl Sync for Tables {}

static TABLES: Tables = {
    let mut tables = [[ptr::null(); MOST + 1]; MODULES];
    let mut module = 0;
    while module < MODULES {
        let mut function = 1;
        while function < SIZES[module] {
            tables[module][function] = &raw const SLOTS[module][function];
            function += 1;
        }
        module += 1;
    }
    Tables(tables)
};

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: unsafe extern "C" fn(u32, *mut *const *const Slot, *mut u32) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks =
    Callbacks { struct_size: size_of::<Callbacks>(), get_module_function_table: module_function_table };

static VERSION_INFO: VersionInfo = VersionInfo {
    struct_size: size_of::<VersionInfo>(),
    version: NVTX_VERSION,
    reserved: 0,
    set_injection_version: ignore,
};

extern "C" fn ignore(_: u32) {}

/// `nvtxGetExportTable`. A tool calls it with a table's number.
unsafe extern "C" fn export_table(table: u32) -> *const c_void {
    match table {
        ETID_CALLBACKS => (&raw const CALLBACKS).cast(),
        ETID_VERSION_INFO => (&raw const VERSION_INFO).cast(),
        _ => ptr::null(),
    }
}

/// Gives a tool the slots of a module. Returns 0 if there is no such module.
///
/// # Safety
/// The pointers must be null or writable.
unsafe extern "C" fn module_function_table(
    module: u32,
    table: *mut *const *const Slot,
    size: *mut u32,
) -> c_int {
    let Some((slots, &functions)) = TABLES.0.get(module as usize).zip(SIZES.get(module as usize)) else {
        return 0;
    };
    if functions == 0 {
        return 0;
    }
    // SAFETY: it is not null, so the caller says that we may write to it.
    unsafe {
        if !table.is_null() {
            *table = slots.as_ptr();
        }
        if !size.is_null() {
            *size = functions as u32;
        }
    }
    1
}

fn slot(function: usize) -> *mut c_void {
    SLOTS[MODULE_CORE][function].load(Ordering::Acquire)
}

/// If a tool watches the process, lets it attach itself.
///
/// # Errors
/// `Unsupported` if there is no tool, or if it does not want ranges.
pub(crate) fn attach() -> Result<()> {
    static TOOL: OnceLock<Result<()>> = OnceLock::new();
    TOOL.get_or_init(|| {
        // SAFETY: we trust the environment to name a tool's library.
        let search = unsafe { Search::open(VARIABLE, []) };
        let library = match search.library {
            Some(library) => ManuallyDrop::new(library),
            None if search.tried.is_empty() => {
                return Err(unsupported(format!(
                    "no profiler watches this process, because {VARIABLE} is not set; run the program under \
                     `nsys profile --trace=cuda,nvtx`"
                )));
            }
            None => {
                let tried = search.tried.join("; ");
                return Err(unsupported(format!(
                    "cannot open the profiler's library: {tried}; start the program with the profiler, which sets {VARIABLE}"
                )));
            }
        };
        let name = search.tried.last().map_or(VARIABLE, String::as_str);
        // SAFETY: the prototype comes from NVTX's headers, and we never close the library.
        let Some(initialize) = (unsafe { symbol::<Initialize>(&library, INITIALIZE) }) else {
            return Err(unsupported(format!(
                "{name} is not a profiler's library, because it lacks {INITIALIZE}; correct {VARIABLE}, or unset it"
            )));
        };
        // SAFETY: the tool gets tables in the headers' layout, which live as long as the program.
        if unsafe { initialize(export_table) } == 0 {
            return Err(unsupported(format!(
                "the profiler in {name} did not start; look at what it printed, or unset {VARIABLE}"
            )));
        }
        if slot(RANGE_PUSH_A).is_null() || slot(RANGE_POP).is_null() {
            return Err(unsupported(format!(
                "the profiler in {name} does not record ranges; turn NVTX on (`nsys profile --trace=cuda,nvtx`)"
            )));
        }
        Ok(())
    })
    .clone()
}

fn unsupported(message: String) -> Error {
    error(ErrorKind::Unsupported, message)
}

/// Begins a range on this thread (`nvtxRangePushA`). You may call it at any time: if no tool is attached, it does
/// nothing.
pub(crate) fn push(label: &str) {
    // SAFETY: the slot is null, or the tool wrote a function with this prototype there.
    if let Some(push) = unsafe { mem::transmute::<*mut c_void, Option<RangePushA>>(slot(RANGE_PUSH_A)) } {
        let label = c_label(label);
        // SAFETY: the label is a C string, which the tool copies.
        unsafe { push(label.as_ptr()) };
    }
}

/// Ends this thread's newest range (`nvtxRangePop`).
pub(crate) fn pop() {
    // SAFETY: the slot is null, or the tool wrote a function with this prototype there.
    if let Some(pop) = unsafe { mem::transmute::<*mut c_void, Option<RangePop>>(slot(RANGE_POP)) } {
        // SAFETY: the function takes nothing.
        unsafe { pop() };
    }
}
