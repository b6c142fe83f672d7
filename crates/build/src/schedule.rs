//! Runs several compilers at once.

use std::collections::BTreeSet;
use std::env;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::backend::Backend;
use crate::compile::{Common, Output, cpu, cuda, hip, is_about_checks};
use crate::diagnostic::{Error, Result};
use crate::parse::is_understood;
use crate::plan::Plan;
use crate::unit::Unit;

/// A callback. It gets the number of finished compilations, the total, and the name of the last one.
pub(crate) type Progress = Box<dyn Fn(usize, usize, &str) + Send + Sync>;

/// Compiles a unit for the job's target: the job's own unit, or another version of the same file.
type Run<'a> = Box<dyn Fn(&Unit) -> Result<Output> + Sync + 'a>;

/// One run of a compiler.
struct Job<'a> {
    /// The index of the file among the units.
    unit: usize,
    backend: Backend,
    /// The target, if the backend compiles for one at a time.
    target: String,
    /// A name for a progress bar.
    label: String,
    run: Run<'a>,
}

impl Job<'_> {
    /// Returns the version of the job's file that it compiles.
    fn version<'u>(&self, units: &'u [Unit]) -> &'u Unit {
        units[self.unit].version(self.backend, &self.target)
    }
}

/// Compiles every file for everything in the plan. Returns each file's outputs in the order of the plan.
/// `workers` says how many compilers may run at once; the default is `NUM_JOBS` from the environment, or the
/// number of cores.
///
/// # Errors
/// Every file that we refused. Otherwise the first failure per file and backend, because a file that fails at
/// one instruction level usually fails at all of them.
pub(crate) fn run(
    units: &[Unit],
    plan: &Plan,
    common: &Common,
    workers: Option<usize>,
    progress: Option<&Progress>,
) -> Result<Vec<Vec<Output>>> {
    let device_libs = device_libs(plan, common)?;
    let jobs = jobs(units, plan, common, device_libs.as_deref());
    refused(units, &jobs)?;

    let mut outputs: Vec<Vec<Output>> = units.iter().map(|_| Vec::new()).collect();
    let mut failed = Error::none();
    let mut failed_for = BTreeSet::new();
    for (job, result) in jobs.iter().zip(run_jobs(&jobs, units, workers, progress)) {
        match result {
            Ok(output) => outputs[job.unit].push(output),
            Err(error) if failed_for.insert((job.unit, job.backend)) => {
                // If a brace is missing, everything that we wrote after the file is an error too, and the
                // error about the file comes last. So we compile the file once more without our lines.
                let about_file = if is_about_checks(&error) {
                    (job.run)(&job.version(units).as_written()).err()
                } else {
                    None
                };
                failed.join(about_file.unwrap_or(error));
            }
            Err(_) => {}
        }
    }
    failed.or(outputs)
}

/// Returns why files cannot be bound. If a compiler refuses such a file too, its errors come first, because
/// ours may only be consequences: after a missing semicolon, text reads like something else.
fn refused(units: &[Unit], jobs: &[Job<'_>]) -> Result<()> {
    let mut failed = Error::none();
    for (number, unit) in units.iter().enumerate() {
        let Some(ours) = &unit.refused else { continue };
        let mut own = jobs.iter().filter(|job| job.unit == number);
        let compiled = own.next().filter(|_| unit.device_part.is_ok()).map(|job| {
            // The last job of a backend takes the least time.
            let last = own.rfind(|other| other.backend == job.backend).unwrap_or(job);
            (last.run)(&last.version(units).as_written())
        });
        match compiled {
            Some(Err(error)) => {
                failed.join(error);
                let mut sources = unit.versions.values().map(|version| &version.source).chain([&unit.source]);
                if sources.any(is_understood) {
                    failed.join(ours.clone());
                }
            }
            _ => failed.join(ours.clone()),
        }
    }
    failed.or(())
}

/// Returns a folder with all device libraries that the HIP compiler needs. `None` if it has them itself.
fn device_libs(plan: &Plan, common: &Common) -> Result<Option<PathBuf>> {
    match &plan.hip {
        Some((compiler, archs)) => {
            let archs: Vec<_> = archs.iter().map(String::as_str).collect();
            compiler.complete_device_libs(&archs, &common.out_dir.join("amd-device-libs"))
        }
        None => Ok(None),
    }
}

/// Returns every compilation of the plan.
fn jobs<'a>(
    units: &'a [Unit],
    plan: &'a Plan,
    common: &'a Common,
    device_libs: Option<&'a Path>,
) -> Vec<Job<'a>> {
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        let mut add = |backend, what: &str, run: Run<'a>| {
            let label = format!("{} {what}", unit.module.name);
            jobs.push(Job { unit: number, backend, target: what.to_owned(), label, run });
        };
        if let Some((compiler, levels)) = plan.cpu.as_ref().filter(|_| unit.is_for(Backend::Cpu)) {
            for level in levels {
                add(Backend::Cpu, level, Box::new(move |unit| cpu::compile(unit, compiler, level, common)));
            }
        }
        if let Some((nvcc, archs)) = plan.cuda.as_ref().filter(|_| unit.is_for(Backend::Cuda)) {
            add(Backend::Cuda, "cuda", Box::new(move |unit| cuda::compile(unit, nvcc, archs, common)));
        }
        if let Some((compiler, archs)) = plan.hip.as_ref().filter(|_| unit.is_for(Backend::Hip)) {
            for arch in archs {
                add(
                    Backend::Hip,
                    arch,
                    Box::new(move |unit| hip::compile(unit, compiler, device_libs, arch, common)),
                );
            }
        }
    }
    jobs
}

/// Runs the jobs. Returns their results in the same order.
fn run_jobs(
    jobs: &[Job<'_>],
    units: &[Unit],
    workers: Option<usize>,
    progress: Option<&Progress>,
) -> Vec<Result<Output>> {
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
                    let result = (job.run)(job.version(units));
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
