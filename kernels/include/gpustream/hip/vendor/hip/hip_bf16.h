// HIP has this header since ROCm 5.7.
#pragma once
#include <hip/hip_runtime.h>
#if __has_include_next(<hip/hip_bf16.h>)
#include_next <hip/hip_bf16.h>
#else
#include <gpustream/bfloat16.cuh>
#endif
