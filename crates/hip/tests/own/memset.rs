//! A HIP 7 that reads `hipMemsetParams` in the order that AMD documents, which differs from AMD's headers.

use gpustream_hal::{Copy1d, ErrorKind, Fill, FillPattern, GraphNode, GraphSize, PinnedOptions, Work};

use crate::backends::{Vendor, names, startup::in_own_process, stream};
use crate::{Options, VENDOR, backend, load_with, options};

#[test]
fn order_is_found_once_and_fills_are_right() {
    if VENDOR == Vendor::Rocm(7) {
        in_own_process(&[], fill_in_documented_order);
    }
}

fn fill_in_documented_order() {
    const ADD: &str = "hipGraphAddMemsetNode";
    let recorder = load_with(Options { documented_memset: true, ..options() });
    let device = &*backend().open(0).unwrap();
    let stream = stream(device);
    let buffer = device.alloc(32).unwrap();
    let host = device.pinned_alloc(32, PinnedOptions::default()).unwrap();
    let fill = |pattern, count| Work::Fill(Fill { dst: buffer, pattern, count });
    // SAFETY: everything is alive until we destroy it, after the last run.
    unsafe {
        let graph = device.graph_create().unwrap();
        // If a fill is invalid in both orders, you must get an error, and we can learn nothing from it.
        let nothing = GraphNode::Work(fill(FillPattern::U8(1), 0));
        let (error, calls) = recorder.record(|| device.graph_add_node(graph, &[], &nothing).unwrap_err());
        assert_eq!((error.kind(), error.call()), (ErrorKind::InvalidArgument, Some(ADD)));
        assert_eq!(names(&calls), [ADD; 2]);
        let mut nodes = Vec::new();
        for tries in [2, 1] {
            let node = GraphNode::Work(fill(FillPattern::U32(0x0403_0201), 8));
            let (added, calls) = recorder.record(|| device.graph_add_node(graph, &nodes, &node).unwrap());
            nodes.push(added);
            assert_eq!(names(&calls), vec![ADD; tries]);
        }
        assert_eq!(device.graph_size(graph).unwrap(), GraphSize { nodes: 2, edges: 1 });
        let copy = GraphNode::Work(Work::Copy(Copy1d::to_host(host, buffer, 32)));
        device.graph_add_node(graph, &nodes[1..], &copy).unwrap();
        let exec = device.graph_instantiate(graph).unwrap();
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(host, 32), [1, 2, 3, 4].repeat(8));

        let refill = fill(FillPattern::U16(0x0605), 16);
        let ((), calls) = recorder.record(|| device.graph_set_node(exec, nodes[1], &refill).unwrap());
        assert_eq!(names(&calls), ["hipGraphExecMemsetNodeSetParams"]);
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(host, 32), [5, 6].repeat(16));

        device.graph_exec_destroy(exec).unwrap();
        device.graph_destroy(graph).unwrap();
        device.free(buffer).unwrap();
        device.pinned_free(host).unwrap();
        device.stream_destroy(stream).unwrap();
    }
}
