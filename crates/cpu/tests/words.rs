//! Streams wait for words in memory, and write them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::{Error, ErrorKind, RawBuffer, RawStream, WaitValue};
use support::{Bench, SYNC, compile, options};

const KERNELS: &str = r#"extern "C" __global__ void fails(int* x) { assert(false); }"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(&format!("{SYNC}{KERNELS}")));

fn address(word: &AtomicU32) -> RawBuffer {
    RawBuffer(std::ptr::from_ref(word) as usize)
}

fn wait(bench: &Bench, stream: RawStream, word: &AtomicU32, until: WaitValue) -> Result<(), Error> {
    // SAFETY: the stream is alive; the benches' flags live for good.
    unsafe { bench.device.stream_wait_value32(stream, address(word), until) }
}

fn write(bench: &Bench, stream: RawStream, word: &AtomicU32, value: u32) -> Result<(), Error> {
    // SAFETY: the stream is alive; the benches' flags live for good.
    unsafe { bench.device.stream_write_value32(stream, address(word), value) }
}

/// We make more waiting streams than there can be threads, because there are at most 4096 workers. So if a
/// waiting stream needed a worker, this would hang.
#[test]
fn streams_that_wait_keep_no_worker() {
    let bench = Bench::with(options().workers(1), &IMAGE);
    let go = bench.flag();
    let streams: Vec<_> = (0..5000).map(|_| bench.stream()).collect();
    for &stream in &streams {
        wait(&bench, stream, go, WaitValue::Equal(1)).unwrap();
    }
    bench.launch(bench.stream(), "set", 1, 1, args![go, 1u32]);
    for stream in streams {
        bench.sync(stream).unwrap();
    }
}

#[test]
fn host_kernel_and_stream_end_a_wait_by_writing() {
    for writer in 0..3 {
        let (bench, [a, b]) = Bench::with_streams(options().workers(1), &IMAGE);
        let (word, passed) = (bench.flag(), bench.event());
        wait(&bench, a, word, WaitValue::AtLeast(3)).unwrap();
        bench.record(passed, a);
        // We look at the stream while its word does not have its value yet.
        write(&bench, b, word, 2).unwrap();
        bench.sync(b).unwrap();
        assert!(!bench.is_reached(passed));
        match writer {
            0 => word.store(3, Ordering::Release),
            1 => bench.launch(b, "set", 1, 1, args![word, 4u32]),
            _ => write(&bench, b, word, 5).unwrap(),
        }
        bench.sync_event(passed).unwrap();
    }
}

#[test]
fn wait_and_write_have_their_place_in_the_stream() {
    let (bench, [s]) = Bench::with_streams(options(), &IMAGE);
    let (word, other) = (bench.flag(), bench.flag());
    let (list, count) = (bench.memory::<i32>(8), bench.memory::<u32>(1));
    bench.launch(s, "append", 1, 1, args![&list, &count, 1]);
    write(&bench, s, word, 1).unwrap();
    wait(&bench, s, other, WaitValue::AnyBit(0b10)).unwrap();
    bench.launch(s, "append", 1, 1, args![&list, &count, 2]);
    write(&bench, s, word, 2).unwrap();
    support::await_flag(word, 1);
    assert_eq!(list.as_ref()[..2], [1, 0]);
    other.store(0b11, Ordering::Release);
    support::await_flag(word, 2);
    assert_eq!(list.as_ref()[..2], [1, 2]);
    bench.sync(s).unwrap();
}

/// No worker is in the operation, so there is nothing to wait for.
#[test]
fn wait_ends_with_its_device() {
    let (bench, [a, b]) = Bench::with_streams(options(), &IMAGE);
    let (word, x) = (bench.flag(), bench.memory::<i32>(1));
    wait(&bench, a, word, WaitValue::Equal(1)).unwrap();
    bench.launch(a, "append", 1, 1, args![&x, &x, 1]);
    bench.launch(b, "fails", 1, 1, args![&x]);
    assert_eq!(bench.sync(a).unwrap_err().kind(), ErrorKind::DeviceLost);
    assert_eq!(bench.device.synchronize().unwrap_err().kind(), ErrorKind::DeviceLost);
    assert!(bench.device.has_stopped());
    assert_eq!(x.as_ref(), [0], "the work behind the wait is dropped");
    assert_eq!(wait(&bench, a, word, WaitValue::Equal(1)).unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn destroyed_stream_still_waits() {
    let (bench, [s]) = Bench::with_streams(options(), &IMAGE);
    let (word, done) = (bench.flag(), bench.flag());
    wait(&bench, s, word, WaitValue::Equal(1)).unwrap();
    bench.launch(s, "set", 1, 1, args![done, 1u32]);
    // SAFETY: not used again.
    unsafe { bench.device.stream_destroy(s) }.unwrap();
    word.store(1, Ordering::Release);
    support::await_flag(done, 1);
}

#[test]
fn no_capture_takes_words() {
    for written in [false, true] {
        let (bench, [s]) = Bench::with_streams(options(), &IMAGE);
        let word = bench.flag();
        // SAFETY: the stream is alive.
        unsafe { bench.device.capture_begin(s) }.unwrap();
        let refused =
            if written { write(&bench, s, word, 1) } else { wait(&bench, s, word, WaitValue::Equal(1)) };
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Captured);
        // SAFETY: the stream is alive.
        let ended = unsafe { bench.device.capture_end(s) }.unwrap_err();
        assert!(ended.message().contains("word in memory"), "{ended}");
        write(&bench, s, word, 1).unwrap();
        bench.sync(s).unwrap();
    }
}
