//! Work that uses every method of a device, for the tests that compare or forward its calls.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use fake_hip::{Call, Recorder};
use gpustream_hal::{
    Copy1d, Copy3d, CopyEnd, Device, EventOptions, Fill, FillPattern, GraphNode, GraphSize, GraphUpdate,
    LaunchConfig, ManagedAdvice, PinnedOptions, StreamOptions, WaitPolicy, WaitValue, Work,
};

/// Adds one to the counter that `data` points to.
pub(crate) unsafe extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: the test passes a counter that outlives the work.
    unsafe { &*data.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

/// Returns the words in pinned memory.
///
/// # Safety
/// There must be this many words, all written, and nothing may write them meanwhile.
unsafe fn words(host: *const u8, count: usize) -> Vec<u32> {
    // SAFETY: the caller promises that there are this many words.
    let bytes = unsafe { std::slice::from_raw_parts(host, count * 4) };
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Uses every method, checks what the work did, and returns the calls that each method made. If the version `is_old`, leaves out
/// memory from pools and cooperative launches.
pub(crate) fn every_method(
    recorder: &Recorder,
    device: &dyn Device,
    is_old: bool,
) -> Vec<(&'static str, Vec<Call>)> {
    let mut log = Vec::new();
    /// Runs one method, notes its calls, and returns its answer.
    macro_rules! note {
        ($method:ident($($arg:expr),*)) => {{
            let (answer, calls) = recorder.record(|| device.$method($($arg),*).unwrap());
            log.push((stringify!($method), calls));
            answer
        }};
    }
    let counter = AtomicU32::new(0);
    let data: *mut c_void = (&raw const counter).cast_mut().cast();
    recorder.on_kernel("double", |run| {
        // SAFETY: the scene passes a buffer of that length.
        let words = unsafe { std::slice::from_raw_parts_mut(run.pointer::<u32>(0), run.integer(1) as usize) };
        for word in words {
            *word *= 2;
        }
        true
    });
    let image = fake_hip::image(&[("double", &[8, 8])]);
    let source: Vec<u32> = (0..16).collect();
    // SAFETY: everything is alive until we destroy it, in order, after its last use.
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
        assert_eq!(counter.load(Ordering::SeqCst), 1);
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
        let b = if is_old { note!(alloc(256)) } else { note!(alloc_async(256, stream)) };
        let host = note!(pinned_alloc(256, PinnedOptions::default()));
        let mut memory = vec![0_u8; 4096];
        note!(host_register(memory.as_mut_ptr(), 4096));
        note!(host_unregister(memory.as_mut_ptr()));
        let word = note!(pinned_device_address(host));
        note!(stream_write_value32(stream, word, 5));
        note!(stream_wait_value32(stream, word, WaitValue::Equal(5)));
        let managed = note!(managed_alloc(256));
        note!(managed_prefetch(managed, 256, true, stream));
        note!(managed_advise(managed, 256, ManagedAdvice::PreferHost));
        note!(fill(a, FillPattern::U8(1), 256, stream));
        note!(fill(a, FillPattern::U16(2), 128, stream));
        note!(fill(a, FillPattern::U32(21), 64, stream));

        let module = note!(module_load(&image));
        let function = note!(module_function(module, "double"));
        note!(function_params(function));
        assert_eq!(note!(function_info(function)).max_threads_per_block, 1024);
        note!(function_set_max_dynamic_shared(function, 64 << 10));
        let (mut pointer, mut count) = (a.0, 16_usize);
        let args: [*mut c_void; 2] = [(&raw mut pointer).cast(), (&raw mut count).cast()];
        let mut config = LaunchConfig::new([2, 1, 1], [64, 1, 1]);
        // More than CUDA gives unless you opt in.
        config.dynamic_shared = 64 << 10;
        note!(launch(function, &config, &args, stream));
        if !is_old {
            let mut cooperative = config;
            cooperative.cooperative = true;
            note!(launch(function, &cooperative, &args, stream));
        }
        note!(occupancy(function, 64, 0));
        note!(suggested_launch(function, 0));
        note!(copy_on_device(b, a, 68, stream));
        note!(copy_to_host(host, b, 68, stream));
        note!(stream_synchronize(stream));
        let doubled = if is_old { 42 } else { 84 };
        assert_eq!(words(host, 17), [&[doubled; 16][..], &[21]].concat());

        // One column of four bytes from rows of eight.
        let strided = Copy3d {
            dst: CopyEnd::Host(host),
            dst_pitch: 4,
            dst_rows: 4,
            src: CopyEnd::Device(a),
            src_pitch: 8,
            src_rows: 4,
            width: 4,
            height: 4,
            depth: 1,
        };
        note!(copy_to_device(a, source.as_ptr().cast(), 64, stream));
        note!(copy_from_peer(b, a, 1, 64, stream));
        note!(copy_3d(&strided, stream));
        note!(stream_synchronize(stream));
        assert_eq!(words(host, 4), [0, 2, 4, 6]);

        note!(is_capturing(stream));
        note!(capture_begin(stream));
        note!(fill(a, FillPattern::U8(1), 256, stream));
        let child = note!(capture_end(stream));
        let graph = note!(graph_create());
        let nodes = [
            GraphNode::Empty,
            GraphNode::Work(Work::Fill(Fill { dst: a, pattern: FillPattern::U16(3), count: 32 })),
            GraphNode::Work(Work::Kernel { function, config: &config, args: &args }),
            GraphNode::Work(Work::Copy(Copy1d::on_device(b, a, 64))),
            GraphNode::Work(Work::Copy(Copy1d::to_host(host, b, 64))),
            GraphNode::Work(Work::Copy3d(&strided)),
            GraphNode::Work(Work::Copy(Copy1d::to_device(a, host, 64))),
            GraphNode::Work(Work::Host { function: add_one, data }),
            GraphNode::Child(child),
        ];
        let mut handles = Vec::new();
        for node in &nodes {
            let after: Vec<_> = handles.last().copied().into_iter().collect();
            handles.push(note!(graph_add_node(graph, &after, node)));
        }
        let size = GraphSize { nodes: nodes.len(), edges: nodes.len() - 1 };
        assert_eq!(note!(graph_size(graph)), size);
        let exec = note!(graph_instantiate(graph));
        note!(graph_upload(exec, stream));
        note!(graph_launch(exec, stream));
        note!(stream_synchronize(stream));
        assert_eq!((words(host, 16), counter.load(Ordering::SeqCst)), (vec![0x0006_0006; 16], 2));
        for (handle, node) in handles.iter().zip(&nodes) {
            if let GraphNode::Work(work) = node {
                note!(graph_set_node(exec, *handle, work));
            }
        }
        let refill = Work::Fill(Fill { dst: a, pattern: FillPattern::U8(7), count: 64 });
        note!(graph_set_node(exec, handles[1], &refill));
        note!(graph_launch(exec, stream));
        note!(stream_synchronize(stream));
        assert_eq!((words(host, 16), counter.load(Ordering::SeqCst)), (vec![0x0e0e_0e0e; 16], 3));
        assert_eq!(note!(graph_update(exec, child)), GraphUpdate::TopologyChanged);
        assert_eq!(note!(graph_update(exec, graph)), GraphUpdate::Updated);
        note!(graph_exec_destroy(exec));
        note!(graph_destroy(graph));
        note!(graph_destroy(child));

        note!(module_unload(module));
        note!(free(managed));
        note!(pinned_free(host));
        if is_old {
            note!(free(b));
        } else {
            note!(free_async(b, stream));
        }
        note!(stream_synchronize(stream));
        note!(free(a));
        for event in [event, start, end] {
            note!(event_destroy(event));
        }
        note!(stream_destroy(stream));
    }
    log
}
