//! Chooses targets and compilers.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use gpustream_hal::cpu_level;

use crate::backend::Backend;
use crate::diagnostic::{Error, Result};
use crate::toolchain::{CHECKED, CxxCompiler, HipCompiler, Nvcc};
use crate::unit::Unit;

/// The backends to compile for: a comma-separated list, or `none`. Replaces the default.
const BACKENDS: &str = "GPUSTREAM_BACKENDS";
/// The targets to compile for. They replace the defaults and the build script's.
const CUDA_ARCHS: &str = "GPUSTREAM_CUDA_ARCHS";
const HIP_ARCHS: &str = "GPUSTREAM_HIP_ARCHS";
const CPU_LEVELS: &str = "GPUSTREAM_CPU_LEVELS";
/// Stands for the level of the machine that builds.
const NATIVE: &str = "native";

/// The variables that the plan depends on. If any of them changes, we must build again.
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

/// Ampere and Hopper. The newest one's PTX covers later architectures.
const DEFAULT_CUDA: [&str; 2] = ["sm_80", "sm_90"];
/// Data center (CDNA 2 and 3) and desktop (RDNA 2, 3 and 4).
const DEFAULT_HIP: [&str; 5] = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"];

/// What the build script chose. Empty means the default.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) backends: BTreeSet<Backend>,
    pub(crate) cuda_archs: Vec<String>,
    pub(crate) hip_archs: Vec<String>,
    pub(crate) cpu_levels: Vec<String>,
    /// True if the environment only decides what the build script leaves open.
    pub(crate) own_first: bool,
}

impl Wanted {
    /// Returns the targets from the environment, otherwise from the build script (`own`), otherwise the
    /// default. If `own_first` is set, the build script comes before the environment.
    fn targets(&self, variable: &str, own: &[String], default: &[&str]) -> Vec<String> {
        let of_environment = list(variable).filter(|_| own.is_empty() || !self.own_first);
        of_environment.unwrap_or_else(|| {
            if own.is_empty() { default.iter().map(|&t| t.to_owned()).collect() } else { own.to_vec() }
        })
    }
}

/// The compilers and targets of a build.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) cpu: Option<(CxxCompiler, Vec<String>)>,
    pub(crate) cuda: Option<(Nvcc, Vec<String>)>,
    pub(crate) hip: Option<(HipCompiler, Vec<String>)>,
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    /// Finds the compilers that the build script and the environment ask for, if at least one file needs
    /// them.
    ///
    /// # Errors
    /// Every compiler that was asked for and not found.
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
        // Unless you ask for a backend, we only use a compiler that this machine is clearly set up for. Any
        // other would cost time in every build, although run-time compilation works without it.
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
                            "{} cannot build for {}. These targets are left out; devices of that kind compile the source at run time",
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

    /// Returns the compilers' executables with links resolved, so that a new version triggers a build.
    pub(crate) fn compilers(&self) -> Vec<PathBuf> {
        let paths = [
            self.cpu.as_ref().map(|(c, _)| &c.path),
            self.cuda.as_ref().map(|(c, _)| &c.path),
            self.hip.as_ref().map(|(c, _)| &c.path),
        ];
        // A bare name is looked up on PATH when it is run, so it has no file here.
        paths.into_iter().flatten().filter_map(|path| path.canonicalize().ok()).collect()
    }
}

/// Returns the error for a backend whose compiler or targets are missing, with advice on how to do without
/// it.
fn missing(error: impl Into<Error>, backend: Backend) -> Error {
    Error::message(format!("{}\n{}", error.into(), backend.leave_out()))
}

fn plan_cpu(choices: &Wanted) -> Result<(CxxCompiler, Vec<String>)> {
    let compiler = CxxCompiler::find(None)?;
    let known = compiler.levels();
    if known.is_empty() {
        return Err(Error::message(format!(
            "the CPU backend has no instruction level for {}",
            compiler.target
        )));
    }
    let mut levels = choices.targets(CPU_LEVELS, &choices.cpu_levels, known);
    // For another architecture, this machine's level says nothing.
    if levels == [NATIVE] {
        let best = cpu_level::best();
        let levels_of_target = if known.contains(&best) { &[best] } else { known };
        levels = levels_of_target.iter().map(|&level| level.to_owned()).collect();
    }
    if let Some(level) = levels.iter().find(|level| !known.contains(&level.as_str())) {
        return Err(Error::message(format!(
            "`{level}` is not an instruction level for {}; use one of {}",
            compiler.target,
            known.join(", ")
        )));
    }
    if let Some(least) = levels.first() {
        levels.push(format!("{least}{CHECKED}"));
    }
    Ok((compiler, levels))
}

/// Returns the compiler, its targets, and those default targets that it is too old for. We never leave out
/// targets that you chose. If `any` is false, only the system's own compiler will do.
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

/// Files that show that a vendor's kernel driver is loaded. WSL has one device for all vendors.
const NVIDIA: [&str; 3] = ["/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"];
const AMD: [&str; 1] = ["/dev/kfd"];

/// Returns true if one of these files exists.
fn has_driver(marks: &[&str]) -> bool {
    marks.iter().any(|mark| Path::new(mark).exists())
}

/// Returns a note if the environment asks for a backend that a file is not compiled for.
fn limit(unit: &Unit, asked: &BTreeSet<Backend>) -> Option<String> {
    let (compiled, left_out): (Vec<_>, Vec<_>) = asked.iter().partition(|backend| unit.is_for(**backend));
    let names = |backends: &[&Backend]| backends.iter().map(|b| b.name()).collect::<Vec<_>>().join(", ");
    let outcome = match &compiled[..] {
        [] => "no image".to_owned(),
        compiled => format!("images only for {}", names(compiled)),
    };
    (!left_out.is_empty()).then(|| {
        format!(
            "{}: {outcome}, because the build script names its backends ({BACKENDS} also asks for {})",
            unit.source.path.display(),
            names(&left_out)
        )
    })
}

/// Returns the items of a comma-separated environment variable, if it is set.
fn list(name: &str) -> Option<Vec<String>> {
    let value = env::var(name).ok()?;
    let items: Vec<_> = value.split(',').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect();
    (!items.is_empty()).then_some(items)
}
