//! Work that you repeat must not allocate on the heap.
#![allow(clippy::unwrap_used, reason = "tests")]

mod null;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem;

use gpustream::{Arg, Buffer, Kernel, Launch, Node, Result, Stream};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which also counts the calling thread's allocations.
struct Counting;

// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the call goes unchanged to the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the call goes unchanged to the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the call goes unchanged to the system's allocator.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns how many allocations a hundred calls make, after ten calls to warm up.
fn allocations(mut call: impl FnMut() -> Result<()>) -> usize {
    (0..10).for_each(|_| call().unwrap());
    let before = COUNT.get();
    (0..100).for_each(|_| call().unwrap());
    COUNT.get() - before
}

struct Scene {
    stream: Stream,
    kernel: Kernel,
    x: Buffer<f32>,
    y: Buffer<f32>,
}

const N: usize = 1000;

impl Scene {
    fn new() -> Self {
        let device = null::device();
        let stream = device.stream().unwrap();
        let (x, y) = (stream.alloc(N).unwrap(), stream.alloc(N).unwrap());
        Self { kernel: null::kernel(&device), stream, x, y }
    }
}

fn touch(kernel: &Kernel, stream: &Stream, x: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<()> {
    // SAFETY: the device does nothing.
    unsafe { kernel.launch(stream, &Launch::covering(N), &[Arg::read(x), Arg::write(y), Arg::value(&N)]) }
}

#[test]
fn the_counter_sees_every_allocation() {
    assert_eq!(
        allocations(|| {
            drop(std::hint::black_box(Box::new(1)));
            Ok(())
        }),
        100
    );
}

#[test]
fn launches_do_not_allocate() {
    let Scene { stream, kernel, x, mut y } = Scene::new();
    assert_eq!(allocations(|| touch(&kernel, &stream, &x, &mut y)), 0);
}

#[test]
fn events_and_memory_do_not_allocate() {
    let Scene { stream, .. } = Scene::new();
    let other = stream.device().stream().unwrap();
    assert_eq!(allocations(|| other.wait(&stream.record()?)), 0);
    assert_eq!(allocations(|| stream.alloc::<f32>(N).map(drop)), 0);
}

/// However many nodes a step has, a run must not allocate.
#[test]
fn graph_launches_do_not_allocate() {
    let Scene { stream, kernel, x, mut y } = Scene::new();
    for nodes in [1, 1000] {
        let graph = stream.capture(|s| (0..nodes).try_for_each(|_| touch(&kernel, s, &x, &mut y))).unwrap();
        assert_eq!(allocations(|| graph.launch(&stream)), 0, "{nodes} nodes");
    }
    assert_eq!(allocations(|| touch(&kernel, &stream, &x, &mut y)), 0, "beside the graph");
}

/// A launch merges neighbouring ranges, so these pieces must cost no more than whole buffers.
#[test]
fn graphs_of_many_pieces_do_not_allocate() {
    let Scene { stream, mut x, mut y, .. } = Scene::new();
    let graph = stream
        .capture(|s| {
            let pieces = x.chunks_mut(1)?.zip(y.chunks_mut(1)?);
            pieces.into_iter().try_for_each(|(mut x, mut y)| {
                s.fill(&mut x, 1.0)?;
                s.copy(&x, &mut y)
            })
        })
        .unwrap();
    assert_eq!(allocations(|| graph.launch(&stream)), 0);
}

/// Only lists may grow, because a node remembers only its predecessor, however long the chain is.
#[test]
fn nodes_of_a_chain_do_not_allocate() {
    let Scene { stream, kernel, x, mut y } = Scene::new();
    let mut builder = stream.device().graph_builder().unwrap();
    let mut last: Vec<Node> = Vec::new();
    let mut add = || {
        last = vec![builder.node(&last, |s| touch(&kernel, s, &x, &mut y))?];
        Ok(())
    };
    (0..1000).for_each(|_| add().unwrap());
    let lists = allocations(add) - 100; // the test's own
    assert!(lists < 10, "{lists}");
}

#[test]
fn setting_nodes_does_not_allocate() {
    let Scene { stream, kernel, x, mut y } = Scene::new();
    let mut builder = stream.device().graph_builder().unwrap();
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..100 {
        nodes.push(
            builder.node(&nodes[nodes.len().saturating_sub(1)..], |s| touch(&kernel, s, &x, &mut y)).unwrap(),
        );
    }
    let mut graph = builder.build().unwrap();
    let mut turn = nodes.iter().cycle();
    let set = || {
        let node = *turn.next().unwrap();
        graph.set_node(node, |s| touch(&kernel, s, &x, &mut y))
    };
    assert_eq!(allocations(set), 0);
    // The node did not use this memory before, so the launch compares it with the memory of other nodes.
    let mut other = stream.alloc::<f32>(N).unwrap();
    let swap = || {
        mem::swap(&mut y, &mut other);
        graph.set_node(nodes[7], |s| touch(&kernel, s, &x, &mut y))?;
        graph.launch(&stream)
    };
    assert_eq!(allocations(swap), 0);
}
