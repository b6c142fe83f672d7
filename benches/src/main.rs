//! Measures gpustream, the raw driver, cudarc's safe layer and plain loops, all in one run.
//!
//! You can only compare figures from one run. In every round each contender takes one sample, because then the
//! machine's other work affects all of them alike. The table shows medians and the spread.

mod case;
mod cudarc_safe;
mod host_loop;
mod measure;
mod meetings;
mod mix;
mod ours;
mod pipeline;
mod plain;
mod raw_cuda;
mod report;
mod rounds;
#[cfg(test)]
mod smoke;
mod steps;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use gpustream::Device;

use crate::case::Case;
use crate::measure::{Contender, measure};
use crate::report::{OURS, Report};

/// The kernels of `bench.cu`.
mod kernels {
    gpustream::include_kernels!("bench");
}

/// Measures gpustream against the raw driver, cudarc's safe layer, or a plain loop
#[derive(Parser)]
struct Args {
    /// Device to measure: cpu, gpu, cuda:0, hip:1, … [default: the best of this machine, or `GPUSTREAM_DEVICE`]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Write the results, with every sample, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure only rows with this text in their name
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Use small sizes and few samples, to see whether everything works, not how fast
    #[arg(long)]
    quick: bool,
    /// Samples of each row; slow rows get a third as many
    #[arg(long, default_value_t = 31)]
    rounds: usize,
    /// List the rows that can be measured, and end
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    let device = match &args.device {
        Some(name) => Device::open(name)?,
        None => Device::best()?,
    };
    let info = device.info();
    let is_cpu = info.backend == gpustream::BackendName::CPU;
    let cases = Case::all(is_cpu, info.total_memory, args.quick);
    let wanted = |case: &Case| args.filter.as_ref().is_none_or(|text| case.to_string().contains(text));
    let cases: Vec<Case> = cases.into_iter().filter(wanted).collect();
    if args.list {
        for case in &cases {
            println!("{case}");
        }
        return Ok(ExitCode::SUCCESS);
    }

    let contenders = contenders(&device)?;
    let mut rows = Vec::new();
    println!("{info}, {}", info.driver);
    for case in cases {
        let rounds = match (args.quick, case.is_heavy()) {
            (true, _) => 3,
            (false, true) => args.rounds.div_ceil(3),
            (false, false) => args.rounds,
        };
        eprintln!("measuring {case}");
        let row = measure(case, &contenders, rounds.max(1));
        for (contender, failure) in &row.failures {
            eprintln!("  {contender} failed: {failure}");
        }
        rows.push(row);
    }
    let report = Report {
        device: format!("{info}, {}", info.driver),
        is_cpu,
        contenders: contenders.iter().map(|contender| contender.name()).collect(),
        rows: &rows,
    };
    println!("{}", report.table());
    if let Some(path) = &args.json {
        fs::write(path, report.json()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed = rows.iter().any(|row| row.failures.iter().any(|(name, _)| *name == OURS));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the contenders that we can measure on this device, baselines first.
fn contenders(device: &Device) -> Result<Vec<Box<dyn Contender>>> {
    let mut contenders: Vec<Box<dyn Contender>> = Vec::new();
    match device.info().backend {
        gpustream::BackendName::CUDA => {
            contenders.push(Box::new(raw_cuda::RawCuda::new(device)?));
            contenders.push(Box::new(cudarc_safe::CudarcSafe::new(device.info().ordinal)?));
        }
        gpustream::BackendName::CPU => {
            contenders.push(Box::new(host_loop::HostLoop::new(device.info().multiprocessors as usize)));
        }
        _ => {}
    }
    contenders.push(Box::new(plain::Plain::new(device)?));
    contenders.push(Box::new(ours::Ours::new(device)?));
    Ok(contenders)
}
