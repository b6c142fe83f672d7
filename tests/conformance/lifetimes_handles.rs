//! A graph may refer to memory that belongs to another handle of the device, or to another device. That memory must
//! live as long as the graph, even if you close the handle.

use std::mem;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Weak};
use std::thread;

use conformance::{Gate, kernels_and_streams, open_again, sync, synchronize, tests, until};
use gpustream::interop::GraphWatcher;
use gpustream::{AsViewMut, Buffer, Device, DeviceOptions, Graph, Pinned, PoolPolicy, Result, Stream};

tests! {
    Plain: a_captured_graph_keeps_memory_of_a_closed_handle, a_set_node_keeps_memory_of_a_closed_handle,
        an_updated_graph_keeps_memory_of_a_closed_handle, a_child_keeps_memory_of_a_closed_handle,
        a_graph_keeps_host_memory_of_a_closed_handle, a_graph_built_over_two_handles_outlives_both_buffers,
        a_handle_closes_while_a_graph_is_pending,
        a_graph_dropped_while_pending_keeps_memory_of_a_closed_handle, a_handle_closes_inside_a_capture,
        a_forgotten_graph_breaks_nothing, the_closure_of_a_dropped_pending_graph_is_dropped_too,
        the_watcher_of_a_dropped_pending_graph_is_dropped_too,
        closures_of_a_dropped_pending_graph_may_upload, a_handle_opened_later_gets_other_memory;
}

const ALL: [PoolPolicy; 3] = [PoolPolicy::Library, PoolPolicy::Driver, PoolPolicy::Unpooled];

/// Elements of one allocation. It is so large that it gets its own pages.
const N: usize = 1 << 20;

/// If memory were freed too early, these would get it, so their contents must be intact at the end.
struct Bystanders {
    vectors: Vec<Vec<u32>>,
    device: Device,
    stream: Stream,
    buffers: Vec<Buffer<u32>>,
}

impl Bystanders {
    fn new(device: &Device) -> Result<Self> {
        let device = open_again(device, DeviceOptions::default().pool(PoolPolicy::Unpooled))?;
        let stream = device.stream()?;
        let buffers = (0..3).map(|_| stream.full(N, 0xaaaa_aaaa_u32)).collect::<Result<_>>()?;
        stream.synchronize()?;
        Ok(Self { vectors: vec![vec![0xaaaa_aaaa; N]; 3], device, stream, buffers })
    }

    #[track_caller]
    fn check(self) {
        assert!(
            self.vectors.iter().all(|vector| *vector == vec![0xaaaa_aaaa; N]),
            "the program's memory changed"
        );
        for buffer in &self.buffers {
            let values = self.stream.download(buffer).unwrap();
            assert!(values == vec![0xaaaa_aaaa; N], "another handle's memory changed");
        }
        drop((self.buffers, self.stream, self.device));
    }
}

/// Opens the device again, and allocates there.
fn another_handle(device: &Device) -> Result<(Device, Buffer<u32>)> {
    let other = open_again(device, DeviceOptions::default())?;
    let y = other.stream()?.zeros::<u32>(N)?;
    synchronize(&other)?;
    Ok((other, y))
}

/// Fills `y` with 7, and copies it to `seen`.
fn fill_and_copy(s: &Stream, y: &mut Buffer<u32>, seen: &mut Pinned<u32>) -> Result<()> {
    s.fill(y, 7)?;
    s.copy(y, seen)
}

/// Makes a graph over memory of another handle, closes that handle, and launches the graph. Does so under each memory
/// policy.
fn under_each(
    device: &Device,
    policies: &[PoolPolicy],
    make: impl Fn(&Stream, &mut Buffer<u32>, &mut Pinned<u32>) -> Result<Graph>,
) -> Result<()> {
    for &policy in policies {
        let s = device.stream()?;
        let mut seen = device.pinned::<u32>(N)?;
        let graph = {
            let other = open_again(device, DeviceOptions::default().pool(policy))?;
            let t = other.stream()?;
            let mut y = t.zeros::<u32>(N)?;
            t.synchronize()?;
            make(&s, &mut y, &mut seen)?
        };
        let bystanders = Bystanders::new(device)?;
        for _ in 0..2 {
            graph.launch(&s)?;
            assert!(*seen.read()? == vec![7; N], "{policy:?}");
        }
        drop(graph);
        s.synchronize()?;
        bystanders.check();
    }
    Ok(())
}

fn a_captured_graph_keeps_memory_of_a_closed_handle(device: &Device) -> Result<()> {
    under_each(device, &ALL, |s, y, seen| s.capture(|s| fill_and_copy(s, y, seen)))
}

fn a_set_node_keeps_memory_of_a_closed_handle(device: &Device) -> Result<()> {
    // CUDA does not let you set a copy to memory from the driver's pool if it was made for other memory.
    let policies =
        if device.info().backend == gpustream::BackendName::CPU { &ALL[..] } else { &[ALL[0], ALL[2]] };
    under_each(device, policies, |s, y, seen| {
        let mut own = s.zeros::<u32>(N)?;
        s.synchronize()?;
        let mut builder = s.device().graph_builder()?;
        let fill = builder.node(&[], |s| s.fill(&mut own, 1))?;
        let down = builder.node(&[fill], |s| s.copy(&own, seen))?;
        let mut graph = builder.build()?;
        graph.set_node(fill, |s| s.fill(y, 7))?;
        graph.set_node(down, |s| s.copy(y, seen))?;
        Ok(graph)
    })
}

fn an_updated_graph_keeps_memory_of_a_closed_handle(device: &Device) -> Result<()> {
    under_each(device, &ALL, |s, y, seen| {
        let mut own = s.zeros::<u32>(N)?;
        s.synchronize()?;
        let mut graph = s.capture(|s| {
            s.fill(&mut own, 1)?;
            s.copy(&own, seen)
        })?;
        graph.update(s, |s| fill_and_copy(s, y, seen))?;
        Ok(graph)
    })
}

fn a_child_keeps_memory_of_a_closed_handle(device: &Device) -> Result<()> {
    under_each(device, &ALL, |s, y, seen| {
        let child = s.capture(|s| s.fill(y, 7))?;
        let mut builder = s.device().graph_builder()?;
        let first = builder.child(&[], &child)?;
        drop(child);
        builder.node(&[first], |s| s.copy(y, seen))?;
        builder.build()
    })
}

/// The host memory is pinned, write-combined, registered or managed.
fn a_graph_keeps_host_memory_of_a_closed_handle(device: &Device) -> Result<()> {
    fn captured(s: &Stream, x: &mut Buffer<u32>, host: &mut impl AsViewMut<u32>) -> Result<Graph> {
        s.capture(|s| {
            s.fill(x, 7)?;
            s.copy(x, host)?;
            s.fill(x, 0)?;
            s.copy(host, x)
        })
    }

    for what in 0..3 {
        let s = device.stream()?;
        let mut x = s.zeros::<u32>(N)?;
        s.synchronize()?;
        let graph = {
            let other = open_again(device, DeviceOptions::default())?;
            match what {
                0 => captured(&s, &mut x, &mut other.pinned::<u32>(N)?)?,
                1 => captured(&s, &mut x, &mut other.register(vec![1u32; N])?)?,
                _ if !device.info().features.managed_memory => continue,
                _ => captured(&s, &mut x, &mut other.managed::<u32>(N)?)?,
            }
        };
        let bystanders = Bystanders::new(device)?;
        let pinned = device.pinned_from(&vec![0xaaaa_aaaa_u32; N])?;
        for _ in 0..2 {
            graph.launch(&s)?;
            assert!(s.download(&x)? == vec![7; N], "{what}");
        }
        drop(graph);
        s.synchronize()?;
        assert!(*pinned.read()? == vec![0xaaaa_aaaa; N]);
        bystanders.check();
    }
    Ok(())
}

fn a_graph_built_over_two_handles_outlives_both_buffers(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut seen = device.pinned::<u32>(N)?;
    let graph = {
        let ((one, mut x), (_two, mut y)) = (another_handle(device)?, another_handle(device)?);
        one.stream()?.fill(&mut x, 3)?;
        synchronize(&one)?;
        let graph = s.capture(|s| {
            s.copy(&x, &mut y)?;
            s.fill(&mut x, 5)?;
            s.copy(&y, &mut seen)
        })?;
        drop((x, y));
        graph
    };
    let bystanders = Bystanders::new(device)?;
    graph.launch(&s)?;
    assert!(*seen.read()? == vec![3; N]);
    graph.launch(&s)?;
    assert!(*seen.read()? == vec![5; N]);
    drop(graph);
    bystanders.check();
    Ok(())
}

/// When you close the handle, that waits for the run. The memory still lives until you drop the graph.
fn a_handle_closes_while_a_graph_is_pending(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut seen = device.pinned::<u32>(N)?;
    let (other, mut y) = another_handle(device)?;
    let graph = s.capture(|s| fill_and_copy(s, &mut y, &mut seen))?;
    let gate = Gate::on(&kernels, &s)?;
    graph.launch(&s)?;
    thread::scope(|scope| {
        let closing = scope.spawn(move || drop((y, other)));
        gate.open();
        closing.join().unwrap();
    });
    let bystanders = Bystanders::new(device)?;
    assert!(*seen.read()? == vec![7; N]);
    graph.launch(&s)?;
    assert!(*seen.read()? == vec![7; N]);
    drop(graph);
    bystanders.check();
    Ok(())
}

fn a_graph_dropped_while_pending_keeps_memory_of_a_closed_handle(device: &Device) -> Result<()> {
    let (kernels, [s]) = kernels_and_streams(device)?;
    let mut seen = device.pinned::<u32>(N)?;
    let graph = {
        let (_other, mut y) = another_handle(device)?;
        s.capture(|s| fill_and_copy(s, &mut y, &mut seen))?
    };
    // We allocate early, because an allocation by the driver may wait for the kernel.
    let bystanders = Bystanders::new(device)?;
    let gate = Gate::on(&kernels, &s)?;
    graph.launch(&s)?;
    drop(graph);
    // When you make a stream, the library looks for what it can destroy.
    drop(device.stream()?);
    gate.open();
    assert!(*seen.read()? == vec![7; N]);
    bystanders.check();
    Ok(())
}

fn a_handle_closes_inside_a_capture(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let mut seen = device.pinned::<u32>(N)?;
    let (other, mut y) = another_handle(device)?;
    let graph = s.capture(|s| {
        fill_and_copy(s, &mut y, &mut seen)?;
        // Another thread closes the handle, because this one must not wait while it captures.
        thread::spawn(move || drop((y, other))).join().unwrap();
        Ok(())
    })?;
    let bystanders = Bystanders::new(device)?;
    graph.launch(&s)?;
    assert!(*seen.read()? == vec![7; N]);
    drop(graph);
    bystanders.check();
    Ok(())
}

fn a_forgotten_graph_breaks_nothing(device: &Device) -> Result<()> {
    let s = device.stream()?;
    {
        let (_other, mut y) = another_handle(device)?;
        let graph = s.capture(|s| s.fill(&mut y, 7))?;
        graph.launch(&s)?;
        mem::forget(graph);
    }
    let bystanders = Bystanders::new(device)?;
    s.synchronize()?;
    bystanders.check();
    Ok(())
}

/// While a graph holds a closed handle's memory, a new handle must get other memory. It must still work once the graph
/// is gone.
fn a_handle_opened_later_gets_other_memory(device: &Device) -> Result<()> {
    let s = device.stream()?;
    let (graph, address) = {
        let (_other, mut y) = another_handle(device)?;
        (s.capture(|s| s.fill(&mut y, 7))?, y.as_raw())
    };
    let later = open_again(device, DeviceOptions::default())?;
    let t = later.stream()?;
    let x = t.full(N, 3u32)?;
    assert_ne!(x.as_raw(), address);
    graph.launch(&s)?;
    s.synchronize()?;
    assert!(t.download(&x)? == vec![3; N]);
    drop(graph);
    assert!(t.download(&t.full(N, 4u32)?)? == vec![4; N]);
    Ok(())
}

fn the_closure_of_a_dropped_pending_graph_is_dropped_too(device: &Device) -> Result<()> {
    values_of_a_dropped_pending_graph_are_dropped(device, |s, owned| {
        s.host_fn_repeat(move || {
            let _ = &owned;
        })
    })
}

fn the_watcher_of_a_dropped_pending_graph_is_dropped_too(device: &Device) -> Result<()> {
    values_of_a_dropped_pending_graph_are_dropped(device, |s, owned| {
        let launched = move |_, _| {
            let _ = &owned;
        };
        s.watch_launches(&Arc::new(GraphWatcher::new(|| Ok(()), launched)))
    })
}

/// The library notices only in a later call that the graph is done, and may hold locks then. For example, an upload
/// holds the lock on its stream's memory.
fn closures_of_a_dropped_pending_graph_may_upload(device: &Device) -> Result<()> {
    struct Uploading(Weak<Stream>, Sender<bool>);
    impl Drop for Uploading {
        fn drop(&mut self) {
            let uploaded = self.0.upgrade().is_some_and(|stream| stream.upload(&vec![1u32; 10_000]).is_ok());
            let _ = self.1.send(uploaded);
        }
    }

    let kernels = sync::Kernels::load(device)?;
    let s = Arc::new(device.stream()?);
    let (told, dropped) = mpsc::channel();
    let owned = Uploading(Arc::downgrade(&s), told);
    let graph = s.capture(|s| {
        s.host_fn_repeat(move || {
            let _ = &owned;
        })
    })?;
    let gate = Gate::on(&kernels, &s)?;
    graph.launch(&s)?;
    drop(graph);
    gate.open();
    s.synchronize()?;
    // These ask the pool for memory again and again.
    let values = vec![1u32; 300_000];
    for _ in 0..20 {
        s.upload(&values)?;
    }
    until(|| {
        drop(device.stream()?);
        Ok(dropped.try_recv().map(|uploaded| assert!(uploaded)).is_ok())
    })
}

/// The values may own the graph's device, and other work on the context is still running.
fn values_of_a_dropped_pending_graph_are_dropped(
    device: &Device,
    record: impl FnOnce(&Stream, (Pinned<u32>, Arc<()>)) -> Result<()>,
) -> Result<()> {
    let kernels = sync::Kernels::load(device)?;
    let (gate, later) = (Gate::new(device)?, Gate::new(device)?);
    let beside = device.stream()?;
    let token = Arc::new(());
    let closed = open_again(device, DeviceOptions::default())?;
    let s = closed.stream()?;
    let owned = (closed.pinned::<u32>(N)?, token.clone());
    let graph = s.capture(|s| record(s, owned))?;
    gate.hold(&kernels, &beside)?;
    s.wait(&beside.record()?)?;
    graph.launch(&s)?;
    later.hold(&kernels, &beside)?;
    drop((graph, s, closed));
    assert_eq!(Arc::strong_count(&token), 2, "the run is pending");
    gate.open();
    (0..3).try_for_each(|_| device.stream().map(drop))?;
    later.open();
    until(|| {
        drop(device.stream()?);
        Ok(Arc::strong_count(&token) == 1)
    })
}
