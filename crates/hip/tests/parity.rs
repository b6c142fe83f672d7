//! The same work makes the same calls on CUDA and on HIP, method by method, in number, order and sizes.
#![allow(clippy::unwrap_used, clippy::panic)] // Also in the tests' helpers.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use fake_hip::{Call, Recorder};
use gpustream_hal::{
    Copy3d, CopyEnd, Device, EventOptions, FillPattern, GraphNode, LaunchConfig, ManagedAdvice,
    PinnedOptions, StreamOptions, WaitPolicy, Work,
};

/// The calls of CUDA for which HIP has no counterpart, or no need.
const CUDA_ONLY: &[&str] = &[
    "DeviceGet",              // HIP's devices are their numbers.
    "DevicePrimaryCtxRetain", // and have no contexts.
    "FuncGetParamInfo",       // No way to ask.
    "FuncSetAttribute",       // Shared memory needs no opt-in.
];

/// Returns the word for what a call does, unless CUDA alone needs the call.
fn word(call: &Call) -> Option<&'static str> {
    Some(call.word()).filter(|word| !CUDA_ONLY.contains(word))
}

/// Sizes, counts and values of a call that the other one has too, by name: they must agree.
fn shared_sizes(call: &Call, other: &Call) -> Vec<(&'static str, u64)> {
    const NAMES: [&str; 4] = ["bytes", "count", "priority", "value"];
    // An answer's address is only the caller's and is not compared.
    let compared = |name: &str| NAMES.contains(&name) && !call.name.contains("Get");
    let known = |name: &str| other.args.iter().any(|(other, _)| *other == name);
    call.args.iter().copied().filter(|(name, _)| compared(name) && known(name)).collect()
}

unsafe extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: the test passes a counter that outlives the work.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

/// Uses every method once; the calls that each made.
fn every_method(recorder: &Recorder, device: &dyn Device) -> Vec<(&'static str, Vec<Call>)> {
    let mut log = Vec::new();
    /// Runs one method, notes its calls, and gives its answer.
    macro_rules! note {
        ($method:ident($($arg:expr),*)) => {{
            let (answer, calls) = recorder.record(|| device.$method($($arg),*).unwrap());
            log.push((stringify!($method), calls));
            answer
        }};
    }
    let counter = AtomicU32::new(0);
    let data: *mut c_void = (&raw const counter).cast_mut().cast();
    let image = fake_hip::image(&[("kernel", &[8])]);
    let mut value = 0_u64;
    let args: [*mut c_void; 1] = [(&raw mut value).cast()];
    let source = [0_u8; 64];
    // SAFETY: everything is alive until it is destroyed, in order, after its last use.
    unsafe {
        note!(synchronize());
        note!(memory());
        note!(can_access_peer(1));
        note!(enable_peer_access(1));
        let stream = note!(stream_create(StreamOptions::default().priority(-1)));
        note!(stream_query(stream));
        note!(stream_synchronize(stream));
        note!(stream_host_fn(stream, add_one, data));
        note!(stream_synchronize(stream));
        let event = note!(event_create(EventOptions::default().wait(WaitPolicy::Block)));
        let [start, end] = [(); 2].map(|()| note!(event_create(EventOptions::default().timing(true))));
        note!(event_record(start, stream));
        note!(event_record(event, stream));
        note!(stream_wait_event(stream, event));
        note!(event_record(end, stream));
        note!(event_synchronize(end));
        note!(event_query(event));
        note!(event_elapsed(start, end));

        let a = note!(alloc(256));
        let b = note!(alloc_async(256, stream));
        let host = note!(pinned_alloc(256, PinnedOptions::default()));
        let mut memory = vec![0_u8; 4096];
        note!(host_register(memory.as_mut_ptr(), 4096));
        note!(host_unregister(memory.as_mut_ptr()));
        note!(pinned_device_address(host));
        let managed = note!(managed_alloc(256));
        note!(managed_prefetch(managed, 256, true, stream));
        note!(managed_advise(managed, 256, ManagedAdvice::PreferHost));
        note!(fill(a, FillPattern::U8(1), 256, stream));
        note!(fill(a, FillPattern::U16(2), 128, stream));
        note!(fill(a, FillPattern::U32(3), 64, stream));
        note!(copy_to_device(a, source.as_ptr(), 64, stream));
        note!(copy_to_host(host, a, 64, stream));
        note!(copy_on_device(b, a, 64, stream));
        note!(copy_from_peer(b, a, 1, 64, stream));
        let strided = Copy3d {
            dst: CopyEnd::Host(host),
            dst_pitch: 8,
            dst_rows: 2,
            src: CopyEnd::Device(a),
            src_pitch: 16,
            src_rows: 2,
            width: 4,
            height: 2,
            depth: 2,
        };
        note!(copy_3d(&strided, stream));

        let module = note!(module_load(&image));
        let function = note!(module_function(module, "kernel"));
        note!(function_params(function));
        note!(function_info(function));
        note!(function_set_max_dynamic_shared(function, 49_152));
        let config = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
        let mut cooperative = config;
        cooperative.cooperative = true;
        note!(launch(function, &config, &args, stream));
        note!(launch(function, &cooperative, &args, stream));
        note!(occupancy(function, 64, 0));
        note!(suggested_launch(function, 0));
        note!(stream_synchronize(stream));

        note!(is_capturing(stream));
        note!(capture_begin(stream));
        note!(fill(a, FillPattern::U8(1), 256, stream));
        let child = note!(capture_end(stream));
        let graph = note!(graph_create());
        let nodes = [
            GraphNode::Empty,
            GraphNode::Work(Work::Kernel { function, config: &config, args: &args }),
            GraphNode::Work(Work::CopyToDevice { dst: a, src: host, bytes: 64 }),
            GraphNode::Work(Work::CopyToHost { dst: host, src: a, bytes: 64 }),
            GraphNode::Work(Work::CopyOnDevice { dst: b, src: a, bytes: 64 }),
            GraphNode::Work(Work::Copy3d(strided)),
            GraphNode::Work(Work::Fill { dst: a, pattern: FillPattern::U32(1), count: 16 }),
            GraphNode::Work(Work::Host { function: add_one, data }),
            GraphNode::Child(child),
        ];
        let mut handles = Vec::new();
        for node in &nodes {
            let after: Vec<_> = handles.last().copied().into_iter().collect();
            handles.push(note!(graph_add_node(graph, &after, node)));
        }
        note!(graph_size(graph));
        let exec = note!(graph_instantiate(graph));
        note!(graph_upload(exec, stream));
        note!(graph_launch(exec, stream));
        for (handle, node) in handles.iter().zip(&nodes) {
            if let GraphNode::Work(work) = node {
                note!(graph_set_node(exec, *handle, work));
            }
        }
        note!(graph_update(exec, graph));
        note!(stream_synchronize(stream));
        note!(graph_exec_destroy(exec));
        note!(graph_destroy(graph));
        note!(graph_destroy(child));

        note!(module_unload(module));
        note!(free(managed));
        note!(pinned_free(host));
        note!(free_async(b, stream));
        note!(stream_synchronize(stream));
        note!(free(a));
        for event in [event, start, end] {
            note!(event_destroy(event));
        }
        note!(stream_destroy(stream));
    }
    log
}

#[test]
fn hip_makes_the_calls_that_cuda_makes() {
    let cuda = {
        let recorder = fake_cuda::load();
        let device = gpustream_cuda::backend().open(0).unwrap();
        every_method(&recorder, &*device)
    };
    let recorder = fake_hip::load(fake_hip::Profile::Rocm6);
    let device = gpustream_hip::backend().open(0).unwrap();
    let hip = every_method(&recorder, &*device);
    assert_eq!(recorder.violations(), [""; 0]);

    assert_eq!(cuda.len(), hip.len());
    for ((method, cuda), (_, hip)) in cuda.iter().zip(&hip) {
        let words = |calls: &[Call]| calls.iter().filter_map(word).collect::<Vec<_>>();
        assert_eq!(words(cuda), words(hip), "{method}: {cuda:?}\n{hip:?}");
        let counted = cuda.iter().filter(|call| word(call).is_some());
        for (cuda, hip) in counted.zip(hip) {
            assert_eq!(shared_sizes(cuda, hip), shared_sizes(hip, cuda), "{method}: {cuda}, {hip}");
        }
        // One driver call for one method, where the driver has one.
        let several = ["memory", "function_info", "graph_size", "graph_add_node"];
        assert!(hip.len() <= 1 || several.contains(method), "{method}: {hip:?}");
    }
}
