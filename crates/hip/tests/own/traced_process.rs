//! Traces of whole processes through the safe crate: which clock they take, and why they may have to take another.

use std::fs;

use fake_hip::{Rocprofiler, RocprofilerRan};
use gpustream::timeline::{Clock, Timeline, WorkKind};
use gpustream::{Device, DeviceOptions};
use gpustream_timeline_view::perfetto;

use crate::backends::startup::in_own_process;
use crate::{backend, load_with, options};

/// The variable, with room for the process's number.
fn file() -> String {
    std::env::temp_dir().join("gpustream-hip-%p.pftrace").to_string_lossy().into_owned()
}

/// Returns what this process has written so far.
fn written() -> Timeline {
    let path = file().replace("%p", &std::process::id().to_string());
    let read = perfetto::read(&fs::read(&path).unwrap()).unwrap();
    fs::remove_file(path).unwrap();
    read
}

#[test]
fn traced_process_has_times_and_parts_of_operations() {
    in_own_process(&[("GPUSTREAM_TRACE", &file())], || {
        let library = Rocprofiler::load((1, 0, 0));
        let _recorder = load_with(options());
        let device = Device::open_on(backend(), 0, DeviceOptions::default()).unwrap();
        assert_eq!(library.measures(), [10, 11], "from the first device on");
        library.load_kernel(1, c"_ZN6vendor4gemmEv.kd");
        let trace = device.trace().unwrap();
        let stream = device.stream().unwrap();
        let run = || {
            for kernel in [1, 2] {
                let (submitted, now) = (library.submit(), library.now());
                let ran = RocprofilerRan::Kernel(kernel, [64, 1, 1], [64, 1, 1]);
                library.ran(submitted, ran, now..now + 5);
            }
            Ok::<_, gpustream::Error>(())
        };
        // SAFETY: we enqueue nothing and use no memory.
        unsafe { stream.external("gemm", (), |_, ()| run()) }.unwrap();
        stream.synchronize().unwrap();
        for timeline in [trace.stop().unwrap(), written()] {
            let [device] = &timeline.devices[..] else { panic!("{:?}", timeline.devices) };
            assert_eq!((device.clock, device.reason.as_str()), (Clock::Rocprofiler, ""));
            let operation = timeline.operations.iter().find(|operation| operation.label == "gemm").unwrap();
            let ran = operation.ran.clone().unwrap();
            assert!(ran.start + device.error >= operation.submitted.start);
            let pieces: Vec<_> = operation.pieces.iter().map(|piece| (&*piece.label, piece.work)).collect();
            let work = WorkKind::Kernel { grid: [1, 1, 1], block: [64, 1, 1] };
            assert_eq!(pieces, [("vendor::gemm", work), ("", work)]);
        }
    });
}

#[test]
fn trace_without_the_library_says_why_events_are_used() {
    let path = "/nowhere/librocprofiler-sdk.so.1";
    in_own_process(&[("GPUSTREAM_TRACE", &file()), ("GPUSTREAM_ROCPROFILER_LIBRARY", path)], || {
        let _recorder = load_with(options());
        let device = Device::open_on(backend(), 0, DeviceOptions::default()).unwrap();
        let trace = device.trace().unwrap();
        let stream = device.stream().unwrap();
        let _buffer = stream.zeros::<u8>(64).unwrap();
        for timeline in [trace.stop().unwrap(), written()] {
            let device = &timeline.devices[0];
            assert_eq!(device.clock, Clock::Events);
            assert!(device.reason.contains(path) && device.reason.contains("install"), "{}", device.reason);
            assert!(timeline.operations.iter().all(|operation| operation.ran.is_some()));
        }
    });
}

#[test]
fn process_that_asks_for_no_trace_has_no_profiler() {
    in_own_process(&[], || {
        let library = Rocprofiler::load((1, 0, 0));
        let _recorder = load_with(options());
        let device = Device::open_on(backend(), 0, DeviceOptions::default()).unwrap();
        assert!(!library.is_set_up());
        // If the program itself begins a trace, it is too late for the library.
        let timeline = device.trace().unwrap().stop().unwrap();
        assert_eq!(timeline.devices[0].clock, Clock::Events);
        assert!(timeline.devices[0].reason.contains("set GPUSTREAM_TRACE"), "{}", timeline.devices[0].reason);
        assert!(!library.is_set_up());
    });
}
