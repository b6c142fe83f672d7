//! The targets of a build: CPU, CUDA or HIP.

use std::fmt;

use crate::diagnostic::{Error, Result};

/// A kind of device that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// Shared objects by the host's C++ compiler.
    Cpu,
    /// A fat binary by nvcc.
    Cuda,
    /// A bundle of code objects by hipcc or Clang.
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
