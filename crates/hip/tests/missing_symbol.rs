//! A library without functions that every version has.

use fake_hip::{Options, Profile};
use gpustream_hal::ErrorKind;

#[test]
fn missing_functions_are_all_named() {
    let mut options = Options::of(Profile::Rocm6);
    options.without.extend(["hipMalloc", "hipModuleLaunchKernel"]);
    let _recorder = fake_hip::load_with(options);
    let error = gpustream_hip::backend().open(0).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::DriverMissing);
    for words in ["hipMalloc", "hipModuleLaunchKernel", "install"] {
        assert!(error.message().contains(words), "{error}");
    }
    assert!(!error.message().contains("hipFree"), "{error}");
}
