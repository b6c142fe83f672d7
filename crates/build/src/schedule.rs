//! Running compilers side by side.

use std::collections::BTreeSet;
use std::env;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::backend::Backend;
use crate::compile::{Common, Output, cpu, cuda, hip};
use crate::diagnostic::{Error, Result};
use crate::plan::Plan;
use crate::unit::Unit;

/// A function that is called with the numbers of compilations done and in all, and the name of the last one.
pub(crate) type Progress = Box<dyn Fn(usize, usize, &str) + Send + Sync>;

/// One run of a compiler.
struct Job<'a> {
    /// The file's place among the units.
    unit: usize,
    backend: Backend,
    /// A name for a progress bar.
    label: String,
    run: Box<dyn Fn() -> Result<Output> + Sync + 'a>,
}

/// Compiles every file for everything in the plan. Returns each file's outputs in the order of the plan.
/// `workers` compilers run at once: by default `NUM_JOBS` of the environment, or as many as there are cores.
///
/// # Errors
/// The first failure per file and backend: a file that fails at one instruction level fails at all of them.
pub(crate) fn run(
    units: &[Unit],
    plan: &Plan,
    common: &Common,
    workers: Option<usize>,
    progress: Option<&Progress>,
) -> Result<Vec<Vec<Output>>> {
    let device_libs = match &plan.hip {
        Some((compiler, archs)) => {
            let archs: Vec<_> = archs.iter().map(String::as_str).collect();
            compiler.complete_device_libs(&archs, &common.out_dir.join("amd-device-libs"))?
        }
        None => None,
    };
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        let mut add = |backend, what: &str, run| {
            jobs.push(Job { unit: number, backend, label: format!("{} {what}", unit.module.name), run });
        };
        if let Some((compiler, levels)) = plan.cpu.as_ref().filter(|_| unit.is_for(Backend::Cpu)) {
            for level in levels {
                add(Backend::Cpu, level, Box::new(move || cpu::compile(unit, compiler, level, common)));
            }
        }
        if let Some((nvcc, archs)) = plan.cuda.as_ref().filter(|_| unit.is_for(Backend::Cuda)) {
            add(Backend::Cuda, "cuda", Box::new(move || cuda::compile(unit, nvcc, archs, common)));
        }
        if let Some((compiler, archs)) = plan.hip.as_ref().filter(|_| unit.is_for(Backend::Hip)) {
            let libs = device_libs.as_deref();
            for arch in archs {
                add(Backend::Hip, arch, Box::new(move || hip::compile(unit, compiler, libs, arch, common)));
            }
        }
    }

    let mut outputs: Vec<Vec<Output>> = units.iter().map(|_| Vec::new()).collect();
    let mut failed = Error::none();
    let mut failed_for = BTreeSet::new();
    for (job, result) in jobs.iter().zip(run_jobs(&jobs, workers, progress)) {
        match result {
            Ok(output) => outputs[job.unit].push(output),
            Err(error) if failed_for.insert((job.unit, job.backend)) => failed.join(error),
            Err(_) => {}
        }
    }
    failed.or(outputs)
}

/// Runs the jobs. Returns the results in the order of the jobs.
fn run_jobs(jobs: &[Job<'_>], workers: Option<usize>, progress: Option<&Progress>) -> Vec<Result<Output>> {
    let workers = workers
        .or_else(|| env::var("NUM_JOBS").ok()?.parse().ok())
        .unwrap_or_else(|| thread::available_parallelism().map_or(2, NonZero::get));
    let results = Mutex::new(Vec::new());
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..workers.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Relaxed);
                    let Some(job) = jobs.get(i) else { return };
                    let result = (job.run)();
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
                    let done = done.fetch_add(1, Relaxed) + 1;
                    if let Some(progress) = progress {
                        progress(done, jobs.len(), &job.label);
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}
