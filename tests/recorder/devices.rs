//! The driver calls of work between devices, on drivers that log them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fakes;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fake_cuda::codes;
use gpustream::hal::StreamOptions;
use gpustream::{Buffer, Device, DeviceOptions, ErrorKind, PoolPolicy, Stream};
use recorder::{Call, Recorder};

use crate::fakes::{open_again, play};

/// Plays a scene on two devices of each driver.
fn on_both(scene: impl Fn(&Recorder, [&Device; 2])) {
    play(|fake, recorder| {
        let devices = [0, 1].map(|ordinal| Device::open(&format!("{}:{ordinal}", fake.name)).unwrap());
        scene(recorder, devices.each_ref());
        recorder.release();
    });
}

/// Elements of a large buffer.
const N: usize = 1 << 20;

/// Memory on one device, while a stream of the other device is reading it. The devices are held.
struct Reading {
    /// A stream on the memory's device.
    a: Stream,
    x: Buffer<u32>,
    b: Stream,
    /// Where the copy goes.
    y: Buffer<u32>,
    /// How many bytes are allocated.
    held: usize,
}

impl Reading {
    fn begin(recorder: &Recorder, memory: &Device, reader: &Device) -> Self {
        let (a, b) = (memory.stream().unwrap(), reader.stream().unwrap());
        let x = a.full(N, 0x0102_0304u32).unwrap();
        let mut y = b.alloc::<u32>(N).unwrap();
        a.synchronize().unwrap();
        recorder.hold();
        b.copy(&x, &mut y).unwrap();
        Self { a, x, b, y, held: recorder.live().bytes }
    }
}

/// Asserts that the copy of a [`Reading`] read what was there.
fn was_read(b: &Stream, y: &Buffer<u32>) {
    assert_eq!(b.download(&y.slice(..10).unwrap()).unwrap(), [0x0102_0304; 10]);
}

/// Returns the calls that `work` makes, in words that both vendors share.
fn words_of(recorder: &Recorder, work: impl FnOnce()) -> Vec<&'static str> {
    words(&recorder.record(work).1)
}

/// Returns the calls in words that both vendors share. We leave out calls for things that are made once and used again.
fn words(calls: &[Call]) -> Vec<&'static str> {
    calls.iter().map(Call::word).filter(|word| !["DeviceGet", "make event"].contains(word)).collect()
}

#[test]
fn a_device_that_fails_is_listed_with_its_error() {
    on_both(|recorder, [first, _]| {
        let backend = first.info().backend;
        let of_backend = |device: &gpustream::Result<Device>| match device {
            Ok(device) => device.info().backend == backend,
            Err(error) => error.backend() == Some(backend.as_str()),
        };
        recorder.fail_next(
            if backend == gpustream::BackendName::CUDA { "cuDeviceGetName" } else { "hipDeviceGetName" },
            codes::OUT_OF_MEMORY,
        );
        let devices: Vec<_> = Device::all().into_iter().filter(of_backend).collect();
        let [Err(error), Ok(second)] = &devices[..] else { panic!("{devices:?}") };
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(error.message().starts_with("device 0: "), "{error}");
        assert_eq!(second.info().ordinal, 1);
    });
}

#[test]
fn access_is_turned_on_by_the_first_use_that_needs_it() {
    on_both(|recorder, [first, second]| {
        let (a, b) = (first.stream().unwrap(), second.stream().unwrap());
        let mut x = a.full(100, 1u32).unwrap();
        let mut y = b.full(100, 0x0102_0304u32).unwrap();
        // A copy needs no access.
        assert_eq!(words_of(recorder, || b.copy(&x, &mut y).unwrap()), ["record", "wait", "from peer"]);
        assert_eq!(words_of(recorder, || b.copy(&x, &mut y).unwrap()), ["from peer"]);
        assert_eq!(
            words_of(recorder, || b.fill(&mut x, 0x0506_0708).unwrap()),
            ["can access?", "enable access", "fill"]
        );
        assert_eq!(words_of(recorder, || b.fill(&mut x, 0x0506_0709).unwrap()), ["fill"]);
        // You must ask for access in the other direction separately.
        assert_eq!(
            words_of(recorder, || a.fill(&mut y, 0x0708_0901).unwrap()),
            ["can access?", "enable access", "record", "wait", "fill"]
        );
        assert_eq!(b.download(&x).unwrap(), [0x0506_0709; 100]);
        assert_eq!(b.download(&y).unwrap(), [0x0708_0901; 100]);
    });
}

/// The drivers copy through the host if they must. The library must refuse every other use before it calls the driver.
#[test]
fn devices_that_do_not_reach_each_other_copy() {
    on_both(|recorder, [first, second]| {
        recorder.set_apart(true);
        let (a, b) = (first.stream().unwrap(), second.stream().unwrap());
        let mut x = a.upload(&(0..100).collect::<Vec<u32>>()).unwrap();
        let mut y = b.full(100, 0x0102_0304u32).unwrap();
        for _ in 0..2 {
            let (error, calls) = recorder.record(|| b.fill(&mut x, 1).unwrap_err());
            assert_eq!(error.kind(), ErrorKind::DeviceMismatch, "{error}");
            assert!(error.message().contains("`stream.copy`, or through the host"), "{error}");
            assert!(words(&calls).iter().all(|word| *word == "can access?"), "{calls:?}");
            b.copy(&x, &mut y).unwrap();
        }
        assert_eq!(b.download(&y).unwrap(), (0..100).collect::<Vec<_>>());
        a.fill(&mut x, 7).unwrap();
        assert_eq!(a.download(&x).unwrap(), [7; 100]);
        // Page-locked memory is portable, so a device reaches it whichever device it was made with.
        let pinned = first.pinned_from(&[9u32; 100]).unwrap();
        let calls = words_of(recorder, || b.copy(&pinned, &mut y).unwrap());
        assert!(!calls.contains(&"can access?"), "{calls:?}");
        assert_eq!(b.download(&y).unwrap(), [9; 100]);
    });
}

#[test]
fn events_order_devices() {
    on_both(|recorder, [first, second]| {
        let (a, b) = (first.stream().unwrap(), second.stream().unwrap());
        let mut x = a.alloc::<u32>(100).unwrap();
        let mut y = b.alloc::<u32>(100).unwrap();
        recorder.hold();
        a.fill(&mut x, 0x0102_0304).unwrap();
        assert_eq!(words_of(recorder, || b.wait(&a.record().unwrap()).unwrap()), ["record", "wait"]);
        b.fill(&mut y, 0x0102_0304).unwrap();
        assert!(!b.is_done().unwrap());
        // The first device finishes its two operations, and then the work that waited for them.
        recorder.step(2);
        assert!(a.is_done().unwrap() && !b.is_done().unwrap());
        recorder.step(2);
        assert!(b.is_done().unwrap());
    });
}

/// The second device is still reading the memory, so the first device's driver must not get it back.
#[test]
fn memory_outlives_its_use_elsewhere() {
    on_both(|recorder, [first, second]| {
        let Reading { a, x, b, y, held } = Reading::begin(recorder, first, second);
        drop((x, a));
        first.trim();
        assert_eq!(recorder.live().bytes, held, "freed while the other device reads it");
        recorder.release();
        b.synchronize().unwrap();
        first.trim();
        assert!(recorder.live().bytes < held, "never freed");
        was_read(&b, &y);
    });
}

/// You may close the memory's own device. Closing must wait for the other device.
#[test]
fn a_closing_device_waits_for_the_users_of_its_memory() {
    on_both(|recorder, [first, second]| {
        let own = open_again(first);
        let Reading { a, x, b, y, held } = Reading::begin(recorder, &own, second);
        let dropping = thread::spawn(move || drop((x, a, own)));
        recorder.wait_until_someone_waits_or(|| dropping.is_finished());
        assert!(!dropping.is_finished() && recorder.live().bytes == held, "it has not waited");
        recorder.release();
        dropping.join().unwrap();
        assert!(recorder.live().bytes <= held - 4 * N, "never freed");
        was_read(&b, &y);
    });
}

/// While a device is being closed, it may still work on another device's memory.
#[test]
fn a_use_counts_until_it_is_done_even_if_its_device_is_closed() {
    on_both(|recorder, [first, second]| {
        let own = open_again(second);
        let Reading { a, x, b, y, held } = Reading::begin(recorder, first, &own);
        drop((x, a));
        let dropping = thread::spawn(move || drop((y, b, own)));
        recorder.wait_until_someone_waits_or(|| dropping.is_finished());
        first.trim();
        assert_eq!(recorder.live().bytes, held, "freed while the other device reads it");
        recorder.release();
        dropping.join().unwrap();
        first.trim();
        assert!(recorder.live().bytes < held, "never freed");
    });
}

/// The stream belongs to another library. When its value was dropped, we could not record an event on it.
#[test]
fn memory_stays_when_the_end_of_its_use_could_not_be_marked() {
    on_both(|recorder, [first, second]| {
        let own = open_again(first);
        let raw = second.raw().stream_create(StreamOptions::default()).unwrap();
        // SAFETY: the stream is destroyed below, when its work is done.
        let b = unsafe { second.stream_from_raw(raw) };
        let (a, mut y) = (own.stream().unwrap(), b.alloc::<u32>(1 << 20).unwrap());
        let x = a.full(1 << 20, 0x0102_0304u32).unwrap();
        a.synchronize().unwrap();
        recorder.hold();
        b.copy(&x, &mut y).unwrap();
        let held = recorder.live().bytes;
        for call in ["record", "sync stream"] {
            recorder.fail_next(call, codes::OUT_OF_MEMORY);
        }
        drop(b);
        assert!(recorder.disarm(), "{:?}", recorder.words());
        drop((x, a, own));
        assert_eq!(recorder.live().bytes, held, "freed while it may be in use");
        recorder.release();
        // SAFETY: the stream is no longer used, and its work is done.
        unsafe { second.raw().stream_destroy(raw) }.unwrap();
    });
}

/// Closing must wait for the work from before the capture, and the capture must go on.
#[test]
fn a_device_closes_while_a_stream_that_used_its_memory_is_captured() {
    on_both(|recorder, [first, second]| {
        let own = open_again(first);
        let Reading { a, x, b, mut y, held } = Reading::begin(recorder, &own, second);
        let graph = b
            .capture(|b| {
                let dropping = thread::spawn(move || drop((x, a, own)));
                recorder.wait_until_someone_waits_or(|| dropping.is_finished());
                assert_eq!(recorder.live().bytes, held, "it has not waited");
                recorder.release();
                dropping.join().unwrap();
                assert!(recorder.live().bytes < held, "never freed");
                b.fill(&mut y, 0x0102_0305)
            })
            .unwrap();
        graph.launch(&b).unwrap();
        assert!(b.download(&y).unwrap().iter().all(|&it| it == 0x0102_0305));
    });
}

/// Such a stream cannot have used the memory, and may itself be waiting for the thread that closes the device.
#[test]
fn a_device_does_not_wait_for_streams_of_another_backend() {
    on_both(|_, [first, second]| {
        let own = open_again(first);
        let (a, b) = (own.stream().unwrap(), second.stream().unwrap());
        let mut y = b.alloc::<u32>(100).unwrap();
        b.copy(&a.full(100, 1u32).unwrap(), &mut y).unwrap();
        let cpu = Device::open("cpu").unwrap();
        let s = cpu.stream().unwrap();
        let (open, opened) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        s.host_fn(move || tell.send(opened.recv_timeout(Duration::from_mins(5)).is_ok()).unwrap()).unwrap();
        drop((a, own));
        open.send(()).unwrap();
        assert!(told.recv().unwrap(), "it has waited for the closure");
        s.synchronize().unwrap();
    });
}

/// Returns how much memory is allocated: the bytes on all devices, and the number of page-locked allocations.
fn memory(recorder: &Recorder) -> (usize, usize) {
    let live = recorder.live();
    (live.bytes, live.pinned)
}

/// If you close a handle, everything must be freed except memory that another handle's graph refers to. That memory is
/// freed once no launch of the graph is pending. The fakes count, so we see if something is freed twice.
#[test]
fn a_graph_keeps_memory_of_a_closed_handle() {
    for policy in [PoolPolicy::Library, PoolPolicy::Driver, PoolPolicy::Unpooled] {
        on_both(|recorder, [first, second]| {
            let backend = first.info().backend;
            for (ordinal, device) in [(0, first), (1, first), (0, second)] {
                let s = device.stream().unwrap();
                // This makes the events and whatever else is made only once.
                let warm = s.capture(|_| Ok(())).unwrap();
                warm.launch(&s).unwrap();
                s.synchronize().unwrap();
                let before = recorder.live();
                let other =
                    Device::open_with(&format!("{backend}:{ordinal}"), DeviceOptions::default().pool(policy))
                        .unwrap();
                let t = other.stream().unwrap();
                // A graph of another device cannot access memory from the driver's pool.
                let foreign = ordinal != device.info().ordinal;
                if foreign && policy == PoolPolicy::Driver {
                    continue;
                }
                let (mut y, unused) = (t.zeros::<u32>(1 << 20).unwrap(), t.zeros::<u32>(8 << 20).unwrap());
                let (mut host, spare) =
                    (other.pinned::<u32>(1000).unwrap(), other.pinned::<u32>(1 << 20).unwrap());
                other.synchronize().unwrap();
                let graph = s
                    .capture(|s| {
                        s.fill(&mut y, 0x0102_0304)?;
                        s.copy(&y.slice(..1000)?, &mut host)
                    })
                    .unwrap();
                drop((y, host, unused, spare, t, other));
                let held = recorder.live();
                let kept = (held.buffers - before.buffers, held.pinned - before.pinned);
                assert_eq!(kept, (1, 1), "{policy:?} on {ordinal}: the graph's memory stays, and no more");
                assert_eq!(held.streams, before.streams, "{policy:?}");
                graph.launch(&s).unwrap();
                s.synchronize().unwrap();
                recorder.hold();
                graph.launch(&s).unwrap();
                drop(graph);
                device.trim();
                assert_eq!(memory(recorder), (held.bytes, held.pinned), "{policy:?}: freed in use");
                recorder.release();
                s.synchronize().unwrap();
                // When you make a stream, the library looks for what it can destroy.
                drop(device.stream().unwrap());
                assert_eq!(memory(recorder), (before.bytes, before.pinned), "{policy:?}: never freed");
            }
        });
    }
}
