// Kernels that use the types of existing CUDA and HIP files.
#include <gpustream/kernel.cuh>

#include "types.cuh"

enum class Flavour : unsigned char { SWEET, SOUR = 7 };

/// out[8 i ...] = the members of cells[i], eight numbers for each.
extern "C" __global__ void read_cells(const Cell* const __restrict__ cells, double* __restrict out, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    const Cell cell = cells[i];
    double* to = out + 8 * i;
    to[0] = (double)cell.counts[0][0];
    to[1] = (double)cell.counts[ROWS - 1][LANES - 1];
    to[2] = (double)cell.box.name;
    to[3] = cell.box.volume;
    to[4] = cell.box.open ? 1.0 : 0.0;
    to[5] = (double)cell.mode;
    to[6] = (double)cell.weight;
    to[7] = (double)sizeof(Cell);
}

/// Takes a cell by value, and writes the members that lie around padding.
extern "C" __global__ void write_cell(Cell cell, Cell* to) {
    to[0].counts[ROWS - 1][LANES - 1] = cell.counts[0][1];
    to[0].box.name = cell.box.name;
    to[0].box.volume = cell.box.volume;
    to[0].box.open = !cell.box.open;
    to[0].mode = cell.mode;
    to[0].weight = cell.weight;
}

/// Writes values of small types to `out`.
/// requires: 6 <= len(out)
extern "C" __global__ void small_types(char c, Mode mode, Flavour flavour, Bits bits, clock_t ticks, dim3 grid, double* out) {
    out[0] = (double)c;
    out[1] = (double)(int)mode;
    out[2] = (double)(int)flavour;
    out[3] = (double)bits.bits;
    out[4] = (double)ticks;
    out[5] = (double)(grid.x + 10 * grid.y + 100 * grid.z);
}

/// Inverts bools, and reverses a text.
extern "C" __global__ void turn_over(bool* flags, const char* text, char* reversed, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    flags[i] = !flags[i];
    reversed[n - 1 - i] = text[i];
}

/// Adds up `count` arrays of `n` elements. Their addresses are in memory.
extern "C" __global__ void sum_columns(const float* const* columns, int count, float* sums, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    float sum = 0.0f;
    for (int column = 0; column < count; column++) sum += columns[column][i];
    sums[i] = sum;
}

/// Transposes rows of three. The parameters are written as arrays.
extern "C" __global__ void transpose(const float from[][LANES], float (*to)[ROWS]) {
    const unsigned i = threadIdx.x;
    if (i < LANES * ROWS) to[i % LANES][i / LANES] = from[i / LANES][i % LANES];
}

/// Copies bytes of any type.
extern "C" __global__ void copy_bytes(const void* from, void* to, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) ((unsigned char*)to)[i] = ((const unsigned char*)from)[i];
}

/// out[i] = a * x[i] + addend[i]. You may leave out the addend. If there is a counter, it counts the elements.
/// requires: n <= len(x), n <= len(addend), n <= len(out), 1 <= len(counter)
/// covers: n
/// reads: x
/// optional: addend, counter
extern "C" __global__ void scale_and_add(float a, float* x, const float* addend, float* out, unsigned* counter, size_t n) {
    GS_FOR_EACH(i, n) {
        out[i] = a * x[i] + (addend ? addend[i] : 0.0f);
        if (counter) atomicAdd(counter, 1u);
    }
}

/// Stores whether `to` was there. This kernel has no contract, but a pointer may be null.
/// optional: to
extern "C" __global__ void store_if_there(float* to, bool* was_there) {
    was_there[0] = to != nullptr;
    if (to) to[0] = 7.0f;
}
