//! A HIP 7 that reads `hipMemsetParams` in the order that AMD documents for it, against AMD's headers.

use fake_hip::{Options, Profile, Recorder};
use gpustream_hal::{
    Device, ErrorKind, FillPattern, GraphNode, GraphSize, PinnedOptions, StreamOptions, Work,
};

fn names(recorder: &Recorder, work: impl FnOnce()) -> Vec<&'static str> {
    let ((), calls) = recorder.record(work);
    calls.iter().map(|call| call.name).collect()
}

#[test]
fn the_order_is_found_once_and_fills_are_right() {
    const ADD: &str = "hipGraphAddMemsetNode";
    let options = Options { documented_memset: true, ..Options::of(Profile::Rocm7) };
    let recorder = fake_hip::load_with(options);
    let device = gpustream_hip::backend().open(0).unwrap();
    let device: &dyn Device = &*device;
    let stream = device.stream_create(StreamOptions::default()).unwrap();
    let buffer = device.alloc(32).unwrap();
    let host = device.pinned_alloc(32, PinnedOptions::default()).unwrap();
    let fill = |pattern, count| Work::Fill { dst: buffer, pattern, count };
    // SAFETY: everything is alive until it is destroyed, after the last run.
    unsafe {
        let graph = device.graph_create().unwrap();
        // Invalid in both orders: an error, and nothing is learned from it.
        let tried = names(&recorder, || {
            let error =
                device.graph_add_node(graph, &[], &GraphNode::Work(fill(FillPattern::U8(1), 0))).unwrap_err();
            assert_eq!((error.kind(), error.call()), (ErrorKind::InvalidArgument, Some(ADD)));
        });
        assert_eq!(tried, [ADD; 2]);
        let mut nodes = Vec::new();
        for calls in [2, 1] {
            let added = names(&recorder, || {
                let first = GraphNode::Work(fill(FillPattern::U32(0x0403_0201), 8));
                nodes.push(device.graph_add_node(graph, &nodes.clone(), &first).unwrap());
            });
            assert_eq!(added, vec![ADD; calls]);
        }
        assert_eq!(device.graph_size(graph).unwrap(), GraphSize { nodes: 2, edges: 1 });
        let copy = GraphNode::Work(Work::CopyToHost { dst: host, src: buffer, bytes: 32 });
        device.graph_add_node(graph, &nodes[1..], &copy).unwrap();
        let exec = device.graph_instantiate(graph).unwrap();
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(host, 32), [1, 2, 3, 4].repeat(8));

        let set = names(&recorder, || {
            device.graph_set_node(exec, nodes[1], &fill(FillPattern::U16(0x0605), 16)).unwrap();
        });
        assert_eq!(set, ["hipGraphExecMemsetNodeSetParams"]);
        device.graph_launch(exec, stream).unwrap();
        device.stream_synchronize(stream).unwrap();
        assert_eq!(std::slice::from_raw_parts(host, 32), [5, 6].repeat(16));

        device.graph_exec_destroy(exec).unwrap();
        device.graph_destroy(graph).unwrap();
        device.free(buffer).unwrap();
        device.pinned_free(host).unwrap();
        device.stream_destroy(stream).unwrap();
    }
    assert_eq!(recorder.violations(), [""; 0]);
}
