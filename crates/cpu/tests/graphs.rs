//! Graphs: you can build, capture and update them, and they run as partial orders.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod support;

use std::ffi::c_void;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use gpustream_hal::{
    DefaultStream, ErrorKind, GraphNode, LaunchConfig, RawGraph, RawGraphNode, RawStream, Work,
};
use support::{Arg, Bench, SYNC, compile, options};

const KERNELS: &str = r#"
extern "C" __global__ void increment(int* x, int by) { *x += by; }
extern "C" __global__ void fails(int* x) { assert(*x == -1); }
"#;
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| compile(&format!("{SYNC}{KERNELS}")));

fn bench<const STREAMS: usize>() -> (Bench, [RawStream; STREAMS]) {
    Bench::with_streams(options(), &IMAGE)
}

const ONE: LaunchConfig = LaunchConfig::new([1, 1, 1], [1, 1, 1]);

/// Does nothing. We need it as a node of another kind.
unsafe extern "C" fn nothing(_: *mut c_void) {}

fn add_kernel(
    bench: &Bench,
    graph: RawGraph,
    after: &[RawGraphNode],
    name: &str,
    args: &mut [Arg],
) -> RawGraphNode {
    let args: Vec<*mut c_void> = args.iter_mut().map(Arg::pointer).collect();
    let node = GraphNode::Work(Work::Kernel { function: bench.function(name), config: &ONE, args: &args });
    // SAFETY: tests pass the arguments that their kernels take.
    unsafe { bench.device.graph_add_node(graph, after, &node) }.unwrap()
}

fn run(bench: &Bench, graph: RawGraph, stream: RawStream, times: usize) {
    // SAFETY: tests keep everything alive that their graphs use.
    unsafe {
        let exec = bench.device.graph_instantiate(graph).unwrap();
        for _ in 0..times {
            bench.device.graph_launch(exec, stream).unwrap();
        }
        bench.sync(stream).unwrap();
        bench.device.graph_exec_destroy(exec).unwrap();
    }
}

fn begin(bench: &Bench, stream: RawStream) {
    // SAFETY: the stream is alive.
    unsafe { bench.device.capture_begin(stream) }.unwrap();
}

fn end(bench: &Bench, stream: RawStream) -> Result<RawGraph, gpustream_hal::Error> {
    // SAFETY: the stream is alive.
    unsafe { bench.device.capture_end(stream) }
}

fn is_capturing(bench: &Bench, stream: RawStream) -> bool {
    // SAFETY: the stream is alive.
    unsafe { bench.device.is_capturing(stream) }.unwrap()
}

#[test]
fn a_child_graph_runs_in_its_place() {
    let (bench, [stream]) = bench();
    let (list, count) = (bench.memory::<i32>(64), bench.memory::<u32>(1));
    let child = bench.device.graph_create().unwrap();
    let two = add_kernel(&bench, child, &[], "append", args![&list, &count, 2]);
    add_kernel(&bench, child, &[two], "append", args![&list, &count, 3]);
    let empty = bench.device.graph_create().unwrap();
    let graph = bench.device.graph_create().unwrap();
    let first = add_kernel(&bench, graph, &[], "append", args![&list, &count, 1]);
    // SAFETY: all graphs are alive.
    let node = |after, graph_of| unsafe {
        bench.device.graph_add_node(graph, &[after], &GraphNode::Child(graph_of))
    };
    let inner = node(first, child).unwrap();
    let nothing = node(inner, empty).unwrap();
    add_kernel(&bench, graph, &[nothing], "append", args![&list, &count, 4]);
    // A change of the original must not change the copy.
    add_kernel(&bench, child, &[], "append", args![&list, &count, 99]);
    run(&bench, graph, stream, 2);
    assert_eq!(list.as_ref()[..9], [1, 2, 3, 4, 1, 2, 3, 4, 0]);
}

/// The backend must not recurse into child graphs, because graphs may be nested so deep that a stack would end.
#[test]
fn children_of_children_take_no_stack() {
    let (bench, [stream]) = bench();
    let (list, count) = (bench.memory::<i32>(64), bench.memory::<u32>(1));
    let mut graph = bench.device.graph_create().unwrap();
    add_kernel(&bench, graph, &[], "append", args![&list, &count, 7]);
    for _ in 0..100_000 {
        let parent = bench.device.graph_create().unwrap();
        // SAFETY: both graphs are alive, and the child is not used again.
        unsafe {
            bench.device.graph_add_node(parent, &[], &GraphNode::Child(graph)).unwrap();
            bench.device.graph_destroy(graph).unwrap();
        }
        graph = parent;
    }
    run(&bench, graph, stream, 2);
    // SAFETY: the graph is not used again.
    unsafe { bench.device.graph_destroy(graph) }.unwrap();
    assert_eq!(list.as_ref()[..3], [7, 7, 0]);
}

#[test]
fn runs_of_one_executable_follow_each_other_across_streams() {
    let (bench, [a, b]) = bench();
    let (list, count, go) = (bench.memory::<i32>(1000), bench.memory::<u32>(1), bench.flag());
    let graph = bench.device.graph_create().unwrap();
    let wait = add_kernel(&bench, graph, &[], "spin", args![go, 1u32]);
    add_kernel(&bench, graph, &[wait], "append", args![&list, &count, 1]);
    // SAFETY: everything is alive.
    unsafe {
        let exec = bench.device.graph_instantiate(graph).unwrap();
        for i in 0..200 {
            bench.device.graph_launch(exec, if i % 2 == 0 { a } else { b }).unwrap();
        }
        go.store(1, Ordering::Release);
        bench.sync(a).unwrap();
        bench.sync(b).unwrap();
    }
    assert_eq!(count.as_ref()[0], 200);
    assert_eq!(list.as_ref().iter().sum::<i32>(), 200);
}

#[test]
fn one_node_gets_other_arguments_and_pending_launches_keep_theirs() {
    let (bench, [stream]) = bench();
    let (x, go) = (bench.memory::<i32>(1), bench.flag());
    let graph = bench.device.graph_create().unwrap();
    let node = add_kernel(&bench, graph, &[], "increment", args![&x, 1]);
    // SAFETY: everything is alive.
    unsafe {
        let exec = bench.device.graph_instantiate(graph).unwrap();
        let set = |by: i32| {
            let args = args![&x, by];
            let args: Vec<*mut c_void> = args.iter_mut().map(Arg::pointer).collect();
            let work = Work::Kernel { function: bench.function("increment"), config: &ONE, args: &args };
            bench.device.graph_set_node(exec, node, &work).unwrap();
        };
        set(10);
        bench.device.graph_launch(exec, stream).unwrap();
        bench.sync(stream).unwrap();
        assert_eq!(x.as_ref()[0], 10);
        bench.launch(stream, "spin", 1, 1, args![go, 1u32]);
        bench.device.graph_launch(exec, stream).unwrap();
        set(100);
        bench.device.graph_launch(exec, stream).unwrap();
        go.store(1, Ordering::Release);
        bench.sync(stream).unwrap();
        assert_eq!(x.as_ref()[0], 10 + 10 + 100);
        let other = Work::Host { function: nothing, data: std::ptr::null_mut() };
        let error = bench.device.graph_set_node(exec, node, &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let error = bench.device.graph_set_node(exec, RawGraphNode(7), &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn every_stream_of_a_capture_says_so_until_the_end() {
    let (bench, [a, b]) = bench();
    let (fork, joined) = (bench.event(), bench.event());
    begin(&bench, a);
    assert_eq!([a, b].map(|stream| is_capturing(&bench, stream)), [true, false]);
    bench.record(fork, a);
    bench.wait(b, fork);
    assert!(is_capturing(&bench, b));
    bench.record(joined, b);
    bench.wait(a, joined);
    end(&bench, a).unwrap();
    assert_eq!([a, b].map(|stream| is_capturing(&bench, stream)), [false; 2]);
}

#[test]
fn a_graph_launched_into_a_capture_becomes_part_of_it() {
    let (bench, [stream, other]) = bench();
    let (list, count) = (bench.memory::<i32>(64), bench.memory::<u32>(1));
    let append = |i: i32| bench.launch(stream, "append", 1, 1, args![&list, &count, i]);
    begin(&bench, stream);
    append(2);
    append(3);
    let inner = end(&bench, stream).unwrap();
    // SAFETY: everything is alive.
    let exec = unsafe { bench.device.graph_instantiate(inner) }.unwrap();
    begin(&bench, stream);
    append(1);
    // SAFETY: everything is alive.
    unsafe { bench.device.graph_launch(exec, stream) }.unwrap();
    append(4);
    let graph = end(&bench, stream).unwrap();
    run(&bench, graph, other, 1);
    assert_eq!(list.as_ref()[..5], [1, 2, 3, 4, 0]);
}

/// Misuses a capture. Asserts the errors of the offending call and of the end. Afterwards the stream must
/// work.
fn misuse(bench: &Bench, offend: impl FnOnce(RawStream) -> gpustream_hal::Error) {
    let stream = bench.stream();
    let x = bench.memory::<i32>(1);
    begin(bench, stream);
    bench.launch(stream, "increment", 1, 1, args![&x, 1]);
    let error = offend(stream);
    assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
    let error = end(bench, stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Captured, "{error}");
    bench.launch(stream, "increment", 1, 1, args![&x, 5]);
    bench.sync(stream).unwrap();
    assert_eq!(x.as_ref()[0], 5);
    bench.device.synchronize().unwrap();
}

#[test]
fn calls_that_cannot_be_captured_are_errors_at_the_call() {
    let (bench, []) = bench();
    let device = &bench.device;
    let outside = bench.stream();
    let recorded_outside = bench.event();
    bench.record(recorded_outside, outside);
    // SAFETY: all handles are alive.
    unsafe {
        misuse(&bench, |stream| device.stream_synchronize(stream).unwrap_err());
        misuse(&bench, |stream| device.stream_query(stream).unwrap_err());
        misuse(&bench, |stream| device.stream_wait_event(stream, recorded_outside).unwrap_err());
        misuse(&bench, |stream| device.alloc_async(64, stream).unwrap_err());
        misuse(&bench, |stream| {
            let memory = device.alloc(64).unwrap();
            device.free_async(memory, stream).unwrap_err()
        });
        misuse(&bench, |stream| {
            let event = bench.event();
            bench.record(event, stream);
            assert_eq!(device.event_query(event).unwrap_err().kind(), ErrorKind::Captured);
            assert_eq!(device.synchronize().unwrap_err().kind(), ErrorKind::Captured);
            assert_eq!(device.capture_begin(stream).unwrap_err().kind(), ErrorKind::Captured);
            let legacy = device.stream_default(DefaultStream::Legacy).unwrap();
            device.stream_wait_event(legacy, event).unwrap_err()
        });
    }
}

#[test]
fn work_of_another_stream_must_be_joined() {
    let (bench, [a, b]) = bench();
    let fork = bench.event();
    let x = bench.memory::<i32>(1);
    begin(&bench, a);
    bench.record(fork, a);
    bench.wait(b, fork);
    bench.launch(b, "increment", 1, 1, args![&x, 1]);
    assert_eq!(end(&bench, a).unwrap_err().kind(), ErrorKind::Captured);
    bench.launch(b, "increment", 1, 1, args![&x, 2]);
    bench.sync(b).unwrap();
    assert_eq!(x.as_ref()[0], 2);
    // You cannot use this event: it belongs to a capture that no longer exists.
    // SAFETY: handles are alive.
    let stale = unsafe { bench.device.stream_wait_event(a, fork) };
    assert_eq!(stale.unwrap_err().kind(), ErrorKind::Captured);
    bench.record(fork, a);
    bench.wait(b, fork);
}

#[test]
fn a_capture_ends_where_it_began() {
    let (bench, [stream]) = bench();
    begin(&bench, stream);
    std::thread::scope(|scope| {
        let bench = &bench;
        scope.spawn(move || assert_eq!(end(bench, stream).unwrap_err().kind(), ErrorKind::Captured));
    });
    let graph = end(&bench, stream).unwrap();
    run(&bench, graph, stream, 1);
    assert_eq!(end(&bench, stream).unwrap_err().kind(), ErrorKind::Captured);
    let doomed = bench.stream();
    begin(&bench, doomed);
    // SAFETY: not used again.
    unsafe { bench.device.stream_destroy(doomed) }.unwrap();
    bench.device.synchronize().unwrap();
}

#[test]
fn a_fault_in_a_graph_ends_the_graph() {
    let (bench, [stream]) = bench();
    let (x, done) = (bench.memory::<i32>(1), bench.flag());
    let graph = bench.device.graph_create().unwrap();
    let node = add_kernel(&bench, graph, &[], "fails", args![&x]);
    add_kernel(&bench, graph, &[node], "set", args![done, 1u32]);
    // SAFETY: everything is alive.
    unsafe {
        let exec = bench.device.graph_instantiate(graph).unwrap();
        bench.device.graph_launch(exec, stream).unwrap();
    }
    let error = bench.sync(stream).unwrap_err();
    assert!(error.message().contains("`fails`"), "{error}");
    assert_eq!(done.load(Ordering::Acquire), 0);
}
