//! A lost device: what work it still does, and what you get if you call it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::{ErrorKind, RawStream};
use support::{Bench, compile, options};

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

fn bench<const STREAMS: usize>() -> (Bench, [RawStream; STREAMS]) {
    Bench::with_streams(options(), &IMAGE)
}

/// A launch of many blocks and a long copy must end before they are complete.
#[test]
fn work_in_pieces_ends_early() {
    let (bench, [s, other]) = bench();
    let (blocks, x) = (bench.memory::<u32>(1), bench.memory::<i32>(1));
    bench.launch(s, "counts", i32::MAX as u32, 1024, args![&blocks]);
    // SAFETY: a word of device memory that kernels add to with atomics only, as this does.
    let count: &AtomicU32 = unsafe { &*(blocks.buffer.0 as *const AtomicU32) };
    while count.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    bench.launch(other, "fails", 1, 1, args![&x]);
    assert_eq!(bench.device.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
    // If the device had not stopped, the whole launch would have taken hours.
    assert!(bench.device.has_stopped());
}

/// If a device waits for work that was not done, it must not continue, because you would get results from
/// data that is half done.
#[test]
fn a_device_that_waits_for_a_lost_one_is_lost_too() {
    let ((one, [s]), (two, [t])) = (bench(), bench());
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
    // If a device asks later, it must get an error and live.
    let (three, [u]) = bench();
    // SAFETY: both are alive, and the event was recorded.
    let refused = unsafe { three.device.stream_wait_event(u, late) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DeviceLost);
    // The work before the failure was done.
    three.wait(u, early);
    three.sync(u).unwrap();
}
