// What nvcc and hipcc predefine, for g++ and clang++. The CPU backend includes it before a kernel's source.
#ifndef GPUSTREAM_CPU_PRELUDE_CUH
#define GPUSTREAM_CPU_PRELUDE_CUH

// Tells portable headers that the host compiler is compiling this file as device code.
#define GPUSTREAM_CPU 1
// We read the file as CUDA, and headers can declare what they have for kernels. We do not define __CUDA_ARCH__, so
// code that depends on a GPU's instructions takes its other way. We define neither __HIPCC__ nor
// __HIP_PLATFORM_AMD__.
#define __CUDACC__ 1

// These must come before the keywords below, because some keywords are attribute names inside the
// standard library.
#include <cassert>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sched.h>
#include <limits>
#include <type_traits>
#include <utility>

#include "abi.h"
#include "keywords.cuh"
#include "types.cuh"
#include "builtins.cuh"
#include "half.cuh"
#include "barrier.cuh"
#include "warp.cuh"
#include "math.cuh"
#include "atomics.cuh"
#include "half2.cuh"
#include "vectors.cuh"
#include "textures.cuh"
#include "host_api.cuh"
#include <gpustream/intrinsics.cuh>

#endif
