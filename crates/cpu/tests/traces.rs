//! Traces: each numbered operation must end exactly once, and you get the times of its work.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::trace::now;
use gpustream_hal::{
    BatchCopy, CopyEnd, ErrorKind, EventOptions, FillPattern, GraphNode, LaunchConfig, NodePlace, RanWork,
    RawBuffer, RawStream, Repeat, TraceClock, WaitValue, Work,
};
use support::{Arg, Bench, SYNC, await_flag, compile, options};

const KERNELS: &str = r#"
extern "C" __global__ void fails(int* x) { assert(false); }
extern "C" __global__ void shares(volatile unsigned* here, const volatile unsigned* go, volatile unsigned* helper) {
    if (blockIdx.x == 0) {
        *here = 1;
        while (*go == 0) {}
    } else if (blockIdx.x == 1) {
        while (*helper == 0) {}
    } else {
        *helper = 1;
        while (*go != 2) {}
    }
}
extern "C" __global__ void count_down(unsigned* left) { *left -= 1; }
"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(&format!("{SYNC}{KERNELS}")));

/// A part of an operation, as it was handed out.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    operation: u64,
    label: String,
    work: RanWork,
    start: u64,
    end: u64,
    last: bool,
}

/// A bench that traces, and streams.
fn traced<const STREAMS: usize>() -> (Bench, [RawStream; STREAMS]) {
    let (bench, streams) = Bench::with_streams(options(), &IMAGE);
    assert_eq!(bench.device.trace_begin().unwrap(), TraceClock::Host);
    (bench, streams)
}

/// Submits something under a number.
fn numbered<T>(bench: &Bench, number: u64, submit: impl FnOnce() -> T) -> T {
    bench.device.trace_enter(number);
    let value = submit();
    bench.device.trace_leave();
    value
}

/// Takes what was measured, and how much was lost. Exactly one part of each operation is the last, and it
/// comes last.
fn take(bench: &Bench) -> (Vec<Part>, u64) {
    let mut parts: Vec<Part> = Vec::new();
    let lost = bench.device.trace_take(true, &mut |ran| {
        let (label, work, last) = (ran.label.to_owned(), ran.work, ran.last);
        parts.push(Part { operation: ran.operation, label, work, start: ran.start, end: ran.end, last });
    });
    for (at, part) in parts.iter().enumerate() {
        assert!(part.start <= part.end, "{part:?}");
        let goes_on = parts[at + 1..].iter().any(|other| other.operation == part.operation);
        assert_eq!(part.last, !goes_on, "{part:?}");
    }
    (parts, lost.unwrap())
}

/// Takes what was measured, and asserts that nothing was lost. Returns the operations and what they did.
fn works(bench: &Bench) -> Vec<(u64, RanWork)> {
    let (parts, lost) = take(bench);
    assert_eq!(lost, 0);
    parts.iter().map(|part| (part.operation, part.work)).collect()
}

const ONE: LaunchConfig = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
const KERNEL: RanWork = RanWork::Kernel { grid: [1; 3], block: [1; 3] };

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn every_operation_ends_once_and_says_what_it_was() {
    let (bench, [s, other]) = traced();
    let (x, y, word) = (bench.memory::<i32>(64), bench.memory::<i32>(64), bench.flag());
    let (device, [a, b]) = (&bench.device, [x.buffer, y.buffer]);
    let timed = device.event_create(EventOptions::default().timing(true)).unwrap();
    let (host, word_at) = ([0u8; 64], RawBuffer(std::ptr::from_ref(word) as usize));
    let from = |buffer: RawBuffer| buffer.0 as *mut u8;
    numbered(&bench, 1, || bench.launch(s, "append", 1, 1, args![&x, &y, 1]));
    // SAFETY: everything lives until the stream is done, and is long enough.
    unsafe {
        numbered(&bench, 2, || device.copy_to_device(a, host.as_ptr(), 8, s)).unwrap();
        numbered(&bench, 3, || device.copy_to_host(from(b), a, 12, s)).unwrap();
        numbered(&bench, 4, || device.copy_on_device(b, a, 16, s)).unwrap();
        numbered(&bench, 5, || device.copy_from_peer(b, a, 0, 20, s)).unwrap();
        numbered(&bench, 6, || device.fill(a, FillPattern::U16(7), 5, s)).unwrap();
        numbered(&bench, 7, || device.stream_host_fn(s, nothing, null_mut())).unwrap();
        numbered(&bench, 8, || device.event_record(timed, s)).unwrap();
        numbered(&bench, 9, || device.stream_write_value32(s, word_at, 1)).unwrap();
        numbered(&bench, 10, || device.stream_wait_value32(s, word_at, WaitValue::Equal(1))).unwrap();
        numbered(&bench, 11, || device.copy_on_device(b, a, 0, s)).unwrap();
        let copy = BatchCopy { dst: CopyEnd::Device(b), src: CopyEnd::Device(a), bytes: 24 };
        numbered(&bench, 12, || device.copy_batch(&[copy, copy][..1], s)).unwrap();
    }
    let go = bench.flag();
    bench.launch(other, "spin", 1, 1, args![go, 1u32]);
    let passed = bench.event();
    bench.record(passed, other);
    numbered(&bench, 13, || bench.wait(s, passed));
    go.store(1, Ordering::Release);
    bench.sync(s).unwrap();
    let copy = |bytes| RanWork::CopyOnDevice { bytes };
    let expected = [
        KERNEL,
        RanWork::CopyToDevice { bytes: 8 },
        RanWork::CopyToHost { bytes: 12 },
        copy(16),
        RanWork::CopyFromPeer { bytes: 20 },
        RanWork::Fill { bytes: 10 },
        RanWork::Other,
        RanWork::Other,
        RanWork::Other,
        RanWork::Other,
        copy(0),
        copy(24),
        RanWork::Other,
    ];
    let (parts, lost) = take(&bench);
    let found: Vec<_> = parts.iter().map(|part| (part.operation, part.work)).collect();
    assert_eq!(found, (1..).zip(expected).collect::<Vec<_>>());
    assert_eq!((parts[0].label.as_str(), lost), ("append", 0));
    assert!(parts.windows(2).all(|two| two[0].end <= two[1].start), "{parts:?}");
    assert_eq!(take(&bench), (Vec::new(), 0), "each is handed out once");
}

#[test]
fn only_what_runs_under_a_number_is_measured() {
    let (bench, [s]) = Bench::with_streams(options(), &IMAGE);
    let (elsewhere, [t]) = traced();
    let (list, count) = (bench.memory::<i32>(64), bench.memory::<u32>(1));
    let append = |number| {
        numbered(&bench, number, || bench.launch(s, "append", 1, 1, args![&list, &count, number as i32]));
    };
    append(1);
    bench.device.trace_begin().unwrap();
    bench.launch(s, "append", 1, 1, args![&list, &count, 2]);
    append(3);
    // These were refused, captured, or belong to another device or thread, so the number is not for them.
    numbered(&bench, 4, || bench.launch_with(s, "append", ONE, &mut []).unwrap_err());
    // SAFETY: the stream is alive, and what is captured does not run.
    unsafe {
        bench.device.capture_begin(s).unwrap();
        append(5);
        let graph = bench.device.capture_end(s).unwrap();
        bench.device.graph_destroy(graph).unwrap();
    }
    numbered(&bench, 6, || {
        elsewhere.launch(t, "count_down", 1, 1, args![&elsewhere.memory_of(&[2u32])]);
        elsewhere.sync(t).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let s = bench.stream();
                bench.launch(s, "set", 1, 1, args![bench.flag(), 1u32]);
                bench.sync(s).unwrap();
            });
        });
    });
    bench.device.trace_begin().unwrap();
    bench.device.trace_end();
    append(7);
    bench.sync(s).unwrap();
    assert_eq!(works(&bench), [(3, KERNEL), (7, KERNEL)]);
    assert_eq!(works(&elsewhere), []);
    bench.device.trace_end();
    append(8);
    bench.sync(s).unwrap();
    assert_eq!(works(&bench), []);
}

/// The worker that begins a launch is done before its helper. A graph's node is shared like a stream's
/// launch.
#[test]
fn a_shared_launch_ends_with_its_last_worker() {
    let (bench, [s]) = traced();
    let (device, config) = (&bench.device, LaunchConfig::new([3, 1, 1], [1, 1, 1]));
    for number in 1..=20 {
        let (here, go, helper) = (bench.flag(), bench.flag(), bench.flag());
        let before = now();
        if number % 2 == 0 {
            let mut args = [here, go, helper].map(Arg::from);
            let args = args.each_mut().map(Arg::pointer);
            let work = Work::Kernel { function: bench.function("shares"), config: &config, args: &args };
            // SAFETY: everything lives until the stream is done.
            unsafe {
                let graph = device.graph_create().unwrap();
                device.graph_add_node(graph, &[], &GraphNode::Work(work)).unwrap();
                let exec = device.graph_instantiate(graph).unwrap();
                numbered(&bench, number, || device.graph_launch(exec, s)).unwrap();
            }
        } else {
            numbered(&bench, number, || {
                bench.launch_with(s, "shares", config, args![here, go, helper]).unwrap();
            });
        }
        await_flag(here, 1);
        let begun = now();
        // The first block takes long enough for the rest to be shared.
        while now() < begun + 200_000 {}
        go.store(1, Ordering::Release);
        await_flag(helper, 1);
        let helped = now();
        go.store(2, Ordering::Release);
        bench.sync(s).unwrap();
        let (parts, _) = take(&bench);
        let [Part { operation, start, end, .. }] = parts[..] else { panic!("{parts:?}") };
        assert_eq!((operation, &*parts[0].label), (number, "shares"));
        assert!(before <= start && start <= begun && end >= helped && end <= now(), "{parts:?}");
    }
}

fn kernel_node<'a>(bench: &Bench, name: &str, args: &'a [*mut c_void]) -> GraphNode<'a> {
    GraphNode::Work(Work::Kernel { function: bench.function(name), config: &ONE, args })
}

#[test]
fn graphs_are_measured_by_node() {
    let (bench, [s]) = traced();
    let (device, x) = (&bench.device, bench.memory::<i32>(64));
    let (one, two) = (bench.flag(), bench.flag());
    let meet = |mine: &AtomicU32, other: &AtomicU32| [mine, other].map(Arg::from);
    let (mut first, mut second) = (meet(one, two), meet(two, one));
    let first = first.each_mut().map(Arg::pointer);
    let second = second.each_mut().map(Arg::pointer);
    // SAFETY: everything lives until the stream is done, and is long enough.
    let (graph, empty) = unsafe {
        let (graph, empty) = (device.graph_create().unwrap(), device.graph_create().unwrap());
        let add = |after: &[_], node: &GraphNode<'_>| device.graph_add_node(graph, after, node).unwrap();
        let fill = Work::Fill { dst: x.buffer, pattern: FillPattern::U32(1), count: 2 };
        let fill = add(&[], &GraphNode::Work(fill));
        let meetings = [
            add(&[fill], &kernel_node(&bench, "meet", &first)),
            add(&[fill], &kernel_node(&bench, "meet", &second)),
        ];
        let joined = add(&meetings, &GraphNode::Empty);
        let copy = Work::CopyToHost { dst: (x.buffer.0 + 64) as *mut u8, src: x.buffer, bytes: 8 };
        let copied = add(&[joined], &GraphNode::Work(copy));
        add(&[copied], &GraphNode::Work(Work::Host { function: nothing, data: null_mut() }));
        (device.graph_instantiate(graph).unwrap(), device.graph_instantiate(empty).unwrap())
    };
    for number in 1..50 {
        one.store(0, Ordering::Relaxed);
        two.store(0, Ordering::Relaxed);
        // SAFETY: all is alive.
        unsafe {
            numbered(&bench, 2 * number, || device.graph_launch(graph, s)).unwrap();
            numbered(&bench, 2 * number + 1, || device.graph_launch(empty, s)).unwrap();
        }
        bench.sync(s).unwrap();
        let (parts, lost) = take(&bench);
        let found: Vec<_> =
            parts.iter().map(|part| (part.operation, part.label.as_str(), part.work)).collect();
        let of = |label, work| (2 * number, label, work);
        let expected = [
            of("", RanWork::Fill { bytes: 8 }),
            of("meet", KERNEL),
            of("meet", KERNEL),
            of("", RanWork::Other),
            of("", RanWork::CopyToHost { bytes: 8 }),
            of("", RanWork::Other),
            (2 * number + 1, "", RanWork::Other),
        ];
        assert_eq!((found, lost), (expected.to_vec(), 0));
        let [fill, a, b, joined, ..] = &parts[..] else { unreachable!() };
        assert!(fill.end <= a.start && a.start <= b.start && a.end.max(b.end) <= joined.start, "{parts:?}");
        // Each ends only when the other has begun.
        assert!(b.start <= a.end, "{parts:?}");
    }
    // A run without a number, between two with one, is not measured.
    one.store(1, Ordering::Relaxed);
    // SAFETY: all is alive.
    unsafe { device.graph_launch(graph, s) }.unwrap();
    bench.sync(s).unwrap();
    assert_eq!(works(&bench), []);
}

/// If a graph has a loop, its body is measured each time it runs.
#[test]
fn loops_of_graphs_are_measured_by_turn() {
    let (bench, [s]) = traced();
    let (device, left) = (&bench.device, bench.memory_of(&[1000u32]));
    let mut args = [Arg::from(&left)];
    let args = args.each_mut().map(Arg::pointer);
    // SAFETY: everything lives until the stream is done.
    unsafe {
        let graph = device.graph_create().unwrap();
        let place = NodePlace::After(graph, &[]);
        let conditional = device.conditional_begin(place, Repeat::While).unwrap();
        device
            .graph_add_node(conditional.body, &[], &kernel_node(&bench, "count_down", &args))
            .map(|last| device.conditional_end(place, &conditional, left.buffer, last))
            .unwrap()
            .unwrap();
        let exec = device.graph_instantiate(graph).unwrap();
        numbered(&bench, 1, || device.graph_launch(exec, s)).unwrap();
    }
    bench.sync(s).unwrap();
    assert_eq!(works(&bench), vec![(1, KERNEL); 1000]);
}

#[test]
fn several_operations_of_one_number_end_together() {
    let (bench, [s]) = traced();
    let (go, word) = (bench.flag(), bench.flag());
    numbered(&bench, 1, || {
        bench.launch(s, "set", 1, 1, args![word, 1u32]);
        bench.sync(s).unwrap();
        assert_eq!(works(&bench), [], "more may come");
        bench.launch(s, "spin", 1, 1, args![go, 1u32]);
    });
    assert_eq!(works(&bench), []);
    go.store(1, Ordering::Release);
    bench.sync(s).unwrap();
    assert_eq!(works(&bench), [(1, KERNEL), (1, KERNEL)]);
    numbered(&bench, 2, || {
        bench.launch(s, "set", 1, 1, args![word, 1u32]);
        bench.sync(s).unwrap();
    });
    assert_eq!(works(&bench), [(2, KERNEL)]);
}

#[test]
fn what_nobody_takes_is_bounded_and_counted() {
    const KEPT: u64 = 1 << 17;
    let (bench, [s]) = traced();
    let word = bench.flag();
    let word_at = RawBuffer(std::ptr::from_ref(word) as usize);
    for number in 1..=KEPT + 1000 {
        // SAFETY: the word lives for good.
        numbered(&bench, number, || unsafe { bench.device.stream_write_value32(s, word_at, 1) }).unwrap();
    }
    bench.sync(s).unwrap();
    let mut kept = 0;
    let mut count = |ran: &gpustream_hal::Ran<'_>| {
        kept += 1;
        assert_eq!((ran.operation, ran.last), (kept, true));
    };
    assert_eq!(bench.device.trace_take(false, &mut count).unwrap(), 1000);
    assert_eq!(kept, KEPT);
    // There is room again.
    numbered(&bench, 7, || bench.launch(s, "set", 1, 1, args![word, 1u32]));
    bench.sync(s).unwrap();
    assert_eq!(works(&bench), [(7, KERNEL)]);
}

/// A lost device has measured what ran, but nothing that it dropped.
#[test]
fn lost_device_leaves_no_operations_behind() {
    let (bench, [s, other]) = traced();
    let (here, go, x) = (bench.flag(), bench.flag(), bench.memory::<i32>(1));
    numbered(&bench, 1, || bench.launch(s, "meet", 1, 1, args![here, go]));
    await_flag(here, 1);
    numbered(&bench, 2, || bench.launch(s, "append", 1, 1, args![&x, &x, 1]));
    // SAFETY: the stream is alive.
    numbered(&bench, 3, || unsafe { bench.device.stream_host_fn(s, nothing, null_mut()) }).unwrap();
    numbered(&bench, 4, || bench.launch(other, "fails", 1, 1, args![&x]));
    assert_eq!(bench.sync(other).unwrap_err().kind(), ErrorKind::DeviceLost);
    go.store(1, Ordering::Release);
    assert_eq!(bench.sync(s).unwrap_err().kind(), ErrorKind::DeviceLost);
    assert!(bench.device.has_stopped());
    let mut ran = works(&bench);
    ran.sort_by_key(|(operation, _)| *operation);
    assert_eq!(ran, [(1, KERNEL), (4, KERNEL)]);
    numbered(&bench, 5, || bench.launch_with(s, "fails", ONE, args![&x]).unwrap_err());
    assert_eq!(works(&bench), []);
    assert_eq!(bench.device.trace_begin().unwrap_err().kind(), ErrorKind::DeviceLost);
}
