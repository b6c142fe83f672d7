//! You may call from any host thread, even if another library has changed the thread's current device.

use std::thread;

use super::{Vendor, pick, start, stream};
use crate::{Current, VENDOR, backend};

const SET: [&str; 2] = ["cuCtxSetCurrent", "hipSetDevice"];

#[test]
fn new_thread_gets_the_device_once() {
    let (recorder, _) = start();
    let device = backend().open(1).unwrap();
    let stream = stream(&*device);
    recorder.clear();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(Current::get(), Current::None);
            // SAFETY: the stream is alive.
            unsafe {
                device.stream_synchronize(stream).unwrap();
                device.stream_synchronize(stream).unwrap();
            }
        });
    });
    let names: Vec<_> = recorder.calls().iter().map(|call| call.name).collect();
    let get = pick(["cuCtxGetCurrent", "hipGetDevice"]);
    let synchronize = pick(["cuStreamSynchronize", "hipStreamSynchronize"]);
    assert_eq!(names, [get, pick(SET), synchronize, get, synchronize]);
    // SAFETY: out of use.
    unsafe { device.stream_destroy(stream) }.unwrap();
}

#[test]
fn device_that_another_library_switched_is_switched_back() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    // On HIP a thread cannot lack a context, because there are none.
    let others = [Current::Device(1), Current::Foreign, Current::None];
    for &other in &others[..if VENDOR == Vendor::Cuda { 3 } else { 1 }] {
        recorder.set_current(other);
        for sets in [1, 0] {
            recorder.clear();
            // SAFETY: the stream is alive.
            unsafe { device.stream_synchronize(stream) }.unwrap();
            assert_eq!(recorder.count(pick(SET)), sets, "{other:?}");
            assert_eq!(Current::get(), Current::Device(0));
        }
    }
    // SAFETY: out of use.
    unsafe { device.stream_destroy(stream) }.unwrap();
}

#[test]
fn two_devices_take_turns_on_one_thread() {
    let (recorder, first) = start();
    let second = backend().open(1).unwrap();
    assert_eq!(second.info().ordinal, 1);
    let (a, b) = (stream(&*first), stream(&*second));
    // SAFETY: both are alive.
    unsafe {
        first.stream_synchronize(a).unwrap();
        for _ in 0..3 {
            recorder.clear();
            second.stream_synchronize(b).unwrap();
            first.stream_synchronize(a).unwrap();
            assert_eq!(recorder.count(pick(SET)), 2);
        }
        first.stream_destroy(a).unwrap();
        second.stream_destroy(b).unwrap();
    }
}
