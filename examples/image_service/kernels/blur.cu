#include <gpustream/kernel.cuh>

/// to[y, x] = the mean of the pixels of row y from column x - radius to x + radius, as far as they are in the image. A pixel is
/// four bytes: red, green, blue and alpha, from the lowest up.
/// requires: width * height <= len(from), width * height <= len(to)
/// covers: width * height
__global__ void blur_rows(const unsigned int* __restrict__ from, unsigned int* __restrict__ to, size_t width, size_t height,
                          unsigned int radius) {
    GS_FOR_EACH_2D(x, y, width, height) {
        const size_t first = x > radius ? x - radius : 0, last = x + radius < width ? x + radius : width - 1;
        unsigned int red = 0, green = 0, blue = 0, alpha = 0;
        for (size_t i = first; i <= last; ++i) {
            const unsigned int pixel = from[y * width + i];
            red += pixel & 255, green += pixel >> 8 & 255, blue += pixel >> 16 & 255, alpha += pixel >> 24;
        }
        const unsigned int count = (unsigned int)(last - first + 1), half = count / 2;
        to[y * width + x] = (red + half) / count | (green + half) / count << 8 | (blue + half) / count << 16 |
                            (alpha + half) / count << 24;
    }
}

/// Like `blur_rows`, along the columns.
/// requires: width * height <= len(from), width * height <= len(to)
/// covers: width * height
__global__ void blur_columns(const unsigned int* __restrict__ from, unsigned int* __restrict__ to, size_t width,
                             size_t height, unsigned int radius) {
    GS_FOR_EACH_2D(x, y, width, height) {
        const size_t first = y > radius ? y - radius : 0, last = y + radius < height ? y + radius : height - 1;
        unsigned int red = 0, green = 0, blue = 0, alpha = 0;
        for (size_t i = first; i <= last; ++i) {
            const unsigned int pixel = from[i * width + x];
            red += pixel & 255, green += pixel >> 8 & 255, blue += pixel >> 16 & 255, alpha += pixel >> 24;
        }
        const unsigned int count = (unsigned int)(last - first + 1), half = count / 2;
        to[y * width + x] = (red + half) / count | (green + half) / count << 8 | (blue + half) / count << 16 |
                            (alpha + half) / count << 24;
    }
}
