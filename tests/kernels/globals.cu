// Kernels that use variables by name. You do not see these in their arguments.
#include <gpustream/kernel.cuh>

struct Filter {
    float gain;
    unsigned shift[2];
    unsigned char kind;
};

/// The factors of `apply`.
__constant__ unsigned factors[4] = {1, 2, 3, 4};
__constant__ unsigned offset;
namespace filter {
__constant__ Filter settings;
}
__device__ unsigned counter, table[2][3] = {{1, 2, 3}, {4, 5, 6}};
static __device__ unsigned hidden = 5;
namespace {
__device__ unsigned own = 6;
}
// The host cannot write to these, because their types allow only some values.
__device__ unsigned* address;
__device__ volatile unsigned moving;
__device__ bool set;
// Nothing writes these, so launches need no order because of them.
__constant__ const unsigned primes[3] = {2, 3, 5};
static __device__ constexpr unsigned seven = 7;

/// Runs until `go` is not zero. Like any launch of this file, it may use all variables.
/// requires: 1 <= len(go)
extern "C" __global__ void hold(const volatile unsigned* go) {
    while (*go == 0) {
    }
}

/// y[i] = i * factors[i % 4] + offset
/// requires: n <= len(y)
/// covers: n
extern "C" __global__ void apply(unsigned* __restrict__ y, unsigned n) {
    GS_FOR_EACH(i, n) y[i] = (unsigned)i * factors[i % 4] + offset;
}

/// counter = counter * 5 + value, so the result depends on the order of the launches.
/// requires: grid.x * grid.y * grid.z == 1, block.x * block.y * block.z == 1
extern "C" __global__ void count(unsigned value) { counter = counter * 5 + value; }

/// Adds one to `moving`, `times` times. If two launches ran at once, some additions would be lost.
/// requires: grid.x * grid.y * grid.z == 1, block.x * block.y * block.z == 1
extern "C" __global__ void tally(unsigned times) {
    for (unsigned i = 0; i < times; ++i) moving = moving + 1;
}

/// Stores the settings and other variables.
/// requires: 8 <= len(out)
extern "C" __global__ void look(unsigned* __restrict__ out) {
    const Filter f = filter::settings;
    out[0] = (unsigned)f.gain;
    out[1] = f.shift[0];
    out[2] = f.shift[1];
    out[3] = f.kind;
    out[4] = table[1][2];
    out[5] = hidden + own;
    out[6] = (address != nullptr) + moving + set;
    out[7] = primes[f.kind % 3] + seven;
}
