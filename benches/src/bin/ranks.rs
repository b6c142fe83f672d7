//! Measures all-reduce over all CUDA devices of this machine, by NCCL alone and through gpustream, in one run.
//!
//! As nccl-tests does it: calls follow each other in each device's stream, and their number divides the time until the last one
//! is done. One thread has all devices, or with `--threads` each device has one. Rounds of both ways alternate; the table has
//! the medians.

use std::ffi::{c_int, c_void};
use std::process::ExitCode;
use std::ptr;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use cudarc::nccl::{result as nccl, sys};
use gpustream::{AsView as _, Buffer, Device, Stream};
use gpustream_collectives::{Communicator, CommunicatorOptions, Engine, Op, World, group};
use text::Table;

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
}

/// The messages, in bytes, and the calls that follow each other in one sample.
const SIZES: [(usize, usize); 6] =
    [(8, 200), (8 << 10, 200), (1 << 20, 200), (32 << 20, 50), (256 << 20, 20), (1 << 30, 10)];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let devices = Device::all().into_iter().flatten().filter(|device| device.info().backend == "cuda");
    let devices: Vec<Device> = devices.collect();
    ensure!(!devices.is_empty(), "this machine has no CUDA device");
    let options = CommunicatorOptions::default().engine(Engine::Nccl);
    let ranks = World::local(&devices)?.communicators_with(options)?;
    let streams = devices.iter().map(Device::stream).collect::<gpustream::Result<Vec<_>>>()?;
    let raw = Raw::new(&devices)?;
    println!("{} x {}, NCCL {}", ranks.len(), devices[0].info(), raw.version);

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
        eprintln!("measuring {bytes} bytes");
        let mut memory: Vec<Buffer<f32>> =
            streams.iter().map(|stream| stream.zeros(bytes / 4)).collect::<gpustream::Result<_>>()?;
        let [mut raws, mut ours] = [Samples::default(), Samples::default()];
        // One round to warm up.
        for round in 0..=args.rounds {
            let samples = if args.threads {
                let one =
                    |rank: usize, memory: &mut Buffer<f32>| raw.all_reduce_one(rank, &streams[rank], memory);
                let raws = sample_on_threads(&streams, &mut memory, calls, one)?;
                let one = |rank: usize, memory: &mut Buffer<f32>| {
                    Ok(ranks[rank].all_reduce_in_place(&streams[rank], memory, Op::Sum)?)
                };
                [raws, sample_on_threads(&streams, &mut memory, calls, one)?]
            } else {
                [
                    sample(&streams, calls, || raw.all_reduce(&streams, &memory))?,
                    sample(&streams, calls, || all_reduce(&ranks, &streams, &mut memory))?,
                ]
            };
            if round > 0 {
                raws.add(samples[0]);
                ours.add(samples[1]);
            }
        }
        let ([raw_host, raw_whole], [our_host, our_whole]) = (raws.medians(), ours.medians());
        let (size, time) = (ranks.len() as f64, |seconds: f64| format!("{:.2}", seconds * 1e6));
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
    println!("{table}");
    if ranks.len() == 1 {
        println!("a world of one moves nothing between devices: its times are those of the calls");
    }
    Ok(())
}

/// Makes one call for each rank.
fn all_reduce(ranks: &[Communicator], streams: &[Stream], memory: &mut [Buffer<f32>]) -> Result<()> {
    if let ([rank], [stream], [memory]) = (ranks, streams, &mut *memory) {
        return Ok(rank.all_reduce_in_place(stream, memory, Op::Sum)?);
    }
    group(|group| {
        for ((rank, stream), memory) in ranks.iter().zip(streams).zip(memory) {
            group.on(rank).all_reduce_in_place(stream, memory, Op::Sum)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Returns the seconds of one call of some that follow each other: until the calls have returned, and until all is done.
fn sample(streams: &[Stream], calls: usize, mut call: impl FnMut() -> Result<()>) -> Result<[f64; 2]> {
    let start = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    let host = start.elapsed();
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok([host, start.elapsed()].map(|time| time.as_secs_f64() / calls as f64))
}

/// As [`sample`], with a thread for each rank, whose calls `call` makes; the slowest one counts.
fn sample_on_threads(
    streams: &[Stream],
    memory: &mut [Buffer<f32>],
    calls: usize,
    call: impl Fn(usize, &mut Buffer<f32>) -> Result<()> + Sync,
) -> Result<[f64; 2]> {
    let (start, call) = (Barrier::new(streams.len()), &call);
    thread::scope(|threads| {
        let ranks = streams.iter().zip(memory).enumerate().map(|(rank, (stream, memory))| {
            let start = &start;
            threads.spawn(move || {
                start.wait();
                sample(std::slice::from_ref(stream), calls, || call(rank, memory))
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

/// Communicators of NCCL's own.
struct Raw {
    comms: Vec<sys::ncclComm_t>,
    version: c_int,
}

impl Raw {
    fn new(devices: &[Device]) -> Result<Self> {
        // SAFETY: looks for the library, and loads what is trusted to be NCCL.
        let is_there = unsafe { sys::is_culib_present() };
        ensure!(is_there, "cudarc does not find NCCL: put libnccl.so.2 on the loader's path");
        let ordinals = devices.iter().map(|device| Ok(c_int::try_from(device.info().ordinal)?));
        let ordinals = ordinals.collect::<Result<Vec<_>>>()?;
        let mut comms = vec![ptr::null_mut(); devices.len()];
        // SAFETY: both have one place for each device.
        unsafe { nccl::comm_init_all(comms.as_mut_ptr(), ordinals.len().try_into()?, ordinals.as_ptr()) }
            .map_err(failed)
            .context("ncclCommInitAll")?;
        Ok(Self { comms, version: nccl::get_nccl_version().map_err(failed)? })
    }

    fn all_reduce(&self, streams: &[Stream], memory: &[Buffer<f32>]) -> Result<()> {
        if self.comms.len() > 1 {
            nccl::group_start().map_err(failed)?;
        }
        for (rank, (stream, memory)) in streams.iter().zip(memory).enumerate() {
            self.all_reduce_one(rank, stream, memory)?;
        }
        if self.comms.len() > 1 {
            nccl::group_end().map_err(failed)?;
        }
        Ok(())
    }

    fn all_reduce_one(&self, rank: usize, stream: &Stream, memory: &Buffer<f32>) -> Result<()> {
        let address: *mut c_void = ptr::with_exposed_provenance_mut(memory.view().as_raw().0);
        let (float, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        let raw = ptr::with_exposed_provenance_mut(stream.as_raw().0);
        // SAFETY: the memory has that many elements and stays, and the host waits for the stream before other calls use it.
        unsafe { nccl::all_reduce(address, address, memory.len(), float, sum, self.comms[rank], raw) }
            .map_err(failed)?;
        Ok(())
    }
}

// SAFETY: NCCL binds a communicator to no thread, and here each is used by one at a time.
unsafe impl Sync for Raw {}

#[allow(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn failed(error: nccl::NcclError) -> anyhow::Error {
    anyhow!("NCCL failed: {error:?}")
}
