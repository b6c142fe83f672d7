// The kernels of `network.rs`: what happens between the matrix products. Matrices are stored row by row, one row for each
// sample. The inputs of a layer end with a 1, so the last row of its weights is the bias.
#include <gpustream/kernel.cuh>

/// out = tanh(sums), with a 1 at the end of each row. So each row has one element more than a row of `sums`.
/// requires: rows * width <= len(sums), rows * (width + 1) <= len(out)
/// covers: rows * (width + 1)
extern "C" __global__ void activate(const float* __restrict__ sums, float* __restrict__ out, size_t rows, size_t width) {
    GS_FOR_EACH_2D(column, row, width + 1, rows) {
        out[row * (width + 1) + column] = column < width ? tanhf(sums[row * width + column]) : 1.0f;
    }
}

/// Computes the gradient with respect to `sums` from the gradient with respect to the outputs that `activate` made of them.
/// requires: rows * (width + 1) <= len(of_outputs), rows * (width + 1) <= len(outputs), rows * width <= len(of_sums)
/// covers: rows * width
extern "C" __global__ void deactivate(const float* __restrict__ of_outputs, const float* __restrict__ outputs,
                                      float* __restrict__ of_sums, size_t rows, size_t width) {
    GS_FOR_EACH_2D(column, row, width, rows) {
        const size_t i = row * (width + 1) + column;
        of_sums[row * width + column] = of_outputs[i] * (1 - outputs[i] * outputs[i]);
    }
}

/// Replaces the prediction by the gradient of the loss. The loss is scale / 2 times the sum of the squares of prediction -
/// answer.
/// requires: n <= len(answer), n <= len(prediction)
/// covers: n
extern "C" __global__ void difference(const float* __restrict__ answer, float* __restrict__ prediction, float scale,
                                      size_t n) {
    GS_FOR_EACH_WIDE(
        n, prediction, [=](float answer, float prediction) { return scale * (prediction - answer); }, answer, prediction);
}
