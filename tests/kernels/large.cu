// Kernels with more than 4096 bytes of parameters, which CUDA takes from 12.1 on.
#include <gpustream/kernel.cuh>

struct Table {
    unsigned cells[2048];
};

struct Most {
    unsigned cells[8188];
};

/// Stores table.cells[i] + before + after in out[i].
/// requires: 2048 <= len(out)
/// covers: 2048
extern "C" __global__ void spread(unsigned char before, Table table, unsigned char after, unsigned* __restrict__ out) {
    GS_FOR_EACH(i, 2048) out[i] = table.cells[i] + before + after;
}

/// The same with 32764 bytes of parameters, which is all that there can be.
/// requires: 8188 <= len(out)
/// covers: 8188
extern "C" __global__ void spread_most(Most most, unsigned* __restrict__ out, unsigned after) {
    GS_FOR_EACH(i, 8188) out[i] = most.cells[i] + after;
}
