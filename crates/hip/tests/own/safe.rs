//! The safe crate over HIP, under each version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream::{Arg, Device, DeviceOptions, ErrorKind, Image, Kernel, Launch, ModuleSource, Stream};

use crate::backends::Vendor;
use crate::{Recorder, VENDOR, backend, image, load_with, options};

pub(super) fn start() -> (Recorder, Device) {
    let recorder = load_with(options());
    let device = Device::open_on(backend(), 0, DeviceOptions::default()).unwrap();
    recorder.clear();
    (recorder, device)
}

/// Returns a kernel that adds one to each of `n` bytes.
fn increment(recorder: &Recorder, device: &Device) -> Kernel {
    recorder.on_kernel("increment", |run| {
        for i in 0..run.integer(1) as usize {
            // SAFETY: the tests pass a buffer of that length.
            unsafe { *run.pointer::<u8>(0).add(i) += 1 };
        }
        true
    });
    let bytes = image(&[("increment", &[8, 8])]);
    // These are like the ones that gpustream-build embeds: images for all vendors. The device's features choose one.
    let images = [
        Image { backend: "cuda", targets: &["sm_90"], bytes: b"damaged", symbols: &[] },
        Image { backend: "hip", targets: &["gfx942", "gfx90a:xnack+"], bytes: b"damaged", symbols: &[] },
        Image { backend: "hip", targets: &["gfx1100", "gfx90a"], bytes: &bytes, symbols: &[] },
    ];
    let source = ModuleSource { name: "increment", images: &images, globals: &[] };
    // SAFETY: the driver is a fake that runs nothing.
    unsafe { device.load_module(&source) }.unwrap().kernel("increment").unwrap()
}

fn launch(kernel: &Kernel, stream: &gpustream::Stream, buffer: &mut gpustream::Buffer<u8>) {
    let n = buffer.len();
    // SAFETY: the arguments are the kernel's, and it stays within the buffer.
    unsafe { kernel.launch(stream, &Launch::covering(n), &[Arg::write(buffer), Arg::value(&n)]) }.unwrap();
}

#[test]
fn buffer_goes_there_and_back() {
    let (recorder, device) = start();
    let kernel = increment(&recorder, &device);
    let stream = device.stream().unwrap();
    let values: Vec<u8> = (0..200).collect();
    let mut buffer = stream.upload(&values).unwrap();
    launch(&kernel, &stream, &mut buffer);
    let back = stream.download(&buffer).unwrap();
    assert!(back.iter().zip(&values).all(|(new, old)| *new == old + 1), "{back:?}");
    drop((buffer, stream, kernel, device));
}

#[test]
fn host_closures_run_in_order() {
    let (_recorder, device) = start();
    let stream = device.stream().unwrap();
    let counter = Arc::new(AtomicU32::new(0));
    for expected in 0..3 {
        let counter = Arc::clone(&counter);
        stream.host_fn(move || assert_eq!(counter.fetch_add(1, Ordering::SeqCst), expected)).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(counter.load(Ordering::SeqCst), 3);
}

#[test]
fn captured_graph_replays() {
    let (recorder, device) = start();
    let kernel = increment(&recorder, &device);
    let stream = device.stream().unwrap();
    let mut buffer = stream.zeros::<u8>(64).unwrap();
    let graph = stream
        .capture(|stream| {
            launch(&kernel, stream, &mut buffer);
            launch(&kernel, stream, &mut buffer);
            Ok(())
        })
        .unwrap();
    assert_eq!((graph.node_count(), graph.edge_count()), (2, 1));
    graph.launch(&stream).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(stream.download(&buffer).unwrap(), [4; 64]);
    drop((graph, buffer, stream, kernel, device));
}

/// A vendor's library can break a capture without the tracker seeing it. You must be able to use the stream afterwards,
/// also on ROCm 6, which leaves it unusable.
#[test]
fn stream_works_after_a_capture_that_someone_else_broke() {
    let (_recorder, device) = start();
    let stream = device.stream().unwrap();
    let mut buffer = stream.zeros::<u8>(64).unwrap();
    let behind = backend().open(0).unwrap();
    let mut break_inside = |stream: &Stream| {
        stream.fill(&mut buffer, 1)?;
        // SAFETY: the stream is alive.
        assert!(unsafe { behind.stream_synchronize(stream.as_raw()) }.is_err());
        Ok(())
    };
    let broken = stream.capture(|s| break_inside(s));
    assert_eq!(broken.err().unwrap().kind(), ErrorKind::Captured);
    // If you record into a graph again, it goes wrong in the same way, and leaves the graph as it was.
    let mut other = stream.full(64, 3u8).unwrap();
    let mut graph = stream.capture(|stream| stream.fill(&mut other, 4)).unwrap();
    let broken = graph.update(&stream, |s| break_inside(s));
    assert_eq!(broken.err().unwrap().kind(), ErrorKind::Captured);
    graph.launch(&stream).unwrap();
    assert_eq!(stream.download(&other).unwrap(), [4; 64]);
    stream.fill(&mut buffer, 2).unwrap();
    assert_eq!(stream.download(&buffer).unwrap(), [2; 64]);
}

#[test]
fn launch_that_the_version_lacks_is_named() {
    let (recorder, device) = start();
    if VENDOR != Vendor::Rocm(5) {
        return;
    }
    let kernel = increment(&recorder, &device);
    let stream = device.stream().unwrap();
    let mut buffer = stream.zeros::<u8>(64).unwrap();
    let n = 64_usize;
    let cooperative = Launch::covering(64).cooperative(true);
    // SAFETY: the arguments are the kernel's, and it stays within the buffer.
    let error = unsafe { kernel.launch(&stream, &cooperative, &[Arg::write(&mut buffer), Arg::value(&n)]) }
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("hipModuleLaunchCooperativeKernel"), "{error}");
}
