//! The places where NVIDIA's libraries may be.

use std::env;
use std::path::{Path, PathBuf};

/// Returns the names of the driver's library: those for the dynamic linker, then the folders that some
/// distributions and container runtimes use without telling the linker.
pub(crate) fn driver_names() -> Vec<PathBuf> {
    if cfg!(windows) {
        return vec!["nvcuda.dll".into()];
    }
    // The versioned name comes first: the toolkit's stub folder, which may be on the linker's path, has only the
    // plain one.
    let mut names: Vec<PathBuf> = vec!["libcuda.so.1".into(), "libcuda.so".into()];
    names.extend(
        [
            "/usr/lib/wsl/lib",
            "/usr/local/nvidia/lib64",
            "/run/opengl-driver/lib",
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
        ]
        .map(|folder| Path::new(folder).join("libcuda.so.1")),
    );
    names
}

/// Returns the names of NVRTC: those for the dynamic linker, then the toolkit's usual folders. `driver_major` is the
/// driver's CUDA version: the compiler of another major version makes code that the driver may refuse, and so comes
/// last.
pub(crate) fn compiler_names(driver_major: u32) -> Vec<PathBuf> {
    let mut majors = vec![driver_major];
    majors.extend([13, 12].into_iter().filter(|&major| major != driver_major));
    if cfg!(windows) {
        return majors.iter().map(|major| format!("nvrtc64_{major}0_0.dll").into()).collect();
    }
    let mut folders: Vec<PathBuf> = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"] {
        if let Some(root) = env::var_os(variable) {
            folders.push(Path::new(&root).join("lib64"));
            folders.push(Path::new(&root).join("lib"));
        }
    }
    // NVIDIA's Python packages lie inside an active virtual environment.
    if let Some(root) = env::var_os("VIRTUAL_ENV") {
        let lib = Path::new(&root).join("lib");
        for python in std::fs::read_dir(lib).into_iter().flatten().flatten() {
            let nvidia = python.path().join("site-packages/nvidia");
            for package in ["cu13/lib", "cu12/lib", "cuda_nvrtc/lib"] {
                folders.push(nvidia.join(package));
            }
        }
    }
    folders.push("/usr/local/cuda/lib64".into());
    folders.push("/opt/cuda/lib64".into());
    let mut names = Vec::new();
    for major in majors {
        let file = format!("libnvrtc.so.{major}");
        names.push(file.clone().into());
        names.extend(folders.iter().map(|folder| folder.join(&file)));
    }
    names.push("libnvrtc.so".into());
    names
}
