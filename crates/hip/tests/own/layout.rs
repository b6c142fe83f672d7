//! A device's properties, whose layout depends on the version.

use gpustream_hal::ErrorKind;

use crate::backends::{Vendor, device::VERSION, startup::in_own_process};
use crate::{Options, VENDOR, backend, load_with, options};

#[test]
fn newer_layout_is_enough() {
    if VENDOR == Vendor::Rocm(5) {
        return;
    }
    in_own_process(&[], || {
        let mut options = options();
        options.without.push("hipGetDeviceProperties");
        let _recorder = load_with(options);
        let device = backend().open(0).unwrap();
        assert_eq!(device.info().arch, "gfx90a");
        assert!(device.target_rank("gfx90a:sramecc+:xnack-").is_some());
    });
}

/// If the properties have an unknown layout, we must not take the text that we find there for the processor.
#[test]
fn nonsense_is_not_taken_for_a_processor() {
    in_own_process(&[], || {
        let _recorder = load_with(Options { arch: "\u{1}\u{2}MI300", ..options() });
        let error = backend().open(0).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains(VERSION) && error.message().contains("layout"), "{error}");
    });
}

/// On RDNA, HIP reports workgroup processors as multiprocessors, and counts occupancy per compute unit.
#[test]
fn multiprocessors_are_the_units_that_occupancy_counts() {
    in_own_process(&[], || {
        let _recorder = load_with(Options { arch: "gfx1100", compute_units: 2, ..options() });
        let device = backend().open(0).unwrap();
        assert_eq!((device.info().arch.as_str(), device.info().multiprocessors), ("gfx1100", 208));
    });
}
