// NVIDIA's algorithms, as functions that the program `algorithms` can load. Each returns an error of CUDA. If `temporary` is null,
// it sets `bytes` to the number of bytes that it needs.
#include <algorithm>

#include <cub/cub.cuh>
#include <cuda/std/functional>
#include <thrust/binary_search.h>
#include <thrust/execution_policy.h>

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
CALL cub_histogram_f32(SPACE, const float* x, u32* counts, size_t n, cudaStream_t stream) {
    return cub::DeviceHistogram::HistogramEven(GO, x, counts, 257, -1.0f, 1.0f, (long long)n, stream);
}
CALL cub_histogram_u8(SPACE, const unsigned char* x, u32* counts, size_t n, cudaStream_t stream) {
    return cub::DeviceHistogram::HistogramEven(GO, x, counts, 257, 0, 256, (long long)n, stream);
}
// Thrust may allocate by itself; this call does not need to.
CALL cub_lower_bound_u32(SPACE, const u32* sorted, size_t n, const u32* values, size_t m, u32* places, cudaStream_t stream) {
    if (!temporary) return *bytes = 1, 0;
    thrust::lower_bound(thrust::cuda::par_nosync.on(stream), sorted, sorted + n, values, values + m, places);
    return cudaGetLastError();
}
CALL cub_copy(SPACE, const void* x, void* y, size_t n, cudaStream_t stream) {
    if (!temporary) return *bytes = 1, 0;
    return cudaMemcpyAsync(y, x, n, cudaMemcpyDeviceToDevice, stream);
}

#define TRY(call) \
    if (cudaError_t error = (call); error != cudaSuccess) return error

// Keeps the rows with a flag, groups them by key, sums their values, and sorts the groups by their sums: the first are the largest.
// After the selection and after the sums, the host waits for the number of rows, because the next call takes it. `work` has room for six
// arrays of n words.
CALL cub_chain(SPACE, const u32* keys, const u32* values, const unsigned char* flags, u32* work, u32* count, size_t n,
               cudaStream_t stream) {
    u32 *k = work, *v = k + n, *k2 = v + n, *v2 = k2 + n, *runs = v2 + n, *sums = runs + n;
    if (!temporary) {
        size_t most = 0, needs = 0;
        TRY(cub::DeviceSelect::Flagged(nullptr, needs, keys, flags, k, count, n, stream));
        most = std::max(most, needs);
        TRY(cub::DeviceRadixSort::SortPairs(nullptr, needs, k, k2, v, v2, n, 0, 32, stream));
        most = std::max(most, needs);
        TRY(cub::DeviceReduce::ReduceByKey(nullptr, needs, k2, runs, v2, sums, count, ::cuda::std::plus<>{}, (int)n, stream));
        *bytes = std::max(most, needs);
        return 0;
    }
    u32 kept = 0, groups = 0;
    TRY(cub::DeviceSelect::Flagged(GO, keys, flags, k, count, n, stream));
    TRY(cub::DeviceSelect::Flagged(GO, values, flags, v, count, n, stream));
    TRY(cudaMemcpyAsync(&kept, count, 4, cudaMemcpyDeviceToHost, stream));
    TRY(cudaStreamSynchronize(stream));
    TRY(cub::DeviceRadixSort::SortPairs(GO, k, k2, v, v2, (size_t)kept, 0, 32, stream));
    TRY(cub::DeviceReduce::ReduceByKey(GO, k2, runs, v2, sums, count, ::cuda::std::plus<>{}, (int)kept, stream));
    TRY(cudaMemcpyAsync(&groups, count, 4, cudaMemcpyDeviceToHost, stream));
    TRY(cudaStreamSynchronize(stream));
    return cub::DeviceRadixSort::SortPairsDescending(GO, sums, v, runs, k, (size_t)groups, 0, 32, stream);
}
