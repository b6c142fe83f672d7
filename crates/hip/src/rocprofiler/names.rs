//! The names of kernels: the library tells each kernel's symbol when its code object is loaded, and its number in records.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, Mutex};

use gpustream_hal::lock::lock;
use gpustream_hal::names::demangled;

use super::api::{CODE_OBJECT, Version, rocprofiler_callback_tracing_cb_t};

/// The most names that are kept. A program with more kernels, such as one that compiles them as it runs, loses the oldest.
const MOST: usize = 1 << 14;

/// The event that a kernel became known (`ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER`,
/// `ROCPROFILER_CALLBACK_PHASE_LOAD`).
const KERNEL_SYMBOL: u32 = 2;
const LOAD: u32 = 1;

/// The fields of `rocprofiler_callback_tracing_record_t`, with as many words of correlation as the version has.
#[repr(C)]
struct Told<const WORDS: usize> {
    context: u64,
    thread: u64,
    correlation: [u64; WORDS],
    kind: u32,
    operation: u32,
    phase: u32,
    payload: *const Symbol,
}

/// The front of `rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t`.
#[repr(C)]
struct Symbol {
    /// The bytes of the whole.
    size: u64,
    kernel: u64,
    code_object: u64,
    name: *const c_char,
}

/// The names by the kernels' numbers, which count up. Kernels that were unloaded stay: their records may come yet.
static NAMES: Mutex<BTreeMap<u64, Arc<str>>> = Mutex::new(BTreeMap::new());

/// Returns the function that takes the names of a version.
pub(crate) fn taker(version: Version) -> rocprofiler_callback_tracing_cb_t {
    // From 1.0 on a correlation also says which call it came from.
    if version.major == 0 { told::<2> as *const c_void } else { told::<3> as *const c_void }
}

/// Takes note of a kernel's name (`rocprofiler_callback_tracing_cb_t`).
///
/// # Safety
/// The record is of a version with so many words of correlation, and its payload that of its kind.
unsafe extern "C" fn told<const WORDS: usize>(record: Told<WORDS>, _user: *mut u64, _data: *mut c_void) {
    if record.kind != CODE_OBJECT || record.operation != KERNEL_SYMBOL || record.phase != LOAD {
        return;
    }
    // SAFETY: the payload of this event, which lives during the call; its front is that of all known versions, and `size`
    // says whether it is there.
    let symbol = unsafe { record.payload.as_ref() };
    let Some(symbol) = symbol.filter(|symbol| symbol.size >= size_of::<Symbol>() as u64) else { return };
    if !symbol.name.is_null() {
        // SAFETY: a string of the library's, which lives during the call.
        let name = readable(unsafe { CStr::from_ptr(symbol.name) });
        keep(symbol.kernel, name.into());
    }
}

fn keep(kernel: u64, name: Arc<str>) {
    let mut names = lock(&NAMES);
    if names.len() >= MOST {
        names.pop_first();
    }
    names.insert(kernel, name);
}

/// Returns the name of the function that a kernel's descriptor is of: its symbol ends with `.kd`.
fn readable(symbol: &CStr) -> String {
    let bytes = symbol.to_bytes();
    let function = bytes.strip_suffix(b".kd").unwrap_or(bytes);
    CString::new(function).map_or_else(|_| String::new(), |function| demangled(&function))
}

/// Returns the name of the kernel with this number, where it is known.
pub(crate) fn of(kernel: u64) -> Option<Arc<str>> {
    lock(&NAMES).get(&kernel).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        use std::mem::offset_of;
        /// The size of the record, and the places of kind, operation, phase and payload.
        fn places<const WORDS: usize>() -> [usize; 5] {
            [
                size_of::<Told<WORDS>>(),
                offset_of!(Told<WORDS>, kind),
                offset_of!(Told<WORDS>, operation),
                offset_of!(Told<WORDS>, phase),
                offset_of!(Told<WORDS>, payload),
            ]
        }
        assert_eq!(places::<2>(), [56, 32, 36, 40, 48], "0.4.0, 0.5.0, 0.6.0");
        assert_eq!(places::<3>(), [64, 40, 44, 48, 56], "1.0.0");
        // The same in all of them.
        assert_eq!((offset_of!(Symbol, kernel), offset_of!(Symbol, name)), (8, 24));
    }

    #[test]
    fn descriptors_of_cpp_functions_become_readable() {
        for (symbol, name) in [
            (c"_ZN6solver4stepIfLi3EEEvPT_.kd", "solver::step<float, 3>"),
            (c"saxpy.kd", "saxpy"),
            (c"saxpy", "saxpy"),
            (c".kd", ""),
        ] {
            assert_eq!(readable(symbol), name);
        }
    }

    #[test]
    fn endless_names_are_not_all_kept() {
        let first = 1 << 40;
        for kernel in first..first + 3 * MOST as u64 {
            keep(kernel, "kernel".into());
        }
        assert_eq!(lock(&NAMES).len(), MOST);
        assert!(of(first).is_none() && of(first + 3 * MOST as u64 - 1).is_some(), "the oldest went");
    }
}
