//! How to work on a file that does not fit into memory: the sum and the histogram of its bytes.
//!
//! A pipeline cuts the file into pieces. While the device counts one piece, threads can already read the next ones into
//! pinned memory. Only a few pieces are in memory at any time, so the file can have any size. We drop the file from the
//! system's cache first, because otherwise you could not compare the rate with that of the disk.
//!
//! ```console
//! $ cargo run --release --example larger_than_memory
//! $ cargo run --release --example larger_than_memory -- some_large_file --readers 8
//! ```
//!
//! It prints the sum and the histogram, then the rate from end to end, and those of the disk and the bus alone.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::{DeviceArg, Table, is_cpu};
use gpustream::Device;
use gpustream_kernels::histogram::Kernels;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{Advice, fadvise, fstatvfs};

/// Sums and counts the bytes of a file that may be larger than the memory of the device and of the host
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// The file [default: a new file without a name, which disappears with the program]
    file: Option<PathBuf>,
    /// Size of the new file in MiB if you give none [default: 4096; on the CPU 256]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MOST_MIB))]
    size: Option<u64>,
    /// Folder of the new file if you give none [default: `TMPDIR`, or else /tmp]
    #[arg(long, value_name = "FOLDER", conflicts_with = "file")]
    dir: Option<PathBuf>,
    /// MiB of a piece
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096))]
    piece: u64,
    /// Threads that read the file
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    readers: u64,
}

const MIB: u64 = 1 << 20;

/// The largest --size in MiB, because a file's length is an `i64`.
const MOST_MIB: u64 = i64::MAX as u64 / MIB;

/// How many bytes we read to measure the disk's rate.
const PROBE: u64 = 1 << 30;

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let size = args.size.unwrap_or(if is_cpu(&device) { 256 } else { 4096 });
    let (file, expected) = if let Some(path) = &args.file {
        (Source::given(path)?, None)
    } else {
        let dir = args.dir.unwrap_or_else(std::env::temp_dir);
        (Source::made(size * MIB, &dir)?, Some(made_histogram(size * MIB)))
    };
    println!("{}\n{} bytes of {}", device.info(), file.len, file.name);

    let readers = args.readers as usize;
    let (disk, bus) = (file.disk(readers)?, bus(&device)?);
    let kernels = Kernels::load(&device)?;
    file.forget();
    let start = Instant::now();
    let bins = count(&device, &kernels, &file, (args.piece * MIB) as usize, readers)?;
    let all = rate(file.len, start);

    let total: u64 = bins.iter().sum();
    ensure!(total == file.len, "{total} bytes were counted; did the file change meanwhile?");
    if let Some(expected) = expected {
        ensure!(bins[..] == expected[..], "the histogram is wrong");
    }
    print(&bins, file.len);
    print_rates(all, disk, bus);
    Ok(())
}

/// Counts how often each byte value occurs, piece by piece.
fn count(
    device: &Device,
    kernels: &Kernels,
    file: &Source,
    piece: usize,
    readers: usize,
) -> Result<Vec<u64>> {
    let bar = ProgressBar::new(file.len).with_style(ProgressStyle::with_template(
        "{bar:40} {bytes} of {total_bytes}, {binary_bytes_per_sec}",
    )?);
    let mut bins = vec![0u64; 256];
    let mut at = 0;
    device.pipeline().chunks(piece).results(256).progress(|done| bar.set_position(done as u64)).run(
        |bytes: &mut [u8]| {
            let now = bytes.len().min(usize::try_from(file.len - at).unwrap_or(usize::MAX));
            file.read(at, &mut bytes[..now], readers)?;
            at += now as u64;
            anyhow::Ok(now)
        },
        |stream, piece| {
            stream.fill(&mut piece.output, 0u64)?;
            kernels.histogram_u8(stream, &piece.input, &mut piece.output, piece.input.len())
        },
        |_, counts: &[u64]| {
            bins.iter_mut().zip(counts).for_each(|(bin, count)| *bin += count);
            Ok(())
        },
    )?;
    bar.finish_and_clear();
    Ok(bins)
}

/// A file to read.
struct Source {
    file: File,
    /// How messages name the file.
    name: String,
    len: u64,
}

impl Source {
    fn given(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let cannot_read = || format!("cannot read {name}");
        // Look before opening, because opening a pipe could wait for ever for a writer.
        let found = path.metadata().with_context(cannot_read)?;
        ensure!(found.is_file(), "{name} is not a file");
        let file = File::open(path).with_context(cannot_read)?;
        Ok(Self { file, len: found.len(), name })
    }

    /// Makes a file without a name, so that it disappears however this program ends.
    fn made(len: u64, dir: &Path) -> Result<Self> {
        let cannot_make = || format!("cannot make a file of {len} bytes in {}", dir.display());
        let mut file = tempfile::tempfile_in(dir).with_context(cannot_make)?;
        let system = fstatvfs(&file).with_context(cannot_make)?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        ensure!(
            len <= free,
            "{}: {free} bytes are free there; give a smaller --size, another --dir, or a file",
            cannot_make()
        );
        let block = made_block();
        let mut left = len;
        while left > 0 {
            let now = left.min(block.len() as u64);
            file.write_all(&block[..now as usize]).with_context(cannot_make)?;
            left -= now;
        }
        Ok(Self { file, len, name: format!("a file made in {}", dir.display()) })
    }

    /// Reads from `at` on with several threads, because one thread cannot reach the rate of a good disk.
    fn read(&self, at: u64, bytes: &mut [u8], readers: usize) -> Result<()> {
        let share = bytes.len().div_ceil(readers).max(1);
        in_parallel(bytes.chunks_mut(share).enumerate(), |(index, part)| {
            self.read_part(at + (index * share) as u64, part)
        })
    }

    fn read_part(&self, at: u64, part: &mut [u8]) -> Result<()> {
        let range = at..at + part.len() as u64;
        let cannot_read = || format!("cannot read bytes {range:?} of {}; did it shrink?", self.name);
        self.file.read_exact_at(part, at).with_context(cannot_read)
    }

    /// Measures the rate, in GB/s, of reading the beginning of the file while nothing else happens. Each thread reads its
    /// own part.
    fn disk(&self, readers: usize) -> Result<f64> {
        self.forget();
        let len = self.len.min(PROBE);
        let share = len.div_ceil(readers as u64).max(1);
        let start = Instant::now();
        in_parallel((0..len).step_by(share as usize), |begin| {
            let mut piece = vec![0; MIB as usize];
            let end = len.min(begin + share);
            (begin..end).step_by(piece.len()).try_for_each(|at| {
                let now = (end - at).min(MIB) as usize;
                self.read_part(at, &mut piece[..now])
            })
        })?;
        Ok(rate(len, start))
    }

    /// Drops the file's pages from the system's cache, so that the next read comes from the disk.
    fn forget(&self) {
        // The system can drop only pages that are already on the disk, so write them first. We ignore errors, because some
        // file systems can do neither.
        let _ = self.file.sync_all();
        #[cfg(target_os = "linux")]
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }
}

/// Runs `work` on each item in a thread of its own.
fn in_parallel<I: Send>(items: impl Iterator<Item = I>, work: impl Fn(I) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let start = |item| thread::Builder::new().spawn_scoped(scope, move || work(item));
        let threads: Vec<_> = items.map(start).collect::<Result<_, _>>().context(
            "cannot start a thread that reads: give fewer --readers, or let the program have more threads or memory",
        )?;
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => anyhow::bail!("a reading thread panicked"),
        })
    })
}

/// Returns the block of bytes that the new file repeats.
fn made_block() -> Vec<u8> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Small values are more frequent, so no two bins are alike and a mix-up would be noticed.
        (((state >> 24) * (state >> 16 & 0xff)) >> 8) as u8
    };
    (0..MIB).map(next).collect()
}

fn made_histogram(len: u64) -> Vec<u64> {
    let mut bins = vec![0; 256];
    for (at, byte) in (0..).zip(made_block()) {
        bins[usize::from(byte)] += len / MIB + u64::from(at < len % MIB);
    }
    bins
}

fn print(bins: &[u64], len: u64) {
    let sum: u128 = bins.iter().zip(0u128..).map(|(&count, value)| value * u128::from(count)).sum();
    println!("sum of all bytes: {sum}, mean {:.3}\n", sum as f64 / len.max(1) as f64);
    let most = bins.chunks(16).map(|bins| bins.iter().sum::<u64>()).max().unwrap_or(0).max(1);
    for (index, bins) in bins.chunks(16).enumerate() {
        let count: u64 = bins.iter().sum();
        println!(
            "{:02x}…{:02x} {:<40} {count}",
            index * 16,
            index * 16 + 15,
            "#".repeat((40 * count / most) as usize)
        );
    }
}

/// Returns the rate since `start`, in GB/s.
fn rate(bytes: u64, start: Instant) -> f64 {
    bytes as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9
}

/// Prints the rate from end to end, and the rates of the disk and the bus alone, in GB/s.
fn print_rates(all: f64, disk: f64, bus: f64) {
    let mut table = Table::new(["", "GB/s"]);
    for (what, rate) in [("end to end", all), ("the disk alone", disk), ("the bus alone", bus)] {
        table.row([what.to_owned(), format!("{rate:.2}")]);
    }
    println!("\n{table}");
    println!("end to end is {:.0} % of the slower of disk and bus", 100.0 * all / disk.min(bus).max(1e-9));
}

/// Measures the rate, in GB/s, of a copy from pinned memory to the device.
fn bus(device: &Device) -> Result<f64> {
    let stream = device.stream()?;
    let host = device.pinned::<u8>(64 << 20)?;
    let mut on_device = stream.alloc::<u8>(host.len())?;
    stream.copy(&host, &mut on_device)?;
    let start = stream.record_timed()?;
    stream.copy(&host, &mut on_device)?;
    let time = stream.record_timed()?.elapsed_since(&start)?;
    Ok(host.len() as f64 / time.as_secs_f64().max(1e-9) / 1e9)
}
