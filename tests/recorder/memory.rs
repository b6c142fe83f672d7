//! The driver calls that copies of ordinary memory make, on drivers that log them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gpustream::{Device, ErrorKind};

use crate::fakes::{on_both, words};

/// A driver gives you addresses for more memory than there is, and the process would be killed when you use them. So we
/// must refuse first.
#[test]
fn managed_memory_beyond_the_machines_is_refused() {
    on_both(|recorder, device, []| {
        let (refused, calls) = recorder.record(|| device.managed::<u8>(1 << 46).unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
        assert!(
            refused.to_string().contains("managed memory must fit into the device's 141 GiB"),
            "{refused}"
        );
        assert!(words(&calls).is_empty(), "{calls:?}");
    });
}

#[test]
fn a_short_upload_is_one_call() {
    on_both(|recorder, device, [stream]| {
        let mut x = stream.upload(&[0u8; 100]).unwrap();
        for round in 0..100u8 {
            let ((), calls) = recorder.record(|| stream.upload_into(&[round; 100], &mut x).unwrap());
            let inline = device.info().limits.inline_copies > 0;
            assert_eq!(words(&calls), [if inline { "copy batch" } else { "to device" }]);
            // If the command carries the bytes, they need no page-locked memory.
            assert_eq!(device.pinned_stats().reserved == 0, inline);
        }
        assert_eq!(stream.download(&x).unwrap(), [99; 100]);
    });
}

/// If the pool has the memory, allocating it adds no call. The values are not on the heap, because there the library might take
/// them for the page-locked memory of another test.
#[test]
fn an_upload_to_new_memory_is_one_call() {
    static VALUES: [u8; (32 << 10) + 1] = [7; (32 << 10) + 1];
    on_both(|recorder, device, [stream]| {
        for bytes in [1 << 10, 32 << 10, VALUES.len()] {
            let values = &VALUES[..bytes];
            drop(stream.upload(values).unwrap());
            let (uploaded, calls) = recorder.record(|| stream.upload(values).unwrap());
            let inline = bytes <= device.info().limits.inline_copies;
            assert_eq!(words(&calls), [if inline { "copy batch" } else { "to device" }], "{bytes} bytes");
            assert_eq!(stream.download(&uploaded).unwrap(), values);
        }
    });
}

/// Only when a chunk is full may there be other calls than the copies.
#[test]
fn many_short_uploads_make_few_other_calls() {
    on_both(|recorder, device, [stream]| {
        let values: Vec<u32> = (0..16 << 10).collect();
        let mut x = stream.upload(&values).unwrap();
        let ((), calls) = recorder.record(|| {
            (0..256).for_each(|_| stream.upload_into(&values, &mut x).unwrap());
        });
        let copies = words(&calls).iter().filter(|word| **word == "to device").count();
        assert_eq!(copies, 256);
        assert!(calls.len() < 300, "{} calls for 256 copies of 64 KiB", calls.len());
        assert_eq!(stream.download(&x).unwrap(), values);
        assert!(device.pinned_stats().reserved <= 4 << 20, "{:?}", device.pinned_stats());
    });
}

#[test]
fn a_short_download_is_a_copy_and_a_wait_for_it() {
    on_both(|recorder, _, [stream]| {
        let x = stream.upload(&[7u8; 100]).unwrap();
        let mut values = [0; 100];
        // The first downloads make events, and later ones use them again.
        (0..50).for_each(|_| stream.download_into(&x, &mut values).unwrap());
        for _ in 0..100 {
            let ((), calls) = recorder.record(|| stream.download_into(&x, &mut values).unwrap());
            assert_eq!(words(&calls), ["to host", "record", "sync event"]);
        }
        assert_eq!(values, [7; 100]);
    });
}

/// While a driver waits in a call, other threads cannot call it. One of them may have to end the work that the driver
/// waits for. So we must wait by events.
#[test]
fn closing_a_handle_waits_for_other_handles_by_events() {
    on_both(|recorder, device, [beside]| {
        let mut x = beside.zeros::<u32>(10).unwrap();
        beside.synchronize().unwrap();
        let closed = Device::open(device.info().backend.as_str()).unwrap();
        drop(closed.pinned::<u32>(10).unwrap());
        recorder.hold();
        beside.fill(&mut x, 1).unwrap();
        let is_closed = AtomicBool::new(false);
        thread::scope(|threads| {
            threads.spawn(|| {
                recorder.wait_until_someone_waits_or(|| is_closed.load(Ordering::Acquire));
                recorder.release();
            });
            let ((), calls) = recorder.record(move || drop(closed));
            is_closed.store(true, Ordering::Release);
            let words = words(&calls);
            let at = |word| words.iter().position(|found| *found == word);
            assert!(at("sync event").is_some(), "{words:?}");
            assert!(at("sync event") < at("free pinned"), "{words:?}");
        });
    });
}
