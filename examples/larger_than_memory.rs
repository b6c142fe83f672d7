//! The sum and histogram of a file's bytes, whatever its size: threads read pieces into pinned memory while the
//! device works on the ones before. The file's cached pages are dropped first, so that the rate is held against what
//! the disk and the bus allow.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::{DeviceArg, Table, is_cpu};
use gpustream::Device;
use gpustream_kernels::histogram::Kernels;
use indicatif::{ProgressBar, ProgressStyle};

/// Sums and counts the bytes of a file that need not fit the device's memory, nor the host's
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// The file [default: one made for the purpose, and removed afterwards]
    file: Option<PathBuf>,
    /// MiB of the file made when none is given [default: 4096; on the CPU 256]
    #[arg(long)]
    size: Option<u64>,
    /// MiB of a piece
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096))]
    piece: u64,
    /// Threads that read the file
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    readers: u64,
}

const MIB: u64 = 1 << 20;

/// As much of the file as the disk's rate is taken from.
const PROBE: u64 = 1 << 30;

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let size = args.size.unwrap_or(if is_cpu(&device) { 256 } else { 4096 });
    let (file, expected) = match args.file {
        Some(path) => (Source::given(path)?, None),
        None => (Source::made(size * MIB)?, Some(made_histogram(size * MIB))),
    };
    println!("{}\n{} bytes of {}", device.info(), file.len, file.path.display());

    let readers = args.readers as usize;
    let rates = Rates { disk: file.disk(readers)?, bus: bus(&device)? };
    let kernels = Kernels::load(&device)?;
    file.forget()?;
    let start = Instant::now();
    let bins = count(&device, &kernels, &file, (args.piece * MIB) as usize, readers)?;
    let all = rate(file.len, start);

    let total: u64 = bins.iter().sum();
    ensure!(total == file.len, "{total} bytes were counted; did the file change meanwhile?");
    if let Some(expected) = expected {
        ensure!(bins[..] == expected[..], "the histogram is wrong");
    }
    print(&bins, file.len);
    rates.print(all);
    Ok(())
}

/// Counts each byte value, piece by piece.
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

/// A file to read; removed at the end if it was made here.
struct Source {
    path: PathBuf,
    len: u64,
    made: bool,
}

impl Source {
    fn given(path: PathBuf) -> Result<Self> {
        let found = std::fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(found.is_file(), "{} is not a file", path.display());
        Ok(Self { path, len: found.len(), made: false })
    }

    fn made(len: u64) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("larger_than_memory.{}", std::process::id()));
        let source = Self { path, len, made: true };
        let mut file = File::create(&source.path)?;
        let block = made_block();
        let mut left = len;
        while left > 0 {
            let now = left.min(block.len() as u64);
            file.write_all(&block[..now as usize])
                .context("cannot write the file; give one, or a smaller --size")?;
            left -= now;
        }
        Ok(source)
    }

    /// Reads from `at` on, with several threads: one does not reach what a good disk gives.
    fn read(&self, at: u64, bytes: &mut [u8], readers: usize) -> Result<()> {
        let share = bytes.len().div_ceil(readers).max(1);
        in_parallel(bytes.chunks_mut(share).enumerate(), |(index, part)| {
            let mut file = self.open_at(at + (index * share) as u64)?;
            file.read_exact(part).with_context(|| format!("cannot read {}", self.path.display()))
        })
    }

    fn open_at(&self, at: u64) -> Result<File> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(at))?;
        Ok(file)
    }

    /// GB/s of reading the file's beginning and nothing else, each thread a stretch of its own.
    fn disk(&self, readers: usize) -> Result<f64> {
        self.forget()?;
        let len = self.len.min(PROBE);
        let share = len.div_ceil(readers as u64).max(1);
        let start = Instant::now();
        in_parallel((0..len).step_by(share as usize), |at| {
            let stretch = self.open_at(at)?.take(share.min(len - at));
            io::copy(&mut BufReader::with_capacity(MIB as usize, stretch), &mut io::sink())?;
            Ok(())
        })?;
        Ok(rate(len, start))
    }

    /// Has the next read come from the disk, where the file has one: drops its pages from the system's cache.
    fn forget(&self) -> Result<()> {
        let file = File::open(&self.path)?;
        // Only pages that are on the disk already can be dropped.
        file.sync_all()?;
        #[cfg(target_os = "linux")]
        // SAFETY: the descriptor is open; what is cached changes no memory.
        unsafe {
            use std::os::fd::AsRawFd;
            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
        }
        Ok(())
    }
}

/// Runs `work` on each item in a thread of its own.
fn in_parallel<I: Send>(items: impl Iterator<Item = I>, work: impl Fn(I) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => anyhow::bail!("a reading thread panicked"),
        })
    })
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What a file made here repeats.
fn made_block() -> Vec<u8> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Small values are more frequent, so that no two bins are alike.
        (((state >> 24) * (state >> 16 & 0xff)) >> 8) as u8
    };
    (0..MIB).map(next).collect()
}

fn made_histogram(len: u64) -> Vec<u64> {
    let block = made_block();
    let mut bins = vec![0; 256];
    let (whole, rest) = (len / MIB, (len % MIB) as usize);
    for &byte in &block {
        bins[usize::from(byte)] += whole;
    }
    for &byte in &block[..rest] {
        bins[usize::from(byte)] += 1;
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

/// GB/s since `start`.
fn rate(bytes: u64, start: Instant) -> f64 {
    bytes as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9
}

/// What each way allows, in GB/s, with nothing else going on.
struct Rates {
    disk: f64,
    bus: f64,
}

impl Rates {
    fn print(&self, all: f64) {
        let slower = self.disk.min(self.bus);
        let mut table = Table::new(["", "GB/s"]);
        for (what, rate) in
            [("all, end to end", all), ("the disk, alone", self.disk), ("the bus, alone", self.bus)]
        {
            table.row([what.to_owned(), format!("{rate:.2}")]);
        }
        println!("\n{table}");
        println!("end to end is {:.0} % of the slower of disk and bus", 100.0 * all / slower.max(1e-9));
    }
}

/// GB/s of a copy from pinned memory to the device.
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
