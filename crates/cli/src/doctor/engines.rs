//! The libraries that carry data between ranks: NCCL and RCCL, and MPI.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpustream::hal::library::{Library, Search, file_of, symbol};

use super::on_path;
use super::tool::{Found, Missing, Tool};

/// The variable that names the library to open for NCCL or RCCL.
const LIBRARY: &str = "GPUSTREAM_NCCL_LIBRARY";

/// Looks for all engines.
pub(super) fn collect() -> Vec<Tool> {
    let engine = |name, what, search: Result<Found, Vec<String>>, how| {
        Tool::new(name, what, search.map_err(|tried| Missing { tried, how }))
    };
    vec![
        engine(
            "NCCL",
            "ranks on NVIDIA GPUs in several processes",
            open(&["libnccl.so.2", "libnccl.so"], "/usr/lib/x86_64-linux-gnu"),
            "Needed only for ranks in several processes. Install the package libnccl2, or the Python package \
             nvidia-nccl-cu12 or -cu13. The variable GPUSTREAM_NCCL_LIBRARY names its path.",
        ),
        engine(
            "RCCL",
            "ranks on AMD GPUs in several processes",
            open(&["librccl.so.1", "librccl.so"], "/opt/rocm/lib"),
            "Needed only for ranks in several processes. It comes with ROCm (package rccl). The variable \
             GPUSTREAM_NCCL_LIBRARY names its path.",
        ),
        engine(
            "MPI",
            "starts the processes of ranks, and moves data between them in builds with the feature mpi",
            mpirun(),
            "Needed only for programs that mpirun starts. Install an MPI, such as the package openmpi-bin or mpich.",
        ),
    ]
}

/// Opens NCCL or RCCL, which exports NCCL's names: the first of `names` that is there. The last place is `folder`.
fn open(names: &[&str], folder: &str) -> Result<Found, Vec<String>> {
    let last = names.first().map(|name| Path::new(folder).join(name));
    // SAFETY: the names are NCCL's and RCCL's.
    let search = unsafe { Search::open(LIBRARY, names.iter().map(PathBuf::from).chain(last)) };
    let Search { library, mut tried, .. } = search;
    let Some(library) = library.map(ManuallyDrop::new) else { return Err(tried) };
    let Some((code, path)) = version(&library) else {
        if let Some(last) = tried.last_mut() {
            last.push_str(": has no ncclGetVersion that answers");
        }
        return Err(tried);
    };
    let path =
        path.map(|path| path.display().to_string()).or_else(|| tried.last().cloned()).unwrap_or_default();
    // The variable names one library for both rows, because the two have the same functions.
    let is_rccl = |path: &str| path.rsplit('/').next().is_some_and(|file| file.contains("rccl"));
    if is_rccl(&path) == names.iter().any(|name| is_rccl(name)) {
        return Ok(Found { version: nccl_version(code), path: Some(path), ..Found::default() });
    }
    Err(vec![format!("{path} (from {LIBRARY}): the other vendor's, by its name")])
}

/// Returns the version and the file of a library that we opened as NCCL. We never close it.
fn version(library: &Library) -> Option<(c_int, Option<PathBuf>)> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: this is NCCL's prototype (its result is a C enum, an int), and the caller keeps the library open.
    let get_version: GetVersion = unsafe { symbol(library, "ncclGetVersion") }?;
    let mut version = 0;
    // SAFETY: the pointer is to a local.
    let result = unsafe { get_version(&raw mut version) };
    (result == 0).then(|| (version, file_of(get_version as usize)))
}

/// Returns the words for a version as `ncclGetVersion` tells it: 22304 is 2.23.4, and 2708, before 2.9, is 2.7.8.
fn nccl_version(code: c_int) -> String {
    let major = if code < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", code / major, code % major / 100, code % 100)
}

/// Asks `mpirun` for its version.
fn mpirun() -> Result<Found, Vec<String>> {
    let mut tried = Vec::new();
    for name in ["mpirun", "mpiexec"] {
        match Command::new(name).arg("--version").output() {
            Ok(output) => match mpi_version(&String::from_utf8_lossy(&output.stdout)) {
                Some(version) => {
                    let path = Some(on_path(Path::new(name)).display().to_string());
                    return Ok(Found { version, path, ..Found::default() });
                }
                None => tried.push(format!("{name} --version: tells none ({})", output.status)),
            },
            Err(error) => tried.push(format!("{name}: {error}")),
        }
    }
    Err(tried)
}

/// Returns the version in an answer to `mpirun --version`: the first line, or for Hydra the line with the version.
fn mpi_version(answer: &str) -> Option<String> {
    let mut lines = answer.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next()?;
    if !first.starts_with("HYDRA") {
        return Some(first.to_owned());
    }
    let version = lines.find_map(|line| line.strip_prefix("Version:"))?;
    Some(format!("Hydra (MPICH) {}", version.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_nccl_are_those_of_both_ways_to_write_them() {
        assert_eq!(nccl_version(2708), "2.7.8");
        assert_eq!(nccl_version(21_805), "2.18.5");
        assert_eq!(nccl_version(22_304), "2.23.4");
    }

    #[test]
    fn versions_of_mpi_are_found_in_what_each_prints() {
        let version = |answer| mpi_version(answer).unwrap();
        assert_eq!(
            version("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org"),
            "mpirun (Open MPI) 4.1.4"
        );
        assert_eq!(
            version(
                "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: x"
            ),
            "Hydra (MPICH) 4.0.2"
        );
        assert_eq!(
            version("Intel(R) MPI Library for Linux* OS, Version 2021.10"),
            "Intel(R) MPI Library for Linux* OS, Version 2021.10"
        );
        assert_eq!(mpi_version("HYDRA build details:\n"), None);
        assert_eq!(mpi_version(""), None);
    }
}
