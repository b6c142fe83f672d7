//! `gpustream port-report`: shows which CUDA and HIP files in a folder go through `gpustream-build` unchanged.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, bail};
use gpustream_build::{Backend, Error, Kernels};
use gpustream_timeline_view::text::Table;

use crate::{progress, target};

/// Show which kernel files of a folder can be used as they are, and what stops the others
#[derive(clap::Args)]
pub struct Args {
    /// Folder with .cu and .hip files, at any depth
    folder: PathBuf,
    /// Backends to compile for: cpu, cuda, hip, or none to read the files alone [default: cpu]
    #[arg(long, value_delimiter = ',', default_value = "cpu", hide_default_value = true)]
    backend: Vec<String>,
    /// Targets, such as `sm_90` or `gfx942` (each goes to the backend it belongs to) [default: those of a build]
    #[arg(long, value_delimiter = ',')]
    arch: Vec<String>,
    /// Also look for headers here
    #[arg(short = 'I', long = "include")]
    includes: Vec<PathBuf>,
    /// Leave out the line of each file
    #[arg(long)]
    summary: bool,
}

/// We compile for only one instruction level, because a file that compiles for one compiles for all.
const LEVEL: &str = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86-64-v3" };

/// The outcome of one file.
struct Outcome {
    path: PathBuf,
    /// The step that the file did not get through; `None` if it got through all.
    stopped: Option<Stop>,
    bound: Bound,
    /// Whether the file compiles, for each backend; `None` if we cannot bind it there.
    compiled: Vec<Option<bool>>,
}

impl Outcome {
    /// Returns true if the file or a header of it has a kernel.
    fn has_kernels(&self) -> bool {
        self.stopped.as_ref().is_none_or(|stop| stop.message != "no kernel in this file")
    }
}

/// How programs reach the file's kernels, on the backend where that is best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    No,
    /// We can make no launchers, but `Kernels::by_name` compiles the file.
    ByName,
    /// By launchers.
    Yes,
}

/// The file's first obstacle. More may follow it, because a compiler stops early.
struct Stop {
    /// The line, and mostly the column. If the obstacle is in a header, its path comes first. Empty for a whole file.
    place: String,
    message: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let backends = match &*args.backend {
        [none] if none == "none" => Vec::new(),
        names => names.iter().map(|name| name.parse()).collect::<Result<Vec<Backend>, _>>()?,
    };
    let mut files = Vec::new();
    find(&args.folder, &mut files)?;
    let none = || format!("no file in {} that ends with .cu or .hip has a kernel", args.folder.display());
    if files.is_empty() {
        bail!(none());
    }
    files.sort();
    // If two reports run at once, each has its own folder. It must be new, because others may write there too.
    let out = std::env::temp_dir().join(format!("gpustream-port-report-{}", std::process::id()));
    fs::create_dir(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let mut outcomes = examine(&files, &out, &backends, args);
    // This may fail, and would cost only space.
    let _ = fs::remove_dir_all(&out);
    outcomes.retain(Outcome::has_kernels);
    if outcomes.is_empty() {
        bail!(none());
    }
    let others = files.len() - outcomes.len();
    print!("{}", report(args, &backends, &outcomes));
    println!("{others} files without a kernel were left out");
    Ok(())
}

/// Collects the files that may have kernels, perhaps in their headers.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        // We do not follow links, because they can lead back up.
        if entry.file_type()?.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "cu" || extension == "hip") {
            files.push(path);
        }
    }
    Ok(())
}

/// Puts each file through the build, several at once.
fn examine(files: &[PathBuf], out: &Path, backends: &[Backend], args: &Args) -> Vec<Outcome> {
    let (next, progress) = (AtomicUsize::new(0), progress::bar(files.len(), "{bar:30} {pos}/{len} {eta}"));
    let outcomes = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(index) else { return };
            let outcome = outcome(path, &out.join(index.to_string()), backends, args);
            let mut outcomes = outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            outcomes.insert(index, outcome);
            progress.inc(1);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    progress.finish_and_clear();
    outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_values().collect()
}

/// Reads one file. If we can bind it, compiles it for each backend.
fn outcome(path: &Path, out: &Path, backends: &[Backend], args: &Args) -> Outcome {
    let kernels = || {
        let kernels =
            Kernels::new().file(path).out_dir(out).jobs(1).environment_overrides(false).allow_stacks();
        let kernels = args.includes.iter().fold(kernels, Kernels::include);
        args.arch.iter().fold(kernels, |kernels, arch| target::add(kernels, arch).1)
    };
    let (mut refused, mut failed) = (None, None);
    let (mut bound, mut compiled) = (Bound::No, Vec::new());
    let note = |first: &mut Option<Stop>, error: Error| {
        first.get_or_insert_with(|| Stop::of(path, &error));
    };
    // What a file declares may depend on the compiler that reads it, so each backend has its own attempt.
    for &backend in backends {
        let kernels = || kernels().backend(backend).cpu_level(LEVEL);
        let mut here = Bound::No;
        for (way, kernels) in [(Bound::Yes, kernels()), (Bound::ByName, kernels().by_name())] {
            match kernels.check() {
                Ok(()) => here = way,
                Err(error) => note(&mut refused, error),
            }
            if here != Bound::No {
                let built = kernels.build();
                compiled.push(Some(built.is_ok()));
                built.map_or_else(|error| note(&mut failed, error), drop);
                break;
            }
        }
        if here == Bound::No {
            compiled.push(None);
        }
        bound = bound.max(here);
    }
    if backends.is_empty() {
        match kernels().check() {
            Ok(()) => bound = Bound::Yes,
            Err(error) => note(&mut refused, error),
        }
    }
    let _ = fs::remove_dir_all(out);
    // Why we can make no launchers matters less than why a file does not compile.
    Outcome { path: path.to_owned(), stopped: failed.or(refused), bound, compiled }
}

impl Bound {
    fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::ByName => "by name",
            Self::Yes => "yes",
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.place {
            "" => f.write_str(&self.message),
            place => write!(f, "at {place}: {}", self.message),
        }
    }
}

impl Stop {
    /// Returns whether the file needs `Kernels::instantiate`: nothing is wrong with it, but it does not say which instances of
    /// its templates you want.
    fn is_a_choice(&self) -> bool {
        self.message.ends_with("is a template that nothing instantiates, so it has no launcher")
    }

    fn of(path: &Path, error: &Error) -> Self {
        if let Some(first) = error.diagnostics().first() {
            return Self {
                place: format!("{}:{}", first.line, first.column),
                message: first.message.clone(),
            };
        }
        // A compiler's words: `file:line:column: error: …`, or nvcc's `file(line): error: …`.
        let text = error.to_string();
        let lines = || text.lines().map(str::trim);
        let line = lines().find(|line| line.contains("error")).or_else(|| lines().next()).unwrap_or_default();
        let Some((place, message)) = line.split_once("error: ") else {
            return Self { place: String::new(), message: line.to_owned() };
        };
        let place = place.trim_end_matches([' ', ':']);
        let file = path.display().to_string();
        let inside = place.split_once(&*file).map_or(place, |(_, place)| place.trim_matches([':', '(', ')']));
        Self { place: inside.to_owned(), message: message.to_owned() }
    }
}

fn report(args: &Args, backends: &[Backend], outcomes: &[Outcome]) -> String {
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let names = backends.iter().map(|backend| backend.name());
    let mut table = Table::new(["file", "bound"].into_iter().chain(names).chain(["first obstacle"]));
    let mut obstacles: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in outcomes {
        let Outcome { path, stopped, bound, compiled } = outcome;
        let shown = path.strip_prefix(&args.folder).unwrap_or(path).display().to_string();
        let mut cells = vec![shown, bound.name().to_owned()];
        cells.extend(
            (0..backends.len())
                .map(|at| compiled.get(at).copied().flatten().map_or(String::new(), yes_or_no)),
        );
        cells.push(stopped.as_ref().map_or(String::new(), Stop::to_string));
        table.row(cells);
        if let Some(stop) = stopped {
            *obstacles.entry(kind(&stop.message)).or_default() += 1;
        }
    }
    let mut sums = Table::new(["", "files", "part"]);
    let mut sum = |what: String, count: usize| {
        let part = format!("{:.0} %", 100.0 * count as f64 / outcomes.len() as f64);
        sums.row([what, count.to_string(), part]);
    };
    sum("with kernels".to_owned(), outcomes.len());
    sum("bound".to_owned(), outcomes.iter().filter(|outcome| outcome.bound == Bound::Yes).count());
    sum(
        "without launchers, by name".to_owned(),
        outcomes.iter().filter(|outcome| outcome.bound == Bound::ByName).count(),
    );
    let waits = |outcome: &&Outcome| outcome.stopped.as_ref().is_some_and(Stop::is_a_choice);
    sum("bound once build.rs instantiates".to_owned(), outcomes.iter().filter(waits).count());
    for (at, backend) in backends.iter().enumerate() {
        let compiles = |outcome: &&Outcome| outcome.compiled.get(at) == Some(&Some(true));
        sum(format!("compile for {}", backend.name()), outcomes.iter().filter(compiles).count());
    }
    let mut often: Vec<_> = obstacles.into_iter().collect();
    often.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut reasons = Table::new(["first obstacle", "files"]);
    for (message, count) in often.into_iter().take(25) {
        reasons.row([message, count.to_string()]);
    }
    let files = if args.summary { String::new() } else { format!("{table}\n\n") };
    format!("{files}{reasons}\n\n{sums}\n")
}

/// Returns a message without its names, so that we can count messages of one kind.
fn kind(message: &str) -> String {
    let quoted = |text: &str, quote: char| {
        let parts = text.split(quote).enumerate();
        parts
            .map(|(at, part)| if at % 2 == 0 { part } else { "…" })
            .collect::<Vec<_>>()
            .join(&quote.to_string())
    };
    quoted(&quoted(message, '`'), '"')
}
