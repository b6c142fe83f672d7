//! A library that has dropped the old `hipGetDeviceProperties`: the newer layout must do, with nothing to fall back on.

use fake_hip::{Options, Profile};

#[test]
fn the_newer_layout_is_enough() {
    let mut options = Options::of(Profile::Rocm7);
    options.without.push("hipGetDeviceProperties");
    let _recorder = fake_hip::load_with(options);
    let device = gpustream_hip::backend().open(0).unwrap();
    assert_eq!(device.info().arch, "gfx90a");
    assert!(device.target_rank("gfx90a:sramecc+:xnack-").is_some());
}
