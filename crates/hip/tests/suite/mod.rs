//! The calls that the backend makes to HIP, and the answers that it makes of HIP's. Run once under each version.

mod device;
mod errors;
mod graph;
mod hiprtc;
mod launch;
mod memory;
mod stream;

use std::sync::Arc;

use fake_hip::{Call, Recorder};
use gpustream_hal::{Device, RawModule};

/// The fake, and its first device with nothing recorded yet.
pub(crate) fn start() -> (Recorder, Arc<dyn Device>) {
    let recorder = fake_hip::load(crate::PROFILE);
    let device = gpustream_hip::backend().open(0).unwrap();
    recorder.clear();
    (recorder, device)
}

/// One call of the given name with these arguments, among others.
#[track_caller]
pub(crate) fn assert_call(calls: &[Call], name: &str, args: &[(&str, u64)]) {
    let [call] = calls else { panic!("one call of {name} was expected, not {calls:?}") };
    assert_eq!(call.name, name);
    for (arg, value) in args {
        assert_eq!(call.arg(arg), *value, "{arg} of {call}");
    }
}

/// An integer that HIP takes as signed.
pub(crate) fn signed(value: i32) -> u64 {
    value as u64
}

/// A module with a kernel `scale(float*, float, size_t)`.
pub(crate) fn module(device: &dyn Device) -> RawModule {
    // SAFETY: the driver is a fake, which reads images safely.
    unsafe { device.module_load(&fake_hip::image(&[("scale", &[8, 4, 8])])) }.unwrap()
}
