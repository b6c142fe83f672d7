#include <gpustream/kernel.cuh>

/// The part of the complex plane that a picture shows.
struct Frame {
    /// The coordinates of the upper left corner.
    double left, top;
    /// The distance from one column to the next.
    double column;
    /// The distance from one row to the next.
    double row;
};

/// escape[y * width + x] = how many steps z = z * z + c take until |z| > 2, at most `limit`
/// requires: width * height <= len(escape)
/// covers: width * height
extern "C" __global__ void mandelbrot(Frame frame, unsigned int* __restrict__ escape, size_t width, size_t height,
                                      unsigned int limit) {
    GS_FOR_EACH_2D(x, y, width, height) {
        const double cr = frame.left + x * frame.column, ci = frame.top - y * frame.row;
        double zr = 0, zi = 0;
        unsigned int steps = 0;
        while (steps < limit && zr * zr + zi * zi <= 4) {
            const double r = zr * zr - zi * zi + cr;
            zi = 2 * zr * zi + ci;
            zr = r;
            ++steps;
        }
        escape[y * width + x] = steps;
    }
}
