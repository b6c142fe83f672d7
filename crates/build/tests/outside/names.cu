#include <gpustream/kernel.cuh>

enum Mode : int { Off, On };
struct Pair {
    int first, second;
};
struct Plus {
    __device__ int operator()(int a, int b) const { return a + b; }
};
__constant__ int offset[2];

/// requires: None <= len(self), Some <= 100, Ok >= 0
/// covers: None
__global__ void words(int* self, size_t None, int Some, int Ok, int Err, int Self, int self_, int type, int match, Mode Mode,
                      Pair Pair, int stream, int launch) {
    if (threadIdx.x == 0) {
        self[0] = Some + Ok + Err + Self + self_ + type + match + int(Mode) + Pair.first + stream + launch + offset[1];
    }
}

/// optional: Some
/// requires: len(Some) >= n, n <= len(Ok)
/// covers: n
__global__ void maybe(const float* Some, float* Ok, size_t n) {
    GS_FOR_EACH(i, n) { Ok[i] = Some ? Some[i] : -1.0f; }
}

__global__ void unchecked(int* crate, int super) { crate[0] = super; }

/// types: (Option, None) = (Plus, 2), (Plus, 3)
/// requires: 1 <= len(Plus)
template <class Option, int None>
__global__ void apply(int* Plus) {
    Plus[0] = Option()(Plus[0], None);
}
