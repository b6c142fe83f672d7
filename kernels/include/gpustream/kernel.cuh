// gpustream's portable device library. Include this one file in your kernels; nvcc, hipcc, NVRTC, HIPRTC and
// a host C++ compiler all accept it.
//
//   for_each.cuh   GS_FOR_EACH and its relatives: loops shared by the threads of a grid or a block
//   wide.cuh       GS_FOR_EACH_WIDE, gs::fold_wide: sixteen bytes at a time, right at any alignment and length
//   warp.cuh       gs::lane, gs::shfl_down, gs::ballot, ...: warps of 32 and of 64 lanes
//   reduce.cuh     gs::warp_reduce, gs::block_reduce, gs::block_scan
//   half.cuh       gs::half, gs::bfloat16 and their conversions
//   atomics.cuh    gs::atomic_add, gs::atomic_min, gs::atomic_max for types that a vendor lacks
//   grid.cuh       gs::grid_barrier, for cooperative launches
//   cluster.cuh    gs::cluster_barrier, gs::cluster_shared, ...: for launches with clusters
//
// These you include too, if you need them:
//   matrix.cuh        gs::MatrixA, gs::multiply_add, ...: matrix cores
//   async_copy.cuh    gs::copy_async, gs::pipeline: copies to shared memory while you compute
//   matrix_block.cuh  gs::BlockProduct, gs::SharedTile: products by all warps of a block
//
// The headers also define int8_t to uint64_t, under every compiler. They need C++17.
#ifndef GPUSTREAM_KERNEL_CUH
#define GPUSTREAM_KERNEL_CUH

#include <gpustream/backend.cuh>
#include <gpustream/for_each.cuh>
#include <gpustream/cluster.cuh>
#include <gpustream/grid.cuh>
#include <gpustream/half.cuh>
#include <gpustream/atomics.cuh>
#include <gpustream/warp.cuh>
#include <gpustream/reduce.cuh>
#include <gpustream/wide.cuh>

#endif
