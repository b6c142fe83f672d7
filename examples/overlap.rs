//! How copies overlap kernels and each other: the same work, ordered in four ways.
//!
//! Two arrays go to the device, `a += 1` and `b += a + 3` run there, and both arrays come back. We repeat that fifty times
//! (twenty on the CPU), and each round works on the results of the last one. The bus can carry both directions at once, so
//! you can save nearly half of the time.
//!
//! ```console
//! $ cargo run --release --example overlap
//! $ cargo run --release --example overlap -- --picture overlap.svg   # also draw two rounds of each way
//! ```
//!
//! It prints, for each way, its time, its speed-up over the first, and how much of the work ran at the same time as other
//! work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use examples::overlap::Kernels;
use examples::{DeviceArg, Table, is_cpu};
use gpustream::{Buffer, Device, Pinned, Pipeline, Stream, Timeline};
use gpustream_timeline_view::{Picture, Report};

/// Overlaps copies and kernels in four ways, and prints how much time each saves
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    device: DeviceArg,
    /// Elements of each of the two arrays of f64 [default: 33554432; on the CPU 4194304]
    #[arg(long, value_parser = examples::size())]
    size: Option<usize>,
    /// How often the arrays go to the device and back [default: 50; on the CPU 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Pieces into which the last way cuts the arrays
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    pieces: u32,
    /// Draw two rounds of each way into this file (.svg or .html), and compare each way with its trace
    #[arg(long)]
    picture: Option<PathBuf>,
}

/// The ways to order the work.
#[derive(Clone, Copy)]
enum Way {
    Sequential,
    TwoStreams,
    WithEvents,
    InPieces,
}

impl Way {
    const ALL: [Self; 4] = [Self::Sequential, Self::TwoStreams, Self::WithEvents, Self::InPieces];

    fn name(self, pieces: usize) -> String {
        match self {
            Self::Sequential => "sequential".to_owned(),
            Self::TwoStreams => "two streams".to_owned(),
            Self::WithEvents => "two streams with events".to_owned(),
            Self::InPieces => format!("{pieces} pieces over two streams"),
        }
    }
}

/// What all four ways work with.
struct Work {
    kernels: Kernels,
    size: usize,
    rounds: usize,
    host_a: Pinned<f64>,
    host_b: Pinned<f64>,
    a: Buffer<f64>,
    b: Buffer<f64>,
    streams: [Stream; 2],
    pipeline: Pipeline<'static>,
    alone: Alone,
}

/// How long the operations take if nothing else runs, on the device's clock.
#[derive(Default)]
struct Alone {
    to_device: Duration,
    kernels: Duration,
    to_host: Duration,
}

impl Alone {
    fn total(&self) -> Duration {
        self.to_device + self.kernels + self.to_host
    }

    /// Returns how much of all the work, in percent, must have run at the same time as other work if the run took `time`.
    fn overlapped(&self, time: Duration) -> f64 {
        100.0 * (1.0 - time.as_secs_f64() / self.total().as_secs_f64()).max(0.0)
    }
}

fn main() -> ExitCode {
    examples::main(run)
}

fn run() -> Result<()> {
    let args = Args::parse();
    let device = args.device.open()?;
    let size = args.size.unwrap_or(if is_cpu(&device) { 1 << 22 } else { 1 << 25 });
    let rounds = args.rounds.unwrap_or(if is_cpu(&device) { 20 } else { 50 }) as usize;
    let pieces = (args.pieces as usize).min(size);
    let mut work = Work::new(&device, size, rounds, pieces)?;

    println!("{}", device.info());
    println!(
        "two arrays of {size} f64 ({:.0} MiB each), {rounds} rounds",
        size as f64 * 8.0 / f64::from(1 << 20)
    );

    // The first rounds take longer, because of page faults and the first use of everything.
    work.fill()?;
    work.sequential(1)?;
    work.in_pieces(1)?;
    work.alone = Alone::default();

    let times: Vec<_> = Way::ALL.into_iter().map(|way| work.run(way)).collect::<Result<_>>()?;
    let alone = std::mem::take(&mut work.alone);

    println!(
        "alone: {:.3} s of copies to the device, {:.3} s of kernels, {:.3} s of copies back\n",
        alone.to_device.as_secs_f64(),
        alone.kernels.as_secs_f64(),
        alone.to_host.as_secs_f64()
    );
    let bytes = 4.0 * (size * size_of::<f64>()) as f64 * rounds as f64;
    let mut table = Table::new(["way", "time, s", "speed-up", "overlapped", "copied, GB/s"]);
    for (way, time) in Way::ALL.into_iter().zip(&times) {
        table.row([
            way.name(pieces),
            format!("{:.3}", time.as_secs_f64()),
            format!("{:.2}", times[0].as_secs_f64() / time.as_secs_f64()),
            format!("{:.0} %", alone.overlapped(*time)),
            format!("{:.1}", bytes / time.as_secs_f64() / 1e9),
        ]);
    }
    println!("{table}\n\nall results are right");
    if let Some(file) = &args.picture {
        compare(&device, &mut work, pieces, &times, &alone)?;
        draw(&device, &mut work, pieces, file)?;
    }
    Ok(())
}

/// Traces each way. Prints what tracing costs, and compares three figures for the overlap: one from the times without a
/// trace, and two from the trace. The first of these two takes the operations' times from the first way, in which nothing
/// overlaps, and the second takes them from this way.
fn compare(device: &Device, work: &mut Work, pieces: usize, times: &[Duration], alone: &Alone) -> Result<()> {
    let mut table = Table::new([
        "way",
        "time, s",
        "traced, s",
        "more",
        "overlapped",
        "in the trace",
        "by this run's times",
    ]);
    let mut first = None;
    for (way, untraced) in Way::ALL.into_iter().zip(times) {
        let (time, timeline) = work.traced(device, way)?;
        let report = Report::of(&timeline).devices.into_iter().next().context("the trace has no device")?;
        let first = first.get_or_insert_with(|| report.clone());
        table.row([
            way.name(pieces),
            format!("{:.3}", untraced.as_secs_f64()),
            format!("{:.3}", time.as_secs_f64()),
            format!("{:.1} %", 100.0 * (time.as_secs_f64() / untraced.as_secs_f64() - 1.0)),
            format!("{:.1} %", alone.overlapped(*untraced)),
            format!("{:.1} %", 100.0 * report.hidden_of(first).share()),
            format!("{:.1} %", 100.0 * report.hidden.share()),
        ]);
    }
    println!("\n{table}");
    Ok(())
}

/// Draws two rounds of each way.
fn draw(device: &Device, work: &mut Work, pieces: usize, file: &Path) -> Result<()> {
    work.rounds = 2;
    let mut parts: Vec<(String, Timeline)> = Vec::new();
    for way in Way::ALL {
        parts.push((way.name(pieces), work.traced(device, way)?.1));
    }
    let parts: Vec<_> = parts.iter().map(|(name, timeline)| (name.as_str(), timeline)).collect();
    let picture = Picture::of(&parts).threads(false).counters(false).width(800);
    let is_page = file.extension().is_some_and(|extension| extension == "html");
    fs::write(file, if is_page { picture.html() } else { picture.svg() })?;
    println!("\ndrew the four ways in {}", file.display());
    Ok(())
}

impl Work {
    fn new(device: &Device, size: usize, rounds: usize, pieces: usize) -> Result<Self> {
        let streams = [device.stream()?, device.stream()?];
        Ok(Self {
            kernels: Kernels::load(device)?,
            size,
            rounds,
            host_a: device.pinned(size)?,
            host_b: device.pinned(size)?,
            a: streams[0].alloc(size)?,
            b: streams[1].alloc(size)?,
            streams,
            pipeline: device.pipeline().chunks(size.div_ceil(pieces)),
            alone: Alone::default(),
        })
    }

    /// Runs one way on fresh arrays, checks the results, and returns the time from the first call to the last result.
    fn run(&mut self, way: Way) -> Result<Duration> {
        self.fill()?;
        let start = Instant::now();
        match way {
            Way::Sequential => self.sequential(self.rounds),
            Way::TwoStreams => self.two_streams(),
            Way::WithEvents => self.with_events(),
            Way::InPieces => self.in_pieces(self.rounds),
        }?;
        self.pipeline.streams()?.chain(&self.streams).try_for_each(Stream::synchronize)?;
        let time = start.elapsed();
        self.check(&way.name(0))?;
        Ok(time)
    }

    /// Runs one way in a trace.
    fn traced(&mut self, device: &Device, way: Way) -> Result<(Duration, Timeline)> {
        let trace = device.trace()?;
        let time = self.run(way)?;
        Ok((time, trace.stop()?))
    }

    /// Lets nothing overlap: the host waits after each operation.
    fn sequential(&mut self, rounds: usize) -> gpustream::Result<()> {
        let Self { kernels, size, host_a, host_b, a, b, streams: [s, _], alone, .. } = self;
        for _ in 0..rounds {
            timed(s, &mut alone.to_device, || s.copy(host_a, a))?;
            timed(s, &mut alone.kernels, || kernels.add_one(s, a, *size))?;
            timed(s, &mut alone.to_device, || s.copy(host_b, b))?;
            timed(s, &mut alone.kernels, || kernels.add_sum(s, a, b, *size))?;
            timed(s, &mut alone.to_host, || s.copy(a, host_a))?;
            timed(s, &mut alone.to_host, || s.copy(b, host_b))?;
        }
        Ok(())
    }

    /// Gives each array its own stream. The code does not say that the second kernel needs the first one's result, or that
    /// the next round must not overwrite `a` while the kernel still reads it. The library notices both and adds the waits.
    fn two_streams(&mut self) -> gpustream::Result<()> {
        let Self { kernels, size, host_a, host_b, a, b, streams: [s, t], .. } = self;
        for _ in 0..self.rounds {
            s.copy(host_a, a)?;
            kernels.add_one(s, a, *size)?;
            t.copy(host_b, b)?;
            kernels.add_sum(t, a, b, *size)?;
            s.copy(a, host_a)?;
            t.copy(b, host_b)?;
        }
        Ok(())
    }

    /// Same streams, but we order the work ourselves with events, so the library adds no wait.
    fn with_events(&mut self) -> gpustream::Result<()> {
        let Self { kernels, size, host_a, host_b, a, b, streams: [s, t], .. } = self;
        for _ in 0..self.rounds {
            s.copy(host_a, a)?;
            kernels.add_one(s, a, *size)?;
            let a_is_ready = s.record()?;
            t.copy(host_b, b)?;
            t.wait(&a_is_ready)?;
            kernels.add_sum(t, a, b, *size)?;
            let a_was_read = t.record()?;
            s.copy(a, host_a)?;
            t.copy(b, host_b)?;
            s.wait(&a_was_read)?;
        }
        Ok(())
    }

    /// Cuts both arrays into pieces that take turns on two streams. One stream copies to the device while the other copies
    /// back, and no piece ever waits for another.
    fn in_pieces(&mut self, rounds: usize) -> gpustream::Result<()> {
        let Self { kernels, host_a, host_b, pipeline, .. } = self;
        for _ in 0..rounds {
            pipeline.in_place([host_a, host_b], |stream, [a, b]| {
                let size = a.len();
                kernels.add_one(stream, a, size)?;
                kernels.add_sum(stream, a, b, size)
            })?;
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<()> {
        for (i, a) in self.host_a.write()?.iter_mut().enumerate() {
            *a = first_a(i);
        }
        self.host_b.write()?.fill(0.0);
        Ok(())
    }

    /// Checks the results: after r rounds, `a` is r more than at first, and `b` has gained a + 3 in every round. All values
    /// are exact.
    fn check(&self, way: &str) -> Result<()> {
        let r = self.rounds as f64;
        let (a, b) = (self.host_a.read()?, self.host_b.read()?);
        let wrong = a.iter().zip(b.iter()).enumerate().position(|(i, (&a, &b))| {
            let first = first_a(i);
            a != first + r || b != r * (first + 3.0) + r * (r + 1.0) / 2.0
        });
        ensure!(wrong.is_none(), "{way}: wrong result at element {}", wrong.unwrap_or_default());
        Ok(())
    }
}

fn first_a(i: usize) -> f64 {
    (i % 1000) as f64
}

/// Runs one operation, waits for it, and adds its time on the device to `total`.
fn timed(
    stream: &Stream,
    total: &mut Duration,
    operation: impl FnOnce() -> gpustream::Result<()>,
) -> gpustream::Result<()> {
    let start = stream.record_timed()?;
    operation()?;
    let end = stream.record_timed()?;
    end.as_event().synchronize()?;
    *total += end.elapsed_since(&start)?;
    Ok(())
}
