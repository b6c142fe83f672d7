//! Any host thread may call, whatever other libraries did to its context.

mod support;

use fake_cuda::Current;
use gpustream_hal::{Device, StreamOptions};
use support::open;

#[test]
fn a_new_thread_gets_the_context_once() {
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    recorder.clear();
    std::thread::scope(|scope| {
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
    assert_eq!(
        names,
        [
            "cuCtxGetCurrent",
            "cuCtxSetCurrent",
            "cuStreamSynchronize",
            "cuCtxGetCurrent",
            "cuStreamSynchronize"
        ]
    );
    // SAFETY: out of use.
    unsafe { device.stream_destroy(stream) }.unwrap();
}

#[test]
fn a_context_switched_by_someone_else_is_switched_back() {
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    for other in [Current::Foreign, Current::None, Current::Device(1)] {
        recorder.set_current(other);
        recorder.clear();
        // SAFETY: the stream is alive.
        unsafe { device.stream_synchronize(stream) }.unwrap();
        assert_eq!(recorder.count("cuCtxSetCurrent"), 1, "{other:?}");
        assert_eq!(Current::get(), Current::Device(0));
    }
    // SAFETY: out of use.
    unsafe { device.stream_destroy(stream) }.unwrap();
}

#[test]
fn two_devices_on_one_thread() {
    let (recorder, first) = open();
    let second = gpustream_cuda::backend().open(1).unwrap();
    assert_eq!(second.info().ordinal, 1);
    let stream_of = |device: &dyn Device| device.stream_create(StreamOptions::default()).unwrap();
    let (a, b) = (stream_of(&*first), stream_of(&*second));
    // SAFETY: both are alive.
    unsafe {
        for _ in 0..3 {
            first.stream_synchronize(a).unwrap();
            second.stream_synchronize(b).unwrap();
        }
        first.stream_destroy(a).unwrap();
        second.stream_destroy(b).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}
