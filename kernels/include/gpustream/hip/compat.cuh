// Device functions that CUDA has and HIP lacks, or lacked in earlier versions: included before a kernel's source where
// AMD's compiler reads it. All are templates, so that a function of HIP's or of the user's own with the same parameters
// comes first.
#ifndef GPUSTREAM_HIP_COMPAT_CUH
#define GPUSTREAM_HIP_COMPAT_CUH

#if !defined(__HIPCC_RTC__)
#include <hip/hip_runtime.h>
#endif

#define GS_HIP_FN template <int = 0> static __device__ __forceinline__

#define GS_HIP_MIN_MAX(T)                                        \
    GS_HIP_FN T min(T a, T b) { return b < a ? b : a; }          \
    GS_HIP_FN T max(T a, T b) { return a < b ? b : a; }
GS_HIP_MIN_MAX(unsigned int)
GS_HIP_MIN_MAX(long)
GS_HIP_MIN_MAX(unsigned long)
GS_HIP_MIN_MAX(long long)
GS_HIP_MIN_MAX(unsigned long long)
#undef GS_HIP_MIN_MAX
#undef GS_HIP_FN

#endif
