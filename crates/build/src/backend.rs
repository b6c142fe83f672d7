//! The backends of a build: CPU, CUDA and HIP.

use std::fmt;

use crate::diagnostic::{Error, Result};

/// A kind of device to compile kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// Shared objects, made by the host's C++ compiler.
    Cpu,
    /// A fat binary, made by nvcc.
    Cuda,
    /// A bundle of code objects, made by hipcc or Clang.
    Hip,
}

impl Backend {
    /// Returns `cpu`, `cuda` or `hip`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }

    fn others(self) -> impl Iterator<Item = Self> {
        [Self::Cpu, Self::Cuda, Self::Hip].into_iter().filter(move |&other| other != self)
    }

    /// Returns the `GPUSTREAM_BACKENDS=…` that leaves only this backend out.
    fn variable_without(self) -> String {
        let others: Vec<_> = self.others().map(Self::name).collect();
        format!("GPUSTREAM_BACKENDS={}", others.join(","))
    }

    /// Returns advice on how to build without this backend.
    pub(crate) fn leave_out(self) -> String {
        format!(
            "To leave {self} out, name the backends that you want: `.backend(…)` in the build script, or `{}` in the \
             environment (`none` embeds only the source).",
            self.variable_without()
        )
    }

    /// Returns advice on how to build one file without this backend.
    pub(crate) fn leave_out_for(self, file: &str) -> String {
        let others: Vec<_> = self.others().map(|other| format!("Backend::{other:?}")).collect();
        format!(
            "`.file_for({file:?}, [{}])` in the build script leaves {self} out for this file, and `{}` in the environment \
             for all",
            others.join(", "),
            self.variable_without()
        )
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda),
            "hip" => Ok(Self::Hip),
            other => Err(Error::message(format!("no backend `{other}`: there are cpu, cuda and hip"))),
        }
    }
}
