// The kernels of `simulation.rs`: air in a wind tunnel, by the lattice-Boltzmann method (D2Q9 with the collision of
// Bhatnagar, Gross and Krook).
//
// The air in a cell consists of nine populations. In each step, a population moves to another cell:
//
//     number   0   1   2   3   4   5   6   7   8
//     x        0   1  -1   0   1  -1   0   1  -1
//     y        0   0   0   1   1   1  -1  -1  -1
//
// A row of cells is nine arrays of `width` populations, so that neighbouring threads use neighbouring addresses. Rows follow
// each other. So you can pass any rows as one view, and the library sees that others are not touched. You can also copy
// what a row gives to the next one (populations 3 to 5), or to the one before (6 to 8), in one piece.
#include <gpustream/kernel.cuh>

/// The tunnel and its wind. Lengths are in cells, and speeds in cells per step.
struct Tunnel {
    /// The cylinder's centre.
    float x, y;
    float radius;
    /// Along x.
    float wind;
    /// The first columns, as many as this says, give the air the wind's speed again.
    float fan;
    /// The part of its difference to the equilibrium that a population loses in a collision. If it is small, the air is
    /// viscous.
    float relaxation;
};

static GS_INLINE bool in_cylinder(const Tunnel& tunnel, float x, float y) {
    const float dx = x - tunnel.x, dy = y - tunnel.y;
    return dx * dx + dy * dy < tunnel.radius * tunnel.radius;
}

// Returns a population of air in equilibrium. `along` is the air's velocity in the direction of the population.
static GS_INLINE float equilibrium(float part, float density, float along, float square) {
    return part * density * (1.0f + 3.0f * along + 4.5f * along * along - 1.5f * square);
}

// Writes the nine populations of a cell: each loses `relaxation` of its difference to the equilibrium.
static GS_INLINE void collide(const float (&f)[9], float density, float u, float v, float relaxation, bool solid,
                              float* __restrict__ out, size_t width) {
    const float square = u * u + v * v;
    const auto write = [=](int number, float part, float along) {
        const float change = equilibrium(part, density, along, square) - f[number];
        out[number * width] = solid ? 0.0f : f[number] + relaxation * change;
    };
    const float straight = 1.0f / 9.0f, diagonal = 1.0f / 36.0f;
    write(0, 4.0f / 9.0f, 0);
    write(1, straight, u);
    write(2, straight, -u);
    write(3, straight, v);
    write(4, diagonal, u + v);
    write(5, diagonal, v - u);
    write(6, straight, -v);
    write(7, diagonal, u - v);
    write(8, diagonal, -u - v);
}

/// Fills `rows` rows, from row `first` of the tunnel on, with air in the wind. The upper half is a little faster, because if
/// the wind were symmetrical, it could take long until the vortices begin. The cylinder's cells are empty.
/// requires: 9 * width * rows <= len(out)
/// covers: width * rows
extern "C" __global__ void begin(float* __restrict__ out, Tunnel tunnel, size_t width, size_t first, size_t rows) {
    GS_FOR_EACH_2D(x, row, width, rows) {
        const float y = (float)(first + row), wind = tunnel.wind * (y < tunnel.y ? 1.1f : 0.9f);
        const float none[9] = {};
        collide(none, 1.0f, wind, 0.0f, 1.0f, in_cylinder(tunnel, (float)x, y), out + 9 * width * row + x, width);
    }
}

/// One step of `rows` rows, from row `first` of the tunnel on. `in` has one more row before them and one after. Each cell
/// takes the populations that move to it, and then they collide. The cylinder sends back what would move into it. A row's
/// last column is next to its first.
/// requires: 9 * width * (rows + 2) <= len(in), 9 * width * rows <= len(out)
/// covers: width * rows
extern "C" __global__ void step(const float* __restrict__ in, float* __restrict__ out, Tunnel tunnel, size_t width,
                                size_t first, size_t rows) {
    GS_FOR_EACH_2D(x, row, width, rows) {
        const float* const here = in + 9 * width * (row + 1);
        const size_t left = x > 0 ? x - 1 : width - 1, right = x + 1 < width ? x + 1 : 0;
        const float y = (float)(first + row);
        // The population comes from `column` of the row `dy` rows before this one, and moves against `opposite`.
        const auto take = [=](int number, int opposite, size_t column, int dy) {
            const float moved = (here - dy * (ptrdiff_t)(9 * width))[number * width + column];
            const float sent_back = here[opposite * width + x];
            return in_cylinder(tunnel, (float)column, y - dy) ? sent_back : moved;
        };
        const float f[9] = {here[x],
                            take(1, 2, left, 0),
                            take(2, 1, right, 0),
                            take(3, 6, x, 1),
                            take(4, 8, left, 1),
                            take(5, 7, right, 1),
                            take(6, 3, x, -1),
                            take(7, 5, left, -1),
                            take(8, 4, right, -1)};
        const float density = f[0] + f[1] + f[2] + f[3] + f[4] + f[5] + f[6] + f[7] + f[8];
        const bool fan = (float)x < tunnel.fan, solid = in_cylinder(tunnel, (float)x, y);
        const float u = fan ? tunnel.wind : (f[1] - f[2] + f[4] - f[5] + f[7] - f[8]) / density;
        const float v = fan ? 0.0f : (f[3] + f[4] + f[5] - f[6] - f[7] - f[8]) / density;
        const float relaxation = fan ? 1.0f : tunnel.relaxation;
        collide(f, density, u, v, relaxation, solid, out + 9 * width * row + x, width);
    }
}

/// Draws the speed of the air in `rows` rows, from row `first` of the tunnel on: 254 is twice the wind's speed or more, and
/// the cylinder is 255.
/// requires: 9 * width * rows <= len(cells), width * rows <= len(picture)
/// covers: width * rows
extern "C" __global__ void draw(const float* __restrict__ cells, unsigned char* __restrict__ picture, Tunnel tunnel,
                                size_t width, size_t first, size_t rows) {
    GS_FOR_EACH_2D(x, row, width, rows) {
        const float* const cell = cells + 9 * width * row + x;
        const auto f = [=](int number) { return cell[number * width]; };
        const float density = f(0) + f(1) + f(2) + f(3) + f(4) + f(5) + f(6) + f(7) + f(8);
        const float u = (f(1) - f(2) + f(4) - f(5) + f(7) - f(8)) / density;
        const float v = (f(3) + f(4) + f(5) - f(6) - f(7) - f(8)) / density;
        const float level = fminf(127.0f * sqrtf(u * u + v * v) / tunnel.wind, 254.0f);
        const bool solid = in_cylinder(tunnel, (float)x, (float)(first + row));
        picture[row * width + x] = solid ? 255 : (unsigned char)level;
    }
}
