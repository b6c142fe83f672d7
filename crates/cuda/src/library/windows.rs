//! The names on Windows, whose loader knows the folders.

use std::path::PathBuf;

use super::majors;

/// Returns the name that the driver has.
pub(crate) fn driver_names() -> Vec<PathBuf> {
    vec!["nvcuda.dll".into()]
}

/// Returns the names of NVRTC.
pub(crate) fn compiler_names(driver_major: u32) -> Vec<PathBuf> {
    majors(driver_major).iter().map(|major| format!("nvrtc64_{major}0_0.dll").into()).collect()
}

/// Returns the name of CUPTI. We cannot guess its files, because their names contain the day they were made.
pub(crate) fn cupti_names(_driver_major: u32) -> Vec<PathBuf> {
    vec!["cupti64.dll".into()]
}
