//! The device work of three examples, written with cudarc.

pub(crate) mod blur;
pub(crate) mod network;
pub(crate) mod simulation;

/// Makes a kernel file readable for NVRTC without this library's header. With cudarc alone you would write the file like this
/// from the start, so `plain.cuh` is not counted.
fn for_nvrtc(file: &str) -> String {
    let kernels = file
        .replace("#include <gpustream/kernel.cuh>", include_str!("plain.cuh"))
        .replace("\n__global__", "\nextern \"C\" __global__");
    debug_assert!(!kernels.contains("gpustream/"));
    kernels
}
