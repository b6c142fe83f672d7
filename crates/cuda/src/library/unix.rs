//! The places on Unix.

use std::path::{Path, PathBuf};

use gpustream_hal::folders::{beginning_with, entries, named_by, of_python};

use super::{TOOLKITS, majors};

/// Returns the names that the driver may have: first those for the dynamic linker, then the folders that some
/// distributions and container runtimes use without telling the linker.
pub(crate) fn driver_names() -> Vec<PathBuf> {
    // The versioned name comes first, because the linker's path may contain the toolkit's stub folder, which only has the plain
    // name.
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

/// Returns the names of NVRTC: first those for the dynamic linker, then the toolkit's usual folders. `driver_major` is the
/// driver's CUDA version. The driver may refuse code from a compiler with another major version, so that one comes last.
pub(crate) fn compiler_names(driver_major: u32) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for root in named_by(&TOOLKITS) {
        folders.extend(["lib64", "lib"].map(|lib| root.join(lib)));
    }
    folders.extend(python_packages("cuda_nvrtc"));
    folders.push("/usr/local/cuda/lib64".into());
    folders.push("/opt/cuda/lib64".into());
    versioned("libnvrtc.so", driver_major, &folders)
}

/// Returns the names of CUPTI, in the same order as NVRTC's, because a CUPTI that is newer than the driver refuses to work.
pub(crate) fn cupti_names(driver_major: u32) -> Vec<PathBuf> {
    let mut toolkits = named_by(&TOOLKITS);
    toolkits.extend(["/usr/local/cuda".into(), "/opt/cuda".into()]);
    // Each version has its own folder, the newest first.
    toolkits.extend(beginning_with("cuda-", Path::new("/usr/local")));
    let mut folders = cupti_folders(&toolkits);
    folders.extend(python_packages("cuda_cupti"));
    versioned("libcupti.so", driver_major, &folders)
}

/// Returns CUPTI's folders in the toolkits. NVIDIA's installer has one, and the distributions' packages have another.
fn cupti_folders(toolkits: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for root in toolkits {
        folders.extend(["extras/CUPTI/lib64", "lib64"].map(|lib| root.join(lib)));
        folders.extend(entries(&root.join("targets")).into_iter().map(|target| target.join("lib")));
    }
    folders
}

/// Returns where NVIDIA's libraries are in the packages of an active virtual environment. Before CUDA 13 each library has a
/// package.
fn python_packages(package: &str) -> Vec<PathBuf> {
    let own = format!("nvidia/{package}/lib");
    of_python(&["VIRTUAL_ENV"], &["nvidia/cu13/lib", "nvidia/cu12/lib", &own])
}

/// Returns the names of each version of `file`: for the dynamic linker, then in `folders`. The plain name comes last, because it
/// can be any version.
fn versioned(file: &str, driver_major: u32, folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for major in majors(driver_major) {
        let versioned = format!("{file}.{major}");
        names.push(versioned.clone().into());
        names.extend(folders.iter().map(|folder| folder.join(&versioned)));
    }
    names.push(file.into());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_drivers_version_come_first_and_the_plain_name_last() {
        let names = versioned("libcupti.so", 12, &["/a".into(), "/b".into()]);
        let expected = ["libcupti.so.12", "/a/libcupti.so.12", "/b/libcupti.so.12", "libcupti.so.13"];
        assert_eq!(&names[..4], expected.map(PathBuf::from));
        assert_eq!(names.last(), Some(&"libcupti.so".into()));
        assert_eq!(versioned("x", 14, &[])[..3], ["x.14", "x.13", "x.12"].map(PathBuf::from));
    }

    #[test]
    fn cupti_is_looked_for_in_each_of_a_toolkits_folders() {
        let toolkit = std::env::temp_dir().join(format!("gpustream-toolkit-{}", std::process::id()));
        let target = toolkit.join("targets/x86_64-linux");
        std::fs::create_dir_all(&target).unwrap();
        let folders = cupti_folders(&[toolkit.clone(), "/nowhere".into()]);
        std::fs::remove_dir_all(&toolkit).unwrap();
        let expected = [toolkit.join("extras/CUPTI/lib64"), toolkit.join("lib64"), target.join("lib")];
        assert_eq!(folders[..3], expected);
        assert_eq!(folders[3..], ["/nowhere/extras/CUPTI/lib64", "/nowhere/lib64"].map(PathBuf::from));
    }
}
