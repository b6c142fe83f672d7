//! Another library can watch a graph, to learn about the runs that contain its work.

use std::sync::{Arc, Mutex, OnceLock};
use std::{mem, thread};

use conformance::{Gate, assert_all, kernels_and_streams, refused, tests, until};
use gpustream::interop::{Failures, GraphWatcher, StreamWatcher};
use gpustream::{Device, Error, ErrorKind, Pinned, Result};

tests! {
    Plain: watcher_is_told_of_each_launch, watcher_of_a_child_is_told_of_its_parents_launches,
        watcher_may_refuse_a_launch, failures_of_a_run_are_reported, updated_graph_has_the_new_watcher_alone,
        watchers_and_other_threads_read_what_the_graph_writes, guard_of_a_watcher_keeps_the_launch_out,
        watcher_lives_as_long_as_the_graphs_runs, watchers_need_a_recording,
        runs_of_a_replay_have_no_watchers;
}

const N: usize = 1000;

type Runs = Arc<Mutex<Vec<Arc<StreamWatcher>>>>;

/// Makes a watcher, and the list of runs that it is told about.
fn watcher() -> (Arc<GraphWatcher>, Runs) {
    let runs = Runs::default();
    let told = runs.clone();
    let launched = move |run, _| told.lock().expect("nothing panics with it").push(run);
    (Arc::new(GraphWatcher::new(|| Ok(()), launched)), runs)
}

fn count(runs: &Runs) -> usize {
    runs.lock().expect("nothing panics with it").len()
}

fn watcher_is_told_of_each_launch(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let ((one, runs), (other, others)) = (watcher(), watcher());
    let graph = a.capture(|s| {
        s.watch_launches(&one)?;
        s.fill(&mut x, 1)?;
        s.watch_launches(&other)?;
        s.watch_launches(&one)
    })?;
    assert_eq!((count(&runs), count(&others)), (0, 0));
    let gate = Gate::on(&kernels, &a)?;
    graph.launch(&a)?;
    assert_eq!((count(&runs), count(&others)), (1, 1), "each once");
    let run = runs.lock().expect("nothing panics with it")[0].clone();
    assert!(!run.has_begun()? && !run.is_done()?);
    let behind = Gate::on(&kernels, &a)?;
    graph.launch(&a)?;
    assert_eq!((count(&runs), count(&others)), (2, 2));
    gate.open();
    until(|| run.is_done())?;
    let next = runs.lock().expect("nothing panics with it")[1].clone();
    assert!(run.has_begun()? && !next.has_begun()?);
    behind.open();
    until(|| next.is_done())?;
    assert_all(&a, &x, 1)
}

fn watcher_of_a_child_is_told_of_its_parents_launches(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let (watcher, runs) = watcher();
    let child = a.capture(|s| {
        s.watch_launches(&watcher)?;
        s.fill(&mut x, 1)
    })?;
    let mut builder = device.graph_builder()?;
    let first = builder.child(&[], &child)?;
    builder.child(&[first], &child)?;
    let graph = builder.build()?;
    graph.launch(&a)?;
    child.launch(&a)?;
    assert_eq!(count(&runs), 2);
    assert_all(&a, &x, 1)
}

fn watcher_may_refuse_a_launch(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let (told, runs) = watcher();
    let refusing =
        GraphWatcher::new(|| Err(Error::external("the other host is gone")), |_, _| panic!("told"));
    let refusing = Arc::new(refusing);
    let graph = a.capture(|s| {
        s.watch_launches(&told)?;
        s.watch_launches(&refusing)?;
        s.fill(&mut x, 1)
    })?;
    refused(graph.launch(&a), ErrorKind::External, &["the other host is gone"]);
    assert_eq!(count(&runs), 0);
    assert_all(&a, &x, 0)
}

fn failures_of_a_run_are_reported(device: &Device) -> Result<()> {
    let (_, [a, b]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let launched = |_, failures: Failures| failures.keep(Error::external("it failed"));
    let watcher = Arc::new(GraphWatcher::new(|| Ok(()), launched));
    let graph = a.capture(|s| {
        s.watch_launches(&watcher)?;
        s.fill(&mut x, 1)
    })?;
    graph.launch(&a)?;
    let copied = b.duplicate(&x)?;
    refused(b.download(&copied), ErrorKind::External, &["it failed"]);
    refused(a.synchronize(), ErrorKind::External, &["it failed"]);
    assert_all(&a, &x, 1)
}

fn updated_graph_has_the_new_watcher_alone(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let ((old, old_runs), (new, new_runs)) = (watcher(), watcher());
    let mut graph = a.capture(|s| {
        s.watch_launches(&old)?;
        s.fill(&mut x, 1)
    })?;
    graph.update(&a, |s| {
        s.watch_launches(&new)?;
        s.fill(&mut x, 2)
    })?;
    graph.launch(&a)?;
    assert_eq!((count(&old_runs), count(&new_runs)), (0, 1));
    graph.update(&a, |s| s.fill(&mut x, 3))?;
    graph.launch(&a)?;
    assert_eq!((count(&old_runs), count(&new_runs)), (0, 1));
    assert_all(&a, &x, 3)
}

/// The library must not hold a lock while it calls a watcher, because the watcher or another thread may read the
/// graph's memory.
fn watchers_and_other_threads_read_what_the_graph_writes(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (x, mut host) = (a.full(N, 7u32)?, device.pinned::<u32>(N)?);
    let (memory, seen) = (Arc::new(OnceLock::<Pinned<u32>>::new()), Arc::new(Mutex::new(Vec::new())));
    let look = || {
        let (memory, seen) = (memory.clone(), seen.clone());
        move || -> Result<()> {
            let read = || memory.get().expect("the graph was captured").read().map(|values| values[0]);
            let other = thread::scope(|scope| scope.spawn(read).join()).expect("reading does not panic")?;
            seen.lock().expect("nothing panics with it").push([read()?, other]);
            Ok(())
        }
    };
    let (before, after) = (look(), look());
    let watcher = Arc::new(GraphWatcher::new(before, move |_, _| after().expect("the memory can be read")));
    let graph = a.capture(|s| {
        s.watch_launches(&watcher)?;
        s.copy(&x, &mut host)
    })?;
    assert!(memory.set(host).is_ok());
    graph.launch(&a)?;
    assert_eq!(*seen.lock().expect("nothing panics with it"), [[0; 2], [7; 2]]);
    Ok(())
}

/// The library looks for guards after it has called the watchers.
fn guard_of_a_watcher_keeps_the_launch_out(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (x, mut host) = (a.full(N, 7u32)?, device.pinned::<u32>(N)?);
    let memory = Arc::new(OnceLock::<Pinned<u32>>::new());
    let read = memory.clone();
    let before = move || {
        mem::forget(read.get().expect("the graph was captured").read()?);
        Ok(())
    };
    let watcher = Arc::new(GraphWatcher::new(before, |_, _| panic!("told")));
    let graph = a.capture(|s| {
        s.watch_launches(&watcher)?;
        s.copy(&x, &mut host)
    })?;
    assert!(memory.set(host).is_ok());
    refused(graph.launch(&a), ErrorKind::HostBorrowed, &["guard"]);
    a.synchronize()?;
    assert_eq!(memory.get().expect("it was set").read()?[..], [0; N]);
    Ok(())
}

fn watcher_lives_as_long_as_the_graphs_runs(device: &Device) -> Result<()> {
    let (kernels, [a]) = kernels_and_streams(device)?;
    let mut x = a.zeros::<u32>(N)?;
    let (watcher, _runs) = watcher();
    let graph = a.capture(|s| {
        s.watch_launches(&watcher)?;
        s.fill(&mut x, 1)
    })?;
    let gate = Gate::on(&kernels, &a)?;
    graph.launch(&a)?;
    drop(graph);
    assert_eq!(Arc::strong_count(&watcher), 2, "the run is pending");
    gate.open();
    a.synchronize()?;
    until(|| {
        // When you drop a graph, the library looks whether it can finish earlier drops.
        drop(a.capture(|_| Ok(()))?);
        Ok(Arc::strong_count(&watcher) == 1)
    })
}

fn watchers_need_a_recording(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (watcher, _) = watcher();
    refused(a.watch_launches(&watcher), ErrorKind::InvalidArgument, &["Stream::capture"]);
    Ok(())
}

/// A step's operations are not recorded, so there is nothing to watch.
fn runs_of_a_replay_have_no_watchers(device: &Device) -> Result<()> {
    let (_, [a]) = kernels_and_streams(device)?;
    let (watcher, runs) = watcher();
    device.replay().run(&a, |s| {
        refused(s.watch_launches(&watcher), ErrorKind::InvalidArgument, &["Stream::capture"]);
        Ok(())
    })?;
    assert_eq!(count(&runs), 0);
    Ok(())
}
