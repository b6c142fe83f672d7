//! Any driver call may fail: the error is returned, and everything is usable afterwards.

use gpustream::{Device, DeviceOptions, ErrorKind, Kernel, Result};

use crate::paper::{self, Live, Paper};
use crate::{Mem, touch};

/// Does a little of everything. Objects are made inside, so that a failure half way drops those that exist.
fn scenario(device: &Device, kernel: &Kernel) -> Result<()> {
    let (a, b) = (device.stream()?, device.stream()?);
    let mut x = a.upload(&[1u8; 1000])?;
    let mut y = b.alloc::<u8>(1000)?;
    let mut host = device.pinned::<u8>(1000)?;
    b.copy(&x, &mut y)?;
    touch(kernel, &a, &mut [Mem::Write(x.slice_mut(..)?), Mem::Read(y.slice(..)?)])?;
    b.copy(&y, &mut host)?;
    a.copy(&host, &mut x)?;
    drop(host.read()?);
    let event = a.record()?;
    b.wait(&event)?;
    touch(kernel, &b, &mut [Mem::Write(x.slice_mut(10..20)?), Mem::Write(y.slice_mut(..)?)])?;
    a.host_fn(|| ())?;
    a.fill(&mut y, 3)?;
    b.download(&x)?;
    event.synchronize()?;
    b.synchronize()
}

#[test]
fn a_failure_at_any_call_leaves_everything_usable() {
    for kind in [ErrorKind::OutOfMemory, ErrorKind::Driver] {
        let mut failures = 0;
        for n in 0.. {
            let paper = Paper::new();
            let device = paper.open(DeviceOptions::default());
            let kernel = paper::kernel(&device);
            paper.fail_in(n, kind);
            let result = scenario(&device, &kernel);
            if !paper.failed() {
                result.unwrap();
                break;
            }
            // A full device gets a second chance after cached memory was returned.
            if let Err(error) = result {
                assert_eq!(error.kind(), kind, "call {n}");
                failures += 1;
            }
            scenario(&device, &kernel).unwrap_or_else(|error| panic!("after call {n}: {error}"));
            assert_eq!(paper.state().violations, Vec::<String>::new(), "call {n}");
            drop((device, kernel));
            assert_eq!(paper.live(), Live::default(), "call {n}");
            assert_eq!(paper.state().violations, Vec::<String>::new(), "call {n}");
        }
        assert!(failures > 20, "only {failures} calls could fail");
    }
}

#[test]
fn a_failed_hand_over_can_be_tried_again_and_by_others() {
    // These fail in turn: making the event, recording it, waiting for it, launching.
    for n in 0..4 {
        let paper = Paper::new();
        let device = paper.open(DeviceOptions::default());
        let kernel = paper::kernel(&device);
        let (a, b, c) = (device.stream().unwrap(), device.stream().unwrap(), device.stream().unwrap());
        let (mut x, mut y) = (a.alloc::<u8>(100).unwrap(), b.alloc::<u8>(100).unwrap());
        touch(&kernel, &a, &mut [Mem::Write(x.slice_mut(..).unwrap())]).unwrap();
        paper.fail_in(n, ErrorKind::Driver);
        let both = &mut [Mem::Write(y.slice_mut(..).unwrap()), Mem::Write(x.slice_mut(..).unwrap())];
        touch(&kernel, &b, both).unwrap_err();
        assert!(paper.failed());
        // c uses the memory after the failed attempt, then b tries again.
        let both = &mut [Mem::Write(y.slice_mut(..).unwrap()), Mem::Write(x.slice_mut(..).unwrap())];
        touch(&kernel, &c, both).unwrap();
        let both = &mut [Mem::Write(y.slice_mut(..).unwrap()), Mem::Write(x.slice_mut(..).unwrap())];
        touch(&kernel, &b, both).unwrap();
        assert_eq!(paper.state().violations, Vec::<String>::new(), "call {n}");
    }
}
