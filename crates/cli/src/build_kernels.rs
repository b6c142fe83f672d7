//! `gpustream build-kernels`: compiles kernel files and shows the compilers' results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gpustream_build::{Backend, Built, KernelReport, Kernels, Threads};
use gpustream_timeline_view::text::{Bytes, Table};
use serde_json::json;

use crate::{progress, target};

/// Compile kernels and show registers, spills, scratch, shared memory, size and time of each
#[derive(clap::Args)]
pub struct Args {
    /// Backends to compile for, whatever the environment says: cpu, cuda, hip [default: `GPUSTREAM_BACKENDS`, or cpu]
    #[arg(long, value_delimiter = ',')]
    backend: Vec<String>,
    /// Targets, whatever the environment says: `sm_90`, `gfx942`, `x86-64-v3`, … (each goes to the backend it belongs to)
    #[arg(long, value_delimiter = ',')]
    arch: Vec<String>,
    /// Folder for the results [default: kernels in cargo's target folder]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Also look for headers here
    #[arg(short = 'I', long = "include")]
    includes: Vec<PathBuf>,
    /// Print one JSON array instead of the table
    #[arg(long)]
    json: bool,
    /// Kernel files [default: kernels/*.cu]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, project: &Path) -> anyhow::Result<()> {
    let files = if args.files.is_empty() { own_kernels(project)? } else { args.files.clone() };
    let target =
        || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), PathBuf::from);
    let out = args.out.clone().unwrap_or_else(|| target().join("kernels"));
    let named = !args.backend.is_empty();
    let mut kernels = Kernels::new().allow_stacks().files(files).out_dir(out).rebuild(true);
    // The environment replaces the default, but nothing that you asked for here.
    kernels = kernels.environment_overrides(!named && args.arch.is_empty());
    let mut backends = Vec::new();
    let default = ["cpu".to_owned()];
    for name in if named { &args.backend[..] } else { &default[..] } {
        let backend: Backend = name.parse()?;
        kernels = kernels.backend(backend);
        backends.push(backend);
    }
    for folder in &args.includes {
        kernels = kernels.include(folder);
    }
    for arch in &args.arch {
        let (backend, with_arch) = target::add(kernels, arch);
        if !backends.contains(&backend) {
            bail!(
                "{arch} is a target of the {backend} backend, which was not asked for: add it to --backend"
            );
        }
        kernels = with_arch;
    }

    let progress = progress::bar(0, "{bar:30} {pos}/{len} {msg}");
    let bar = progress.clone();
    let built = kernels
        .progress(move |done, total, label| {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(label.to_owned());
        })
        .build();
    progress.finish_and_clear();
    let built = built?;
    if args.json {
        println!("{:#}", json(&built));
    } else {
        print!("{}", text(&built));
    }
    Ok(())
}

fn own_kernels(project: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = project.join("kernels");
    let entries = folder.read_dir().with_context(|| {
        format!("no kernel file was named, and the folder {} cannot be read", folder.display())
    })?;
    let mut files: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "cu"))
        .collect();
    files.sort();
    if files.is_empty() {
        bail!("no kernel file was named, and the folder {} has none that ends with .cu", folder.display());
    }
    // We show paths below the current folder relative to it.
    let here = std::env::current_dir()?;
    Ok(files.into_iter().map(|f| f.strip_prefix(&here).map(PathBuf::from).unwrap_or(f)).collect())
}

fn text(built: &Built) -> String {
    let titles =
        "kernel backend arch regs sgprs spills scratch shared wave block occupancy threads code image time";
    let mut table = Table::new(titles.split(' '));
    for kernel in built.files.iter().flat_map(|file| &file.kernels) {
        table.row(cells(kernel));
    }
    let mut files = Table::new(["file", "kernels", "time"]);
    for file in &built.files {
        let mut names: Vec<_> = file.kernels.iter().map(|k| &k.kernel).collect();
        names.sort();
        names.dedup();
        files.row([file.path.display().to_string(), names.len().to_string(), seconds(file.compile_time)]);
    }
    let reasons = match reasons(built) {
        none if none.is_empty() => none,
        reasons => format!("\n{reasons}\n"),
    };
    format!("{table}\n{reasons}\n{files}\n")
}

fn cells(kernel: &KernelReport) -> Vec<String> {
    let number = |value: Option<u32>| value.map(|v| v.to_string()).unwrap_or_default();
    let occupancy = kernel.occupancy.map(|occupancy| match occupancy.limited_by {
        "none" => format!("{} %", occupancy.percent),
        what => format!("{} % ({what})", occupancy.percent),
    });
    vec![
        kernel.kernel.clone(),
        kernel.backend.to_owned(),
        kernel.target.clone(),
        number(kernel.registers),
        number(kernel.scalar_registers),
        number(kernel.spills),
        number(kernel.scratch),
        number(kernel.shared),
        number(kernel.wave_size),
        number(kernel.max_threads),
        occupancy.unwrap_or_default(),
        kernel.threads.as_ref().map(threads).unwrap_or_default(),
        kernel.code_size.map(|size| Bytes(size).to_string()).unwrap_or_default(),
        Bytes(kernel.image_size).to_string(),
        kernel.compile_time.map(seconds).unwrap_or_default(),
    ]
}

fn threads(threads: &Threads) -> String {
    match threads {
        Threads::Alone => "alone".to_owned(),
        Threads::Loops => "loops".to_owned(),
        Threads::Fibers { line, .. } => format!("fibers (line {line})"),
        _ => String::new(),
    }
}

/// Returns why kernels run slower than as loops, each reason once.
fn reasons(built: &Built) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for kernel in built.files.iter().flat_map(|file| &file.kernels) {
        if let Some(Threads::Fibers { line, reason }) = &kernel.threads {
            let (file, name) = (kernel.file.display(), &kernel.kernel);
            let reason = format!(
                "{file}:{line}: on the CPU, each thread of `{name}` has a stack of its own: {reason}"
            );
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
    }
    reasons.join("\n")
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn json(built: &Built) -> serde_json::Value {
    let rows = built.files.iter().flat_map(|file| &file.kernels).map(|kernel| {
        json!({
            "file": kernel.file.display().to_string(),
            "kernel": kernel.kernel,
            "backend": kernel.backend,
            "arch": kernel.target,
            "registers": kernel.registers,
            "scalar_registers": kernel.scalar_registers,
            "spills": kernel.spills,
            "scratch_bytes": kernel.scratch,
            "shared_bytes": kernel.shared,
            "wave_size": kernel.wave_size,
            "max_threads_per_block": kernel.max_threads,
            "occupancy_percent": kernel.occupancy.map(|o| o.percent),
            "occupancy_limited_by": kernel.occupancy.map(|o| o.limited_by),
            "threads": kernel.threads.as_ref().map(threads),
            "stacks_because": match &kernel.threads {
                Some(Threads::Fibers { reason, .. }) => Some(reason),
                _ => None,
            },
            "code_bytes": kernel.code_size,
            "image_bytes": kernel.image_size,
            "compile_seconds": kernel.compile_time.map(|t| t.as_secs_f64()),
        })
    });
    rows.collect()
}
