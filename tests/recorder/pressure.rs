//! The calls that the pools make when the driver has no memory left, under each policy, on drivers that log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::thread;

use conformance::Random;
use gpustream::hal::StreamOptions;
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, PoolPolicy, Stream};
use recorder::{Call, Recorder};

const POLICIES: [PoolPolicy; 3] = [PoolPolicy::Library, PoolPolicy::Driver, PoolPolicy::Unpooled];

const MIB: usize = 1 << 20;

/// Returns the calls that wait or concern memory.
fn words(calls: &[Call]) -> Vec<&'static str> {
    let concerns = |word: &&str| ["alloc", "free", "sync"].iter().any(|about| word.starts_with(about));
    calls.iter().map(Call::word).filter(concerns).collect()
}

/// Plays a scene on a device of `mib` MiB with this many streams, on both drivers.
fn on_both<const STREAMS: usize>(
    mib: usize,
    options: DeviceOptions,
    scene: impl Fn(&Recorder, &Device, [Stream; STREAMS]),
) {
    crate::fakes::on_each(|fake, recorder| {
        recorder.set_memory(0, mib * MIB);
        let device = Device::open_with(fake.name, options).unwrap();
        scene(recorder, &device, [(); STREAMS].map(|()| device.stream().unwrap()));
        recorder.release();
    });
}

fn pool(policy: PoolPolicy) -> DeviceOptions {
    DeviceOptions::default().pool(policy)
}

/// Runs `work`, which waits for the device. We let the device go on once it waits.
fn while_someone_waits<T: Send>(recorder: &Recorder, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let work = scope.spawn(work);
        recorder.wait_until_someone_waits_or(|| work.is_finished());
        recorder.release();
        work.join().unwrap()
    })
}

#[test]
fn cached_memory_is_returned_first() {
    on_both(20, pool(PoolPolicy::Library), |recorder, _, [s]| {
        drop(s.alloc::<u8>(16 * MIB).unwrap());
        let (x, calls) = recorder.record(|| s.alloc::<u8>(18 * MIB).unwrap());
        assert_eq!(words(&calls), ["alloc", "free", "alloc"]);
        drop(x);
        // The pool asks for a slab of the usual size first, and then for one that is just large enough.
        let keep = s.alloc::<u8>(17 * MIB).unwrap();
        let (_y, calls) = recorder.record(|| s.alloc::<u8>(2 * MIB).unwrap());
        assert_eq!(words(&calls), ["alloc", "alloc"]);
        drop(keep);
    });
}

#[test]
fn idle_memory_of_another_kind_is_returned_too() {
    for policy in POLICIES {
        on_both(20, pool(policy), |recorder, device, [s]| {
            if !device.info().features.managed_memory {
                return;
            }
            drop(device.managed::<u8>(16 * MIB).unwrap());
            let (_x, calls) = recorder.record(|| s.alloc::<u8>(18 * MIB).unwrap());
            // If a stream-ordered allocation fails, it still counts as work of the stream.
            let steps = match policy {
                PoolPolicy::Driver => vec!["alloc in order", "sync event", "free", "alloc in order"],
                _ => vec!["alloc", "free", "alloc"],
            };
            assert_eq!(words(&calls), steps, "{policy:?}");
        });
    }
}

/// A stream keeps page-locked memory for its next copies. That must be returned too.
#[test]
fn page_locked_memory_is_returned_too() {
    for policy in [PoolPolicy::Library, PoolPolicy::Unpooled] {
        on_both(100, pool(policy), |recorder, device, [s]| {
            let _x = s.upload(&vec![1u8; MIB / 2]).unwrap();
            s.synchronize().unwrap();
            recorder.fail_next("alloc pinned", 2);
            let (_host, calls) = recorder.record(|| device.pinned::<u8>(2 * MIB).unwrap());
            let steps = ["alloc pinned", "free pinned", "alloc pinned"];
            assert_eq!(words(&calls), steps, "{policy:?}");
        });
    }
}

#[test]
fn frees_that_are_pending_are_waited_for() {
    on_both(20, pool(PoolPolicy::Library), |recorder, _, [s]| {
        let mut small = s.alloc::<u8>(1000).unwrap();
        recorder.hold();
        s.fill(&mut small, 1).unwrap();
        drop(small);
        let (_x, calls) =
            recorder.record(|| while_someone_waits(recorder, || s.alloc::<u8>(19 * MIB).unwrap()));
        assert_eq!(words(&calls), ["alloc", "alloc", "sync event", "free", "alloc"]);
    });
    let others = [
        (PoolPolicy::Driver, &["alloc in order", "sync event", "alloc in order"][..]),
        (PoolPolicy::Unpooled, &["alloc", "sync event", "free", "alloc"]),
    ];
    for (policy, steps) in others {
        on_both(20, pool(policy), |recorder, _, [s]| {
            let mut x = s.alloc::<u8>(16 * MIB).unwrap();
            recorder.hold();
            s.fill(&mut x.slice_mut(..10).unwrap(), 1).unwrap();
            drop(x);
            let (_x, calls) =
                recorder.record(|| while_someone_waits(recorder, || s.alloc::<u8>(18 * MIB).unwrap()));
            assert_eq!(words(&calls), steps, "{policy:?}");
        });
    }
}

/// The frees may be waiting for another device.
#[test]
fn frees_that_wait_for_a_peer_are_waited_for() {
    on_both(20, pool(PoolPolicy::Library), |recorder, device, []| {
        let other = Device::open(&format!("{}:1", device.info().backend)).unwrap();
        let (s, far) = (device.stream().unwrap(), other.stream().unwrap());
        let small = s.full(1000, 1u8).unwrap();
        let mut copy = far.alloc::<u8>(1000).unwrap();
        s.synchronize().unwrap();
        recorder.hold();
        far.copy(&small, &mut copy).unwrap();
        drop(small);
        let (_x, calls) =
            recorder.record(|| while_someone_waits(recorder, || s.alloc::<u8>(19 * MIB).unwrap()));
        let want = ["alloc", "alloc", "sync event", "free", "alloc"];
        assert_eq!(words(&calls), want);
    });
}

/// A stream may take memory that another stream still uses. The host must not wait for that.
#[test]
fn memory_in_use_passes_to_another_stream() {
    for policy in [PoolPolicy::Library, PoolPolicy::Unpooled] {
        on_both(20, pool(policy), |recorder, _, [a, b]| {
            let mut x = a.alloc::<u8>(16 * MIB).unwrap();
            let address = x.as_raw();
            recorder.hold();
            a.fill(&mut x.slice_mut(..10).unwrap(), 1).unwrap();
            drop(x);
            let (mut x, calls) = recorder.record(|| b.alloc::<u8>(16 * MIB).unwrap());
            assert_eq!((words(&calls), x.as_raw()), (vec!["alloc"], address), "{policy:?}");
            let ((), calls) = recorder.record(|| b.fill(&mut x.slice_mut(..10).unwrap(), 2).unwrap());
            assert!(calls.iter().any(|call| call.name.ends_with("StreamWaitEvent")), "{calls:?}");
            recorder.release();
            assert_eq!(b.download(&x.slice(..10).unwrap()).unwrap(), [2; 10]);
        });
    }
}

#[test]
fn the_final_error_names_the_holders_of_the_memory() {
    for policy in POLICIES {
        on_both(20, pool(policy), |recorder, _, [s]| {
            let held: Vec<_> = (0..4).map(|_| s.alloc::<u8>(4 * MIB).unwrap()).collect();
            let line = line!() - 1;
            let (error, calls) = recorder.record(|| s.alloc::<u8>(6 * MIB).unwrap_err());
            let asked = match policy {
                // The pool asks for a slab of the usual size, and then for one that is just large enough. It does so
                // twice.
                PoolPolicy::Library => vec!["alloc"; 4],
                PoolPolicy::Driver => vec!["alloc in order", "sync event", "alloc in order"],
                _ => vec!["alloc"; 2],
            };
            assert_eq!(words(&calls), asked, "{policy:?}");
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            let text = error.to_string();
            let holder = format!("most is held by `alloc` at {}:{line} (16 MiB in 4)", file!());
            for part in ["no room for 6 MiB", "4 live allocations hold 16 MiB", &holder] {
                assert!(text.contains(part), "{policy:?}: `{part}` is missing in: {text}");
            }
            drop(held);
            s.alloc::<u8>(6 * MIB).unwrap();
        });
    }
}

/// No memory may be lost on the way, whatever work is pending and whatever sizes you allocated before.
#[test]
fn the_drivers_memory_can_be_filled_a_hundred_times() {
    const DEVICE: usize = 64;
    for policy in POLICIES {
        on_both(DEVICE, pool(policy), |recorder, device, []| {
            recorder.put_off();
            let streams = [device.stream().unwrap(), device.stream().unwrap()];
            let mut random = Random(3);
            for round in 0..100 {
                let mut held: Vec<Buffer<u8>> = Vec::new();
                let mut bytes = 0;
                loop {
                    let size = MIB / 2 + random.below(DEVICE * MIB / 16);
                    let stream = &streams[random.below(2)];
                    match stream.alloc::<u8>(size) {
                        Ok(mut buffer) => {
                            stream.fill(&mut buffer.slice_mut(..10).unwrap(), 1).unwrap();
                            held.push(buffer);
                            bytes += size;
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                            break;
                        }
                    }
                }
                assert!(
                    bytes > DEVICE * MIB / 2,
                    "{policy:?}, round {round}: {bytes} bytes before it was full"
                );
                while !held.is_empty() {
                    drop(held.swap_remove(random.below(held.len())));
                }
                // You must still be able to allocate nearly everything as one piece.
                if round % 10 == 9 {
                    drop(streams[round / 10 % 2].alloc::<u8>((DEVICE - 1) * MIB).unwrap());
                }
            }
            device.synchronize().unwrap();
            device.trim();
            device.synchronize().unwrap();
            let stats = device.memory_stats();
            assert_eq!((stats.used, stats.live, stats.reserved), (0, 0, 0), "{policy:?}: {stats:?}");
            assert_eq!(recorder.live().bytes, 0, "{policy:?}");
        });
    }
}

/// The driver's pool frees memory in the order of a stream. It must not use this stream, because its owner may have
/// destroyed it.
#[test]
fn memory_outlives_the_foreign_stream_it_was_made_on() {
    on_both(20, pool(PoolPolicy::Driver), |recorder, device, []| {
        let raw = device.raw().stream_create(StreamOptions::default()).unwrap();
        // SAFETY: the stream is destroyed below, after its value was dropped and its work is done.
        let s = unsafe { device.stream_from_raw(raw) };
        let (x, y) = (s.full(1000, 1u8).unwrap(), s.full(1000, 1u8).unwrap());
        recorder.hold();
        s.copy(&x, &mut device.pinned::<u8>(1000).unwrap()).unwrap();
        drop(s);
        let ((), calls) = recorder.record(|| {
            drop(x);
            recorder.release();
            drop(y);
            device.trim();
        });
        let of_stream = |call: &&Call| call.args.contains(&("stream", raw.0 as u64));
        assert_eq!(calls.iter().find(of_stream), None, "its owner may have destroyed it");
        assert_eq!((device.memory_stats().reserved, recorder.live().buffers), (0, 0));
        // SAFETY: the stream is no longer used, and its work is done.
        unsafe { device.raw().stream_destroy(raw) }.unwrap();
    });
}
