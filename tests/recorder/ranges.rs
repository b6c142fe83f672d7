//! Ranges for the vendors' profilers, on drivers that log. Each test has its own process, because the environment is
//! read only once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use fake_cuda::{NVTX_TOOL, codes, load_nvtx_tool};
use fake_hip::load_roctx;
use gpustream::{Device, ErrorKind};
use recorder::Recorder;

use crate::fakes::{FAKES, Fake, ONE, in_child, increment, load_kernel, on_each, words};

const ON: (&str, &str) = ("GPUSTREAM_RANGES", "1");
const TOOL: (&str, &str) = ("NVTX_INJECTION64_PATH", NVTX_TOOL);

/// Plays a scene on each driver, with its profiler.
fn profiled(scene: impl Fn(&Fake, &Recorder)) {
    load_nvtx_tool();
    load_roctx();
    on_each(scene);
}

#[test]
fn operations_are_ranges_around_their_calls() {
    let said = in_child(&[ON, TOOL], || {
        profiled(|fake, recorder| {
            let device = Device::open(fake.name).unwrap();
            let s = device.stream().unwrap();
            let kernel = load_kernel(fake, &device).unwrap();
            let mut x = s.zeros::<u32>(10).unwrap();
            let before = recorder.ranges().len();
            let ((), calls) = recorder.record(|| increment(&kernel, &s, ONE, &mut x).unwrap());
            let calls = words(&calls);
            assert_eq!(calls, ["begin range", "launch", "end range"], "{}", fake.name);
            let ((), calls) = recorder.record(|| s.fill(&mut x, 7).unwrap());
            let calls = words(&calls);
            assert_eq!((calls.first(), calls.last()), (Some(&"begin range"), Some(&"end range")));
            assert_eq!(recorder.ranges()[before..], ["increment", "fill"]);
            assert_eq!(recorder.open_ranges(), 0);
        });
    });
    assert!(said.is_none_or(|said| !said.contains("gpustream:")), "nothing to say where it works");
}

#[test]
fn calls_that_fail_end_their_ranges() {
    in_child(&[ON, TOOL], || {
        profiled(|fake, recorder| {
            let device = Device::open(fake.name).unwrap();
            let s = device.stream().unwrap();
            let kernel = load_kernel(fake, &device).unwrap();
            let mut x = s.zeros::<u32>(10).unwrap();
            recorder.fail_next(fake.launch, codes::INVALID_VALUE);
            let (failed, calls) = recorder.record(|| increment(&kernel, &s, ONE, &mut x));
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::InvalidLaunch);
            let calls = words(&calls);
            // After a failed launch, the library may ask the driver for an error text.
            assert_eq!((&calls[..2], calls.last()), (&["begin range", "launch"][..], Some(&"end range")));
            assert_eq!(recorder.open_ranges(), 0);
        });
    });
}

#[test]
fn traces_beside_ranges_hear_what_happens_while_they_go_on() {
    in_child(&[ON, TOOL], || {
        profiled(|fake, recorder| {
            let device = Device::open(fake.name).unwrap();
            let s = device.stream().unwrap();
            let mut x = s.zeros::<u32>(10).unwrap();
            s.synchronize().unwrap();
            for round in 0..3 {
                s.fill(&mut x, round).unwrap();
                s.synchronize().unwrap();
                let trace = device.trace().unwrap();
                s.fill(&mut x, 7).unwrap();
                let timeline = trace.stop().unwrap();
                assert_eq!((timeline.operations.len(), timeline.spans.len()), (1, 0), "{timeline:?}");
                assert!(timeline.threads.iter().any(|thread| thread.id == timeline.operations[0].thread));
            }
            assert_eq!(recorder.ranges().iter().filter(|label| *label == "fill").count(), 6);
            assert_eq!(recorder.open_ranges(), 0);
        });
    });
}

#[test]
fn programs_that_do_not_ask_have_no_ranges() {
    in_child(&[TOOL], || {
        profiled(|fake, recorder| {
            let device = Device::open(fake.name).unwrap();
            let s = device.stream().unwrap();
            drop(s.zeros::<u32>(10).unwrap());
            let trace = device.trace().unwrap();
            drop(s.zeros::<u32>(10).unwrap());
            assert_eq!(trace.stop().unwrap().operations.len(), 1);
            assert_eq!(recorder.ranges(), [""; 0]);
        });
    });
}

#[test]
fn missing_profilers_are_reported_once_and_the_program_goes_on() {
    let nowhere = ("GPUSTREAM_ROCTX_LIBRARY", "/nowhere/roctx.so");
    let said = in_child(&[ON, nowhere], || {
        on_each(|fake, recorder| {
            for _ in 0..2 {
                let device = Device::open(fake.name).unwrap();
                let s = device.stream().unwrap();
                drop(s.zeros::<u32>(10).unwrap());
                s.synchronize().unwrap();
            }
            assert_eq!(recorder.ranges(), [""; 0]);
        });
    });
    let Some(said) = said else { return };
    let lines: Vec<_> =
        said.lines().filter(|line| line.starts_with("gpustream: GPUSTREAM_RANGES=1:")).collect();
    let [cuda, hip] = lines[..] else { panic!("{said}") };
    assert!(cuda.contains("NVTX_INJECTION64_PATH is not set") && cuda.contains("nsys profile"), "{cuda}");
    assert!(hip.contains("/nowhere/roctx.so") && hip.contains("install"), "{hip}");
    assert!(lines.iter().all(|line| line.ends_with("the program goes on without ranges")));
}

#[test]
fn libraries_of_another_kind_are_recognized() {
    let others = [("NVTX_INJECTION64_PATH", "libm.so.6"), ("GPUSTREAM_ROCTX_LIBRARY", "libm.so.6")];
    let said = in_child(&[&[ON][..], &others].concat(), || {
        on_each(|fake, _| drop(Device::open(fake.name).unwrap()));
    });
    let Some(said) = said else { return };
    assert!(said.contains("it lacks InitializeInjectionNvtx2"), "{said}");
    assert!(said.contains("it lacks roctxRangePushA"), "{said}");
}

#[test]
fn values_other_than_0_and_1_are_refused() {
    in_child(&[("GPUSTREAM_RANGES", "yes")], || {
        let _recorder = (FAKES[0].load)();
        let error = Device::open("cuda").err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("GPUSTREAM_RANGES=yes"), "{error}");
    });
}
