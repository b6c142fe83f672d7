//! Copies of ordinary slices on the CPU backend, in situations that the conformance suite cannot make on a GPU: there the
//! driver may wait for work when we allocate memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use gpustream::{Device, DeviceOptions, ErrorKind, Tracking};

const MIB: usize = 1 << 20;

/// Returns values so that any two pieces differ.
fn values(len: usize) -> Vec<u32> {
    (0..len as u32).map(|index| index.wrapping_mul(0x9e37_79b9)).collect()
}

#[test]
fn a_stream_that_is_stuck_holds_up_nobody_else() {
    let options = DeviceOptions::default().staging_threads(2).staging_ring(8 * MIB);
    let device = Device::open_with("cpu", options).unwrap();
    let (stuck, free) = (device.stream().unwrap(), device.stream().unwrap());
    let (release, wait) = std::sync::mpsc::channel::<()>();
    stuck.host_fn(move || wait.recv().unwrap()).unwrap();
    // Now the stream has as many bytes under way as the ring allows.
    let small = values(MIB);
    let held = [stuck.upload(&small).unwrap(), stuck.upload(&small).unwrap()];
    // We release the closure only after these copies, so they cannot wait for it.
    let large = values(8 * MIB);
    let buffer = free.upload(&large).unwrap();
    assert_eq!(free.download(&buffer).unwrap(), large);
    assert!(!stuck.is_done().unwrap());
    release.send(()).unwrap();
    for buffer in &held {
        assert_eq!(stuck.download(buffer).unwrap(), small);
    }
}

#[test]
fn an_error_in_a_piece_is_the_copys() {
    let options = DeviceOptions::default().staging_threads(4).tracking(Tracking::Strict);
    let device = Device::open_with("cpu", options).unwrap();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let mut buffer = a.alloc::<u32>(4 * MIB).unwrap();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    a.host_fn(move || wait.recv().unwrap()).unwrap();
    a.fill(&mut buffer, 1).unwrap();
    // Our program does not order b after a.
    let error = b.upload_into(&values(4 * MIB), &mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hazard);
    release.send(()).unwrap();
    a.synchronize().unwrap();
    b.upload_into(&values(4 * MIB), &mut buffer).unwrap();
    assert_eq!(b.download(&buffer).unwrap(), values(4 * MIB));
}
