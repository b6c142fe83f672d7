// A kernel that prints.
#include <gpustream/kernel.cuh>

/// Each thread prints a line that says which thread it is.
/// requires: nothing
extern "C" __global__ void say(unsigned round) {
    printf("kernel %u: thread %u of block %u\n", round, (unsigned)threadIdx.x, (unsigned)blockIdx.x);
}
