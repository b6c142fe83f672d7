//! A library of before HIP 5.

use fake_hip::{Options, Profile};
use gpustream_hal::ErrorKind;

#[test]
fn an_old_library_is_refused_with_its_version() {
    let _recorder = fake_hip::load_with(Options { version: 40_521_401, ..Options::of(Profile::Rocm5) });
    let error = gpustream_hip::backend().device_count().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DriverMissing);
    for words in ["HIP 4.5.21401", "older than 5.0.0", "install"] {
        assert!(error.message().contains(words), "{error}");
    }
}
