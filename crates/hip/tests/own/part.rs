//! Streams with masks of compute units.

use gpustream_hal::{ErrorKind, StreamOptions};

use crate::backends::{start, startup::in_own_process};
use crate::{Options, backend, load_with, options};

/// Returns which bits are set.
fn bits(mask: &[u32]) -> Vec<usize> {
    (0..32 * mask.len()).filter(|bit| mask[bit / 32] >> (bit % 32) & 1 == 1).collect()
}

#[test]
fn masks_of_equal_parts_are_disjoint_while_there_are_units() {
    let (_recorder, device) = start();
    drop(fake_hip::masks());
    let options = StreamOptions::default().multiprocessors(33);
    let streams = [(); 3].map(|()| device.stream_create(options).unwrap());
    let masks: Vec<_> = fake_hip::masks().iter().map(|mask| bits(mask)).collect();
    assert_eq!(masks, [0..40, 40..80, 0..40].map(Iterator::collect::<Vec<_>>));
    for stream in streams {
        // SAFETY: alive, and not used again.
        unsafe { device.stream_destroy(stream) }.unwrap();
    }
}

/// A bit stands for a workgroup processor, which has two compute units.
#[test]
fn workgroup_processors_are_given_whole() {
    in_own_process(&[], || {
        let _recorder = load_with(Options { arch: "gfx1100", compute_units: 2, ..options() });
        let device = backend().open(0).unwrap();
        let stream = device.stream_create(StreamOptions::default().multiprocessors(17)).unwrap();
        assert_eq!(
            fake_hip::masks().iter().map(|mask| bits(mask)).collect::<Vec<_>>(),
            [(0..16).collect::<Vec<_>>()]
        );
        // SAFETY: alive.
        assert_eq!(unsafe { device.stream_multiprocessors(stream) }, Some(32));
    });
}

#[test]
fn parts_have_no_priority() {
    let (_recorder, device) = start();
    let error = device.stream_create(StreamOptions::default().multiprocessors(8).priority(-1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("priority -1 and 8 multiprocessors"), "{error}");
}

#[test]
fn versions_before_5_7_have_no_parts() {
    in_own_process(&[], || {
        let mut options = options();
        options.version = 50_631_061;
        let _recorder = load_with(options);
        let device = backend().open(0).unwrap();
        let error = device.stream_create(StreamOptions::default().multiprocessors(8)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("needs 5.7"), "{error}");
    });
}
