//! Measures all-reduce over all CUDA devices of this machine, by NCCL alone and through gpustream, in one run.
//!
//! Like nccl-tests: calls follow each other in each device's stream, and we divide the time until the last one is done by their
//! number. One thread has all devices. With `--threads` each device has its own thread; with `--processes` each has a process,
//! which torchrun or a similar launcher started. Rounds of both ways alternate, and the table has the medians.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use cudarc::nccl::{result as nccl, sys};
use gpustream::{AsView as _, Buffer, Device, Stream};
use gpustream_collectives::{Communicator, CommunicatorOptions, Engine, Op, Rendezvous, World, group};
use gpustream_timeline_view::text::Table;

/// Measures all-reduce over all CUDA devices, by NCCL alone and through gpustream
#[derive(Parser)]
struct Args {
    /// The largest message in bytes
    #[arg(long, default_value_t = 1 << 30)]
    most: usize,
    /// Samples of each size
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Give each device a thread of its own
    #[arg(long)]
    threads: bool,
    /// Be one rank of several processes, as the variables of their launcher say
    #[arg(long, conflicts_with = "threads")]
    processes: bool,
}

/// The messages, in bytes, and the calls that follow each other in one sample.
const SIZES: [(usize, usize); 6] =
    [(8, 200), (8 << 10, 200), (1 << 20, 200), (32 << 20, 50), (256 << 20, 20), (1 << 30, 10)];

/// How long the processes may take to come.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let args = Args::parse();
    // Each has its own streams, because the library knows less about a stream after you take its handle.
    let (ours, raw) = if args.processes { of_process()? } else { of_devices()? };
    let (size, is_first) = (ours.ranks[0].size(), ours.ranks[0].rank() == 0);
    if is_first {
        println!("{size} x {}, NCCL {}", ours.ranks[0].device().info(), raw.version);
    }

    let mut table = Table::new([
        "bytes",
        "host us, NCCL",
        "gpustream",
        "whole us, NCCL",
        "gpustream",
        "bus GB/s, NCCL",
        "gpustream",
        "of NCCL",
    ]);
    for (bytes, calls) in SIZES {
        if bytes > args.most {
            break;
        }
        if is_first {
            eprintln!("measuring {bytes} bytes");
        }
        let mut raw_memory = zeros(raw.streams(), bytes / 4)?;
        let mut our_memory = zeros(ours.streams(), bytes / 4)?;
        let [mut raws, mut our_samples] = [Samples::default(), Samples::default()];
        // One round to warm up.
        for round in 0..=args.rounds {
            ours.meet()?;
            let raw_sample = sample(&raw, &mut raw_memory, calls, args.threads)?;
            ours.meet()?;
            let our_sample = sample(&ours, &mut our_memory, calls, args.threads)?;
            if round > 0 {
                raws.add(raw_sample);
                our_samples.add(our_sample);
            }
        }
        let ([raw_host, raw_whole], [our_host, our_whole]) = (raws.medians(), our_samples.medians());
        let (size, time) = (size as f64, |seconds: f64| format!("{:.2}", seconds * 1e6));
        let bus = |seconds: f64| format!("{:.1}", bytes as f64 / seconds * 2.0 * (size - 1.0) / size / 1e9);
        table.row([
            bytes.to_string(),
            time(raw_host),
            time(our_host),
            time(raw_whole),
            time(our_whole),
            bus(raw_whole),
            bus(our_whole),
            format!("{:.3}", raw_whole / our_whole),
        ]);
    }
    if is_first {
        println!("{table}");
        if size == 1 {
            println!("a world of one moves nothing between devices: its times are those of the calls");
        }
    }
    Ok(())
}

/// Makes the ranks for all devices.
fn of_devices() -> Result<(Ours, Raw)> {
    let devices = Device::all_of("cuda")?;
    let ranks = World::local(&devices)?.communicators_with(options())?;
    let mut comms = vec![ptr::null_mut(); devices.len()];
    let ordinals = devices.iter().map(|device| Ok(c_int::try_from(device.info().ordinal)?));
    let ordinals = ordinals.collect::<Result<Vec<_>>>()?;
    check_library()?;
    // SAFETY: both have one place for each device.
    unsafe { nccl::comm_init_all(comms.as_mut_ptr(), ordinals.len().try_into()?, ordinals.as_ptr()) }
        .map_err(failed)
        .context("ncclCommInitAll")?;
    Ok((Ours { ranks, streams: streams(&devices)? }, Raw::new(comms, &devices)?))
}

/// Makes this process's rank, on the device whose number is the process's number on its host.
fn of_process() -> Result<(Ours, Raw)> {
    let world = World::from_env()?;
    let (rank, size, local) = (world.rank(), world.size(), world.local_rank().unwrap_or(0));
    let devices = [Device::open(&format!("cuda:{local}"))?];
    let exchange = Rendezvous::from_env()?.join(rank, LIMIT)?;
    let world = world.with_exchange(exchange.clone());
    let ranks = vec![world.communicator_with(&devices[0], options())?];
    check_library()?;
    let mut id = sys::ncclUniqueId { internal: [0; 128] };
    if rank == 0 {
        id = nccl::get_uniqueid().map_err(failed)?;
        exchange.put("bench/id", &id.internal.map(|byte| byte as u8))?;
    } else {
        let bytes = exchange.get("bench/id", LIMIT)?;
        id.internal.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte as c_char);
    }
    let ours = Ours { ranks, streams: streams(&devices)? };
    let mut comm = ptr::null_mut();
    // SAFETY: the call enqueues nothing. It takes the device whose context is current, and that is the stream's.
    unsafe {
        ours.streams[0].external("ncclCommInitRank", (), |_, ()| {
            nccl::comm_init_rank(&raw mut comm, size.try_into()?, id, rank.try_into()?).map_err(failed)
        })
    }?;
    Ok((ours, Raw::new(vec![comm], &devices)?))
}

fn options() -> CommunicatorOptions {
    CommunicatorOptions::default().engine(Engine::Nccl)
}

fn check_library() -> Result<()> {
    // SAFETY: this looks for the library, and we trust the one it loads to be NCCL.
    let is_there = unsafe { sys::is_culib_present() };
    ensure!(is_there, "cudarc does not find NCCL: put libnccl.so.2 on the loader's path");
    Ok(())
}

fn zeros(streams: &[Stream], len: usize) -> gpustream::Result<Vec<Buffer<f32>>> {
    streams.iter().map(|stream| stream.zeros(len)).collect()
}

/// A way to sum memory over all ranks.
trait Way: Sync {
    fn streams(&self) -> &[Stream];

    /// Makes one rank's call.
    fn one(&self, rank: usize, memory: &mut Buffer<f32>) -> Result<()>;

    /// Makes several ranks' calls as a group.
    fn group(&self, memory: &mut [Buffer<f32>]) -> Result<()>;
}

/// Returns the seconds for one of several calls that follow each other: until the calls have returned, and until all is done. If
/// each rank has a thread, the slowest one counts.
fn sample(way: &impl Way, memory: &mut [Buffer<f32>], calls: usize, threads: bool) -> Result<[f64; 2]> {
    let streams = way.streams();
    if !threads {
        return match memory {
            [memory] => time(streams, calls, || way.one(0, memory)),
            memory => time(streams, calls, || way.group(memory)),
        };
    }
    let start = &Barrier::new(streams.len());
    thread::scope(|threads| {
        let ranks = streams.chunks(1).zip(memory).enumerate().map(|(rank, (stream, memory))| {
            threads.spawn(move || {
                start.wait();
                time(stream, calls, || way.one(rank, memory))
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let mut slowest = [0.0; 2];
        for rank in ranks {
            let times = rank.join().map_err(|_| anyhow!("a rank panicked"))??;
            slowest.iter_mut().zip(times).for_each(|(slowest, time)| *slowest = time.max(*slowest));
        }
        Ok(slowest)
    })
}

fn time(streams: &[Stream], calls: usize, mut call: impl FnMut() -> Result<()>) -> Result<[f64; 2]> {
    let start = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    let host = start.elapsed();
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok([host, start.elapsed()].map(|time| time.as_secs_f64() / calls as f64))
}

#[derive(Default)]
struct Samples([Vec<f64>; 2]);

impl Samples {
    fn add(&mut self, sample: [f64; 2]) {
        self.0.iter_mut().zip(sample).for_each(|(samples, sample)| samples.push(sample));
    }

    fn medians(mut self) -> [f64; 2] {
        self.0.each_mut().map(|samples| {
            samples.sort_unstable_by(f64::total_cmp);
            samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
        })
    }
}

/// The library's communicators.
struct Ours {
    ranks: Vec<Communicator>,
    streams: Vec<Stream>,
}

impl Ours {
    /// Blocks until all processes have come here.
    fn meet(&self) -> Result<()> {
        let [rank] = self.ranks.as_slice() else { return Ok(()) };
        rank.barrier(&self.streams[0])?;
        Ok(self.streams[0].synchronize()?)
    }
}

impl Way for Ours {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn one(&self, rank: usize, memory: &mut Buffer<f32>) -> Result<()> {
        Ok(self.ranks[rank].all_reduce_in_place(&self.streams[rank], memory, Op::Sum)?)
    }

    fn group(&self, memory: &mut [Buffer<f32>]) -> Result<()> {
        group(|group| {
            for ((rank, stream), memory) in self.ranks.iter().zip(&self.streams).zip(memory) {
                group.on(rank).all_reduce_in_place(stream, memory, Op::Sum)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Communicators that NCCL has made without us.
struct Raw {
    comms: Vec<sys::ncclComm_t>,
    streams: Vec<Stream>,
    version: c_int,
}

impl Raw {
    fn new(comms: Vec<sys::ncclComm_t>, devices: &[Device]) -> Result<Self> {
        let version = nccl::get_nccl_version().map_err(failed)?;
        Ok(Self { comms, streams: streams(devices)?, version })
    }
}

// SAFETY: NCCL binds a communicator to no thread, and here only one thread at a time uses it.
unsafe impl Sync for Raw {}

impl Way for Raw {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn one(&self, rank: usize, memory: &mut Buffer<f32>) -> Result<()> {
        let address: *mut c_void = ptr::with_exposed_provenance_mut(memory.view().as_raw().0);
        let (float, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        let raw = ptr::with_exposed_provenance_mut(self.streams[rank].as_raw().0);
        // SAFETY: the memory has this many elements and stays, and the host waits for the stream before other calls use it.
        unsafe { nccl::all_reduce(address, address, memory.len(), float, sum, self.comms[rank], raw) }
            .map_err(failed)?;
        Ok(())
    }

    fn group(&self, memory: &mut [Buffer<f32>]) -> Result<()> {
        nccl::group_start().map_err(failed)?;
        memory.iter_mut().enumerate().try_for_each(|(rank, memory)| self.one(rank, memory))?;
        nccl::group_end().map_err(failed)?;
        Ok(())
    }
}

fn streams(devices: &[Device]) -> Result<Vec<Stream>> {
    Ok(devices.iter().map(Device::stream).collect::<gpustream::Result<_>>()?)
}

#[allow(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn failed(error: nccl::NcclError) -> anyhow::Error {
    anyhow!("NCCL failed: {error:?}")
}
