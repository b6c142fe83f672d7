//! The calls that only CUDA has, and what the backend makes of answers that only CUDA gives.

pub(crate) mod traces;

use fake_cuda::set_log;
use gpustream_hal::{ErrorKind, GraphSize, ManagedAdvice, NodePlace, PinnedOptions, Repeat, StreamOptions};

use crate::backends::{memory::copy_batch, names, scale, start, startup::in_own_process, stream};
use crate::{Options, backend, load_with};

#[test]
fn refused_ptx_comes_with_the_drivers_words() {
    let (_recorder, device) = start();
    // SAFETY: the driver is a fake, so it can read any image safely.
    let error = unsafe { device.module_load(b"bad ptx") }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModule);
    assert!(error.to_string().contains("line 7: fake parsing error"), "{error}");
}

#[test]
fn instance_of_a_divided_gpu_has_a_uuid_of_its_own() {
    in_own_process(&[], || {
        let _recorder = load_with(Options { instances: true, ..Options::default() });
        let info = backend().open(1).unwrap().info().clone();
        assert_eq!(info.uuid.as_deref(), Some("MIG-42424242-4242-4242-4242-424242424242"));
        assert!(backend().identity(1).unwrap().has_uuid("GPU-42424242-4242-4242-4242-424242424242"));
    });
}

const REFUSED: &str = "[14:38:03.928][71][CUDA][E] the reason is the tide\n\
                       [14:38:03.928][71][CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemHostAlloc\n";

#[test]
fn condition_in_a_broken_capture_says_that_it_is_broken() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    // SAFETY: the stream is alive, and a capture is going on when the condition begins.
    unsafe {
        device.capture_begin(stream).unwrap();
        device.stream_synchronize(stream).unwrap_err();
        let error = device.conditional_begin(NodePlace::EndOf(stream), Repeat::Once).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(901)));
        device.capture_end(stream).unwrap_err();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn failure_comes_with_the_reason_in_the_drivers_log() {
    let (recorder, device) = start();
    set_log(REFUSED);
    let ((), calls) = recorder.record(|| device.synchronize().unwrap());
    assert!(calls.iter().all(|call| call.name != "cuLogsDumpToMemory"), "a success reads no log");
    let refused = |code| {
        recorder.fail_next("cuMemHostAlloc", code);
        device.pinned_alloc(64, PinnedOptions::default()).unwrap_err()
    };
    let (error, calls) = recorder.record(|| refused(1));
    assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidArgument, Some(1)));
    assert!(error.message().contains("the driver's log: the reason is the tide"), "{error}");
    assert_eq!(calls.iter().filter(|call| call.name == "cuLogsDumpToMemory").count(), 1);
    // If an entry belongs to another failure, we do not use it.
    assert!(!refused(2).message().contains("tide"));
    // There is none either if the driver cannot tell, or has nothing to tell.
    recorder.fail_next("cuLogsDumpToMemory", 1);
    assert!(!refused(1).message().contains("log"));
    set_log("");
    assert!(!refused(1).message().contains("log"));
}

#[test]
fn driver_without_a_log_gives_errors_as_before() {
    in_own_process(&[], || {
        let without = vec!["cuLogsDumpToMemory"];
        let recorder = load_with(Options { version: 12_080, without, ..Options::default() });
        set_log(REFUSED);
        let device = backend().open(0).unwrap();
        recorder.fail_next("cuMemHostAlloc", 1);
        let error = device.pinned_alloc(64, PinnedOptions::default()).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidArgument, Some(1)));
        assert_eq!(error.message(), "a fake failure (CUDA_ERROR_FAKE)");
    });
}

#[test]
fn image_cut_short_never_reaches_the_driver() {
    let (recorder, device) = start();
    for image in [&b""[..], b"\x7fELF cut short"] {
        // SAFETY: the driver is a fake, so it can read any image safely.
        let error = unsafe { device.module_load(image) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModule);
    }
    assert_eq!(recorder.names(), [""; 0], "the driver would read beyond the end");
}

#[test]
fn device_that_cannot_be_described_is_not_opened() {
    // We open it first, so that each opening makes the same calls.
    let (recorder, _device) = start();
    let _second = backend().open(0).unwrap();
    let calls = recorder.calls();
    assert!(calls.iter().filter(|call| call.name == "cuDeviceGetAttribute").count() > 20);
    // Without these, only some names are missing.
    let names = ["cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId"];
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| !names.contains(&call.name)) {
        recorder.fail_at(number, 999);
        let error = backend().open(0).err().unwrap();
        assert_eq!(error.code(), Some(999), "{}: {error}", call.name);
    }
}

#[test]
fn stub_of_the_toolkit_is_no_driver() {
    in_own_process(&[], || {
        let _recorder = load_with(Options { init: 34, ..Options::default() });
        let error = backend().open(0).err().unwrap();
        assert_eq!((error.kind(), error.code()), (ErrorKind::DriverUnusable, Some(34)));
        assert!(error.to_string().contains("stub"), "{error}");
    });
}

#[test]
fn driver_of_12_0_lacks_the_later_functions_alone() {
    in_own_process(&[], || {
        let without = vec![
            "cuFuncGetParamInfo",
            "cuGraphGetEdges_v2",
            "cuMemPrefetchAsync_v2",
            "cuMemAdvise_v2",
            "cuMemcpyBatchAsync",
            "cuDeviceGetDevResource",
            "cuDevSmResourceSplitByCount",
            "cuDevResourceGenerateDesc",
            "cuGreenCtxCreate",
            "cuGreenCtxStreamCreate",
        ];
        let recorder = load_with(Options { version: 12_000, without, ..Options::default() });
        let device = backend().open(0).unwrap();
        assert_eq!(device.info().limits.parameter_bytes, 4096);
        let (_, function) = scale(&*device);
        let stream = stream(&*device);
        let managed = device.managed_alloc(64).unwrap();
        let graph = device.graph_create().unwrap();
        // SAFETY: all are alive.
        let ((), calls) = recorder.record(|| unsafe {
            assert_eq!(device.function_params(function).unwrap(), None);
            device.managed_prefetch(managed, 64, false, stream).unwrap();
            device.managed_advise(managed, 64, ManagedAdvice::PreferHost).unwrap();
            assert_eq!(device.graph_size(graph).unwrap(), GraphSize { nodes: 0, edges: 0 });
        });
        assert_eq!(
            names(&calls),
            ["cuMemPrefetchAsync", "cuMemAdvise", "cuGraphGetNodes", "cuGraphGetEdges"]
        );
        assert_eq!(calls[0].arg("to") as i32, -1, "the host");
        let error = device.stream_create(StreamOptions::default().multiprocessors(8)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("cuDeviceGetDevResource, which came with CUDA 12.4"), "{error}");
        let calls = copy_batch(&recorder, &*device, stream);
        assert_eq!(names(&calls), ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2"]);
    });
}

#[test]
fn streams_of_equal_parts_have_green_contexts_of_different_groups() {
    in_own_process(&[], || {
        let (recorder, device) = start();
        let make = |least| {
            let options = StreamOptions::default().multiprocessors(least).priority(-2);
            let (stream, calls) = recorder.record(|| device.stream_create(options).unwrap());
            let [.., before, made] = &*calls else { panic!("{calls:?}") };
            assert_eq!((made.arg("flags"), made.arg("priority") as i32), (1, -2));
            // The fake's descriptors tell the group and its size.
            let new = (before.name == "cuGreenCtxCreate").then(|| before.arg("descriptor"));
            (
                stream,
                made.arg("context"),
                new.map(|descriptor| (descriptor >> 16 & 0xff, descriptor & 0xffff)),
            )
        };
        let mut contexts = Vec::new();
        // Driver 580 keeps memory for every context ever made, so later streams get the existing ones.
        for round in 0..3 {
            let made = [60, 60, 60, 1, 132].map(make);
            let groups = [(0, 64), (1, 64), (0, 64), (0, 8), (0, 132)].map(Some);
            let new = if round == 0 { [groups[0], groups[1], None, groups[3], groups[4]] } else { [None; 5] };
            assert_eq!(made.map(|(_, _, new)| new), new);
            contexts.push(made.map(|(_, context, _)| context));
            for (stream, _, _) in made {
                // SAFETY: alive, and not used again.
                unsafe { device.stream_destroy(stream) }.unwrap();
            }
        }
        assert_eq!(fake_cuda::green_contexts(), 4);
        assert!(contexts.iter().all(|of_round| *of_round == contexts[0] && of_round[0] == of_round[2]));
    });
}

#[test]
fn part_that_fails_leaves_no_stream_behind() {
    in_own_process(&[], || {
        let (recorder, device) = start();
        let before = recorder.live();
        let options = StreamOptions::default().multiprocessors(20);
        let error = device.stream_create(options.blocking_with_default(true)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("legacy default stream"), "{error}");
        // Each time one more call than before succeeds.
        for number in 0..6 {
            recorder.fail_at(number, 2);
            assert_eq!(device.stream_create(options).unwrap_err().code(), Some(2), "{number}");
            assert_eq!(recorder.live(), before, "{number}");
        }
        device.stream_create(options).unwrap();
    });
}
