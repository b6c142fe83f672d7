//! RDNA: what HIP reports as multiprocessors are workgroup processors, and occupancy is counted per compute unit.

use fake_hip::{Options, Profile};

#[test]
fn multiprocessors_are_what_occupancy_is_counted_on() {
    let mut options = Options::of(Profile::Rocm6);
    (options.arch, options.compute_units) = ("gfx1100", 2);
    let _recorder = fake_hip::load_with(options);
    let device = gpustream_hip::backend().open(0).unwrap();
    assert_eq!((device.info().arch.as_str(), device.info().multiprocessors), ("gfx1100", 208));
}
