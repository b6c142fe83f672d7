//! The choice of targets and compilers.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use crate::backend::Backend;
use crate::compile::cpu::CHECKED;
use crate::diagnostic::{Error, Result};
use crate::toolchain::{CxxCompiler, HipCompiler, Nvcc};
use crate::unit::Unit;

/// The backends to compile for, a comma list, or `none`; replaces the default.
const BACKENDS: &str = "GPUSTREAM_BACKENDS";
/// The targets to compile for; replace the defaults and those of the build script.
const CUDA_ARCHS: &str = "GPUSTREAM_CUDA_ARCHS";
const HIP_ARCHS: &str = "GPUSTREAM_HIP_ARCHS";
const CPU_LEVELS: &str = "GPUSTREAM_CPU_LEVELS";

/// The variables that decide; a change of any of them means building again.
pub(crate) const WATCHED: [&str; 14] = [
    BACKENDS,
    CUDA_ARCHS,
    HIP_ARCHS,
    CPU_LEVELS,
    "CXX",
    "CXXFLAGS",
    "NVCC",
    "CUDA_HOME",
    "CUDA_PATH",
    "HIPCC",
    "ROCM_PATH",
    "HIP_PATH",
    "HIP_DEVICE_LIB_PATH",
    "XDG_CACHE_HOME",
];

/// Ampere and Hopper; the PTX of the newest serves what comes after.
const DEFAULT_CUDA: [&str; 2] = ["sm_80", "sm_90"];
/// Data centre (CDNA 2 and 3) and desktop (RDNA 2, 3 and 4).
const DEFAULT_HIP: [&str; 5] = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// The choices of a build script; an empty one stands for the default.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) backends: BTreeSet<Backend>,
    pub(crate) cuda_archs: Vec<String>,
    pub(crate) hip_archs: Vec<String>,
    pub(crate) cpu_levels: Vec<String>,
    /// Whether the environment decides only what the build script leaves open.
    pub(crate) own_first: bool,
}

impl Wanted {
    /// Returns the targets of the environment, else of the build script (`own`), else the default; or those of the build
    /// script first.
    fn targets(&self, variable: &str, own: &[String], default: &[&str]) -> Vec<String> {
        let of_environment = list(variable).filter(|_| own.is_empty() || !self.own_first);
        of_environment.unwrap_or_else(|| {
            if own.is_empty() { default.iter().map(|&t| t.to_owned()).collect() } else { own.to_vec() }
        })
    }
}

/// Compilers and targets of one build.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) cpu: Option<(CxxCompiler, Vec<String>)>,
    pub(crate) cuda: Option<(Nvcc, Vec<String>)>,
    pub(crate) hip: Option<(HipCompiler, Vec<String>)>,
    /// Warnings for the user.
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    /// Finds the compilers that the build script and the environment ask for, and that a file needs.
    ///
    /// # Errors
    /// Every compiler that was asked for and is missing.
    pub(crate) fn of(choices: &Wanted, units: &[Unit]) -> Result<Self> {
        let own = choices.own_first && !choices.backends.is_empty();
        let of_environment = list(BACKENDS).filter(|_| !own);
        let named = of_environment.is_some();
        let (backends, explicit) = match of_environment {
            Some(names) if names == ["none"] => (BTreeSet::new(), true),
            Some(names) => (names.iter().map(|n| n.parse()).collect::<Result<_>>()?, true),
            None => (choices.backends.clone(), !choices.backends.is_empty()),
        };
        let wanted = |backend| {
            (!explicit || backends.contains(&backend)) && units.iter().any(|unit| unit.is_for(backend))
        };
        let mut plan = Self::default();
        if named {
            plan.warnings.extend(units.iter().filter_map(|unit| limit(unit, &backends)));
        }
        let mut failed = Error::none();
        if wanted(Backend::Cpu) {
            match plan_cpu(choices) {
                Ok(cpu) => plan.cpu = Some(cpu),
                Err(error) => failed.join(missing(error, Backend::Cpu)),
            }
        }
        // Without a request, only compilers that the machine is set up for are used: others cost time at every build,
        // and run-time compilation is there.
        if wanted(Backend::Cuda) {
            let archs = choices.targets(CUDA_ARCHS, &choices.cuda_archs, &DEFAULT_CUDA);
            match Nvcc::find() {
                Ok(nvcc) if explicit || nvcc.system || has_driver(&NVIDIA) => {
                    plan.cuda = Some((nvcc, archs));
                }
                Err(error) if explicit => failed.join(missing(error, Backend::Cuda)),
                _ => {}
            }
        }
        if wanted(Backend::Hip) {
            match plan_hip(choices, explicit || has_driver(&AMD)) {
                Ok((compiler, archs, left_out)) => {
                    if !left_out.is_empty() {
                        plan.warnings.push(format!(
                            "{} cannot build for {}, which are left out (run-time compilation serves them)",
                            compiler.path.display(),
                            left_out.join(", ")
                        ));
                    }
                    plan.hip = Some((compiler, archs));
                }
                Err(error) if explicit => failed.join(missing(error, Backend::Hip)),
                _ => {}
            }
        }
        failed.or(plan)
    }

    /// Returns the executables of the compilers, where links end: a new version is a reason to build again.
    pub(crate) fn compilers(&self) -> Vec<PathBuf> {
        let paths = [
            self.cpu.as_ref().map(|(c, _)| &c.path),
            self.cuda.as_ref().map(|(c, _)| &c.path),
            self.hip.as_ref().map(|(c, _)| &c.path),
        ];
        // A bare name is looked up on PATH when it is run, and has no file of its own here.
        paths.into_iter().flatten().filter_map(|path| path.canonicalize().ok()).collect()
    }
}

/// Returns the error of a backend whose compiler or targets are missing, with the way to do without the backend.
fn missing(error: impl Into<Error>, backend: Backend) -> Error {
    Error::message(format!("{}\n{}", error.into(), backend.leave_out()))
}

fn plan_cpu(choices: &Wanted) -> Result<(CxxCompiler, Vec<String>)> {
    let compiler = CxxCompiler::find(None)?;
    let known = compiler.levels();
    if known.is_empty() {
        return Err(Error::message(format!(
            "the CPU backend knows no instruction level of {}",
            compiler.target
        )));
    }
    let mut levels = choices.targets(CPU_LEVELS, &choices.cpu_levels, known);
    if let Some(level) = levels.iter().find(|level| !known.contains(&level.as_str())) {
        return Err(Error::message(format!(
            "no instruction level `{level}` for {}: there are {}",
            compiler.target,
            known.join(", ")
        )));
    }
    if let Some(least) = levels.first() {
        levels.push(format!("{least}{CHECKED}"));
    }
    Ok((compiler, levels))
}

/// Returns the compiler, its targets, and those of the default that it is too old for. Targets that someone chose are
/// not left out. `any`: a compiler that is not the system's own will do.
fn plan_hip(choices: &Wanted, any: bool) -> Result<(HipCompiler, Vec<String>, Vec<String>)> {
    let chosen = list(HIP_ARCHS).is_some() || !choices.hip_archs.is_empty();
    let archs = choices.targets(HIP_ARCHS, &choices.hip_archs, &DEFAULT_HIP);
    let names: Vec<_> = archs.iter().map(String::as_str).collect();
    let (compiler, left_out) = match (chosen, any) {
        (true, true) => (HipCompiler::find(&names)?, Vec::new()),
        (false, true) => HipCompiler::search(&names)?,
        (_, false) => HipCompiler::search_system(&names)?,
    };
    let (left_out, archs) = names.iter().map(|&t| t.to_owned()).partition(|t| left_out.contains(&t.as_str()));
    Ok((compiler, archs, left_out))
}

/// The marks of the vendors' kernel drivers; WSL has one device for all.
const NVIDIA: [&str; 3] = ["/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"];
const AMD: [&str; 1] = ["/dev/kfd"];

/// Returns whether a kernel driver with one of these marks is here.
fn has_driver(marks: &[&str]) -> bool {
    marks.iter().any(|mark| Path::new(mark).exists())
}

/// Returns the note about a file that is not for all of the environment's backends.
fn limit(unit: &Unit, asked: &BTreeSet<Backend>) -> Option<String> {
    let (compiled, left_out): (Vec<_>, Vec<_>) = asked.iter().partition(|backend| unit.is_for(**backend));
    let names = |backends: &[&Backend]| backends.iter().map(|b| b.name()).collect::<Vec<_>>().join(", ");
    let outcome = match &compiled[..] {
        [] => "no image".to_owned(),
        compiled => format!("images for {} alone", names(compiled)),
    };
    (!left_out.is_empty()).then(|| {
        format!(
            "{}: {outcome}, since the build script names its backends ({BACKENDS} also asks for {})",
            unit.source.path.display(),
            names(&left_out)
        )
    })
}

/// Returns an environment variable's comma list, if the variable is set.
fn list(name: &str) -> Option<Vec<String>> {
    let value = env::var(name).ok()?;
    let items: Vec<_> = value.split(',').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect();
    (!items.is_empty()).then_some(items)
}
