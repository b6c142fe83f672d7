//! The driver calls that each method of a backend makes, on CUDA and on each version of HIP. If something differs
//! between the two vendors, we write a pair, with CUDA first. The crate that includes this file must say which vendor
//! it is (`VENDOR`), and must have the `backend` and the fake's `options`.

pub(crate) mod device;
mod errors;
mod graph;
mod launch;
pub(crate) mod memory;
pub(crate) mod startup;
mod stream;
mod texture;
mod threads;
pub(crate) mod traces;

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::{Device, RawFunction, RawModule, RawStream, StreamOptions};

use crate::{Call, Recorder, VENDOR, backend, image, load_with, options};

/// The vendor whose fake driver is loaded.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // Each crate has one vendor.
pub(crate) enum Vendor {
    Cuda,
    /// HIP from this major version of ROCm.
    Rocm(u32),
}

/// Picks the vendor's one from a pair.
pub(crate) fn pick<T>([cuda, hip]: [T; 2]) -> T {
    if VENDOR == Vendor::Cuda { cuda } else { hip }
}

/// Loads the fake, and returns its first device with nothing recorded yet.
pub(crate) fn start() -> (Recorder, Arc<dyn Device>) {
    let recorder = load_with(options());
    let device = backend().open(0).unwrap();
    recorder.clear();
    (recorder, device)
}

pub(crate) fn stream(device: &dyn Device) -> RawStream {
    device.stream_create(StreamOptions::default()).unwrap()
}

/// Returns a module and its kernel `scale(float*, float, size_t)`. The kernel does nothing unless a test gives it a
/// body.
pub(crate) fn scale(device: &dyn Device) -> (RawModule, RawFunction) {
    // SAFETY: the driver is a fake, which reads images safely.
    let module = unsafe { device.module_load(&image(&[("scale", &[8, 4, 8])])) }.unwrap();
    // SAFETY: loaded above.
    (module, unsafe { device.module_function(module, "scale") }.unwrap())
}

/// Adds one to the counter that `data` points to.
pub(crate) unsafe extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: each test passes a counter that outlives the stream's work.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn names(calls: &[Call]) -> Vec<&'static str> {
    calls.iter().map(|call| call.name).collect()
}

/// Asserts that there is one call, with this name. It must have these arguments, and may have others.
#[track_caller]
pub(crate) fn assert_call(calls: &[Call], name: &str, args: &[(&str, u64)]) {
    let [call] = calls else { panic!("one call of {name} was expected, not {calls:?}") };
    assert_eq!(call.name, name);
    for (arg, value) in args {
        assert_eq!(call.arg(arg), *value, "{arg} of {call}");
    }
}

/// Like [`assert_call`], with the vendor's name from a pair.
#[track_caller]
pub(crate) fn assert_one(calls: &[Call], names: [&str; 2], args: &[(&str, u64)]) {
    assert_call(calls, pick(names), args);
}

/// Returns a signed integer as the fake logs it.
pub(crate) fn signed(value: i32) -> u64 {
    value as u64
}
