//! Measures all-reduce over the processes that `mpirun` started, by MPI alone and through gpustream, in one run.
//!
//! MPI alone combines host memory, one call after the other. gpustream's calls follow each other in a stream, and we divide the
//! time until the last one is done by their number. Rounds of both alternate, and the table has rank 0's medians.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use gpustream::{Buffer, Device, Stream};
use gpustream_collectives::{Communicator, CommunicatorOptions, Engine, Op, World};
use gpustream_timeline_view::text::Table;
use mpi::ffi;

/// Measures all-reduce over the processes of mpirun, by MPI alone and through gpustream
#[derive(Parser)]
struct Args {
    /// The device of each process, as `Device::open` takes it
    #[arg(long, default_value = "cpu")]
    device: String,
    /// The largest message in bytes
    #[arg(long, default_value_t = 32 << 20)]
    most: usize,
    /// Samples of each size
    #[arg(long, default_value_t = 11)]
    rounds: usize,
}

/// The messages, in bytes, and the calls that follow each other in one sample.
const SIZES: [(usize, usize); 5] = [(8, 200), (8 << 10, 200), (256 << 10, 50), (4 << 20, 10), (32 << 20, 3)];

fn main() -> Result<()> {
    let args = Args::parse();
    let world = World::from_env().context("start the processes with mpirun")?;
    let device = Device::open(&args.device)?;
    let options = CommunicatorOptions::default().engine(Engine::Mpi);
    let rank = world.communicator_with(&device, options)?;
    let stream = device.stream()?;
    let raw = Raw::new()?;
    let mut table = Table::new(["bytes", "us, MPI", "gpustream", "ratio", "GB/s, MPI", "gpustream"]);
    for (bytes, calls) in SIZES.into_iter().filter(|(bytes, _)| *bytes <= args.most) {
        let mut host = vec![0.0f32; bytes / size_of::<f32>()];
        let mut memory = stream.zeros::<f32>(host.len())?;
        let mut samples = [Vec::new(), Vec::new()];
        // The first round connects the ranks.
        for round in 0..=args.rounds {
            let by_mpi = raw.sample(&mut host, calls)?;
            let by_gpustream = sample(&rank, &stream, &mut memory, calls)?;
            if round > 0 {
                samples[0].push(by_mpi);
                samples[1].push(by_gpustream);
            }
        }
        let [by_mpi, by_gpustream] = samples.map(|mut samples| {
            samples.sort_by(f64::total_cmp);
            samples[samples.len() / 2]
        });
        let speed = |time: f64| format!("{:.2}", bytes as f64 / time / 1e9);
        table.row([
            bytes.to_string(),
            format!("{:.1}", by_mpi * 1e6),
            format!("{:.1}", by_gpustream * 1e6),
            format!("{:.2}", by_gpustream / by_mpi),
            speed(by_mpi),
            speed(by_gpustream),
        ]);
    }
    if rank.rank() == 0 {
        println!("{} ranks, the first on {}", rank.size(), device.info());
        println!("{table}");
    }
    Ok(())
}

/// Returns the seconds that one of `calls` calls through gpustream takes.
fn sample(rank: &Communicator, stream: &Stream, memory: &mut Buffer<f32>, calls: usize) -> Result<f64> {
    rank.barrier(stream)?;
    stream.synchronize()?;
    let start = Instant::now();
    for _ in 0..calls {
        rank.all_reduce_in_place(stream, memory, Op::Sum)?;
    }
    stream.synchronize()?;
    Ok(start.elapsed().as_secs_f64() / calls as f64)
}

/// MPI alone. gpustream has initialised it for several threads, so both ways pay for its locks.
struct Raw(ffi::MPI_Comm);

impl Raw {
    fn new() -> Result<Self> {
        let mut comm = MaybeUninit::uninit();
        // SAFETY: MPI has begun, and the pointer is to a local, which the call fills unless it fails.
        unsafe {
            check(ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, comm.as_mut_ptr()))?;
            Ok(Self(comm.assume_init()))
        }
    }

    /// Returns the seconds that one of `calls` calls takes.
    fn sample(&self, memory: &mut [f32], calls: usize) -> Result<f64> {
        let count = c_int::try_from(memory.len())?;
        let mut result = vec![0.0f32; memory.len()];
        // SAFETY: the communicator is alive.
        check(unsafe { ffi::MPI_Barrier(self.0) })?;
        let start = Instant::now();
        for _ in 0..calls {
            let (src, dst) = (memory.as_ptr().cast(), result.as_mut_ptr().cast());
            // SAFETY: both have `count` elements, and the call returns once they are done with.
            check(unsafe { ffi::MPI_Allreduce(src, dst, count, ffi::RSMPI_FLOAT, ffi::RSMPI_SUM, self.0) })?;
        }
        Ok(start.elapsed().as_secs_f64() / calls as f64)
    }
}

fn check(code: c_int) -> Result<()> {
    ensure!(code == 0, "MPI's error {code}");
    Ok(())
}
