//! A library that works and a machine without an AMD GPU.

use fake_hip::{Options, Profile, codes};
use gpustream_hal::ErrorKind;

#[test]
fn no_gpu_is_an_ordinary_error_that_says_what_to_check() {
    let options = Options { devices: 0, init: codes::NO_DEVICE, ..Options::of(Profile::Rocm6) };
    let _recorder = fake_hip::load_with(options);
    let backend = gpustream_hip::backend();
    for error in [backend.device_count().unwrap_err(), backend.open(0).err().unwrap()] {
        assert_eq!((error.kind(), error.backend()), (ErrorKind::NoDevice, Some("hip")));
        for word in ["6.4.43483", "/dev/kfd", "render", "HIP_VISIBLE_DEVICES"] {
            assert!(error.message().contains(word), "{error}");
        }
    }
    let probe = backend.probe();
    assert!(probe.library.is_some() && probe.problem.is_some());
    assert_eq!(probe.runtime_version.as_deref(), Some("6.4.43483"));
}
