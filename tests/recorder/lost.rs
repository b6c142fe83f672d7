//! What errors say after a device has failed, on drivers that log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use fake_cuda::codes;
use gpustream::{Device, ErrorKind};

#[test]
fn errors_after_a_devices_fault_say_that_the_device_failed_earlier() {
    const EARLIER: &str = "the device failed earlier: ";
    fakes::play(|fake, recorder| {
        for ordinal in 0..2 {
            let name = format!("{}:{ordinal}", fake.name);
            let device = Device::open(&name).unwrap();
            let stream = device.stream().unwrap();
            let x = stream.zeros::<u32>(100).unwrap();
            let event = stream.record().unwrap();
            recorder.lose_device(ordinal, codes::ILLEGAL_ADDRESS);
            // Only the library sees the driver's errors here, so they do not count as a report.
            device.trim();
            let first = stream.synchronize().unwrap_err();
            assert!(!first.message().starts_with(EARLIER), "the first report: {first}");
            let later = [
                ("the stream", stream.synchronize()),
                ("an event", event.synchronize()),
                ("a download", stream.download(&x).map(drop)),
                ("memory", stream.alloc::<u8>(5 << 20).map(drop)),
                ("a stream", device.stream().map(drop)),
                ("the device", device.synchronize()),
                ("the device, opened again", Device::open(&name).and_then(|device| device.synchronize())),
                ("a module", fakes::load_module(fake, &device).map(drop)),
            ];
            for (what, result) in later {
                let error = result.expect_err(what);
                assert_eq!(error.kind(), ErrorKind::DeviceLost, "{what}: {error}");
                assert!(error.message().starts_with(EARLIER), "{what}: {error}");
                assert!(error.message().contains(first.message()), "{what}: {error}");
            }
        }
    });
}
