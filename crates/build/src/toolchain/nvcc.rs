//! NVIDIA's compiler.

use std::path::{Path, PathBuf};

use super::{Missing, ask, entries, is_program, on_path, place, program, toolchains_dir, why_not_there};

const HOW: &str = "Install the CUDA toolkit (12.4 or newer), or without root from Python wheels: `scripts/setup.sh cuda` of this \
     project, or `pip install 'cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.*'` in an active virtual environment. \
     The variables NVCC and CUDA_HOME name another place. Without nvcc, kernels are compiled at run time by NVRTC.";

/// NVIDIA's `nvcc`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Nvcc {
    /// The executable.
    pub path: PathBuf,
    /// The version, for example `13.0, V13.0.88`.
    pub version: String,
    /// Where we found the compiler: a variable's name, `PATH`, or a folder.
    pub found_by: String,
    /// True if the compiler is installed system-wide or a variable named it. False if it only comes from
    /// Python wheels.
    pub system: bool,
}

impl Nvcc {
    /// Looks in `NVCC`, `CUDA_HOME`, `CUDA_PATH`, `PATH`, `/usr/local/cuda`, and then in Python wheels: those
    /// of the active environment, and of the one that the project's setup script creates.
    ///
    /// # Errors
    /// [`Missing`] with everything that we tried.
    pub fn find() -> Result<Self, Missing> {
        let mut tried = Vec::new();
        for (path, found_by, system, binding) in candidates() {
            if is_program(&path) {
                match version(&path) {
                    Ok(version) => return Ok(Self { path, version, found_by, system }),
                    Err(why) => tried.push(format!("{found_by}: {}: {why}", path.display())),
                }
            } else {
                tried.push(format!("{found_by}: no {}{}", path.display(), why_not_there(&found_by)));
            }
            if binding {
                break;
            }
        }
        Err(Missing { what: "No nvcc, which kernels for CUDA need.".to_owned(), tried, how: HOW })
    }

    /// Returns the real architectures that this compiler can compile for: `sm_80`, `sm_90`, …
    ///
    /// # Errors
    /// The compiler's own message.
    pub fn targets(&self) -> Result<Vec<String>, String> {
        Ok(ask(&self.path, &["--list-gpu-code"])?.split_whitespace().map(str::to_owned).collect())
    }
}

/// Returns for each candidate: its path, what led us there, true if it is system-wide, and true if you chose
/// it explicitly.
fn candidates() -> Vec<(PathBuf, String, bool, bool)> {
    let mut list = Vec::new();
    if let Some(path) = program("NVCC") {
        list.push((path, "NVCC".to_owned(), true, true));
    }
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(home) = place(name) {
            list.push((home.join("bin/nvcc"), name.to_owned(), true, true));
        }
    }
    list.push((on_path("nvcc").unwrap_or_else(|| "nvcc".into()), "PATH".to_owned(), true, false));
    for folder in ["/usr/local/cuda", "/opt/cuda"] {
        list.push((Path::new(folder).join("bin/nvcc"), folder.to_owned(), true, false));
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = place(name) {
            list.extend(wheels(&prefix).map(|path| (path, name.to_owned(), false, false)));
        }
    }
    if let Some(folder) = toolchains_dir() {
        let before = list.len();
        for environment in entries(&folder).into_iter().rev() {
            let found_by = folder.display().to_string();
            list.extend(wheels(&environment).map(|path| (path, found_by.clone(), false, false)));
        }
        if list.len() == before {
            list.push((folder.join("cuda-*/…/nvcc"), "setup script".to_owned(), false, false));
        }
    }
    list
}

/// Returns the compilers in the site-packages of a Python environment, newest CUDA first.
fn wheels(prefix: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    entries(&prefix.join("lib"))
        .into_iter()
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")))
        .flat_map(|python| entries(&python.join("site-packages/nvidia")).into_iter().rev())
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("cu1")))
        .map(|cuda| cuda.join("bin/nvcc"))
        .filter(|path| path.exists())
}

fn version(path: &Path) -> Result<String, String> {
    let text = ask(path, &["--version"])?;
    text.lines()
        .find_map(|line| line.split_once("release ").map(|(_, version)| version.trim().to_owned()))
        .ok_or_else(|| "it did not print its version".to_owned())
}
