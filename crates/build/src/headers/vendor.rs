//! Headers with a vendor's names, for other compilers. So your kernel file may say `#include
//! <cuda_runtime.h>` and still be compiled for all backends.
//!
//! On the CPU, device code needs no include for its built-in words, so nearly all of these headers are empty.
//! For AMD's compiler, CUDA's headers include HIP's, and for nvcc the other way round.

use crate::backend::Backend;

/// Returns the folder with vendors' headers for a backend, below the folder of the device headers.
pub(crate) const fn folder(backend: Backend) -> &'static str {
    match backend {
        Backend::Cpu => "gpustream/cpu/vendor",
        Backend::Cuda => "gpustream/cuda/vendor",
        Backend::Hip => "gpustream/hip/vendor",
    }
}

const CUDA_RUNTIME: &str = "cuda.h cuda_runtime.h cuda_runtime_api.h driver_types.h cuda_profiler_api.h";
const HIP_RUNTIME: &str = "hip/hip_runtime.h hip/hip_runtime_api.h hip/driver_types.h";
const CUDA_WORDS: &str = "device_launch_parameters.h vector_types.h vector_functions.h device_functions.h \
    math_functions.h device_atomic_functions.h sm_20_intrinsics.h sm_30_intrinsics.h sm_35_intrinsics.h \
    sm_60_atomic_functions.h sm_61_intrinsics.h texture_types.h surface_types.h texture_indirect_functions.h \
    surface_indirect_functions.h cuda_texture_types.h cuda_surface_types.h host_defines.h builtin_types.h device_types.h crt/host_defines.h \
    crt/device_functions.h";
const HIP_WORDS: &str = "hip/hip_vector_types.h hip/hip_common.h hip/hip_ext.h hip/device_functions.h hip/math_functions.h \
     hip/texture_types.h hip/hip_texture_types.h hip/surface_types.h";
/// Libraries that only host code uses.
const HOST: &str = "cublas_v2.h cublas.h cublasLt.h nvtx3/nvToolsExt.h nvtx3/nvToolsExtCudaRt.h nvToolsExt.h nvToolsExtCudaRt.h cudaEGL.h cusparse.h cusolverDn.h cusolverSp.h curand.h \
    nvrtc.h cuda_gl_interop.h cudaGL.h npp.h nppi.h hipblas/hipblas.h rocblas/rocblas.h hipfft/hipfft.h hip/hiprtc.h \
    hiprtc.h hipsparse/hipsparse.h hipsolver/hipsolver.h hiprand/hiprand.h hipblaslt/hipblaslt.h rocsparse/rocsparse.h \
    rocsolver/rocsolver.h nccl.h rccl/rccl.h cusolver_common.h cufftw.h";
/// A folder with headers that stand for libraries which are not installed, for kernels without their host code.
pub(crate) const HOST_OF_CUDA: &str = "gpustream/cuda/host";
const HOST_TYPES: &str = "#include <gpustream/host_types.cuh>";
/// What cuBLAS includes. Kernels may use these types without a further `#include`.
const CUBLAS_INCLUDES: &str = "#include <cuComplex.h>\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n";
/// cuRAND in kernels.
const RANDOM: &str = "#include <gpustream/curand_kernel.cuh>";
/// Headers from CUDA's C++ library that kernels may use. One of your folders may have the real ones.
const CCCL: &str = "cuda/atomic cuda/semaphore cuda/latch";
/// Headers from CUDA's C++ library that are the standard's under another name.
const STANDARD: &str = "algorithm array cassert cfloat climits cmath complex cstddef cstdint cstdlib cstring ctime \
    functional initializer_list limits numeric optional ratio tuple type_traits utility variant";
/// Floating-point types of less than 16 bits.
const SHORT_FLOATS: &str = "cuda_fp6.h cuda_fp4.h";
/// The parts of Thrust that only host code uses. The parts that kernels use or declarations mention are files
/// of their own.
const THRUST: &str = "copy fill sequence sort reduce scan transform \
    transform_reduce generate random device_malloc device_free for_each unique count extrema inner_product \
    execution_policy iterator/counting_iterator iterator/transform_iterator \
    iterator/constant_iterator iterator/permutation_iterator iterator/discard_iterator iterator/reverse_iterator \
    adjacent_difference binary_search gather scatter partition remove replace set_operations merge tabulate logical \
    mismatch equal find detail/config system/cuda/execution_policy system/hip/execution_policy";

/// Cooperative groups. Unless the compiler is nvcc, they are all in one header of ours.
const CUDA_GROUPS: &str = "cooperative_groups.h cooperative_groups/reduce.h cooperative_groups/scan.h \
    cooperative_groups/memcpy_async.h";
const HIP_GROUPS: &str = "hip/hip_cooperative_groups.h";

/// HIP's words that CUDA's compilers lack.
const HIP_ON_CUDA: &str = "typedef cudaTextureObject_t hipTextureObject_t;\ntypedef cudaSurfaceObject_t \
    hipSurfaceObject_t;\n#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];\n\
    #define HIP_DYNAMIC_SHARED_ATTRIBUTE";

/// Returns the text for run-time compilers if this is the name of a vendor header. They have its contents
/// built in, but they can only find headers that come with the source.
pub(crate) fn built_in(name: &str) -> Option<String> {
    let is_in =
        |lists: [&str; 2]| lists.iter().any(|names| names.split_whitespace().any(|other| other == name));
    if is_in([HIP_RUNTIME, HIP_WORDS]) {
        return Some(format!("#ifdef __CUDACC_RTC__\n{HIP_ON_CUDA}\n#endif\n"));
    }
    is_in([CUDA_RUNTIME, CUDA_WORDS]).then(String::new)
}

/// Returns the headers that are one line long: path below the folder of the device headers, and text.
pub(super) fn one_liners() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |backend, names: &str, text: &str| {
        let path = |name: &str| format!("{}/{name}", folder(backend));
        all.extend(names.split_whitespace().map(|name| (path(name), format!("#pragma once\n{text}\n"))));
    };
    let cpu = Backend::Cpu;
    for names in [CUDA_RUNTIME, HIP_RUNTIME] {
        add(cpu, names, "");
    }
    for names in
        [CUDA_WORDS, HIP_WORDS, "cuda_fp16.h cuda_bf16.h", "hip/hip_fp16.h hip/hip_bf16.h hip/hip_bfloat16.h"]
    {
        add(cpu, names, "");
    }
    add(cpu, HOST, HOST_TYPES);
    let complex = "#include <gpustream/complex.cuh>";
    let cufft = format!(
        "{complex}\ntypedef float cufftReal;\ntypedef double cufftDoubleReal;\ntypedef cuComplex cufftComplex;\n\
         typedef cuDoubleComplex cufftDoubleComplex;"
    );
    add(cpu, "cufft.h", &cufft);
    add(cpu, "cufftXt.h", "#include <cufft.h>");
    for name in [CCCL, SHORT_FLOATS].into_iter().flat_map(str::split_whitespace) {
        let error = format!(
            "#error \"the CPU backend has no <{name}>: leave `cpu` out of this file's backends, or write the kernel without \
             it where GS_CPU is defined\""
        );
        add(cpu, name, &unless_installed(name, &error));
    }
    for backend in [cpu, Backend::Hip] {
        for name in STANDARD.split_whitespace() {
            let text =
                format!("#include <{name}>\nnamespace cuda {{ namespace std {{ using namespace ::std; }} }}");
            add(backend, &format!("cuda/std/{name}"), &text);
        }
        add(backend, "cuComplex.h", complex);
        add(backend, "curand_kernel.h", RANDOM);
        add(backend, "mma.h", "#include <gpustream/wmma.cuh>");
        add(
            backend,
            "cuda_pipeline.h cuda_pipeline_primitives.h",
            "#include <gpustream/pipeline_primitives.cuh>",
        );
        add(backend, "cuda/barrier", "#include <gpustream/cuda_barrier.cuh>");
        add(backend, "cuda/pipeline", "#include <gpustream/cuda_pipeline.cuh>");
        add(backend, "math_constants.h hip/hip_math_constants.h", "#include <gpustream/math_constants.cuh>");
    }
    for names in [CUDA_GROUPS, HIP_GROUPS] {
        add(cpu, names, "#include <gpustream/groups.cuh>");
        add(Backend::Hip, names, "#include <gpustream/groups.cuh>");
    }
    for name in THRUST.split_whitespace() {
        add(cpu, &format!("thrust/{name}.h"), "namespace thrust {}");
    }
    for names in [CUDA_RUNTIME, CUDA_WORDS] {
        add(Backend::Hip, names, "#include <hip/hip_runtime.h>");
    }
    let objects = format!("#include <cuda_runtime.h>\n{HIP_ON_CUDA}");
    for names in [HIP_RUNTIME, HIP_WORDS] {
        add(Backend::Cuda, names, &objects);
    }
    add(Backend::Cuda, "hip/hip_fp16.h", "#include <cuda_fp16.h>");
    add(Backend::Cuda, "hip/hip_bf16.h hip/hip_bfloat16.h", "#include <cuda_bf16.h>");
    add(Backend::Cuda, "hip/hip_cooperative_groups.h", "#include <cooperative_groups.h>");
    add(Backend::Cuda, "curand_kernel.h", &unless_installed("curand_kernel.h", RANDOM));
    for name in HOST.split_whitespace().chain(["cuda_profiler_api.h"]) {
        let types = if name.starts_with("cublas") { CUBLAS_INCLUDES } else { "" };
        let text = unless_installed(name, &format!("{types}{HOST_TYPES}"));
        all.push((format!("{HOST_OF_CUDA}/{name}"), format!("#pragma once\n{text}\n")));
    }
    all
}

/// Returns a header's text: the installed header of that name, or else `ours`.
fn unless_installed(name: &str, ours: &str) -> String {
    format!("#if __has_include_next(<{name}>)\n#include_next <{name}>\n#else\n{ours}\n#endif")
}
