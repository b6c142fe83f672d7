//! The names of kernels. When a code object is loaded, the library tells us each kernel's symbol; the records have the kernel's
//! number.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, Mutex};

use gpustream_hal::lock::lock;
use gpustream_hal::names::demangled;

use super::api::{CODE_OBJECT, Version, rocprofiler_callback_tracing_cb_t};

/// How many names we keep. If a program has more kernels, because it compiles them as it runs for example, we forget the oldest.
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

/// The names by the kernels' numbers, which count up. We must keep unloaded kernels, because their records may still
/// come.
static NAMES: Mutex<BTreeMap<u64, Arc<str>>> = Mutex::new(BTreeMap::new());

/// Returns the function that takes a version's names.
pub(crate) fn taker(version: Version) -> rocprofiler_callback_tracing_cb_t {
    // From 1.0 on a correlation also says which call it came from.
    if version.major == 0 { told::<2> as *const c_void } else { told::<3> as *const c_void }
}

/// Notes a kernel's name (`rocprofiler_callback_tracing_cb_t`).
///
/// # Safety
/// The record's version must have this many words of correlation, and its payload must match its kind.
unsafe extern "C" fn told<const WORDS: usize>(record: Told<WORDS>, _user: *mut u64, _data: *mut c_void) {
    if record.kind != CODE_OBJECT || record.operation != KERNEL_SYMBOL || record.phase != LOAD {
        return;
    }
    // SAFETY: this event has this payload, which lives during the call. Its front is the same in all known versions, and `size`
    // says whether it is there.
    let symbol = unsafe { record.payload.as_ref() };
    let Some(symbol) = symbol.filter(|symbol| symbol.size >= size_of::<Symbol>() as u64) else { return };
    if !symbol.name.is_null() {
        // SAFETY: the string belongs to the library and lives during the call.
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

/// Returns the function that a kernel's descriptor belongs to; the descriptor's symbol ends with `.kd`.
fn readable(symbol: &CStr) -> String {
    let bytes = symbol.to_bytes();
    let function = bytes.strip_suffix(b".kd").unwrap_or(bytes);
    CString::new(function).map_or_else(|_| String::new(), |function| demangled(&function))
}

/// Returns the name of the kernel with this number, if we know it.
pub(crate) fn of(kernel: u64) -> Option<Arc<str>> {
    lock(&NAMES).get(&kernel).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        use std::mem::offset_of;
        /// The record's size, and the offsets of kind, operation, phase and payload.
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
        // They are the same in all of them.
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
