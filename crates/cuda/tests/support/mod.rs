//! Helpers of the tests on the fake driver.

#![allow(dead_code, clippy::unwrap_used)]

use std::sync::Arc;

use fake_cuda::Recorder;
use gpustream_hal::{Device, RawFunction, RawModule};

/// The fake driver and its first device, opened and with an empty log.
pub(crate) fn open() -> (Recorder, Arc<dyn Device>) {
    let recorder = fake_cuda::load();
    let device = gpustream_cuda::backend().open(0).unwrap();
    recorder.clear();
    (recorder, device)
}

/// A kernel `add` with parameters `(dst, value)` that adds to one integer.
pub(crate) fn add_kernel(recorder: &Recorder, device: &dyn Device) -> (RawModule, RawFunction) {
    recorder.on_kernel("add", |run| {
        let (target, value) = (run.pointer::<u32>(0), run.integer(1) as u32);
        // SAFETY: tests launch it with the address of an allocated integer.
        unsafe { *target += value };
        true
    });
    // SAFETY: the driver is a fake, which reads images safely.
    let module = unsafe { device.module_load(&fake_cuda::image(&[("add", &[8, 4])])) }.unwrap();
    // SAFETY: loaded above.
    let function = unsafe { device.module_function(module, "add") }.unwrap();
    recorder.clear();
    (module, function)
}
