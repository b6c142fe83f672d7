//! Does everything at once for a long time, and watches whether the process grows.
//!
//! Threads share a device and do random actions (`actions`), and each action checks its result. Meanwhile the main
//! thread samples what the process holds (`sample`). At the end it compares the second half of the run with the first
//! (`trend`). It writes the samples to `soak.csv` and their picture to `soak.svg`, and exits with 1 if something grew
//! or went wrong.

mod actions;
mod chart;
mod sample;
mod trend;

use std::fs::{self, File};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::Parser;
use gpustream_timeline_view::text::Table;

use crate::actions::{ACTIONS, CHILD, Fault, Shared, Worker};
use crate::chart::{Line, draw};
use crate::sample::{SERIES, Series, Values};
use crate::trend::Trend;

mod kernels {
    gpustream::include_kernels!("soak");
}

/// Does everything at once for a long time, and watches whether the process grows
#[derive(Parser)]
struct Args {
    /// Device to run on: cpu, cuda:0, hip:1, …
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    device: String,
    /// Minutes to run
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Threads that use the device
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Milliseconds that a thread rests after each action
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Do only actions with this text in their names, to find which of them makes the process grow
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Folder for soak.csv and soak.svg
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
    /// Fail in this way, as a child of such a run
    #[arg(long, hide = true)]
    fault: Option<Fault>,
}

/// The most samples that a run takes, at equal intervals. `trend` looks at each pair of them, so the work grows with
/// the square.
const SAMPLES: f64 = 1200.0;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.fault {
        Some(fault) => actions::fault(&args.device, fault),
        None => run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// If an action takes longer than this, it hangs.
const HANG: Duration = CHILD.saturating_mul(2);

/// What all threads report.
#[derive(Default)]
struct Progress {
    ends: AtomicBool,
    done: [AtomicU64; ACTIONS.len()],
    lacking: [AtomicBool; ACTIONS.len()],
    /// What each thread is doing, and since when; `None` once it has ended.
    now: Vec<Mutex<Option<(usize, Instant)>>>,
    failure: Mutex<Option<anyhow::Error>>,
}

impl Progress {
    /// Aborts the process if a thread hangs, because nothing else would end it. You can then look at the threads in a
    /// debugger.
    fn check(&self) {
        for (id, now) in self.now.iter().enumerate() {
            if let Some((action, since)) = *lock(now)
                && since.elapsed() > HANG
            {
                eprintln!("\nsoak: thread {id} hangs in `{}`", ACTIONS[action].name);
                std::process::abort();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(args: &Args) -> Result<()> {
    ensure!(args.minutes > 0.0 && args.threads > 0, "--minutes and --threads must be more than zero");
    fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let among: Vec<_> =
        (0..ACTIONS.len()).filter(|&number| ACTIONS[number].name.contains(&args.only)).collect();
    ensure!(!among.is_empty(), "no action has `{}` in its name", args.only);
    let mut csv = csv(&args.out.join("soak.csv"))?;
    let shared = Shared::new(&args.device)?;
    let title = format!("{}, {} threads", shared.device.info(), args.threads);
    println!("{title}");
    let now = (0..args.threads).map(|_| Mutex::new(Some((0, Instant::now())))).collect();
    let progress = Progress { now, ..Progress::default() };
    let samples = thread::scope(|scope| {
        for id in 0..args.threads {
            let (shared, progress, among) = (&shared, &progress, &among);
            scope.spawn(move || {
                let outcome = work(shared, id, among, Duration::from_millis(args.pause), progress);
                *lock(&progress.now[id as usize]) = None;
                if let Err(error) = outcome {
                    progress.ends.store(true, Ordering::Relaxed);
                    lock(&progress.failure).get_or_insert(error.context(format!("thread {id}")));
                }
            });
        }
        let samples = watch(args.minutes, &shared, &progress, &mut csv);
        progress.ends.store(true, Ordering::Relaxed);
        while progress.now.iter().any(|now| lock(now).is_some()) {
            progress.check();
            thread::sleep(Duration::from_millis(100));
        }
        samples
    })?;
    if let Some(failure) = lock(&progress.failure).take() {
        return Err(failure);
    }

    let mut table = Table::new(["action", "times"]);
    for (number, action) in ACTIONS.iter().enumerate() {
        let times = progress.done[number].load(Ordering::Relaxed);
        let lacks = progress.lacking[number].load(Ordering::Relaxed);
        table.row([
            action.name.to_owned(),
            if lacks { "not on this device".to_owned() } else { times.to_string() },
        ]);
    }
    println!("{table}\n");
    judge(&title, &args.out.join("soak.svg"), &samples)
}

/// Does actions until the run ends.
fn work(shared: &Shared, id: u32, among: &[usize], pause: Duration, progress: &Progress) -> Result<()> {
    let mut worker = Worker::new(shared, id)?;
    while !progress.ends.load(Ordering::Relaxed) {
        let number = worker.choose(among);
        *lock(&progress.now[id as usize]) = Some((number, Instant::now()));
        let is_there = worker.act(number)?;
        progress.done[number].fetch_add(1, Ordering::Relaxed);
        if !is_there {
            progress.lacking[number].store(true, Ordering::Relaxed);
        }
        thread::sleep(pause);
    }
    Ok(())
}

/// A sample, with the seconds since the start and the actions so far.
struct Sample {
    at: f64,
    actions: u64,
    values: Values,
}

/// Samples what the process holds until the run ends. Each sample goes to the file at once, so you have them even if
/// the process dies.
fn watch(minutes: f64, shared: &Shared, progress: &Progress, csv: &mut File) -> Result<Vec<Sample>> {
    let (start, seconds) = (Instant::now(), minutes * 60.0);
    let step = Duration::from_secs_f64((seconds / SAMPLES).max(0.1));
    let on_terminal = std::io::stderr().is_terminal();
    // We reserve the whole list now. If it grew, it would look like a leak.
    let mut samples = Vec::with_capacity(SAMPLES as usize + 1);
    while start.elapsed().as_secs_f64() < seconds && !progress.ends.load(Ordering::Relaxed) {
        thread::sleep(step);
        let actions = progress.done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
        let sample =
            Sample { at: start.elapsed().as_secs_f64(), actions, values: sample::read(&shared.device) };
        if on_terminal {
            let [resident, _, _, descriptors, threads, used, ..] =
                sample.values.map(|value| value.unwrap_or(0.0));
            eprint!(
                "\r{:.1} of {minutes} min, {actions} actions, {resident:.0} MiB resident, {descriptors} descriptors, \
                 {threads} threads, {used:.0} MiB of the device \x1b[K",
                sample.at / 60.0
            );
            let _ = std::io::stderr().flush();
        }
        sample.write(csv)?;
        samples.push(sample);
        progress.check();
    }
    if on_terminal {
        eprintln!();
    }
    Ok(samples)
}

/// Makes the file of samples, and writes the names of its columns.
fn csv(path: &Path) -> Result<File> {
    let mut file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    write!(file, "seconds,actions")?;
    for Series { name, unit, .. } in &SERIES {
        write!(file, ",{}", format!("{} {unit}", name.replace(',', "")).trim())?;
    }
    writeln!(file)?;
    Ok(file)
}

impl Sample {
    fn write(&self, csv: &mut File) -> Result<()> {
        let values = self.values.map(|value| value.map_or_else(String::new, |value| format!("{value:.3}")));
        writeln!(csv, "{:.1},{},{}", self.at, self.actions, values.join(","))?;
        Ok(())
    }
}

/// Compares the second half with the first, prints the figures, and draws the picture.
fn judge(title: &str, picture: &Path, samples: &[Sample]) -> Result<()> {
    let values: Vec<Vec<f64>> =
        (0..SERIES.len()).map(|i| samples.iter().filter_map(|sample| sample.values[i]).collect()).collect();
    let trends: Vec<_> =
        SERIES.iter().zip(&values).map(|(series, values)| Trend::of(values, series.floor)).collect();
    let mut table =
        Table::new(["quantity", "first half", "second half", "growth in the second half", "limit", ""]);
    let (mut lines, mut grown) = (Vec::new(), Vec::new());
    for ((series, values), trend) in SERIES.iter().zip(&values).zip(&trends) {
        if values.is_empty() {
            continue;
        }
        lines.push(Line { series, values, trend });
        if trend.grows() {
            grown.push(series.name);
        }
        table.row([
            format!("{} {}", series.name, series.unit).trim().to_owned(),
            format!("{:.2}", trend.halves[0]),
            format!("{:.2}", trend.halves[1]),
            format!("{:+.2}", trend.growth),
            format!("{:.2}", trend.limit),
            if trend.grows() { "GROWS" } else { "flat" }.to_owned(),
        ]);
    }
    let minutes = samples.last().map_or(0.0, |sample| sample.at / 60.0);
    let actions = samples.last().map_or(0, |sample| sample.actions);
    fs::write(picture, draw(&format!("{title}: {actions} actions in {minutes:.1} minutes"), minutes, &lines))
        .with_context(|| format!("cannot write {}", picture.display()))?;
    println!(
        "medians of both halves, and the growth by the median slope (Theil and Sen) of the second:\n{table}\n"
    );
    println!("{actions} actions in {minutes:.1} minutes; {}", picture.display());
    if grown.is_empty() { Ok(()) } else { Err(anyhow!("grows: {}", grown.join(", "))) }
}
