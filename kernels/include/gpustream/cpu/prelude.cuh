// The words that nvcc and hipcc predefine, for g++ and clang++: included before a kernel's source on the CPU backend.
#ifndef GPUSTREAM_CPU_PRELUDE_CUH
#define GPUSTREAM_CPU_PRELUDE_CUH

// Tells portable headers that the host compiler compiles this file as device code.
#define GPUSTREAM_CPU 1
// The file is read as CUDA, and headers may declare what they have for kernels. There is no __CUDA_ARCH__: code that
// depends on a GPU's instructions takes its other way. Of __HIPCC__ and __HIP_PLATFORM_AMD__ nothing is said.
#define __CUDACC__ 1

// These come before the keywords below, some of which are attribute names inside the standard library.
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
