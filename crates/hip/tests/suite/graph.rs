//! Graphs: captured and built.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use fake_hip::Profile;
use gpustream_hal::{
    CopyEnd, Device, ErrorKind, EventOptions, FillPattern, GraphNode, GraphSize, GraphUpdate, LaunchConfig,
    PinnedOptions, RawBuffer, RawGraph, RawStream, Work,
};

use super::{add_one, assert_call, module, start, stream, strided};
use crate::PROFILE;

/// Captures a fill of `count` bytes by `value`.
///
/// # Safety
/// All are alive.
unsafe fn captured_fill(device: &dyn Device, stream: RawStream, dst: RawBuffer, value: u8) -> RawGraph {
    // SAFETY: as the caller vouches.
    unsafe {
        device.capture_begin(stream).unwrap();
        device.fill(dst, FillPattern::U8(value), 16, stream).unwrap();
        device.capture_end(stream).unwrap()
    }
}

#[test]
fn a_capture_is_relaxed_and_replays() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let buffer = device.alloc(16).unwrap();
    let pinned = device.pinned_alloc(16, PinnedOptions::default()).unwrap();
    // SAFETY: everything is alive until it is destroyed at the end, after the last run.
    unsafe {
        assert!(!device.is_capturing(stream).unwrap());
        let ((), calls) = recorder.record(|| device.capture_begin(stream).unwrap());
        assert_call(&calls, "hipStreamBeginCapture", &[("stream", stream.0 as u64), ("mode", 2)]);
        assert!(device.is_capturing(stream).unwrap());
        device.fill(buffer, FillPattern::U8(9), 16, stream).unwrap();
        device.copy_to_host(pinned, buffer, 16, stream).unwrap();
        let (graph, calls) = recorder.record(|| device.capture_end(stream).unwrap());
        assert_call(&calls, "hipStreamEndCapture", &[("stream", stream.0 as u64)]);
        assert_eq!(device.graph_size(graph).unwrap(), GraphSize { nodes: 2, edges: 1 });

        let (exec, calls) = recorder.record(|| device.graph_instantiate(graph).unwrap());
        assert_call(&calls, "hipGraphInstantiate", &[("graph", graph.0 as u64), ("log_size", 0)]);
        let ((), calls) = recorder.record(|| device.graph_upload(exec, stream).unwrap());
        if PROFILE == Profile::Rocm5 {
            assert!(calls.is_empty());
        } else {
            assert_call(&calls, "hipGraphUpload", &[("exec", exec.0 as u64), ("stream", stream.0 as u64)]);
        }
        let ((), calls) = recorder.record(|| device.graph_launch(exec, stream).unwrap());
        assert_call(&calls, "hipGraphLaunch", &[("exec", exec.0 as u64), ("stream", stream.0 as u64)]);
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(pinned, 16), [9; 16]);

        // The same shape goes into the executable, another one does not.
        let other = captured_fill(&*device, stream, buffer, 1);
        assert_eq!(device.graph_update(exec, other).unwrap(), GraphUpdate::TopologyChanged);
        let (answer, calls) = recorder.record(|| device.graph_update(exec, graph).unwrap());
        assert_eq!(answer, GraphUpdate::Updated);
        assert_call(&calls, "hipGraphExecUpdate", &[("exec", exec.0 as u64), ("graph", graph.0 as u64)]);
        recorder.fail_next("hipGraphExecUpdate", 2);
        assert_eq!(device.graph_update(exec, graph).unwrap_err().kind(), ErrorKind::OutOfMemory);

        let ((), calls) = recorder.record(|| device.graph_exec_destroy(exec).unwrap());
        assert_call(&calls, "hipGraphExecDestroy", &[("exec", exec.0 as u64)]);
        for graph in [graph, other] {
            let ((), calls) = recorder.record(|| device.graph_destroy(graph).unwrap());
            assert_call(&calls, "hipGraphDestroy", &[("graph", graph.0 as u64)]);
        }
        device.free(buffer).unwrap();
        device.pinned_free(pinned).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_broken_capture_is_reported_and_the_stream_is_won_back() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let buffer = device.alloc(16).unwrap();
    // SAFETY: everything is alive until it is destroyed.
    unsafe {
        device.capture_begin(stream).unwrap();
        let error = device.stream_synchronize(stream).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(900)));
        assert_eq!(device.is_capturing(stream).unwrap_err().kind(), ErrorKind::Captured);
        let error = device.capture_end(stream).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(901)));

        let after = device.fill(buffer, FillPattern::U8(1), 16, stream);
        if PROFILE == Profile::Rocm6 {
            assert_eq!(after.unwrap_err().kind(), ErrorKind::Captured);
        } else {
            after.unwrap();
        }
        // The stream works again, by the calls that the version needs.
        let ((), calls) = recorder.record(|| device.capture_abandon(stream).unwrap());
        let names: Vec<_> = calls.iter().map(|call| call.name).collect();
        let captures_nothing = ["hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphDestroy"];
        assert_eq!(names[0], "hipStreamIsCapturing");
        assert_eq!(names[1..], captures_nothing[..if PROFILE == Profile::Rocm6 { 3 } else { 0 }]);
        device.fill(buffer, FillPattern::U8(2), 16, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        device.synchronize().unwrap();
        device.free(buffer).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_captured_event_cannot_be_asked() {
    let (_recorder, device) = start();
    let stream = stream(&*device);
    let event = device.event_create(EventOptions::default()).unwrap();
    // SAFETY: everything is alive until it is destroyed.
    unsafe {
        device.capture_begin(stream).unwrap();
        device.event_record(event, stream).unwrap();
        let graph = device.capture_end(stream).unwrap();
        let error = device.event_query(event).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Captured, Some(907)));
        device.graph_destroy(graph).unwrap();
        device.event_destroy(event).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}

/// Every kind of node is added by its own function, runs, and is replaced by its own function. Fills too make one call
/// each, where the library reads the order of AMD's headers.
#[test]
fn a_graph_is_built_of_every_kind_of_node() {
    let (recorder, device) = start();
    let stream = stream(&*device);
    let module = module(&*device);
    let (a, b) = (device.alloc(256).unwrap(), device.alloc(256).unwrap());
    let host = device.pinned_alloc(256, PinnedOptions::default()).unwrap();
    let counter = AtomicU32::new(0);
    let data: *mut c_void = (&raw const counter).cast_mut().cast();
    let mut value = 0_u64;
    let args: [*mut c_void; 3] = [(&raw mut value).cast(); 3];
    // SAFETY: everything is alive until it is destroyed at the end, after the last run.
    unsafe {
        let function = device.module_function(module, "scale").unwrap();
        let child = captured_fill(&*device, stream, b, 4);
        let (graph, calls) = recorder.record(|| device.graph_create().unwrap());
        assert_call(&calls, "hipGraphCreate", &[("flags", 0)]);

        let config = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
        let fill = GraphNode::Work(Work::Fill { dst: a, pattern: FillPattern::U32(0x0403_0201), count: 8 });
        let nodes = [
            (GraphNode::Empty, "hipGraphAddEmptyNode", ""),
            (fill, "hipGraphAddMemsetNode", "hipGraphExecMemsetNodeSetParams"),
            (
                GraphNode::Work(Work::Kernel { function, config: &config, args: &args }),
                "hipGraphAddKernelNode",
                "hipGraphExecKernelNodeSetParams",
            ),
            (
                GraphNode::Work(Work::CopyOnDevice { dst: b, src: a, bytes: 32 }),
                "hipGraphAddMemcpyNode1D",
                "hipGraphExecMemcpyNodeSetParams1D",
            ),
            (
                GraphNode::Work(Work::CopyToHost { dst: host, src: b, bytes: 32 }),
                "hipGraphAddMemcpyNode1D",
                "hipGraphExecMemcpyNodeSetParams1D",
            ),
            (
                GraphNode::Work(Work::CopyToDevice { dst: a.offset(64), src: host, bytes: 32 }),
                "hipGraphAddMemcpyNode1D",
                "hipGraphExecMemcpyNodeSetParams1D",
            ),
            (
                GraphNode::Work(Work::Copy3d(strided(CopyEnd::Host(host.add(64)), CopyEnd::Device(a)))),
                "hipGraphAddMemcpyNode",
                "hipGraphExecMemcpyNodeSetParams",
            ),
            (
                GraphNode::Work(Work::Host { function: add_one, data }),
                "hipGraphAddHostNode",
                "hipGraphExecHostNodeSetParams",
            ),
            (GraphNode::Child(child), "hipGraphAddChildGraphNode", ""),
        ];
        let mut handles = Vec::new();
        for (node, add, _) in &nodes {
            let after: Vec<_> = handles.last().copied().into_iter().collect();
            let (handle, calls) = recorder.record(|| device.graph_add_node(graph, &after, node).unwrap());
            assert_call(&calls, add, &[("graph", graph.0 as u64), ("count", after.len() as u64)]);
            handles.push(handle);
        }
        assert_eq!(
            device.graph_size(graph).unwrap(),
            GraphSize { nodes: nodes.len(), edges: nodes.len() - 1 }
        );

        let exec = device.graph_instantiate(graph).unwrap();
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(host, 32), [1, 2, 3, 4].repeat(8));
        assert_eq!(counter.load(Ordering::SeqCst), 1);

        for (handle, (node, _, set)) in handles.iter().zip(&nodes) {
            let GraphNode::Work(work) = node else { continue };
            let ((), calls) = recorder.record(|| device.graph_set_node(exec, *handle, work).unwrap());
            assert_call(&calls, set, &[("exec", exec.0 as u64), ("node", handle.0 as u64)]);
        }
        let refill = Work::Fill { dst: a, pattern: FillPattern::U16(0x0605), count: 16 };
        device.graph_set_node(exec, handles[1], &refill).unwrap();
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(host, 32), [5, 6].repeat(16));
        assert_eq!(counter.load(Ordering::SeqCst), 2);

        device.graph_exec_destroy(exec).unwrap();
        device.graph_destroy(graph).unwrap();
        device.graph_destroy(child).unwrap();
        device.module_unload(module).unwrap();
        device.free(a).unwrap();
        device.free(b).unwrap();
        device.pinned_free(host).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}

#[test]
fn a_cooperative_node_is_marked_as_one() {
    let (recorder, device) = start();
    let module = module(&*device);
    let mut config = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
    config.cooperative = true;
    let mut value = 0_u64;
    let args: [*mut c_void; 3] = [(&raw mut value).cast(); 3];
    // SAFETY: everything is alive until it is destroyed.
    unsafe {
        let function = device.module_function(module, "scale").unwrap();
        let graph = device.graph_create().unwrap();
        let node = GraphNode::Work(Work::Kernel { function, config: &config, args: &args });
        let (answer, calls) = recorder.record(|| device.graph_add_node(graph, &[], &node));
        let size = device.graph_size(graph).unwrap();
        if PROFILE == Profile::Rocm5 {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(size, GraphSize { nodes: 0, edges: 0 }, "no node that nobody knows of is left to run");
        } else {
            let node = answer.unwrap();
            assert_eq!(size, GraphSize { nodes: 1, edges: 0 });
            assert_eq!(calls.len(), 2, "{calls:?}");
            let args = [("node", node.0 as u64), ("attribute", 2)];
            assert_call(&calls[1..], "hipGraphKernelNodeSetAttribute", &args);
        }
        config.cluster = [2, 1, 1];
        let clustered = GraphNode::Work(Work::Kernel { function, config: &config, args: &args });
        let error = device.graph_add_node(graph, &[], &clustered).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        device.graph_destroy(graph).unwrap();
        device.module_unload(module).unwrap();
    }
}

/// Before 5.3 a host function is a callback, which HIP refuses to capture; a built graph has its own node.
#[test]
fn a_host_function_is_captured_where_the_version_can() {
    let (_recorder, device) = start();
    let stream = stream(&*device);
    let counter = AtomicU32::new(0);
    // SAFETY: everything is alive until it is destroyed, and the counter outlives the runs.
    unsafe {
        device.capture_begin(stream).unwrap();
        let data = (&raw const counter).cast_mut().cast();
        let answer = device.stream_host_fn(stream, add_one, data);
        let graph = device.capture_end(stream).unwrap();
        if PROFILE == Profile::Rocm5 {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Captured);
        } else {
            answer.unwrap();
            let exec = device.graph_instantiate(graph).unwrap();
            device.graph_launch(exec, stream).unwrap();
            device.graph_launch(exec, stream).unwrap();
            device.stream_synchronize(stream).unwrap();
            assert_eq!(counter.load(Ordering::SeqCst), 2);
            device.graph_exec_destroy(exec).unwrap();
        }
        device.graph_destroy(graph).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}
