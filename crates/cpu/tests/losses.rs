//! A lost device: the work that it still does, and the answers that it gives.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::ErrorKind;
use support::{Bench, await_flag, compile, options};

const KERNELS: &str = r#"
extern "C" __global__ void fails(int* x) { assert(false); }
extern "C" __global__ void add_when(volatile unsigned* here, const volatile unsigned* go, int* x) {
    *here = 1;
    while (*go == 0) {}
    *x += 1;
}
extern "C" __global__ void counts(unsigned* blocks) { __atomic_fetch_add(blocks, 1, __ATOMIC_RELAXED); }
extern "C" __global__ void add(int* x, int value) { *x += value; }
"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(KERNELS));

fn bench() -> Bench {
    Bench::with(options(), &IMAGE)
}

/// Each wait for work beside a failure returns when that work has ended, or has taken so long that the device gives it
/// up and says so.
#[test]
fn waits_last_until_running_work_has_ended() {
    for which in ["stream", "event", "device"] {
        let bench = bench();
        let (s, other) = (bench.stream(), bench.stream());
        let (here, go, x) = (bench.flag(), bench.flag(), bench.memory::<i32>(1));
        let event = bench.event();
        bench.launch(s, "add_when", 1, 1, args![here, go, &x]);
        bench.record(event, s);
        await_flag(here, 1);
        bench.launch(other, "fails", 1, 1, args![&x]);
        assert_eq!(bench.sync(other).unwrap_err().kind(), ErrorKind::DeviceLost);
        assert!(!bench.device.has_stopped());
        let (waits, opened) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                waits.store(1, Ordering::SeqCst);
                let waited = match which {
                    "stream" => bench.sync(s),
                    // SAFETY: the event is alive, and was recorded.
                    "event" => unsafe { bench.device.event_synchronize(event) },
                    _ => bench.device.synchronize(),
                };
                assert_eq!(waited.unwrap_err().kind(), ErrorKind::DeviceLost);
                if bench.device.has_stopped() {
                    assert_eq!(x.as_ref(), [1]);
                }
                // Not in time, if the machine was that busy; then the device does not know that it has stopped.
                let in_time = opened.load(Ordering::SeqCst) == 1;
                assert!(in_time || !bench.device.has_stopped(), "{which}: the kernel was not waited for");
            });
            await_flag(&waits, 1);
            (0..1000).for_each(|_| std::thread::yield_now());
            opened.store(1, Ordering::SeqCst);
            go.store(1, Ordering::SeqCst);
        });
    }
}

/// A launch of many blocks and a long copy end before they are complete.
#[test]
fn work_in_pieces_ends_early() {
    let bench = bench();
    let (s, other) = (bench.stream(), bench.stream());
    let (blocks, x) = (bench.memory::<u32>(1), bench.memory::<i32>(1));
    bench.launch(s, "counts", i32::MAX as u32, 1024, args![&blocks]);
    // SAFETY: a word of device memory that kernels add to with atomics only, as this does.
    let count: &AtomicU32 = unsafe { &*(blocks.buffer.0 as *const AtomicU32) };
    while count.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    bench.launch(other, "fails", 1, 1, args![&x]);
    assert_eq!(bench.device.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
    // The whole launch would have taken hours.
    assert!(bench.device.has_stopped());
}

/// A device that waits for work that was not done does not go on as if the work were done.
#[test]
fn a_device_that_waits_for_a_lost_one_is_lost_too() {
    let (one, two) = (bench(), bench());
    let (s, t) = (one.stream(), two.stream());
    let (here, go, x) = (one.flag(), one.flag(), one.memory::<i32>(1));
    let y = two.memory::<i32>(1);
    let (early, late) = (one.event(), one.event());
    one.launch(s, "add_when", 1, 1, args![here, go, &x]);
    one.record(early, s);
    one.launch(s, "fails", 1, 1, args![&x]);
    one.record(late, s);
    two.wait(t, early);
    two.launch(t, "add", 1, 1, args![&y, 1]);
    two.wait(t, late);
    two.launch(t, "add", 1, 1, args![&y, 10]);
    go.store(1, Ordering::SeqCst);
    let error = two.sync(t).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.message().contains("waited for") && error.message().contains("`fails`"), "{error}");
    assert!(two.device.has_stopped());
    assert_eq!(y.as_ref(), [1]);
    // A device that asks later is told, and lives.
    let three = bench();
    let u = three.stream();
    // SAFETY: both are alive, and the event was recorded.
    let refused = unsafe { three.device.stream_wait_event(u, late) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DeviceLost);
    // The work before the failure was done.
    three.wait(u, early);
    three.sync(u).unwrap();
}
