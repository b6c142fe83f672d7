#include <gpustream/kernel.cuh>

// Returns the mean of `count` pixels, each `step` behind the last. A pixel is four bytes: red, green, blue and alpha, from the
// lowest up.
static GS_INLINE unsigned int mean(const unsigned int* pixels, size_t count, size_t step) {
    unsigned int red = 0, green = 0, blue = 0, alpha = 0;
    for (size_t i = 0; i < count; ++i) {
        const unsigned int pixel = pixels[i * step];
        red += pixel & 255, green += pixel >> 8 & 255, blue += pixel >> 16 & 255, alpha += pixel >> 24;
    }
    const unsigned int all = (unsigned int)count, half = all / 2;
    return (red + half) / all | (green + half) / all << 8 | (blue + half) / all << 16 | (alpha + half) / all << 24;
}

/// to[y, x] = the mean of the pixels of row y from column x - radius to x + radius, as far as they are in the image
/// requires: width * height <= len(from), width * height <= len(to)
/// covers: width * height
__global__ void blur_rows(const unsigned int* __restrict__ from, unsigned int* __restrict__ to, size_t width, size_t height,
                          unsigned int radius) {
    GS_FOR_EACH_2D(x, y, width, height) {
        const size_t first = x > radius ? x - radius : 0, last = x + radius < width ? x + radius : width - 1;
        to[y * width + x] = mean(from + y * width + first, last - first + 1, 1);
    }
}

/// Like `blur_rows`, along the columns
/// requires: width * height <= len(from), width * height <= len(to)
/// covers: width * height
__global__ void blur_columns(const unsigned int* __restrict__ from, unsigned int* __restrict__ to, size_t width,
                             size_t height, unsigned int radius) {
    GS_FOR_EACH_2D(x, y, width, height) {
        const size_t first = y > radius ? y - radius : 0, last = y + radius < height ? y + radius : height - 1;
        to[y * width + x] = mean(from + first * width + x, last - first + 1, width);
    }
}
