// NVIDIA's algorithms, as functions that the program `algorithms` can load. Each returns an error of CUDA. If `temporary` is null,
// it sets `bytes` to the number of bytes that it needs.
#include <cub/cub.cuh>
#include <cuda/std/functional>

typedef unsigned int u32;
typedef unsigned long long u64;

// The keys that `select` keeps: the larger half.
struct UpperHalf {
    __device__ bool operator()(u32 key) const { return key >> 31; }
};

#define CALL extern "C" int
#define SPACE void *temporary, size_t *bytes
#define GO temporary, *bytes

CALL cub_sum_f32(SPACE, const float* x, float* y, size_t n, cudaStream_t stream) {
    return cub::DeviceReduce::Sum(GO, x, y, n, stream);
}
CALL cub_arg_min_f32(SPACE, const float* x, float* y, long long* at, size_t n, cudaStream_t stream) {
    return cub::DeviceReduce::ArgMin(GO, x, y, at, (long long)n, stream);
}
CALL cub_sum_segments_f32(SPACE, const float* x, float* y, const u32* offsets, size_t segments, cudaStream_t stream) {
    return cub::DeviceSegmentedReduce::Sum(GO, x, y, (long long)segments, offsets, offsets + 1, stream);
}
CALL cub_scan_f32(SPACE, const float* x, float* y, size_t n, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(GO, x, y, n, stream);
}
CALL cub_scan_u32(SPACE, const u32* x, u32* y, size_t n, cudaStream_t stream) {
    return cub::DeviceScan::ExclusiveSum(GO, x, y, n, stream);
}
CALL cub_scan_f64(SPACE, const double* x, double* y, size_t n, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(GO, x, y, n, stream);
}
CALL cub_select_u32(SPACE, const u32* x, u32* y, u32* count, size_t n, cudaStream_t stream) {
    return cub::DeviceSelect::If(GO, x, y, count, n, UpperHalf(), stream);
}
CALL cub_flagged_u32(SPACE, const u32* x, const unsigned char* flags, u32* y, u32* count, size_t n, cudaStream_t stream) {
    return cub::DeviceSelect::Flagged(GO, x, flags, y, count, n, stream);
}
CALL cub_unique_u32(SPACE, const u32* x, u32* y, u32* count, size_t n, cudaStream_t stream) {
    return cub::DeviceSelect::Unique(GO, x, y, count, n, stream);
}
CALL cub_run_lengths_u32(SPACE, const u32* x, u32* y, u32* lengths, u32* count, size_t n, cudaStream_t stream) {
    return cub::DeviceRunLengthEncode::Encode(GO, x, y, lengths, count, (int)n, stream);
}
CALL cub_sum_by_key_f32(SPACE, const u32* keys, u32* run_keys, const float* x, float* y, u32* count, size_t n, cudaStream_t stream) {
    return cub::DeviceReduce::ReduceByKey(GO, keys, run_keys, x, y, count, ::cuda::std::plus<>{}, (int)n, stream);
}
CALL cub_sum_by_key_u32(SPACE, const u32* keys, u32* run_keys, const u32* x, u32* y, u32* count, size_t n, cudaStream_t stream) {
    return cub::DeviceReduce::ReduceByKey(GO, keys, run_keys, x, y, count, ::cuda::std::plus<>{}, (int)n, stream);
}
CALL cub_scan_by_key_f32(SPACE, const u32* keys, const float* x, float* y, size_t n, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSumByKey(GO, keys, x, y, (int)n, ::cuda::std::equal_to<>{}, stream);
}
CALL cub_sort_u32(SPACE, const u32* x, u32* y, size_t n, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortKeys(GO, x, y, n, 0, 32, stream);
}
CALL cub_sort_f32(SPACE, const float* x, float* y, size_t n, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortKeys(GO, x, y, n, 0, 32, stream);
}
CALL cub_sort_u64(SPACE, const u64* x, u64* y, size_t n, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortKeys(GO, x, y, n, 0, 64, stream);
}
CALL cub_sort_pairs_u32(SPACE, const u32* x, u32* y, const u32* v, u32* w, size_t n, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortPairs(GO, x, y, v, w, n, 0, 32, stream);
}
CALL cub_sort_pairs_u64(SPACE, const u64* x, u64* y, const u64* v, u64* w, size_t n, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortPairs(GO, x, y, v, w, n, 0, 64, stream);
}
CALL cub_sort_segments_u32(SPACE, const u32* x, u32* y, size_t n, const u32* offsets, size_t segments, cudaStream_t stream) {
    return cub::DeviceSegmentedSort::SortKeys(GO, x, y, (long long)n, (long long)segments, offsets, offsets + 1, stream);
}
