//! The places that AMD's libraries can be in.

use std::path::{Path, PathBuf};

use gpustream_hal::folders::named_by;

use crate::version::Version;

/// Library names, newest first. Python wheels and run-time packages lack the plain one. HIP 7.15, which comes with ROCm
/// 10, is still `.so.7`. If an `.so.8` appears, we must not try it, because we have not read its interface.
const NAMES: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// Returns the names of libamdhip64: first those for the dynamic linker, then the folders that ROCm installs it into.
pub(crate) fn driver_names() -> Vec<PathBuf> {
    let installed = rocm_roots().into_iter().flat_map(|root| NAMES.map(|name| root.join("lib").join(name)));
    NAMES.into_iter().map(PathBuf::from).chain(installed).collect()
}

/// Returns the names of the HIPRTC that came with the libamdhip64 at `driver`, which has this version. We must look
/// next to that library first, because two versions cannot be mixed.
pub(crate) fn compiler_names(driver: &Path, version: Version) -> Vec<PathBuf> {
    let name = format!("libhiprtc.so.{}", version.major());
    let beside = driver.parent().map(|folder| folder.join(&name));
    let installed = rocm_roots().into_iter().map(|root| root.join("lib").join(&name));
    beside.into_iter().chain([PathBuf::from(&name)]).chain(installed).collect()
}

/// Returns the names of rocprofiler-sdk. Version 1 comes with ROCm 7, version 0 with ROCm 6.
pub(crate) fn rocprofiler_names() -> Vec<PathBuf> {
    installed(&["librocprofiler-sdk.so.1", "librocprofiler-sdk.so.0", "librocprofiler-sdk.so"])
}

/// Returns the names of roctx: first rocprofiler-sdk's, which rocprofv3 listens to, then roctracer's, for rocprof before ROCm
/// 6.2.
pub(crate) fn roctx_names() -> Vec<PathBuf> {
    installed(&[
        "librocprofiler-sdk-roctx.so.1",
        "librocprofiler-sdk-roctx.so",
        "libroctx64.so.4",
        "libroctx64.so",
    ])
}

/// Returns each name for the dynamic linker, then in the folders that ROCm installs it into.
fn installed(names: &[&str]) -> Vec<PathBuf> {
    let roots = rocm_roots();
    let places = names.iter().flat_map(|name| {
        let installed = roots.iter().map(move |root| root.join("lib").join(name));
        std::iter::once(PathBuf::from(name)).chain(installed)
    });
    places.collect()
}

/// Returns the folders that ROCm can be in: `ROCM_PATH`, `HIP_PATH`, the default.
fn rocm_roots() -> Vec<PathBuf> {
    let mut roots = named_by(&["ROCM_PATH", "HIP_PATH"]);
    roots.push(PathBuf::from("/opt/rocm"));
    roots.dedup();
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_name_comes_first() {
        let names = driver_names();
        assert_eq!(names[0], Path::new("libamdhip64.so.7"));
        assert_eq!(names.last().unwrap(), Path::new("/opt/rocm/lib/libamdhip64.so"));
    }
}
