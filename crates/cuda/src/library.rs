//! The places that NVIDIA's libraries can be in.

use cfg_if::cfg_if;

// We compile the names for each system on all systems, because otherwise one could break and we would not notice.
#[cfg_attr(windows, allow(dead_code))]
mod unix;
#[cfg_attr(not(windows), allow(dead_code))]
mod windows;

cfg_if! {
    if #[cfg(windows)] {
        pub(crate) use windows::{compiler_names, cupti_names, driver_names};
    } else {
        pub(crate) use unix::{compiler_names, cupti_names, driver_names};
    }
}

/// The variables that name a toolkit's folder.
pub(crate) const TOOLKITS: [&str; 3] = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

/// Returns the major versions of CUDA to look for, the driver's first.
fn majors(driver: u32) -> Vec<u32> {
    let others = [13, 12].into_iter().filter(|&major| major != driver);
    std::iter::once(driver).chain(others).collect()
}
