#define GS_INLINE __device__ __forceinline__
#define GS_FOR_EACH(i, n) \
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (n); i += gridDim.x * (size_t)blockDim.x)
#define GS_FOR_EACH_2D(column, row, width, height) \
    for (size_t row = blockIdx.y * blockDim.y + threadIdx.y; row < (height); row += gridDim.y * blockDim.y) \
        GS_FOR_EACH(column, width)
