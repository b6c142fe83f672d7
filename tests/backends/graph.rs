//! Graphs that are captured or built.

use std::ffi::c_void;
use std::iter;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::{
    Copy1d, Copy3d, CopyEnd, Device, ErrorKind, EventOptions, Fill, FillPattern, GraphNode, GraphSize,
    GraphUpdate, LaunchConfig, PinnedOptions, RawBuffer, RawEvent, RawGraph, RawStream, Work,
};

use super::{Vendor, add_one, assert_one, names, pick, scale, start, stream};
use crate::VENDOR;

/// Captures `work` on `stream`, and returns the graph.
fn capture(device: &dyn Device, stream: RawStream, work: impl FnOnce()) -> RawGraph {
    // SAFETY: the stream is alive and not captured.
    unsafe {
        device.capture_begin(stream).unwrap();
        assert!(device.is_capturing(stream).unwrap());
        work();
        let graph = device.capture_end(stream).unwrap();
        assert!(!device.is_capturing(stream).unwrap());
        graph
    }
}

/// Returns the first `bytes` bytes of a buffer, after everything that `stream` has to do.
fn read(device: &dyn Device, buffer: RawBuffer, bytes: usize, stream: RawStream) -> Vec<u8> {
    let mut read = vec![0; bytes];
    // SAFETY: a copy to ordinary memory is done when the call returns.
    unsafe { device.copy_to_host(read.as_mut_ptr(), buffer, bytes, stream) }.unwrap();
    read
}

/// Fills the two halves of a buffer on two streams, and copies one half to the other. Two events make the streams part
/// and meet again.
///
/// # Safety
/// All must be alive, and the buffer must have 16 bytes.
unsafe fn fork_and_join(
    device: &dyn Device,
    [main, side]: [RawStream; 2],
    [fork, join]: [RawEvent; 2],
    buffer: RawBuffer,
    value: u8,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        device.fill(buffer, FillPattern::U8(value), 8, main).unwrap();
        device.event_record(fork, main).unwrap();
        device.stream_wait_event(side, fork).unwrap();
        device.fill(buffer.offset(8), FillPattern::U8(value + 1), 8, side).unwrap();
        device.event_record(join, side).unwrap();
        device.stream_wait_event(main, join).unwrap();
        device.copy_on_device(buffer, buffer.offset(8), 4, main).unwrap();
    }
}

#[test]
fn capture_forks_joins_replays_and_is_updated() {
    let (recorder, device) = start();
    let device = &*device;
    let streams @ [main, _] = [(); 2].map(|()| stream(device));
    let events = [(); 2].map(|()| device.event_create(EventOptions::default()).unwrap());
    let buffer = device.alloc(16).unwrap();
    let of_stream = [("stream", main.0 as u64)];
    // SAFETY: everything is alive until it is destroyed at the end, after the last run.
    unsafe {
        device.fill(buffer, FillPattern::U8(0), 16, main).unwrap();
        let ((), calls) = recorder.record(|| device.capture_begin(main).unwrap());
        // The mode is relaxed, because otherwise the thread could not make other calls.
        let args = [of_stream[0], ("mode", 2)];
        assert_one(&calls, ["cuStreamBeginCapture_v2", "hipStreamBeginCapture"], &args);
        fork_and_join(device, streams, events, buffer, 1);
        let (graph, calls) = recorder.record(|| device.capture_end(main).unwrap());
        assert_one(&calls, ["cuStreamEndCapture", "hipStreamEndCapture"], &of_stream);
        assert_eq!(device.graph_size(graph).unwrap(), GraphSize { nodes: 3, edges: 3 });
        assert_eq!(read(device, buffer, 16, main), [0; 16], "a capture runs nothing");

        let (exec, calls) = recorder.record(|| device.graph_instantiate(graph).unwrap());
        let of_graph = ("graph", graph.0 as u64);
        let nothing_more = (pick(["flags", "log_size"]), 0);
        assert_one(&calls, ["cuGraphInstantiateWithFlags", "hipGraphInstantiate"], &[of_graph, nothing_more]);
        let of_exec = ("exec", exec.0 as u64);
        let run = [of_exec, of_stream[0]];
        let ((), calls) = recorder.record(|| device.graph_upload(exec, main).unwrap());
        if VENDOR == Vendor::Rocm(5) {
            assert!(calls.is_empty(), "{calls:?}");
        } else {
            assert_one(&calls, ["cuGraphUpload", "hipGraphUpload"], &run);
        }
        for _ in 0..2 {
            device.fill(buffer, FillPattern::U8(0), 16, main).unwrap();
            let ((), calls) = recorder.record(|| device.graph_launch(exec, main).unwrap());
            assert_one(&calls, ["cuGraphLaunch", "hipGraphLaunch"], &run);
            assert_eq!(read(device, buffer, 16, main), [2, 2, 2, 2, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
        }

        // If only values differ, the executable can take them. If the shape differs, it cannot.
        let other = capture(device, main, || fork_and_join(device, streams, events, buffer, 5));
        let line = capture(device, main, || {
            (0..3).for_each(|_| device.fill(buffer, FillPattern::U8(9), 16, main).unwrap());
        });
        let update = ["cuGraphExecUpdate_v2", "hipGraphExecUpdate"];
        let (answer, calls) = recorder.record(|| device.graph_update(exec, other).unwrap());
        assert_eq!(answer, GraphUpdate::Updated);
        assert_one(&calls, update, &[of_exec, ("graph", other.0 as u64)]);
        assert_eq!(device.graph_update(exec, line).unwrap(), GraphUpdate::TopologyChanged);
        recorder.fail_next(pick(update), 2);
        assert_eq!(device.graph_update(exec, graph).unwrap_err().kind(), ErrorKind::OutOfMemory);
        device.graph_launch(exec, main).unwrap();
        assert_eq!(read(device, buffer, 16, main), [6, 6, 6, 6, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6]);

        let ((), calls) = recorder.record(|| device.graph_exec_destroy(exec).unwrap());
        assert_one(&calls, ["cuGraphExecDestroy", "hipGraphExecDestroy"], &[of_exec]);
        for graph in [graph, other, line] {
            let ((), calls) = recorder.record(|| device.graph_destroy(graph).unwrap());
            assert_one(&calls, ["cuGraphDestroy", "hipGraphDestroy"], &[("graph", graph.0 as u64)]);
        }
        for (event, stream) in events.into_iter().zip(streams) {
            device.event_destroy(event).unwrap();
            device.stream_destroy(stream).unwrap();
        }
        device.free(buffer).unwrap();
    }
}

#[test]
fn broken_capture_is_reported_and_the_stream_is_won_back() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let buffer = device.alloc(16).unwrap();
    let asked = pick(["cuStreamIsCapturing", "hipStreamIsCapturing"]);
    // SAFETY: everything is alive until it is destroyed.
    unsafe {
        let fill = |value| device.fill(buffer, FillPattern::U8(value), 16, stream);
        device.capture_begin(stream).unwrap();
        let error = device.stream_synchronize(stream).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(900)));
        assert_eq!(device.is_capturing(stream).unwrap_err().kind(), ErrorKind::Captured);
        let error = device.capture_end(stream).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(901)));

        // On ROCm 6 you cannot use the stream until another capture on it ends well.
        let is_stuck = VENDOR == Vendor::Rocm(6);
        assert_eq!(fill(1).err().map(|error| error.kind()), is_stuck.then_some(ErrorKind::Captured));
        let ((), calls) = recorder.record(|| device.capture_abandon(stream).unwrap());
        let captures_nothing = ["hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphDestroy"];
        assert_eq!(names(&calls)[0], asked);
        assert_eq!(names(&calls)[1..], captures_nothing[..if is_stuck { 3 } else { 0 }]);
        fill(2).unwrap();
        device.stream_synchronize(stream).unwrap();
        device.synchronize().unwrap();

        // If a call is not on the captured stream, it must not break the capture.
        let graph = capture(&*device, stream, || device.free(device.alloc(8).unwrap()).unwrap());
        device.graph_destroy(graph).unwrap();
        device.free(buffer).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn capture_whose_end_was_refused_can_be_abandoned() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let asked = pick(["cuStreamIsCapturing", "hipStreamIsCapturing"]);
    // SAFETY: the stream is alive until the last call.
    unsafe {
        device.capture_begin(stream).unwrap();
        recorder.fail_next(pick(["cuStreamEndCapture", "hipStreamEndCapture"]), 2);
        device.capture_end(stream).unwrap_err();
        assert!(device.is_capturing(stream).unwrap());
        // With HIP we must break the capture by a query, and then capture nothing.
        let ends = pick([
            &["cuStreamEndCapture", "cuGraphDestroy"][..],
            &["hipStreamQuery", "hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphDestroy"],
        ]);
        for ends in [ends, &[]] {
            let ((), calls) = recorder.record(|| device.capture_abandon(stream).unwrap());
            assert_eq!(names(&calls), [&[asked], ends].concat());
        }
        device.stream_synchronize(stream).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn stream_that_was_not_joined_back_breaks_the_capture() {
    let (_recorder, device) = start();
    let [main, side] = [(); 2].map(|()| stream(&*device));
    let event = device.event_create(EventOptions::default()).unwrap();
    // SAFETY: streams and event are alive until they are destroyed; the fill is captured and never runs.
    unsafe {
        device.capture_begin(main).unwrap();
        device.event_record(event, main).unwrap();
        device.stream_wait_event(side, event).unwrap();
        device.fill(RawBuffer(0x1000), FillPattern::U8(0), 1, side).unwrap();
        let error = device.capture_end(main).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(904)));
        let error = device.event_query(event).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(907)), "recorded in a capture");
        device.capture_abandon(main).unwrap();
        device.event_destroy(event).unwrap();
        device.stream_destroy(side).unwrap();
        device.stream_destroy(main).unwrap();
    }
}

/// A fill is one call too, because the fake HIP has the order from AMD's headers.
#[test]
fn node_of_each_kind_is_added_and_replaced_by_one_call() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let (module, function) = scale(&*device);
    let (a, b) = (device.alloc(256).unwrap(), device.alloc(256).unwrap());
    let host = device.pinned_alloc(256, PinnedOptions::default()).unwrap();
    // This kernel adds the factor to the first byte.
    recorder.on_kernel("scale", |run| {
        // SAFETY: the test launches it with the address of an allocated byte.
        unsafe { *run.pointer::<u8>(0) += run.float(1) as u8 };
        true
    });
    let (mut target, mut factor, mut count) = (a.0, 30_f32, 1_usize);
    let args: [*mut c_void; 3] =
        [(&raw mut target).cast(), (&raw mut factor).cast(), (&raw mut count).cast()];
    let config = LaunchConfig::new([1, 1, 1], [64, 1, 1]);
    let counter = AtomicU32::new(0);
    let data = (&raw const counter).cast_mut().cast();
    // Two planes of three rows of four bytes, from a block that is wider and higher.
    let (to, from) = (CopyEnd::Host(host.wrapping_add(64)), CopyEnd::Device(a));
    let strided = Copy3d {
        dst: to,
        dst_pitch: 8,
        dst_rows: 4,
        src: from,
        src_pitch: 16,
        src_rows: 5,
        width: 4,
        height: 3,
        depth: 2,
    };
    let line = [
        ["cuGraphAddMemcpyNode", "hipGraphAddMemcpyNode1D"],
        ["cuGraphExecMemcpyNodeSetParams", "hipGraphExecMemcpyNodeSetParams1D"],
    ];
    let block = [
        ["cuGraphAddMemcpyNode", "hipGraphAddMemcpyNode"],
        ["cuGraphExecMemcpyNodeSetParams", "hipGraphExecMemcpyNodeSetParams"],
    ];
    let memset = [
        ["cuGraphAddMemsetNode", "hipGraphAddMemsetNode"],
        ["cuGraphExecMemsetNodeSetParams", "hipGraphExecMemsetNodeSetParams"],
    ];
    let kernel = [
        ["cuGraphAddKernelNode_v2", "hipGraphAddKernelNode"],
        ["cuGraphExecKernelNodeSetParams_v2", "hipGraphExecKernelNodeSetParams"],
    ];
    let call = [
        ["cuGraphAddHostNode", "hipGraphAddHostNode"],
        ["cuGraphExecHostNodeSetParams", "hipGraphExecHostNodeSetParams"],
    ];
    // SAFETY: everything is alive until it is destroyed at the end, after the last run.
    unsafe {
        let child = capture(&*device, stream, || device.fill(b, FillPattern::U8(4), 16, stream).unwrap());
        let (graph, calls) = recorder.record(|| device.graph_create().unwrap());
        assert_one(&calls, ["cuGraphCreate", "hipGraphCreate"], &[("flags", 0)]);
        let fill = |value| Work::Fill(Fill { dst: a, pattern: FillPattern::U32(value), count: 8 });
        let nodes = [
            (GraphNode::Empty, [["cuGraphAddEmptyNode", "hipGraphAddEmptyNode"], [""; 2]]),
            (GraphNode::Work(fill(0x0403_0201)), memset),
            (GraphNode::Work(Work::Kernel { function, config: &config, args: &args }), kernel),
            (GraphNode::Work(Work::Copy(Copy1d::on_device(b, a, 32))), line),
            (GraphNode::Work(Work::Copy(Copy1d::to_host(host, b, 32))), line),
            (GraphNode::Work(Work::Copy(Copy1d::to_device(a.offset(64), host, 32))), line),
            (GraphNode::Work(Work::Copy3d(&strided)), block),
            (GraphNode::Work(Work::Host { function: add_one, data }), call),
            (GraphNode::Child(child), [["cuGraphAddChildGraphNode", "hipGraphAddChildGraphNode"], [""; 2]]),
        ];
        let mut handles = Vec::new();
        for (node, [add, _]) in &nodes {
            let after: Vec<_> = handles.last().copied().into_iter().collect();
            let (handle, calls) = recorder.record(|| device.graph_add_node(graph, &after, node).unwrap());
            assert_one(&calls, *add, &[("graph", graph.0 as u64), ("count", after.len() as u64)]);
            handles.push(handle);
        }
        let size = GraphSize { nodes: nodes.len(), edges: nodes.len() - 1 };
        assert_eq!(device.graph_size(graph).unwrap(), size);

        let exec = device.graph_instantiate(graph).unwrap();
        let run = |bytes: [u8; 4], factor, runs| {
            device.graph_launch(exec, stream).unwrap();
            device.stream_synchronize(stream).unwrap();
            let first = [bytes[0] + factor, bytes[1], bytes[2], bytes[3]];
            let expected = [first, bytes, bytes, bytes, bytes, bytes, bytes, bytes].concat();
            assert_eq!(std::slice::from_raw_parts(host, 32), expected);
            assert_eq!(std::slice::from_raw_parts(host.add(64), 4), first, "the strided copy's first row");
            assert_eq!(std::slice::from_raw_parts(host.add(72), 4), bytes, "and its second");
            assert_eq!(read(&*device, a.offset(64), 32, stream), expected);
            assert_eq!(
                read(&*device, b, 17, stream),
                [&[4; 16][..], &bytes[..1]].concat(),
                "the child graph's"
            );
            assert_eq!(counter.load(Ordering::SeqCst), runs);
        };
        run([1, 2, 3, 4], 30, 1);
        for (handle, (node, [_, set])) in handles.iter().zip(&nodes) {
            let GraphNode::Work(work) = node else { continue };
            let ((), calls) = recorder.record(|| device.graph_set_node(exec, *handle, work).unwrap());
            assert_one(&calls, *set, &[("exec", exec.0 as u64), ("node", handle.0 as u64)]);
        }
        device.graph_set_node(exec, handles[1], &fill(0x0807_0605)).unwrap();
        run([5, 6, 7, 8], 30, 2);

        let [before, after] = [2, 3].map(|at| {
            let GraphNode::Work(work) = nodes[at].0 else { unreachable!("a kernel and a copy") };
            device.describe_node(handles[at], &work)
        });
        assert!(before.is_described() && !after.is_described(), "only kernels are described");
        args[1].cast::<f32>().write(20.0);
        let context = pick(["cuCtxGetCurrent", "hipGetDevice"]);
        let mut described = [before; 3];
        for (stale, sets) in [([true, false, true], 2), ([false; 3], 0)] {
            described.iter_mut().zip(stale).for_each(|(node, stale)| node.stale = stale);
            recorder.clear();
            assert_eq!(device.graph_set_values(exec, &mut described).unwrap(), sets);
            let expected: Vec<_> = iter::once(context).chain((0..sets).map(|_| pick(kernel[1]))).collect();
            assert_eq!(names(&recorder.calls()), expected, "one look at the thread's context for all");
            assert!(described.iter().all(|node| !node.stale));
        }
        run([5, 6, 7, 8], 20, 3);

        device.graph_exec_destroy(exec).unwrap();
        device.graph_destroy(graph).unwrap();
        device.graph_destroy(child).unwrap();
        device.module_unload(module).unwrap();
        device.free(a).unwrap();
        device.free(b).unwrap();
        device.pinned_free(host).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

#[test]
fn cooperative_node_has_its_attribute_or_is_not_added() {
    const ATTRIBUTE: [&str; 2] = ["cuGraphKernelNodeSetAttribute", "hipGraphKernelNodeSetAttribute"];
    let (recorder, device) = start();
    let (module, function) = scale(&*device);
    let mut config = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
    // A node cannot have an early start, so it keeps the plain order.
    (config.cooperative, config.early_dependent) = (true, true);
    let mut value = 0_u64;
    let args: [*mut c_void; 3] = [(&raw mut value).cast(); 3];
    // SAFETY: everything is alive until it is destroyed.
    unsafe {
        let graph = device.graph_create().unwrap();
        let node = GraphNode::Work(Work::Kernel { function, config: &config, args: &args });
        let (answer, calls) = recorder.record(|| device.graph_add_node(graph, &[], &node));
        let size = device.graph_size(graph).unwrap();
        if VENDOR == Vendor::Rocm(5) {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(size, GraphSize { nodes: 0, edges: 0 }, "the refused node is not in the graph");
        } else {
            let added = answer.unwrap();
            assert_eq!(size, GraphSize { nodes: 1, edges: 0 });
            assert_one(&calls[1..], ATTRIBUTE, &[("node", added.0 as u64), ("attribute", 2)]);
            recorder.fail_next(pick(ATTRIBUTE), 1);
            device.graph_add_node(graph, &[added], &node).unwrap_err();
            assert_eq!(device.graph_size(graph).unwrap(), size, "a refused attribute takes the node with it");
        }
        let mut clustered = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
        clustered.cluster = [2, 1, 1];
        let node = GraphNode::Work(Work::Kernel { function, config: &clustered, args: &args });
        let answer = device.graph_add_node(graph, &[], &node);
        assert_eq!(answer.err().map(|error| error.kind()), pick([None, Some(ErrorKind::Unsupported)]));
        device.graph_destroy(graph).unwrap();
        device.module_unload(module).unwrap();
    }
}

/// Before 5.3, HIP can run a host function only as a callback, and refuses to capture that. If you build a graph, it
/// has a node for it.
#[test]
fn host_function_is_captured_if_the_version_can() {
    let (_recorder, device) = start();
    let stream = stream(&*device);
    let counter = AtomicU32::new(0);
    let data = (&raw const counter).cast_mut().cast();
    // SAFETY: everything is alive until it is destroyed, and the counter outlives the runs.
    unsafe {
        let mut captured = Ok(());
        let graph = capture(&*device, stream, || captured = device.stream_host_fn(stream, add_one, data));
        let refused = (VENDOR == Vendor::Rocm(5)).then_some(ErrorKind::Captured);
        assert_eq!(captured.err().map(|error| error.kind()), refused);
        let exec = device.graph_instantiate(graph).unwrap();
        device.graph_launch(exec, stream).unwrap();
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(counter.load(Ordering::SeqCst), if refused.is_some() { 0 } else { 2 });
        device.graph_exec_destroy(exec).unwrap();
        device.graph_destroy(graph).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}
