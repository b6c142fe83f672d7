//! Finds and opens NCCL, or RCCL for AMD GPUs.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gpustream::hal::driver::list_missing;
use gpustream::hal::library::{Search, symbol};
use gpustream::{Error, ErrorKind, Result};

use super::api::{Api, LAST_ERROR};

/// The oldest version with all functions that we need, in the form that `ncclGetVersion` returns.
const OLDEST: i32 = 21_800;

/// GPU vendors whose library we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Nvidia,
    Amd,
}

impl Vendor {
    /// Returns the vendor that makes the devices of a backend.
    ///
    /// # Errors
    /// `Unsupported` for the CPU.
    pub(crate) fn of(backend: gpustream::BackendName) -> Result<Self> {
        match backend {
            gpustream::BackendName::CUDA => Ok(Self::Nvidia),
            gpustream::BackendName::HIP => Ok(Self::Amd),
            other => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "NCCL and RCCL do not support devices of the backend {other}, and no other engine serves ranks in several processes; \
                     give each process a GPU, or make several ranks of one process with `World::local`"
                ),
            )),
        }
    }

    fn names(self) -> Vec<PathBuf> {
        let (names, folder) = match self {
            Self::Nvidia => (["libnccl.so.2", "libnccl.so"], "/usr/lib/x86_64-linux-gnu"),
            Self::Amd => (["librccl.so.1", "librccl.so"], "/opt/rocm/lib"),
        };
        let mut all: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        all.push(Path::new(folder).join(names[0]));
        all
    }

    fn how_to_install(self) -> &'static str {
        match self {
            Self::Nvidia => {
                "install NCCL 2.18 or later (package libnccl2, or the Python package nvidia-nccl)"
            }
            Self::Amd => "install RCCL of ROCm 6.0 or later (package rccl)",
        }
    }

    /// Returns the vendor's library. It is opened once, and stays open.
    ///
    /// # Errors
    /// `Unsupported` if there is no library that is new enough. The error lists every name that we tried.
    pub(crate) fn library(self) -> Result<&'static Api> {
        static NVIDIA: OnceLock<Result<Api>> = OnceLock::new();
        static AMD: OnceLock<Result<Api>> = OnceLock::new();
        let library = match self {
            Self::Nvidia => &NVIDIA,
            Self::Amd => &AMD,
        };
        library.get_or_init(|| self.open()).as_ref().map_err(Error::clone)
    }

    fn open(self) -> Result<Api> {
        let unsupported = |message| Error::new(ErrorKind::Unsupported, message);
        // SAFETY: the names are NCCL's and RCCL's.
        let search = unsafe { Search::open("GPUSTREAM_NCCL_LIBRARY", self.names()) };
        let tried = search.tried.join("; ");
        let Some(library) = search.library.map(ManuallyDrop::new) else {
            return Err(unsupported(format!(
                "ranks in several processes need NCCL or RCCL, but it was not found; {}, or set GPUSTREAM_NCCL_LIBRARY; tried: \
                 {tried}",
                self.how_to_install()
            )));
        };
        // SAFETY: it was opened as NCCL, and is never closed.
        let (api, missing) = unsafe { Api::load(&library) };
        if !missing.is_empty() {
            return Err(unsupported(format!(
                "{tried} is not NCCL 2.18 or later, because it lacks {}; {}",
                list_missing(&missing),
                self.how_to_install()
            )));
        }
        let mut version = 0;
        // SAFETY: the pointer is to a local.
        unsafe { api.ncclGetVersion(&raw mut version) }.ok()?;
        if version < OLDEST {
            return Err(unsupported(format!(
                "{tried} has version {version} (as returned by ncclGetVersion), but {OLDEST} is needed; {}",
                self.how_to_install()
            )));
        }
        // SAFETY: the prototype is NCCL's, and the library is never closed.
        if let Some(last_error) = unsafe { symbol(&library, "ncclGetLastError") } {
            let _ = LAST_ERROR.set(last_error);
        }
        Ok(api)
    }
}
