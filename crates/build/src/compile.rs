//! Running the compilers.

pub(crate) mod cpu;
mod cuda;
pub(crate) mod hip;
mod stamp;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::diagnostic::{Error, Result};
use crate::kernels::Backend;
use crate::report::KernelReport;
use crate::toolchain::{CxxCompiler, HipCompiler, Nvcc};
use crate::unit::Unit;

/// What all compilations of a build share.
pub(crate) struct Common {
    /// The unpacked device headers first.
    pub(crate) includes: Vec<PathBuf>,
    pub(crate) defines: Vec<(String, Option<String>)>,
    pub(crate) flags: Vec<(Backend, String)>,
    pub(crate) out_dir: PathBuf,
    pub(crate) rebuild: bool,
}

impl Common {
    /// `-I`, `-D` and the backend's own flags, which all compilers here spell alike.
    fn arguments(&self, backend: Backend) -> Vec<String> {
        let includes = self.includes.iter().map(|folder| format!("-I{}", folder.display()));
        includes.chain(self.options(backend)).collect()
    }

    /// The same without folders: what a run-time compiler gets.
    pub(crate) fn options(&self, backend: Backend) -> impl Iterator<Item = String> {
        let defines = self.defines.iter().map(|(name, value)| match value {
            Some(value) => format!("-D{name}={value}"),
            None => format!("-D{name}"),
        });
        let flags = self.flags.iter().filter(move |(b, _)| *b == backend).map(|(_, flag)| flag.clone());
        defines.chain(flags)
    }
}

/// A compiled image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) backend: Backend,
    pub(crate) targets: Vec<String>,
    pub(crate) path: PathBuf,
}

/// One run of a compiler.
pub(crate) enum Job<'a> {
    Cpu { unit: &'a Unit, compiler: &'a CxxCompiler, level: &'a str },
    Cuda { unit: &'a Unit, nvcc: &'a Nvcc, archs: &'a [String] },
    Hip { unit: &'a Unit, compiler: &'a HipCompiler, libs: Option<&'a Path>, arch: &'a str },
}

/// What came of it.
pub(crate) struct Output {
    pub(crate) backend: Backend,
    pub(crate) image: Image,
    pub(crate) reports: Vec<KernelReport>,
    /// `None` where an earlier build's image was still good.
    pub(crate) compile_time: Option<Duration>,
    pub(crate) warnings: String,
}

impl Job<'_> {
    pub(crate) fn run(&self, common: &Common) -> Result<Output> {
        match self {
            Self::Cpu { unit, compiler, level } => cpu::compile(unit, compiler, level, common),
            Self::Cuda { unit, nvcc, archs } => cuda::compile(unit, nvcc, archs, common),
            Self::Hip { unit, compiler, libs, arch } => hip::compile(unit, compiler, *libs, arch, common),
        }
    }

    pub(crate) fn backend(&self) -> Backend {
        match self {
            Self::Cpu { .. } => Backend::Cpu,
            Self::Cuda { .. } => Backend::Cuda,
            Self::Hip { .. } => Backend::Hip,
        }
    }

    /// For a progress bar.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Cpu { unit, level, .. } => format!("{} {level}", unit.module.name),
            Self::Cuda { unit, .. } => format!("{} cuda", unit.module.name),
            Self::Hip { unit, arch, .. } => format!("{} {arch}", unit.module.name),
        }
    }
}

/// Runs a compiler; gives what it wrote to its error stream.
fn execute(mut command: Command, unit: &Unit, what: &str) -> Result<String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| Error::message(format!("cannot run {program}: {e}")))?;
    // nvcc lets some of its parts write to the other stream.
    let mut text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stdout));
    if output.status.success() {
        return Ok(text);
    }
    let text = text.trim_end();
    let text =
        if text.is_empty() { format!("{program} failed ({})", output.status) } else { text.to_owned() };
    Err(Error::message(format!("{} does not compile for {what}:\n{text}", unit.source.path.display())))
}

fn file_size(path: &Path) -> u64 {
    path.metadata().map_or(0, |m| m.len())
}
