//! Four threads and two handles of one device do everything that the library offers, in random order and on shared
//! streams.
//!
//! Each thread checks the values that it reads, so you can run this test by itself. `scripts/tsan.sh` runs it under
//! `ThreadSanitizer`, which reports unordered accesses to the same place. `GPUSTREAM_STRESS_ROUNDS` says how many
//! rounds each thread does, 200 unless you set it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use conformance::Gate;
use conformance::executor::block_on;
use conformance::sync::Kernels;
use gpustream::hal::FillPattern;
use gpustream::{
    Arg, Buffer, CopyBatch, Device, Flag, Graph, Pinned, Result, Stream, StreamOptions, WaitValue,
};

const N: usize = 5000;
const THREADS: u32 = 4;
/// Elements of a copy that needs several pieces of the staging ring.
const LARGE: usize = 700_000;

/// The objects that all threads use at once.
struct Shared {
    first: Device,
    second: Device,
    streams: Vec<Stream>,
    kernels: Kernels,
    table: Buffer<u32>,
    pinned: Pinned<u32>,
    graph: Graph,
    flag: Flag,
    closures: Arc<AtomicU32>,
}

impl Shared {
    fn new() -> Result<Self> {
        let (first, second) = (Device::open("cpu")?, Device::open("cpu")?);
        let streams = (0..3).map(|_| first.stream()).collect::<Result<Vec<_>>>()?;
        let kernels = Kernels::load(&first)?;
        let values: Vec<u32> = (0..N as u32).collect();
        let table = streams[0].upload(&values)?;
        let mut scratch = streams[1].full(N, 1u32)?;
        let graph = streams[0].capture(|s| {
            s.copy(&table, &mut scratch)?;
            kernels.step(s, &mut scratch, 1, N)
        })?;
        let (pinned, flag) = (first.pinned_from(&values)?, first.flag()?);
        Ok(Self { first, second, streams, kernels, table, pinned, graph, flag, closures: Arc::default() })
    }
}

/// The objects of one thread.
struct Worker<'a> {
    shared: &'a Shared,
    own: Stream,
    side: Stream,
    /// A stream of the second handle.
    other: Stream,
    x: Buffer<u32>,
    host: Pinned<u32>,
    graph: Graph,
    state: u32,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, id: u32) -> Result<Self> {
        let (own, side) = (shared.first.stream()?, shared.first.stream()?);
        let (mut x, mut host) = (own.zeros::<u32>(N)?, shared.first.pinned::<u32>(N)?);
        let graph = captured(shared, &own, &side, &mut x, &mut host)?;
        let other = shared.second.stream()?;
        Ok(Self { shared, own, side, other, x, host, graph, state: id })
    }

    fn random(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.state >> 8) as usize % below
    }

    fn step(&mut self) -> Result<()> {
        let shared = self.shared;
        let s = &shared.streams[self.random(shared.streams.len())];
        let (action, len) = (self.random(27), 1 + self.random(20_000));
        let value = self.state;
        let own = &self.own;
        match action {
            0 => assert_eq!(s.download(&shared.table)?[N - 1], N as u32 - 1),
            1 => {
                s.copy(&shared.table, &mut self.x)?;
                assert_eq!(block_on(self.own.download_async(&self.x))?[123], 123);
            }
            2 => {
                let filled = self.own.full(len, value)?;
                assert!(s.download(&filled)?.iter().all(|&v| v == value));
            }
            3 => {
                own.copy(&shared.pinned, &mut self.x)?;
                s.copy(&self.x, &mut self.host)?;
                assert_eq!(self.host.read()?[777], 777);
            }
            4 => {
                self.graph.launch(s)?;
                assert_eq!(self.host.read()?[4998], 4998 * 5 + 3);
            }
            5 => shared.graph.launch(s)?,
            6 => {
                let event = s.record()?;
                own.wait(&event)?;
                block_on(event.synchronize_async())?;
                assert!(event.is_done()?);
            }
            7 => {
                let (mut pinned, mut z) = (shared.first.pinned::<u64>(100)?, own.alloc::<u64>(100)?);
                pinned.write()?.fill(7);
                own.copy(&pinned, &mut z)?;
                drop(pinned);
                assert_eq!(s.download(&z)?, [7; 100]);
            }
            8 => {
                let (send, receive) = mpsc::channel();
                let closures = shared.closures.clone();
                s.host_fn(move || {
                    closures.fetch_add(1, Ordering::Relaxed);
                    let _ = send.send(value);
                })?;
                assert_eq!(receive.recv().unwrap(), value);
            }
            9 => drop(shared.first.trim()),
            10 => {
                self.other.copy(&shared.table, &mut self.x)?;
                assert_eq!(own.download(&self.x)?[11], 11);
            }
            11 => {
                let gone = shared.first.stream()?;
                let large = gone.upload(&vec![value; LARGE])?;
                drop(gone);
                assert_eq!(s.download(&large)?[LARGE - 1], value);
            }
            12 => {
                s.fill(&mut self.x, value)?;
                shared.kernels.step(own, &mut self.x, 1, N)?;
                shared.kernels.mix(s, &shared.table, &mut self.x, N)?;
                let want = value.wrapping_mul(5).wrapping_add(1).wrapping_mul(5).wrapping_add(42);
                assert_eq!(self.side.download(&self.x)?[42], want);
            }
            13 => {
                self.graph = captured(shared, &self.own, &self.side, &mut self.x, &mut self.host)?;
                self.graph.launch(&self.own)?;
            }
            14 => {
                let (mut y, mut host) = (s.alloc::<u32>(N)?, shared.first.pinned::<u32>(N)?);
                let mut builder = shared.first.graph_builder()?;
                let fill = builder.node(&[], |s| s.fill(&mut y, value))?;
                builder.node(&[fill], |s| s.copy(&y, &mut host))?;
                let mut graph = builder.build()?;
                graph.launch(s)?;
                graph.set_node(fill, |s| s.fill(&mut y, 9))?;
                graph.launch(own)?;
                drop((graph, y));
                assert_eq!(host.read()?[N - 1], 9);
            }
            15 => {
                // We forget these futures, but the memory that they fill must outlive them.
                let y = own.full(N, value)?;
                mem::forget(own.download_async(&y));
                mem::forget(s.synchronize_async());
                drop(s.download_async(&y));
            }
            16 => {
                let gate = Gate::new(&shared.first)?;
                shared.kernels.add_when(own, gate.flag(), &mut self.x, 1, N)?;
                own.wait_flag(gate.flag(), WaitValue::Equal(1))?;
                own.set_flag(&shared.flag, value)?;
                let finished = own.synchronize_async();
                shared.flag.set(value);
                gate.open();
                block_on(finished)?;
            }
            17 => {
                let (captured, closures) = (self.x.len(), shared.closures.clone());
                let graph = own.capture(|s| {
                    s.host_fn_repeat(move || {
                        closures.fetch_add(captured as u32, Ordering::Relaxed);
                    })
                })?;
                graph.launch(s)?;
            }
            18 => {
                let mut registered = shared.first.register(vec![value; N])?;
                own.copy(&registered, &mut self.x)?;
                s.copy(&shared.table, &mut registered)?;
                assert_eq!(registered.read()?[1], 1);
            }
            19 => {
                let input: Vec<u32> = (0..N as u32).collect();
                let mut output = vec![0u32; N];
                shared.first.pipeline().chunks(700).map(&input, &mut output, |s, piece| {
                    s.copy(&piece.input, &mut piece.output)?;
                    shared.kernels.step(s, &mut piece.output, value, piece.input.len())
                })?;
                assert_eq!(output[N - 1], (N as u32 - 1).wrapping_mul(5).wrapping_add(value));
            }
            20 => {
                let stats = (shared.first.memory_stats(), shared.second.pinned_stats());
                assert!(stats.0.used <= stats.0.reserved);
                drop((shared.first.memory_snapshot(), shared.flag.get(), s.is_done()?));
            }
            21 => {
                let mut batch = CopyBatch::new();
                let pages = shared.table.chunks(500)?.zip(self.x.chunks_mut(500)?);
                pages.into_iter().try_for_each(|(from, to)| batch.add(from, to))?;
                batch.add(shared.pinned.slice(..N)?, self.host.slice_mut(..N)?)?;
                s.copy_batch(batch)?;
                assert_eq!((own.download(&self.x)?[4321], self.host.read()?[1234]), (4321, 1234));
            }
            22 => {
                let part = shared.first.stream_with(StreamOptions::default().multiprocessors(1))?;
                let mut y = part.full(N, value)?;
                shared.kernels.step(&part, &mut y, 1, N)?;
                let graph = part.capture(|s| shared.kernels.step(s, &mut y, 2, N))?;
                drop(part);
                graph.launch(s)?;
                let want = value.wrapping_mul(5).wrapping_add(1).wrapping_mul(5).wrapping_add(2);
                assert_eq!(own.download(&y)?[17], want);
            }
            23 => {
                let device = &shared.first;
                let fill = |raw, [to]: [_; 1]| {
                    // SAFETY: the memory and the stream are alive, and the tracker knows of the write.
                    unsafe { device.raw().fill(to, FillPattern::U32(value), N, raw) }
                };
                // SAFETY: the fill goes to the stream that is given, and writes `x` alone.
                unsafe { s.external("fill", &[Arg::write(&mut self.x)], fill) }?;
                shared.kernels.step(own, &mut self.x, 1, N)?;
                assert_eq!(s.download(&self.x)?[55], value.wrapping_mul(5).wrapping_add(1));
            }
            24 => {
                let theirs = own.full(N, value)?.into_raw(s)?;
                // SAFETY: the memory is theirs in the order of this stream.
                unsafe { shared.first.raw().fill(theirs.as_raw(), FillPattern::U32(!value), N, s.as_raw()) }?;
                drop(theirs);
                // The next owner of the memory must come after that fill.
                let again = own.full(N, value)?;
                assert!(self.other.download(&again)?.iter().all(|&v| v == value));
            }
            25 => {
                let (send, gone) = mpsc::channel::<()>();
                let mut memory = vec![value; N];
                let address = memory.as_mut_ptr();
                // SAFETY: the vector does not move its elements, and nothing else uses them.
                let mut theirs = unsafe { Buffer::<u32>::from_raw(s, address, N, (memory, send)) }?;
                shared.kernels.step(own, &mut theirs, 1, N)?;
                assert_eq!(self.other.download(&theirs)?[77], value.wrapping_mul(5).wrapping_add(1));
                shared.kernels.step(own, &mut theirs, 1, N)?;
                drop(theirs);
                assert!(gone.recv().is_err(), "the owner goes without being asked to");
            }
            _ => self.other.synchronize()?,
        }
        Ok(())
    }
}

/// Captures work of two streams as a graph. When it runs, `host` becomes the table after one step.
fn captured(
    shared: &Shared,
    own: &Stream,
    side: &Stream,
    x: &mut Buffer<u32>,
    host: &mut Pinned<u32>,
) -> Result<Graph> {
    own.capture(|own| {
        own.copy(&shared.table, x)?;
        side.wait(&own.record()?)?;
        shared.kernels.step(side, x, 3, N)?;
        own.wait(&side.record()?)?;
        own.copy(x, host)
    })
}

#[test]
fn four_threads_with_two_handles_read_back_what_they_wrote() {
    let rounds =
        std::env::var("GPUSTREAM_STRESS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let shared = Shared::new().unwrap();
    thread::scope(|scope| {
        for id in 0..THREADS {
            let shared = &shared;
            scope.spawn(move || {
                let mut worker = Worker::new(shared, id).unwrap();
                for round in 0..rounds {
                    worker.step().unwrap_or_else(|error| panic!("thread {id}, round {round}: {error}"));
                }
            });
        }
    });
    shared.first.synchronize().unwrap();
    shared.second.synchronize().unwrap();
}
