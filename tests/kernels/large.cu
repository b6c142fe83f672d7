// Kernels with more than 4096 bytes of parameters. CUDA can pass so many since 12.1.
#include <gpustream/kernel.cuh>

struct Table {
    unsigned cells[2048];
};

struct Most {
    unsigned cells[8188];
};

/// out[i] = table.cells[i] + before + after
/// requires: 2048 <= len(out)
/// covers: 2048
extern "C" __global__ void spread(unsigned char before, Table table, unsigned char after, unsigned* __restrict__ out) {
    GS_FOR_EACH(i, 2048) out[i] = table.cells[i] + before + after;
}

/// Does the same with 32764 bytes of parameters, and you cannot pass more.
/// requires: 8188 <= len(out)
/// covers: 8188
extern "C" __global__ void spread_most(Most most, unsigned* __restrict__ out, unsigned after) {
    GS_FOR_EACH(i, 8188) out[i] = most.cells[i] + after;
}
