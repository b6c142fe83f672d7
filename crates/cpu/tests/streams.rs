//! Streams and events: order, overlap and waiting.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gpustream_hal::{ErrorKind, EventOptions, RawStream, StreamOptions, StreamPriorities, WaitPolicy};
use support::{Bench, SYNC, await_flag, compile, options};

const KERNELS: &str = r#"
extern "C" __global__ void twice_plus(int* x, int value) { *x = *x * 2 + value; }
extern "C" __global__ void busy(float* x, int rounds) {
    float v = x[threadIdx.x];
    for (int i = 0; i < rounds; ++i) v = v * 0.5f + 1.0f;
    x[threadIdx.x] = v;
}
extern "C" __global__ void crowd(unsigned* now, unsigned* most, int rounds) {
    atomicMax(most, atomicAdd(now, 1u) + 1);
    volatile int work = 0;
    for (int i = 0; i < rounds; ++i) work = work + 1;
    atomicSub(now, 1u);
}
extern "C" __global__ void in_turn(unsigned* done) {
    while (__atomic_load_n(done, __ATOMIC_ACQUIRE) != blockIdx.x) {}
    __atomic_store_n(done, blockIdx.x + 1, __ATOMIC_RELEASE);
}
extern "C" __global__ void fails(int* x) { assert(false); }
"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(&format!("{SYNC}{KERNELS}")));

fn bench<const STREAMS: usize>() -> (Bench, [RawStream; STREAMS]) {
    Bench::with_streams(options(), &IMAGE)
}

#[test]
fn two_kernels_of_two_streams_run_at_once() {
    // This must work even with one worker, although each kernel waits until the other has begun.
    for workers in [1, 2] {
        let (bench, [a, b]) = Bench::with_streams(options().workers(workers), &IMAGE);
        let (x, y) = (bench.flag(), bench.flag());
        bench.launch(a, "meet", 1, 1, args![x, y]);
        bench.launch(b, "meet", 1, 1, args![y, x]);
        bench.sync(a).unwrap();
        bench.sync(b).unwrap();
    }
}

/// GPUs begin blocks in order, and single-pass scans rely on that, so we must do the same.
#[test]
fn a_block_may_wait_for_the_blocks_before_it() {
    const BLOCKS: u32 = 20_000;
    for workers in [1, 2] {
        let (bench, [busy, stream]) = Bench::with_streams(options().workers(workers), &IMAGE);
        let in_turn = || {
            let done = bench.flag();
            bench.launch(stream, "in_turn", BLOCKS, 1, args![done]);
            bench.sync(stream).unwrap();
            assert_eq!(done.load(Ordering::Relaxed), BLOCKS);
        };
        (0..4).for_each(|_| in_turn());
        // One worker less.
        let (begun, go) = (bench.flag(), bench.flag());
        bench.launch(busy, "meet", 1, 1, args![begun, go]);
        await_flag(begun, 1);
        (0..4).for_each(|_| in_turn());
        go.store(1, Ordering::Release);
        bench.sync(busy).unwrap();
    }
}

#[test]
fn many_kernels_that_wait_leave_room_for_the_one_they_wait_for() {
    let (bench, []) = bench();
    let streams: Vec<_> = (0..60).map(|_| bench.stream()).collect();
    let go = bench.flag();
    for &stream in &streams {
        bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
    }
    let last = bench.stream();
    bench.launch(last, "set", 1, 1, args![go, 1u32]);
    for stream in streams {
        bench.sync(stream).unwrap();
    }
}

#[test]
fn hundreds_of_streams_share_the_workers() {
    let (bench, []) = bench();
    let streams: Vec<_> = (0..500).map(|_| bench.stream()).collect();
    let values: Vec<_> = streams.iter().map(|_| bench.memory::<i32>(1)).collect();
    for round in 0..5 {
        for (stream, value) in streams.iter().zip(&values) {
            bench.launch(*stream, "twice_plus", 1, 1, args![value, round]);
        }
    }
    bench.device.synchronize().unwrap();
    let expected = (0..5).fold(0, |x, round| x * 2 + round);
    assert!(values.iter().all(|v| v.as_ref()[0] == expected));
}

#[test]
fn a_wait_keeps_the_record_that_was_current() {
    let (bench, [a, b, c]) = bench();
    let (first, second) = (bench.flag(), bench.flag());
    let event = bench.event();
    bench.launch(a, "spin", 1, 1, args![first, 1u32]);
    bench.record(event, a);
    bench.wait(c, event);
    // We record the event again, after a kernel that does not end. The wait above must not be for this record.
    bench.launch(b, "spin", 1, 1, args![second, 1u32]);
    bench.record(event, b);
    first.store(1, Ordering::Release);
    bench.sync(c).unwrap();
    assert!(!bench.is_reached(event));
    second.store(1, Ordering::Release);
    bench.sync_event(event).unwrap();
    bench.sync(b).unwrap();
}

#[test]
fn an_event_that_was_never_recorded_counts_as_reached() {
    let (bench, [stream]) = bench();
    let event = bench.event();
    bench.wait(stream, event);
    assert!(bench.is_reached(event));
    bench.sync_event(event).unwrap();
    bench.sync(stream).unwrap();
}

#[test]
fn every_way_of_waiting_waits() {
    for wait in [WaitPolicy::Spin, WaitPolicy::Yield, WaitPolicy::Block] {
        let (bench, [stream]) = bench();
        let (go, done) = (bench.flag(), AtomicU32::new(0));
        let event = bench.device.event_create(EventOptions::default().wait(wait)).unwrap();
        bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
        bench.record(event, stream);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                bench.sync_event(event).unwrap();
                assert_eq!(done.load(Ordering::SeqCst), 1, "{wait:?} returned early");
            });
            // Wait long enough for the waiter to pass every stage of its policy. It must not return at any of them.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(5) {
                assert!(!waiter.is_finished());
                std::thread::yield_now();
            }
            done.store(1, Ordering::SeqCst);
            go.store(1, Ordering::Release);
        });
    }
}

#[test]
fn only_timed_events_that_were_reached_tell_the_time_between_them() {
    let (bench, [stream]) = bench();
    let [start, end] =
        [(); 2].map(|()| bench.device.event_create(EventOptions::default().timing(true)).unwrap());
    let (plain, go) = (bench.event(), bench.flag());
    bench.record(start, stream);
    bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
    bench.record(end, stream);
    bench.record(plain, stream);
    // SAFETY: the events are alive.
    let elapsed = |a, b| unsafe { bench.device.event_elapsed(a, b) };
    assert_eq!(elapsed(start, end).unwrap_err().kind(), ErrorKind::InvalidArgument);
    go.store(1, Ordering::Release);
    bench.sync(stream).unwrap();
    assert!(elapsed(start, end).unwrap() > elapsed(start, start).unwrap());
    assert_eq!(elapsed(start, plain).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    let (bench, [stream]) = bench();
    let (go, done) = (bench.flag(), bench.flag());
    bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
    bench.launch(stream, "set", 1, 1, args![done, 1u32]);
    let event = bench.event();
    bench.record(event, stream);
    // SAFETY: not used again.
    unsafe { bench.device.stream_destroy(stream) }.unwrap();
    go.store(1, Ordering::Release);
    // The event keeps the parts of the stream that it needs, so we can still wait for it.
    bench.sync_event(event).unwrap();
    assert_eq!(done.load(Ordering::Acquire), 1);
}

#[test]
fn urgent_streams_go_first_where_they_queue() {
    // We use a single busy worker, so that both streams queue up.
    let bench = Bench::with(options().workers(1), &IMAGE);
    let StreamPriorities { least, greatest: most } = bench.device.info().limits.stream_priorities;
    let blocker = bench.stream();
    let make = |priority| bench.device.stream_create(StreamOptions::default().priority(priority)).unwrap();
    let (list, count) = (bench.memory::<i32>(64), bench.memory::<u32>(1));
    // The watchdog may add a worker after a while. If it did, the round tells us nothing, so we try another.
    for _ in 0..200 {
        let x = bench.memory::<f32>(1);
        let (low, high) = (make(least), make(most));
        bench.launch(blocker, "busy", 1, 1, args![&x, 20_000]);
        bench.launch(low, "append", 1, 1, args![&list, &count, 1]);
        bench.launch(high, "append", 1, 1, args![&list, &count, 2]);
        bench.device.synchronize().unwrap();
        let order = &list.as_ref()[..2];
        let (first, second) = (order[0], order[1]);
        // SAFETY: nothing runs.
        unsafe { (count.buffer.0 as *mut u32).write(0) };
        if (first, second) == (2, 1) {
            return;
        }
    }
    panic!("the urgent stream never went first");
}

#[test]
fn a_stream_on_a_part_has_no_more_workers_than_it_was_given() {
    let bench = Bench::with(options().workers(4), &IMAGE);
    let most_at_once = |options: StreamOptions| {
        let stream = bench.device.stream_create(options).unwrap();
        let (now, most) = (bench.memory::<u32>(1), bench.memory::<u32>(1));
        bench.launch(stream, "crowd", 2000, 1, args![&now, &most, 10_000]);
        bench.sync(stream).unwrap();
        // SAFETY: the stream is alive, and not used after it was destroyed.
        let given = unsafe {
            let given = bench.device.stream_multiprocessors(stream);
            bench.device.stream_destroy(stream).unwrap();
            given
        };
        (most.as_ref()[0], given)
    };
    for part in [1, 2, 3] {
        let (most, given) = most_at_once(StreamOptions::default().multiprocessors(part));
        assert_eq!(given, Some(part));
        assert!((1..=part).contains(&most), "{most} blocks at once on {part} workers");
    }
    // Other workers join sooner or later. We may need several launches, because on a busy machine that may not happen in the
    // first one.
    while most_at_once(StreamOptions::default()) == (1, None) {}
    assert_eq!(most_at_once(StreamOptions::default()).1, None);
}

#[test]
fn a_fault_reaches_all_waiters_and_drops_queued_work() {
    let (bench, []) = bench();
    let streams: Vec<_> = (0..8).map(|_| bench.stream()).collect();
    let (go, x) = (bench.flag(), bench.memory::<i32>(1));
    for &stream in &streams[1..] {
        bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
        for _ in 0..10 {
            bench.launch(stream, "twice_plus", 1, 1, args![&x, 1]);
        }
    }
    std::thread::scope(|scope| {
        let waiting: Vec<_> = streams[1..]
            .iter()
            .map(|&s| {
                let bench = &bench;
                scope.spawn(move || bench.sync(s))
            })
            .collect();
        bench.launch(streams[0], "fails", 1, 1, args![&x]);
        for waiter in waiting {
            let error = waiter.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceLost);
            assert!(error.message().contains("`fails`"), "{error}");
        }
    });
    // The kernels still spin, because a lost device cannot stop running work. So their memory must not be freed.
    assert!(!bench.device.has_stopped());
    go.store(1, Ordering::Release);
    let begun = Instant::now();
    while !bench.device.has_stopped() {
        assert!(begun.elapsed().as_secs() < 60, "the kernels have not ended");
        std::thread::yield_now();
    }
}
