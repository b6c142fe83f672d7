//! What the threads do. There is an action for each kind of object that the library hands out, and each action checks
//! its result.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use gpustream::{
    ArrayShape, Buffer, CopyBatch, Device, ErrorKind, Graph, Launch, Pinned, Replay, Stream, StreamOptions,
    TextureOptions, WaitValue,
};

use crate::kernels::Kernels;

/// Elements of the buffers that a worker keeps.
const N: usize = 5000;
/// How many graphs and how many pieces of memory a thread may keep.
const KEPT: usize = 12;
const ONE: Launch = Launch::exact([1; 3], [1; 3]);
/// No process has memory at this address.
const NOWHERE: usize = 0x0dea_d000_0000;
/// How long a child may take.
pub(crate) const CHILD: Duration = Duration::from_secs(120);

/// The objects that all threads use at once.
pub(crate) struct Shared {
    /// The name under which the device can be opened again.
    pub(crate) name: String,
    pub(crate) device: Device,
    kernels: Kernels,
    streams: Vec<Stream>,
    table: Buffer<u32>,
    graph: Graph,
}

impl Shared {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let device = Device::open(name)?;
        let kernels = Kernels::load(&device)?;
        let streams = (0..3).map(|_| device.stream()).collect::<gpustream::Result<Vec<_>>>()?;
        let values: Vec<u32> = (0..N as u32).collect();
        let table = streams[0].upload(&values)?;
        let mut scratch = streams[1].full(N, 1u32)?;
        let graph = streams[0].capture(|s| {
            s.copy(&table, &mut scratch)?;
            kernels.step(s, &mut scratch, 1, N)
        })?;
        Ok(Self { name: name.to_owned(), device, kernels, streams, table, graph })
    }
}

/// The objects of one thread.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    own: Stream,
    side: Stream,
    x: Buffer<u32>,
    host: Pinned<u32>,
    replay: Replay,
    buffers: Vec<Buffer<u8>>,
    graphs: Vec<Graph>,
    state: u32,
}

/// An action, and how often it comes up.
pub(crate) struct Action {
    pub(crate) name: &'static str,
    weight: usize,
    act: fn(&mut Worker<'_>) -> Result<()>,
}

const fn action(name: &'static str, weight: usize, act: fn(&mut Worker<'_>) -> Result<()>) -> Action {
    Action { name, weight, act }
}

pub(crate) const ACTIONS: [Action; 24] = [
    action("copies", 30, copies),
    action("events", 30, events),
    action("futures", 30, futures),
    action("captures and launches", 20, captures),
    action("graphs by node", 20, graphs_by_node),
    action("graphs shared and kept", 20, kept_graphs),
    action("replays", 30, replays),
    action("loops on the device", 10, loops),
    action("pools and trims", 30, pools),
    action("pinned memory", 20, pinned),
    action("managed memory", 10, managed),
    action("memory for processes", 5, shared_memory),
    action("events for processes", 5, shared_events),
    action("host functions", 20, host_functions),
    action("flags", 20, flags),
    action("batches", 20, batches),
    action("pipelines", 10, pipelines),
    action("textures", 10, textures),
    action("streams", 20, streams),
    action("streams on parts", 10, parts),
    action("modules", 5, modules),
    action("device handles", 3, handles),
    action("refusals", 20, refusals),
    action("faults of children", 1, children),
];

fn next(value: u32, with: u32) -> u32 {
    value.wrapping_mul(5).wrapping_add(with)
}

impl<'a> Worker<'a> {
    pub(crate) fn new(shared: &'a Shared, seed: u32) -> Result<Self> {
        let (own, side) = (shared.device.stream()?, shared.device.stream()?);
        let (x, host) = (own.zeros::<u32>(N)?, shared.device.pinned::<u32>(N)?);
        let replay = shared.device.replay();
        Ok(Self { shared, own, side, x, host, replay, buffers: Vec::new(), graphs: Vec::new(), state: seed })
    }

    fn random(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.state >> 8) as usize % below
    }

    fn any_stream(&mut self) -> &'a Stream {
        let shared = self.shared;
        &shared.streams[self.random(shared.streams.len())]
    }

    /// Chooses one of these actions at random, by weight. There must be at least one.
    pub(crate) fn choose(&mut self, among: &[usize]) -> usize {
        let mut at = self.random(among.iter().map(|&number| ACTIONS[number].weight).sum());
        let hit = |&&number: &&usize| {
            let weight = ACTIONS[number].weight;
            let is_hit = at < weight;
            at = at.saturating_sub(weight);
            is_hit
        };
        among.iter().find(hit).copied().unwrap_or(0)
    }

    /// Does an action. Returns false if the device lacks the ability.
    pub(crate) fn act(&mut self, number: usize) -> Result<bool> {
        match (ACTIONS[number].act)(self) {
            Ok(()) => Ok(true),
            Err(error) if lacks(&error) => Ok(false),
            Err(error) => Err(error.context(ACTIONS[number].name)),
        }
    }
}

/// Returns true if the device lacks the ability.
fn lacks(error: &anyhow::Error) -> bool {
    error.downcast_ref::<gpustream::Error>().is_some_and(|error| error.kind() == ErrorKind::Unsupported)
}

fn copies(w: &mut Worker<'_>) -> Result<()> {
    let (s, len, value) = (w.any_stream(), 1 + w.random(200_000), w.state);
    let x = w.own.upload(&vec![value; len])?;
    let mut y = s.alloc::<u32>(len)?;
    s.copy(&x, &mut y)?;
    ensure!(w.side.download(&y)? == vec![value; len]);
    w.own.fill(&mut w.x, value)?;
    ensure!(s.download(&w.x.slice(3..9)?)? == [value; 6]);
    Ok(())
}

fn events(w: &mut Worker<'_>) -> Result<()> {
    let (s, value) = (w.any_stream(), w.state);
    let early = w.own.record_timed()?;
    s.fill(&mut w.x, value)?;
    let event = s.record()?;
    w.side.wait(&event)?;
    w.shared.kernels.step(&w.side, &mut w.x, 1, N)?;
    w.own.wait(&w.side.record()?)?;
    let late = w.own.record_timed()?;
    late.synchronize()?;
    late.elapsed_since(&early)?;
    ensure!(event.is_done()? && w.own.download(&w.x)?[N - 1] == next(value, 1));
    Ok(())
}

fn futures(w: &mut Worker<'_>) -> Result<()> {
    let (s, value) = (w.any_stream(), w.state);
    let y = w.own.full(N, value)?;
    drop((s.synchronize_async(), s.download_async(&y)));
    let got = smol::block_on(async {
        w.own.record()?.synchronize_async().await?;
        let (first, second) = (s.download_async(&y), w.side.download_async(&w.shared.table));
        Ok::<_, gpustream::Error>((first.await?[77], second.await?[77]))
    })?;
    ensure!(got == (value, 77));
    Ok(())
}

fn captures(w: &mut Worker<'_>) -> Result<()> {
    let (s, value) = (w.any_stream(), w.state);
    let Worker { shared, own, side, x, host, .. } = w;
    let mut work = |own: &Stream, value| {
        own.copy(&shared.table, &mut *x)?;
        side.wait(&own.record()?)?;
        shared.kernels.step(side, &mut *x, value, N)?;
        own.wait(&side.record()?)?;
        // This memory belongs to the graph.
        let mut inside = own.alloc::<u32>(N)?;
        own.copy(&*x, &mut inside)?;
        own.copy(&inside, &mut *host)
    };
    let mut graph = own.capture(|own| work(own, value))?;
    graph.launch(s)?;
    graph.update(own, |own| work(own, !value))?;
    graph.launch(own)?;
    ensure!(host.read()?[1000] == next(1000, !value));
    Ok(())
}

fn graphs_by_node(w: &mut Worker<'_>) -> Result<()> {
    let (s, value) = (w.any_stream(), w.state);
    let (mut y, mut host) = (s.alloc::<u32>(N)?, w.shared.device.pinned::<u32>(N)?);
    let mut builder = w.shared.device.graph_builder()?;
    let fill = builder.node(&[], |s| s.fill(&mut y, value))?;
    builder.node(&[fill], |s| s.copy(&y, &mut host))?;
    let mut graph = builder.build()?;
    graph.launch(s)?;
    graph.set_node(fill, |s| s.fill(&mut y, 9))?;
    graph.launch(&w.own)?;
    drop((graph, y));
    ensure!(host.read()?[N - 1] == 9);
    Ok(())
}

fn kept_graphs(w: &mut Worker<'_>) -> Result<()> {
    let (s, len) = (w.any_stream(), 1 + w.random(20_000));
    w.shared.graph.launch(s)?;
    let mut memory = w.own.zeros::<u32>(len)?;
    let graph = w.own.capture(|s| w.shared.kernels.step(s, &mut memory, 1, len))?;
    drop(memory);
    if w.graphs.len() == KEPT {
        let one = w.random(KEPT);
        w.graphs.swap_remove(one);
    }
    w.graphs.push(graph);
    for graph in &w.graphs {
        graph.launch(s)?;
    }
    Ok(())
}

fn replays(w: &mut Worker<'_>) -> Result<()> {
    let (shared, value) = (w.shared, w.state);
    if w.random(20) == 0 {
        w.replay = shared.device.replay();
    }
    for round in 0..4 {
        let cut = w.random(8) == 0;
        let Worker { replay, own, x, host, .. } = &mut *w;
        replay.run(own, |s| {
            s.fill(x, value)?;
            if cut {
                s.copy(&shared.table, x)?;
            }
            shared.kernels.step(s, x, round, N)?;
            s.copy(x, host)
        })?;
        let want = next(if cut { 8 } else { value }, round);
        ensure!(host.read()?[8] == want);
    }
    Ok(())
}

fn loops(w: &mut Worker<'_>) -> Result<()> {
    let (rounds, flag) = (1 + w.random(5) as u32, w.shared.device.flag()?);
    let (mut left, mut y) = (w.own.full(1, rounds)?, w.own.full(N, 1u32)?);
    flag.set(1);
    let graph = w.own.capture(|s| {
        s.while_(&flag, |s| {
            w.shared.kernels.step(s, &mut y, 3, N)?;
            w.shared.kernels.count_down(s, &ONE, &mut left, &mut flag.clone())
        })
    })?;
    graph.launch(&w.own)?;
    ensure!(w.own.download(&y)?[5] == (0..rounds).fold(1, |value, _| next(value, 3)));
    Ok(())
}

/// Keeps memory of all sizes. Each size has its own place, so that the memory in use settles instead of wandering.
fn pools(w: &mut Worker<'_>) -> Result<()> {
    let (s, place) = (w.any_stream(), w.random(KEPT));
    let size = 1 << (place + 9);
    let piece = s.full(size + w.random(size / 8), w.state as u8)?;
    match w.buffers.get_mut(place) {
        Some(kept) => *kept = piece,
        None => w.buffers.push(piece),
    }
    if w.random(10) == 0 {
        w.shared.device.trim();
        drop(w.shared.device.memory_snapshot());
    }
    Ok(())
}

fn pinned(w: &mut Worker<'_>) -> Result<()> {
    let (s, len, value) = (w.any_stream(), 1 + w.random(50_000), w.state);
    let mut pinned = w.shared.device.pinned::<u32>(len)?;
    pinned.write()?.fill(value);
    let mut y = w.own.alloc::<u32>(len)?;
    s.copy(&pinned, &mut y)?;
    let mut registered = w.shared.device.register(vec![0; len])?;
    s.copy(&y, &mut registered)?;
    drop(pinned);
    ensure!(registered.read()?[len - 1] == value);
    Ok(())
}

fn managed(w: &mut Worker<'_>) -> Result<()> {
    let (s, len, value) = (w.any_stream(), 1 + w.random(50_000), w.state);
    let mut managed = w.shared.device.managed::<u32>(len)?;
    managed.write()?.fill(value);
    w.shared.kernels.step(s, &mut managed, 2, len)?;
    ensure!(managed.read()?[0] == next(value, 2));
    Ok(())
}

fn shared_memory(w: &mut Worker<'_>) -> Result<()> {
    let value = w.state;
    let mut ours = w.shared.device.alloc_shared::<u32>(N)?;
    w.own.fill(&mut ours, value)?;
    let export = ours.export()?;
    w.own.synchronize()?;
    // SAFETY: the fill is done, and nothing else uses the memory.
    let same = unsafe { w.shared.device.import::<u32>(&export) }?;
    ensure!(w.side.download(&same)?[N - 1] == value);
    Ok(())
}

fn shared_events(w: &mut Worker<'_>) -> Result<()> {
    let event = w.shared.device.shared_event()?;
    w.own.fill(&mut w.x, 3)?;
    w.own.record_shared(&event)?;
    let same = w.shared.device.import_event(&event.export()?)?;
    w.side.wait_shared(&same)?;
    w.side.synchronize()?;
    ensure!(event.is_done()?);
    Ok(())
}

fn host_functions(w: &mut Worker<'_>) -> Result<()> {
    let (s, value) = (w.any_stream(), w.state);
    let (send, receive) = mpsc::channel();
    let again = send.clone();
    s.host_fn(move || _ = send.send(value))?;
    let graph = w.own.capture(|s| s.host_fn_repeat(move || _ = again.send(value)))?;
    graph.launch(s)?;
    drop(graph);
    ensure!((receive.recv()?, receive.recv()?) == (value, value));
    Ok(())
}

fn flags(w: &mut Worker<'_>) -> Result<()> {
    let (flag, other) = (w.shared.device.flag()?, w.shared.device.flag()?);
    w.own.wait_flag(&flag, WaitValue::Equal(1))?;
    // Set this before you make any other call, because that call may wait until the device is idle.
    flag.set(1);
    w.own.set_flag(&other, 7)?;
    w.own.synchronize()?;
    ensure!(other.get() == 7);
    Ok(())
}

fn batches(w: &mut Worker<'_>) -> Result<()> {
    let s = w.any_stream();
    let mut batch = CopyBatch::new();
    let pages = w.shared.table.chunks(500)?.zip(w.x.chunks_mut(500)?);
    pages.into_iter().try_for_each(|(from, to)| batch.add(from, to))?;
    s.copy_batch(batch)?;
    ensure!(w.own.download(&w.x)?[4321] == 4321);
    Ok(())
}

fn pipelines(w: &mut Worker<'_>) -> Result<()> {
    let value = w.state;
    let input: Vec<u32> = (0..N as u32).collect();
    let mut output = vec![0; N];
    w.shared.device.pipeline().chunks(700).map(&input, &mut output, |s, piece| {
        s.copy(&piece.input, &mut piece.output)?;
        w.shared.kernels.step(s, &mut piece.output, value, piece.input.len())
    })?;
    ensure!(output[N - 1] == next(N as u32 - 1, value));
    Ok(())
}

fn textures(w: &mut Worker<'_>) -> Result<()> {
    let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let array = w.own.upload_array(&values, ArrayShape::new_1d(values.len()))?;
    let texture = array.texture(TextureOptions::default())?;
    let mut out = w.own.alloc::<f32>(values.len())?;
    w.shared.kernels.fetch(&w.side, &texture, &mut out, values.len() as i32)?;
    drop((array, texture));
    ensure!(w.own.download(&out)? == values);
    Ok(())
}

fn streams(w: &mut Worker<'_>) -> Result<()> {
    let value = w.state;
    let gone = w.shared.device.stream_with(StreamOptions::default().priority(1))?;
    let mut y = gone.full(N, value)?;
    w.shared.kernels.step(&gone, &mut y, 4, N)?;
    drop(gone);
    ensure!(w.own.download(&y)?[17] == next(value, 4));
    Ok(())
}

fn parts(w: &mut Worker<'_>) -> Result<()> {
    let value = w.state;
    let part = w.shared.device.stream_with(StreamOptions::default().multiprocessors(1))?;
    let mut y = part.full(N, value)?;
    let graph = part.capture(|s| w.shared.kernels.step(s, &mut y, 5, N))?;
    drop(part);
    graph.launch(&w.own)?;
    ensure!(w.side.download(&y)?[17] == next(value, 5));
    Ok(())
}

fn modules(w: &mut Worker<'_>) -> Result<()> {
    let value = w.state;
    let kernels = Kernels::load(&w.shared.device)?;
    let mut y = w.own.full(N, value)?;
    kernels.step(&w.own, &mut y, 6, N)?;
    let graph = w.own.capture(|s| kernels.step(s, &mut y, 7, N))?;
    drop(kernels);
    graph.launch(&w.own)?;
    ensure!(w.own.download(&y)?[17] == next(next(value, 6), 7));
    Ok(())
}

/// Opens another handle of the device, with its own pool, module, graph and trace.
fn handles(w: &mut Worker<'_>) -> Result<()> {
    let value = w.state;
    let device = Device::open(&w.shared.name)?;
    let trace = device.trace()?;
    let (s, kernels) = (device.stream()?, Kernels::load(&device)?);
    let mut y = s.full(N, value)?;
    let graph = s.capture(|s| kernels.step(s, &mut y, 8, N))?;
    drop(kernels);
    graph.launch(&s)?;
    ensure!(s.download(&y)?[1] == next(value, 8));
    ensure!(!trace.stop()?.operations.is_empty());
    // The graph and the buffer outlive the handle.
    drop((s, device));
    drop((graph, y));
    Ok(())
}

/// Makes calls that must be refused, and reads their errors.
fn refusals(w: &mut Worker<'_>) -> Result<()> {
    let s = w.any_stream();
    let refused = [
        (w.shared.kernels.step(s, &mut w.x, 1, N + 1), ErrorKind::ContractViolated),
        (s.copy(&w.shared.table.slice(..7)?, &mut w.x), ErrorKind::ArgumentMismatch),
        (w.own.capture(|s| s.synchronize()).map(drop), ErrorKind::Captured),
        (Device::open("cpu:4711").map(drop), ErrorKind::NoDevice),
    ];
    for (number, (result, kind)) in refused.into_iter().enumerate() {
        let Err(error) = result else { bail!("the call of number {number} was not refused") };
        ensure!(error.kind() == kind && !error.to_string().is_empty(), "{number}: {error}");
    }
    Ok(())
}

/// Starts another process whose kernel fails. That must not disturb this one.
fn children(w: &mut Worker<'_>) -> Result<()> {
    let fault = if w.random(2) == 0 { Fault::Address } else { Fault::Trap };
    let program: PathBuf = std::env::current_exe()?;
    let mut command = Command::new(program);
    command.args(["--device", &w.shared.name, "--fault", fault.name()]);
    // We drop what drivers and the C library write about the fault.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context("starting a child")?;
    let deadline = Instant::now() + CHILD;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("a child whose kernel fails did not end in {CHILD:?}");
        }
        thread::sleep(Duration::from_millis(20));
    };
    ensure!(
        status.success(),
        "a child whose kernel fails ended with {status}; run it: --fault {}",
        fault.name()
    );
    Ok(())
}

/// How a child's kernel fails.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Fault {
    /// It writes to an address without memory.
    Address,
    /// It stops the device.
    Trap,
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Trap => "trap",
        }
    }
}

/// What a child does: it causes a fault while other work is pending. Every wait must report the fault, and then
/// everything must still end.
pub(crate) fn fault(name: &str, fault: Fault) -> Result<()> {
    let shared = Shared::new(name)?;
    let mut worker = Worker::new(&shared, 1)?;
    copies(&mut worker)?;
    captures(&mut worker)?;
    let waiting = worker.side.synchronize_async();
    match fault {
        // SAFETY: this process is made to fail.
        Fault::Address => unsafe { shared.kernels.wild(&worker.own, &ONE, NOWHERE) }?,
        Fault::Trap => shared.kernels.give_up(&worker.own, &ONE)?,
    }
    match worker.own.synchronize() {
        Err(error) if error.kind() == ErrorKind::DeviceLost => {}
        other => bail!("the stream reports {other:?} and no fault"),
    }
    drop(smol::block_on(waiting));
    ensure!(copies(&mut worker).is_err(), "a lost device went on");
    Ok(())
}
