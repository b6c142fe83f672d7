//! Streams and events: order, overlap and waiting.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use gpustream_hal::{
    DefaultStream, ErrorKind, EventOptions, FillPattern, RawStream, StreamOptions, StreamPriorities,
    WaitPolicy,
};
use support::{Bench, await_flag, compile, options};

const KERNELS: &str = r#"
extern "C" __global__ void spin(const volatile unsigned* flag, unsigned value) { while (*flag != value) {} }
extern "C" __global__ void set(volatile unsigned* flag, unsigned value) {
    __threadfence_system();
    *flag = value;
}
extern "C" __global__ void meet(volatile unsigned* mine, const volatile unsigned* other) {
    *mine = 1;
    while (*other == 0) {}
}
extern "C" __global__ void append(int* list, unsigned* count, int value) { list[(*count)++] = value; }
extern "C" __global__ void twice_plus(int* x, int value) { *x = *x * 2 + value; }
extern "C" __global__ void busy(float* x, int rounds) {
    float v = x[threadIdx.x];
    for (int i = 0; i < rounds; ++i) v = v * 0.5f + 1.0f;
    x[threadIdx.x] = v;
}
"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(KERNELS));

fn bench() -> Bench {
    Bench::with(options(), &IMAGE)
}

fn query(bench: &Bench, stream: RawStream) -> bool {
    // SAFETY: tests use live streams.
    unsafe { bench.device.stream_query(stream) }.unwrap()
}

#[test]
fn a_stream_keeps_its_order() {
    let bench = bench();
    let stream = bench.stream();
    let (list, count) = (bench.memory::<i32>(1000), bench.memory::<u32>(1));
    for i in 0..1000 {
        bench.launch(stream, "append", 1, 1, args![&list, &count, i]);
    }
    bench.sync(stream).unwrap();
    assert!(list.as_ref().iter().copied().eq(0..1000));
    assert!(query(&bench, stream));
}

#[test]
fn two_kernels_of_two_streams_run_at_once() {
    // With one worker too: each waits for the other to have begun.
    for workers in [1, 2] {
        let bench = Bench::with(options().workers(workers), &IMAGE);
        let (a, b) = (bench.stream(), bench.stream());
        let (x, y) = (bench.flag(), bench.flag());
        bench.launch(a, "meet", 1, 1, args![x, y]);
        bench.launch(b, "meet", 1, 1, args![y, x]);
        bench.sync(a).unwrap();
        bench.sync(b).unwrap();
    }
}

#[test]
fn many_kernels_that_wait_leave_room_for_the_one_they_wait_for() {
    let bench = bench();
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
    let bench = bench();
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
fn an_event_orders_another_stream() {
    let bench = bench();
    let (a, b) = (bench.stream(), bench.stream());
    let (go, seen) = (bench.flag(), bench.flag());
    let event = bench.device.event_create(EventOptions::default()).unwrap();
    bench.launch(a, "spin", 1, 1, args![go, 1u32]);
    bench.record(event, a);
    bench.wait(b, event);
    bench.launch(b, "set", 1, 1, args![seen, 1u32]);
    // SAFETY: the event is alive.
    let done = || unsafe { bench.device.event_query(event) }.unwrap();
    assert!(!done() && !query(&bench, a) && !query(&bench, b));
    assert_eq!(seen.load(Ordering::Acquire), 0);
    go.store(1, Ordering::Release);
    bench.sync(b).unwrap();
    assert_eq!(seen.load(Ordering::Acquire), 1);
    assert!(done());
}

#[test]
fn a_wait_keeps_the_record_that_was_current() {
    let bench = bench();
    let (a, b, c) = (bench.stream(), bench.stream(), bench.stream());
    let (first, second) = (bench.flag(), bench.flag());
    let event = bench.device.event_create(EventOptions::default()).unwrap();
    bench.launch(a, "spin", 1, 1, args![first, 1u32]);
    bench.record(event, a);
    bench.wait(c, event);
    // The event is recorded again, behind a kernel that does not end: the wait above is not for this record.
    bench.launch(b, "spin", 1, 1, args![second, 1u32]);
    bench.record(event, b);
    first.store(1, Ordering::Release);
    bench.sync(c).unwrap();
    // SAFETY: the event is alive.
    assert!(!unsafe { bench.device.event_query(event) }.unwrap());
    second.store(1, Ordering::Release);
    // SAFETY: the event is alive.
    unsafe { bench.device.event_synchronize(event) }.unwrap();
    bench.sync(b).unwrap();
}

#[test]
fn an_event_that_was_never_recorded_counts_as_reached() {
    let bench = bench();
    let stream = bench.stream();
    let event = bench.device.event_create(EventOptions::default()).unwrap();
    bench.wait(stream, event);
    // SAFETY: the event is alive.
    unsafe {
        assert!(bench.device.event_query(event).unwrap());
        bench.device.event_synchronize(event).unwrap();
    }
    bench.sync(stream).unwrap();
}

#[test]
fn every_way_of_waiting_waits() {
    for wait in [WaitPolicy::Spin, WaitPolicy::Yield, WaitPolicy::Block] {
        let bench = bench();
        let stream = bench.stream();
        let (go, done) = (bench.flag(), AtomicU32::new(0));
        let event = bench.device.event_create(EventOptions::default().wait(wait)).unwrap();
        bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
        bench.record(event, stream);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                // SAFETY: the event is alive.
                unsafe { bench.device.event_synchronize(event) }.unwrap();
                assert_eq!(done.load(Ordering::SeqCst), 1, "{wait:?} returned early");
            });
            // Long enough for the waiter to be past every stage of its policy; it must not return at any of them.
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
fn timed_events_measure_what_lies_between() {
    let bench = bench();
    let stream = bench.stream();
    let [start, end] =
        [(); 2].map(|()| bench.device.event_create(EventOptions::default().timing(true)).unwrap());
    let plain = bench.device.event_create(EventOptions::default()).unwrap();
    let go = bench.flag();
    bench.record(start, stream);
    bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
    bench.record(end, stream);
    bench.record(plain, stream);
    // SAFETY: the events are alive.
    let elapsed = |a, b| unsafe { bench.device.event_elapsed(a, b) };
    assert_eq!(elapsed(start, end).unwrap_err().kind(), ErrorKind::InvalidArgument);
    // SAFETY: the events are alive.
    while unsafe { !bench.device.event_query(start).unwrap() } {
        std::hint::spin_loop();
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2) {}
    go.store(1, Ordering::Release);
    bench.sync(stream).unwrap();
    let took = elapsed(start, end).unwrap();
    assert!(took >= Duration::from_millis(2) && took < Duration::from_mins(30), "{took:?}");
    assert_eq!(elapsed(start, start).unwrap(), Duration::ZERO);
    assert!(elapsed(start, plain).is_err());
}

static CALLS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe extern "C" fn note(data: *mut c_void) {
    CALLS.lock().unwrap().push(data as usize);
}

#[test]
fn host_functions_run_in_stream_order() {
    let bench = bench();
    let stream = bench.stream();
    let go = bench.flag();
    bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
    for i in 1..=3 {
        // SAFETY: the data is a number.
        unsafe { bench.device.stream_host_fn(stream, note, i as *mut c_void) }.unwrap();
    }
    assert!(CALLS.lock().unwrap().is_empty());
    go.store(1, Ordering::Release);
    bench.sync(stream).unwrap();
    assert_eq!(*CALLS.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    let bench = bench();
    let stream = bench.stream();
    let (go, done) = (bench.flag(), bench.flag());
    bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
    bench.launch(stream, "set", 1, 1, args![done, 1u32]);
    let event = bench.device.event_create(EventOptions::default()).unwrap();
    bench.record(event, stream);
    // SAFETY: not used again.
    unsafe { bench.device.stream_destroy(stream) }.unwrap();
    go.store(1, Ordering::Release);
    // The event keeps the parts of the stream that it needs.
    // SAFETY: the event is alive.
    unsafe { bench.device.event_synchronize(event) }.unwrap();
    assert_eq!(done.load(Ordering::Acquire), 1);
}

fn defaults(bench: &Bench) -> (RawStream, RawStream, RawStream) {
    let blocking = StreamOptions::default().blocking_with_default(true);
    (
        bench.device.stream_default(DefaultStream::Legacy).unwrap(),
        bench.device.stream_create(blocking).unwrap(),
        bench.device.stream_default(DefaultStream::PerThread).unwrap(),
    )
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let bench = bench();
    let (legacy, blocking, per_thread) = defaults(&bench);
    let plain = bench.stream();
    for other in [blocking, per_thread] {
        // Legacy after blocking.
        let (go, seen, free) = (bench.flag(), bench.flag(), bench.flag());
        bench.launch(other, "spin", 1, 1, args![go, 1u32]);
        bench.launch(legacy, "set", 1, 1, args![seen, 1u32]);
        // A plain stream is not held up, and proves that others could run.
        bench.launch(plain, "set", 1, 1, args![free, 1u32]);
        bench.sync(plain).unwrap();
        assert!(!query(&bench, legacy));
        assert_eq!(seen.load(Ordering::Acquire), 0);
        go.store(1, Ordering::Release);
        bench.sync(legacy).unwrap();
        assert_eq!(seen.load(Ordering::Acquire), 1);

        // Blocking after legacy.
        let (go, seen) = (bench.flag(), bench.flag());
        bench.launch(legacy, "spin", 1, 1, args![go, 1u32]);
        bench.launch(other, "set", 1, 1, args![seen, 1u32]);
        bench.launch(plain, "set", 1, 1, args![free, 2u32]);
        bench.sync(plain).unwrap();
        assert_eq!(seen.load(Ordering::Acquire), 0);
        go.store(1, Ordering::Release);
        bench.sync(other).unwrap();
        assert_eq!(seen.load(Ordering::Acquire), 1);
    }
}

#[test]
fn an_event_on_the_legacy_stream_covers_blocking_streams() {
    let bench = bench();
    let (legacy, blocking, _) = defaults(&bench);
    let go = bench.flag();
    let event = bench.device.event_create(EventOptions::default()).unwrap();
    bench.launch(blocking, "spin", 1, 1, args![go, 1u32]);
    bench.record(event, legacy);
    // SAFETY: the event is alive.
    assert!(!unsafe { bench.device.event_query(event) }.unwrap());
    go.store(1, Ordering::Release);
    // SAFETY: the event is alive.
    unsafe { bench.device.event_synchronize(event) }.unwrap();
}

#[test]
fn per_thread_streams_differ_between_threads() {
    let bench = bench();
    let (.., mine) = defaults(&bench);
    let go = bench.flag();
    bench.launch(mine, "spin", 1, 1, args![go, 1u32]);
    let sent = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let theirs = bench.device.stream_default(DefaultStream::PerThread).unwrap();
                let seen = bench.flag();
                bench.launch(theirs, "set", 1, 1, args![seen, 1u32]);
                bench.sync(theirs).unwrap();
                seen.load(Ordering::Acquire)
            })
            .join()
            .unwrap()
    });
    assert_eq!(sent, 1);
    assert!(!query(&bench, mine));
    go.store(1, Ordering::Release);
    bench.sync(mine).unwrap();
}

#[test]
fn urgent_streams_go_first_where_they_queue() {
    // One worker, kept busy, so that both streams queue.
    let bench = Bench::with(options().workers(1), &IMAGE);
    let StreamPriorities { least, greatest: most } = bench.device.info().stream_priorities;
    let blocker = bench.stream();
    let make = |priority| bench.device.stream_create(StreamOptions::default().priority(priority)).unwrap();
    let (list, count) = (bench.memory::<i32>(64), bench.memory::<u32>(1));
    // The watchdog adds a worker after a while; only an uninterrupted round says anything.
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

static RUNNING: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_down(_: *mut c_void) {
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

#[test]
fn threads_submit_to_shared_streams_and_nothing_is_lost() {
    let bench = bench();
    let streams: Vec<_> = (0..4).map(|_| bench.stream()).collect();
    let per_thread = 2000;
    RUNNING.store(4 * per_thread, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (bench, streams) = (&bench, &streams);
            scope.spawn(move || {
                let event = bench.device.event_create(EventOptions::default()).unwrap();
                for i in 0..per_thread {
                    let (a, b) = (streams[(thread + i) % 4], streams[(thread + 3 * i + 1) % 4]);
                    // SAFETY: handles are alive, the data unused.
                    unsafe {
                        bench.device.stream_host_fn(a, count_down, std::ptr::null_mut()).unwrap();
                        bench.device.event_record(event, a).unwrap();
                        bench.device.stream_wait_event(b, event).unwrap();
                    }
                }
            });
        }
    });
    bench.device.synchronize().unwrap();
    assert_eq!(RUNNING.load(Ordering::SeqCst), 0);
    assert!(streams.iter().all(|&s| query(&bench, s)));
}

#[test]
fn a_fault_reaches_all_waiters_and_drops_queued_work() {
    let source = format!("{KERNELS}\nextern \"C\" __global__ void fails(int* x) {{ assert(false); }}");
    let bench = Bench::with(options(), &compile(&source));
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
    // The kernels still spin: a device that is lost does not touch running work. The memory that they use is not freed.
    assert!(!bench.device.has_stopped());
    go.store(1, Ordering::Release);
    let begun = Instant::now();
    while !bench.device.has_stopped() {
        assert!(begun.elapsed().as_secs() < 60, "the kernels have not ended");
        std::thread::yield_now();
    }
}

#[test]
fn copies_and_fills_of_every_kind_write_their_range_alone() {
    let bench = bench();
    let stream = bench.stream();
    let n = 3 << 20;
    let data: Vec<u8> = (0..n).map(|i| (i * 7 + i / 251) as u8).collect();
    let (a, b) = (bench.memory::<u8>(n), bench.memory::<u8>(n));
    let mut back = vec![0u8; n];
    // SAFETY: all ranges are valid and untouched until the stream is done.
    unsafe {
        bench.device.copy_to_device(a.buffer, data.as_ptr(), n, stream).unwrap();
        bench.device.copy_on_device(b.buffer, a.buffer, n, stream).unwrap();
        bench.device.copy_to_host(back.as_mut_ptr(), b.buffer, n, stream).unwrap();
    }
    bench.sync(stream).unwrap();
    assert!(back == data);
    let fills = [FillPattern::U8(0xab), FillPattern::U16(0x1234), FillPattern::U32(0xdead_beef)];
    for (pattern, bytes) in
        fills.into_iter().zip([vec![0xab], vec![0x34, 0x12], vec![0xef, 0xbe, 0xad, 0xde]])
    {
        let width = pattern.width();
        let count = n / width - 3;
        // SAFETY: the range is allocated; offset by one element.
        unsafe { bench.device.fill(a.buffer.offset(width), pattern, count, stream) }.unwrap();
        bench.sync(stream).unwrap();
        let filled = &a.as_ref()[width..width * (count + 1)];
        assert!(filled.chunks(width).all(|c| c == bytes), "{pattern:?}");
        assert_ne!(a.as_ref()[0], bytes[0]);
        // SAFETY: restores the contents.
        unsafe { bench.device.copy_on_device(a.buffer, b.buffer, n, stream) }.unwrap();
        bench.sync(stream).unwrap();
    }
}

#[test]
fn a_strided_copy_writes_its_rows_alone() {
    use gpustream_hal::{Copy3d, CopyEnd};
    let bench = bench();
    let stream = bench.stream();
    let (width, height, depth) = (13, 5, 3);
    let (src_pitch, src_rows, dst_pitch, dst_rows) = (20, 7, 16, 6);
    let source: Vec<u8> = (0..src_pitch * src_rows * depth).map(|i| i as u8 | 1).collect();
    let src = bench.memory_of(&source);
    let mut dst = vec![0u8; dst_pitch * dst_rows * depth];
    let copy = Copy3d {
        dst: CopyEnd::Host(dst.as_mut_ptr()),
        dst_pitch,
        dst_rows,
        src: CopyEnd::Device(src.buffer),
        src_pitch,
        src_rows,
        width,
        height,
        depth,
    };
    // SAFETY: every row lies in the two ranges.
    unsafe { bench.device.copy_3d(&copy, stream) }.unwrap();
    bench.sync(stream).unwrap();
    for (i, &byte) in dst.iter().enumerate() {
        let (x, y, z) = (i % dst_pitch, i / dst_pitch % dst_rows, i / dst_pitch / dst_rows);
        let inside = x < width && y < height;
        let expected = if inside { source[(z * src_rows + y) * src_pitch + x] } else { 0 };
        assert_eq!(byte, expected, "({x}, {y}, {z})");
    }
}

#[test]
fn flags_are_seen_by_host_and_kernel_at_once() {
    let bench = bench();
    let stream = bench.stream();
    let (go, reply) = (bench.flag(), bench.flag());
    bench.launch(stream, "spin", 1, 1, args![go, 5u32]);
    bench.launch(stream, "set", 1, 1, args![reply, 6u32]);
    go.store(5, Ordering::Release);
    await_flag(reply, 6);
    bench.sync(stream).unwrap();
}
