//! A replay on a version of HIP whose graphs have a known fault.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use crate::fakes::{FAKES, ONE, increment, load_module, run_kernel, words};
use fake_hip::{Options, Profile};
use gpustream::{Device, ParamInfo};

#[test]
fn replay_submits_plainly_and_says_why() {
    let recorder = fake_hip::load_with(Options { version: 70_253_211, ..Options::of(Profile::Rocm7) });
    run_kernel(&recorder);
    let hip = FAKES.iter().find(|fake| fake.name == "hip").unwrap();
    let device = Device::open("hip").unwrap();
    let module = load_module(hip, &device).unwrap();
    // HIP cannot say how large the parameters are.
    let sizes = [ParamInfo { offset: 0, size: 8 }, ParamInfo { offset: 8, size: 8 }];
    let kernel = module.kernel_with("increment", &sizes).unwrap();
    let stream = device.stream().unwrap();
    let mut x = stream.full(100, 1u32).unwrap();
    let mut step = device.replay();
    assert!(step.fallback().unwrap().contains("HIP 7.2"));
    for _ in 0..4 {
        let (outcome, calls) = recorder.record(|| {
            step.run(&stream, |s| {
                increment(&kernel, s, ONE, &mut x)?;
                increment(&kernel, s, ONE, &mut x)
            })
        });
        outcome.unwrap();
        assert_eq!(words(&calls), ["launch"; 2]);
    }
    assert_eq!(stream.download(&x).unwrap(), [9; 100]);
    assert_eq!(recorder.violations(), [""; 0]);
}
