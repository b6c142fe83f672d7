//! Failures that must leave nothing behind, in cases that no scene covers.

use std::sync::Arc;
use std::thread;

use fake_cuda::codes;
use gpustream::hal::DefaultStream;
use gpustream::{Device, DeviceOptions, ErrorKind, PoolPolicy};
use recorder::Recorder;

use crate::fakes::on_each;

fn on_both(scene: impl Fn(&Recorder, Device)) {
    on_each(|fake, recorder| scene(recorder, Device::open(fake.name).unwrap()));
}

/// You drop the last handle while work is pending, and the driver refuses to wait for the stream. Then the library must
/// wait for the whole device instead.
#[test]
fn a_device_is_closed_only_when_its_work_is_done() {
    on_both(|recorder, device| {
        let stream = device.stream().unwrap();
        let (x, mut host) = (stream.full(1000, 1u8).unwrap(), device.pinned::<u8>(1000).unwrap());
        recorder.hold();
        stream.copy(&x, &mut host).unwrap();
        drop((x, host, stream));
        recorder.clear();
        recorder.fail_next("sync stream", codes::OUT_OF_MEMORY);
        thread::scope(|scope| {
            let closing = scope.spawn(|| drop(device));
            recorder.wait_until_someone_waits_or(|| closing.is_finished());
            recorder.release();
        });
        assert!(recorder.disarm() && recorder.count("sync device") == 1, "{:?}", recorder.words());
    });
}

/// The stream is another thread's default stream, so nothing is submitted.
#[test]
fn a_refused_host_closure_is_dropped() {
    on_both(|_, device| {
        let threads = device.default_stream(DefaultStream::PerThread).unwrap();
        let owned = Arc::new(());
        let kept = owned.clone();
        let refused =
            thread::scope(|scope| scope.spawn(|| threads.host_fn(move || drop(kept))).join().unwrap());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(Arc::strong_count(&owned), 1);
    });
}

/// The operation's first copy is already in the driver's graph, and the closure ignores the error. So the graph must
/// keep the memory of that copy.
#[test]
fn a_graph_owns_what_a_failed_operation_left_in_it() {
    on_both(|recorder, device| {
        let options = DeviceOptions::default().pool(PoolPolicy::Unpooled);
        let device = Device::open_with(device.info().backend.as_str(), options).unwrap();
        let stream = device.stream().unwrap();
        let mut x = stream.zeros::<f64>(2000).unwrap();
        let graph = stream.capture(|s| {
            recorder.fail_next("on device", codes::OUT_OF_MEMORY);
            assert!(s.fill(&mut x, 0.1).is_err());
            recorder.disarm();
            s.host_fn_repeat(|| ())
        });
        let graph = graph.unwrap();
        assert_eq!(graph.node_count(), 2, "the copy that succeeded, and the closure");
        drop(x);
        device.synchronize().unwrap();
        device.trim();
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
    });
}

/// When you drop a graph, the library asks all streams of the device how far they are. One of them is the stream that
/// has just refused the closure.
#[test]
fn a_host_closure_that_the_driver_refuses_may_own_a_graph() {
    on_both(|recorder, device| {
        let stream = device.stream().unwrap();
        let mut x = stream.zeros::<u32>(100).unwrap();
        let graph = stream.capture(|s| s.fill(&mut x, 1)).unwrap();
        graph.launch(&stream).unwrap();
        recorder.fail_next("host function", codes::OUT_OF_MEMORY);
        let refused = stream.host_fn(move || drop(graph));
        recorder.disarm();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(stream.download(&x).unwrap(), [1; 100]);
    });
}
