//! Which backend a target belongs to.

use gpustream_build::{Backend, Kernels};

/// Adds a target, such as `sm_90`, `gfx942` or `x86-64-v3`. Returns its backend too.
pub(crate) fn add(kernels: Kernels, arch: &str) -> (Backend, Kernels) {
    if arch.starts_with("sm_") {
        (Backend::Cuda, kernels.cuda_arch(arch))
    } else if arch.starts_with("gfx") {
        (Backend::Hip, kernels.hip_arch(arch))
    } else {
        (Backend::Cpu, kernels.cpu_level(arch))
    }
}
