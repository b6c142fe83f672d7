//! Graphs: their calls, and the effects of captured and built work.

#![allow(clippy::unwrap_used, clippy::needless_for_each)]

mod support;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use gpustream_hal::{
    Copy3d, CopyEnd, Device, ErrorKind, EventOptions, FillPattern, GraphNode, GraphSize, GraphUpdate,
    LaunchConfig, PinnedOptions, RawBuffer, RawGraph, RawGraphExec, RawStream, StreamOptions, Work,
};
use support::{add_kernel, open};

fn read(device: &dyn Device, buffer: RawBuffer, stream: RawStream) -> u32 {
    let mut value = 0u32;
    // SAFETY: a copy to ordinary memory is done when the call returns.
    unsafe { device.copy_to_host((&raw mut value).cast(), buffer, 4, stream) }.unwrap();
    value
}

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

/// Destroys a test's graphs.
fn clean(device: &dyn Device, graphs: &[RawGraph], execs: &[RawGraphExec]) {
    // SAFETY: nothing of it runs any more.
    unsafe {
        execs.iter().for_each(|exec| device.graph_exec_destroy(*exec).unwrap());
        graphs.iter().for_each(|graph| device.graph_destroy(*graph).unwrap());
    }
}

#[test]
fn a_capture_forks_joins_and_replays() {
    let (recorder, device) = open();
    let (module, add) = add_kernel(&recorder, &*device);
    let [main, side] = [0, 1].map(|_| device.stream_create(StreamOptions::default()).unwrap());
    let [fork, join] = [0, 1].map(|_| device.event_create(EventOptions::default()).unwrap());
    let buffer = device.alloc(8).unwrap();
    let config = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
    let launch = |offset: usize, value: u32, stream| {
        let (mut target, mut value) = (buffer.0 + offset, value);
        let args: [*mut c_void; 2] = [(&raw mut target).cast(), (&raw mut value).cast()];
        // SAFETY: all alive, two arguments of the kernel's sizes.
        unsafe { device.launch(add, &config, &args, stream) }.unwrap();
    };
    // SAFETY: all handles are alive to the end.
    unsafe {
        device.fill(buffer, FillPattern::U32(0), 2, main).unwrap();
        let graph = capture(&*device, main, || {
            launch(0, 5, main);
            device.event_record(fork, main).unwrap();
            device.stream_wait_event(side, fork).unwrap();
            launch(4, 7, side);
            device.event_record(join, side).unwrap();
            device.stream_wait_event(main, join).unwrap();
            launch(0, 100, main);
        });
        assert_eq!(device.graph_size(graph).unwrap(), GraphSize { nodes: 3, edges: 3 });
        assert_eq!(read(&*device, buffer, main), 0, "capturing runs nothing");

        let (exec, calls) = recorder.record(|| device.graph_instantiate(graph).unwrap());
        assert_eq!(calls[0].name, "cuGraphInstantiateWithFlags");
        let ((), calls) = recorder.record(|| {
            device.graph_upload(exec, main).unwrap();
            device.graph_launch(exec, main).unwrap();
            device.graph_launch(exec, main).unwrap();
        });
        let names: Vec<_> = calls.iter().map(|call| call.name).collect();
        assert_eq!(names, ["cuGraphUpload", "cuGraphLaunch", "cuGraphLaunch"]);
        assert_eq!(read(&*device, buffer, main), 210);
        assert_eq!(read(&*device, buffer.offset(4), main), 14);

        // The same shape with other values goes into the same executable; another shape does not.
        let other = capture(&*device, main, || {
            launch(0, 1, main);
            device.event_record(fork, main).unwrap();
            device.stream_wait_event(side, fork).unwrap();
            launch(4, 1, side);
            device.event_record(join, side).unwrap();
            device.stream_wait_event(main, join).unwrap();
            launch(0, 1, main);
        });
        assert_eq!(device.graph_update(exec, other).unwrap(), GraphUpdate::Updated);
        device.graph_launch(exec, main).unwrap();
        assert_eq!(read(&*device, buffer, main), 212);
        let line = capture(&*device, main, || (0..3).for_each(|_| launch(0, 1, main)));
        assert_eq!(device.graph_update(exec, line).unwrap(), GraphUpdate::TopologyChanged);
        device.graph_launch(exec, main).unwrap();
        assert_eq!(read(&*device, buffer, main), 214, "as it was");

        clean(&*device, &[graph, other, line], &[exec]);
        [fork, join].iter().for_each(|event| device.event_destroy(*event).unwrap());
        [main, side].iter().for_each(|stream| device.stream_destroy(*stream).unwrap());
        device.free(buffer).unwrap();
        device.module_unload(module).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn every_kind_of_node_is_one_call_and_can_be_replaced() {
    unsafe extern "C" fn count(data: *mut c_void) {
        // SAFETY: the test passes its counter.
        unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
    let (recorder, device) = open();
    let (module, add) = add_kernel(&recorder, &*device);
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let (a, b) = (device.alloc(16).unwrap(), device.alloc(16).unwrap());
    let host = device.pinned_alloc(16, PinnedOptions::default()).unwrap();
    #[allow(clippy::cast_ptr_alignment, reason = "pinned memory is aligned to 64 bytes")]
    let words = host.cast::<u32>();
    let counter = AtomicU32::new(0);
    let data = (&raw const counter).cast_mut().cast();
    let (mut target, mut value) = (a.0, 30u32);
    let args: [*mut c_void; 2] = [(&raw mut target).cast(), (&raw mut value).cast()];
    let mut config = LaunchConfig::new([1, 1, 1], [1, 1, 1]);
    config.cooperative = true;
    config.early_dependent = true;
    let square = Copy3d {
        dst: CopyEnd::Device(b),
        dst_pitch: 4,
        dst_rows: 2,
        src: CopyEnd::Device(a),
        src_pitch: 4,
        src_rows: 2,
        width: 4,
        height: 2,
        depth: 2,
    };
    let child = device.graph_create().unwrap();
    let fill = |value| Work::Fill { dst: a, pattern: FillPattern::U32(value), count: 4 };
    // SAFETY: all handles, memory and the counter are alive to the end.
    unsafe {
        device.graph_add_node(child, &[], &GraphNode::Work(fill(1))).unwrap();
        let graph = device.graph_create().unwrap();
        let work = [
            (GraphNode::Empty, "cuGraphAddEmptyNode", ""),
            (GraphNode::Child(child), "cuGraphAddChildGraphNode", ""),
            (GraphNode::Work(fill(12)), "cuGraphAddMemsetNode", "cuGraphExecMemsetNodeSetParams"),
            (
                GraphNode::Work(Work::Kernel { function: add, config: &config, args: &args }),
                "cuGraphAddKernelNode_v2",
                "cuGraphExecKernelNodeSetParams_v2",
            ),
            (
                GraphNode::Work(Work::CopyOnDevice { dst: b, src: a, bytes: 16 }),
                "cuGraphAddMemcpyNode",
                "cuGraphExecMemcpyNodeSetParams",
            ),
            (GraphNode::Work(Work::Copy3d(square)), "cuGraphAddMemcpyNode", "cuGraphExecMemcpyNodeSetParams"),
            (
                GraphNode::Work(Work::CopyToHost { dst: host, src: b, bytes: 16 }),
                "cuGraphAddMemcpyNode",
                "cuGraphExecMemcpyNodeSetParams",
            ),
            (
                GraphNode::Work(Work::CopyToDevice { dst: b, src: host, bytes: 16 }),
                "cuGraphAddMemcpyNode",
                "cuGraphExecMemcpyNodeSetParams",
            ),
            (
                GraphNode::Work(Work::Host { function: count, data }),
                "cuGraphAddHostNode",
                "cuGraphExecHostNodeSetParams",
            ),
        ];
        let mut nodes = Vec::new();
        for (work, add, _) in &work {
            let before: Vec<_> = nodes.last().copied().into_iter().collect();
            let (node, calls) = recorder.record(|| device.graph_add_node(graph, &before, work).unwrap());
            let mut names: Vec<_> = calls.iter().map(|call| call.name).collect();
            // The cooperative attribute; an early start is no attribute of nodes.
            if *add == "cuGraphAddKernelNode_v2" {
                assert_eq!(names.pop(), Some("cuGraphKernelNodeSetAttribute"));
                // A refused attribute leaves no node that would run.
                let size = device.graph_size(graph).unwrap();
                recorder.fail_next("cuGraphKernelNodeSetAttribute", 1);
                device.graph_add_node(graph, &before, work).unwrap_err();
                assert_eq!(device.graph_size(graph).unwrap(), size);
            }
            assert_eq!(names, [*add]);
            nodes.push(node);
        }
        assert_eq!(device.graph_size(graph).unwrap(), GraphSize { nodes: 9, edges: 8 });
        let exec = device.graph_instantiate(graph).unwrap();
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(words.read(), 42);
        assert_eq!(words.add(3).read(), 12);
        assert_eq!(counter.load(Ordering::SeqCst), 1);

        for ((work, _, set), node) in work.iter().zip(&nodes) {
            let GraphNode::Work(work) = work else { continue };
            let ((), calls) = recorder.record(|| device.graph_set_node(exec, *node, work).unwrap());
            let names: Vec<_> = calls.iter().map(|call| call.name).collect();
            assert_eq!(names, [*set]);
        }
        device.graph_set_node(exec, nodes[2], &fill(70)).unwrap();
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(words.read(), 100);

        clean(&*device, &[graph, child], &[exec]);
        device.stream_destroy(stream).unwrap();
        device.free(a).unwrap();
        device.free(b).unwrap();
        device.pinned_free(host).unwrap();
        device.module_unload(module).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_broken_capture_is_an_error_and_the_stream_works_afterwards() {
    let (recorder, device) = open();
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    // SAFETY: the stream is alive to the end.
    unsafe {
        device.capture_begin(stream).unwrap();
        let error = device.stream_synchronize(stream).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(900)));
        assert_eq!(device.is_capturing(stream).unwrap_err().kind(), ErrorKind::Captured);
        assert_eq!(device.capture_end(stream).unwrap_err().code(), Some(901));
        assert!(!device.is_capturing(stream).unwrap());
        device.stream_synchronize(stream).unwrap();

        device.capture_begin(stream).unwrap();
        // Nothing to do with the capture, so it goes on.
        device.free(device.alloc(8).unwrap()).unwrap();
        device.graph_destroy(device.capture_end(stream).unwrap()).unwrap();

        // Refused for a reason of its own, the end can be had later.
        device.capture_begin(stream).unwrap();
        recorder.fail_next("cuStreamEndCapture", 2);
        device.capture_end(stream).unwrap_err();
        assert!(device.is_capturing(stream).unwrap());
        for calls in
            [&["cuStreamIsCapturing", "cuStreamEndCapture", "cuGraphDestroy"][..], &["cuStreamIsCapturing"]]
        {
            let ((), made) = recorder.record(|| device.capture_abandon(stream).unwrap());
            assert_eq!(made.iter().map(|call| call.name).collect::<Vec<_>>(), calls);
        }
        device.stream_synchronize(stream).unwrap();

        let [side, event] = [
            device.stream_create(StreamOptions::default()).unwrap().0,
            device.event_create(EventOptions::default()).unwrap().0,
        ];
        let (side, event) = (RawStream(side), gpustream_hal::RawEvent(event));
        device.capture_begin(stream).unwrap();
        device.event_record(event, stream).unwrap();
        device.stream_wait_event(side, event).unwrap();
        let buffer = RawBuffer(0x1000);
        device.fill(buffer, FillPattern::U8(0), 1, side).unwrap();
        let error = device.capture_end(stream).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(904)), "not joined back");
        assert_eq!(device.event_query(event).unwrap_err().code(), Some(907));
        device.event_destroy(event).unwrap();
        device.stream_destroy(side).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}
