// Products of matrices of f32, f64 and i8, c = f(alpha a b + beta c + bias), in strided batches of any shape and order of storage.
#include "gemm.cuh"
#include "ordinary_product.cuh"

#include <gpustream/async_copy.cuh>
#include <gpustream/matrix_block.cuh>

namespace {

// True if a target has matrix cores for the type. Otherwise fragments would need more registers than ordinary arithmetic. On the CPU
// they only have to be right.
template <class T>
constexpr bool has_matrix_cores = true;
#if defined(GS_HIP) && !defined(__gfx90a__) && !defined(__gfx942__)
template <>
constexpr bool has_matrix_cores<double> = false;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <>
constexpr bool has_matrix_cores<double> = false;
#endif
template <>
constexpr bool has_matrix_cores<float> = false;

// Copies one operand's tiles to shared memory, step after step. `across` says that the depth runs across the matrix' lines, and
// `is_deep` that it does so in the tile. If both agree, a thread copies 16 bytes at once. Otherwise it copies elements and turns
// tiles on the way. If `whole`, they agree and lines consist of whole pieces: then the copies take few instructions, which a loop for
// large matrices needs. Bytes always are in lines along the depth, on boundaries of 16 bytes.
template <class Product, class Tile, bool is_deep, bool whole>
struct StridedCopies {
    typedef typename Tile::Memory Memory;
    static constexpr int depth = Product::depth, lines = Tile::lines, in_piece = 16 / (int)sizeof(Memory);
    static constexpr bool has_elements = !whole && sizeof(Memory) != 1;
    // The thread's first element, and what the matrix has from there on, in lines of the tile and in depth.
    const Memory* from;
    size_t leading;
    int line, deep, lines_left, deep_left;
    bool across, in_pieces;

    // How many parts a thread copies if they have `size` elements, and how far they are apart.
    static GS_INLINE int parts_of(int size) { return lines * depth / size / (int)Product::threads(); }
    static GS_INLINE int apart(bool across, int size) { return (int)Product::threads() / ((across ? lines : depth) / size); }
    static GS_INLINE int parts() { return parts_of(has_elements ? 1 : in_piece); }

    GS_INLINE StridedCopies(const Memory* matrix, const Lines& place, unsigned int first, bool is_across)
        : leading(place.leading), across(has_elements ? is_across : is_deep) {
        in_pieces = !has_elements || (across == is_deep && ((size_t)matrix | place.leading * sizeof(Memory)) % 16 == 0);
        const int size = in_pieces ? in_piece : 1, width = (across ? lines : depth) / size, thread = (int)gs::thread_in_block();
        const int column = thread % width * size, row = thread / width;
        line = across ? column : row;
        deep = across ? row : column;
        lines_left = (int)(across ? place.width : place.lines) - (int)first - line;
        deep_left = (int)(across ? place.lines : place.width) - deep;
        const size_t skipped = first + line;
        from = matrix + (across ? deep * leading + skipped : skipped * leading + deep);
    }

    // Begins to copy a part. What lies outside of the matrix becomes 0.
    GS_INLINE void copy(Tile& tile, int part) const {
        if (in_pieces) {
            if (part < parts_of(in_piece)) copy_piece(tile, part * apart(is_deep, in_piece));
        } else if constexpr (has_elements) {
            if (across) {
                copy_element<true>(tile, part * apart(true, 1));
            } else {
                copy_element<false>(tile, part * apart(false, 1));
            }
        }
    }
    GS_INLINE void advance() {
        from += across ? depth * leading : depth;
        deep_left -= depth;
    }

private:
    GS_INLINE Memory* place(Tile& tile, int row, bool is_across) const {
        return tile.at + Tile::index(is_across ? line : line + row, is_across ? deep + row : deep);
    }
    GS_INLINE void copy_piece(Tile& tile, int row) const {
        const int left = is_deep ? lines_left : deep_left;
        const bool is_there = row < (is_deep ? deep_left : lines_left);
        if constexpr (whole) {
            gs::copy_async_if<16>(is_there && left > 0, place(tile, row, is_deep), from + row * leading);
        } else {
            const int valid = !is_there || left < 0 ? 0 : left < in_piece ? left : in_piece;
            gs::copy_async<16>(place(tile, row, is_deep), from + row * leading, valid * (int)sizeof(Memory));
        }
    }
    template <bool is_across>
    GS_INLINE void copy_element(Tile& tile, int row) const {
        const bool valid = (is_across ? row : 0) < deep_left && (is_across ? 0 : row) < lines_left;
        gs::copy_async_if<(int)sizeof(Memory)>(valid, place(tile, row, is_across), from + row * leading);
    }
};

template <bool whole, class T, int Rows, int Columns, int Depth, int Down, int Across>
struct OnMatrixCores {
    typedef gs::BlockProduct<T, Rows, Columns, Depth, Down, Across, false, true> Product;
    typedef StridedCopies<Product, typename Product::TileA, false, whole> CopiesA;
    typedef StridedCopies<Product, typename Product::TileB, false, whole> CopiesB;
    static constexpr int stages = 3, group = 8;
};
template <bool whole, class T, int Rows, int Columns, int Depth, int Tall, int Wide>
struct Ordinary {
    typedef OrdinaryProduct<T, Rows, Columns, Depth, Tall, Wide> Product;
    typedef StridedCopies<Product, typename Product::TileA, true, whole> CopiesA;
    typedef StridedCopies<Product, typename Product::TileB, true, whole> CopiesB;
    static constexpr int stages = 3, group = 8;
};

// What a block multiplies. Form 0 is for small matrices, because it gives more blocks, and for targets with little shared memory.
template <class T, int form, bool on_matrix_cores = has_matrix_cores<T>>
struct Form;
#if defined(GS_CPU)
template <class T, int form>
struct Form<T, form, true> : OnMatrixCores<false, T, 32, 32, 32 / sizeof(T), 1, 1> {};
#else
template <class T>
struct Form<T, 0, true> : OnMatrixCores<false, T, 64, 64, 64 / sizeof(T), 2, 2> {};
template <class T>
struct Form<T, 1, true> : OnMatrixCores<true, T, 128, 256, 128 / sizeof(T), 2, 4> {};
template <>
struct Form<double, 1, true> : OnMatrixCores<true, double, 128, 128, 16, 4, 2> {};
#endif
template <>
struct Form<float, 0, false> : Ordinary<false, float, 64, 64, 16, 8, 4> {};
// Deeper tiles are 5 % faster on an H200, and do not fit into the shared memory of AMD's GPUs.
#if defined(GS_CUDA)
template <>
struct Form<float, 1, false> : Ordinary<true, float, 128, 128, 32, 8, 8> {};
#else
template <>
struct Form<float, 1, false> : Ordinary<true, float, 128, 128, 16, 8, 8> {};
#endif
// As many threads as four warps.
#if defined(__GFX9__)
template <int form>
struct Form<double, form, false> : Ordinary<false, double, 64, 64, 8, 4, 4> {};
#else
template <int form>
struct Form<double, form, false> : Ordinary<false, double, 64, 64, 8, 4, 8> {};
#endif

template <class Form, class T, class Out, class Sum>
GS_INLINE void multiply_in(unsigned char* shared, unsigned int room, const T* a, const T* b, const Results<Out, Sum>& results,
                           const Lines& of_a, const Lines& of_b, unsigned int batch, bool a_by_columns, bool b_by_columns) {
    if (room < sizeof(Room<Form>)) return;
    multiply<Form>(gs::shared_address(shared), a, b, results, of_a, of_b, batch, a_by_columns, !b_by_columns);
}

}  // namespace

/// c = f(alpha a b + beta c + bias) for `batch` products. The lines of c are rows. Those of a and b are rows too, or columns if
/// `a_by_columns` or `b_by_columns` is 1. `bias` has an element for each column. f is relu if `activation` is 1, gelu if it is 2 and
/// the elements are floats, and otherwise the identity. c is not read if beta is 0. A block has `room` bytes of shared memory.
/// types: (T, Out, Sum) = (float, float, float), (double, double, double), (int8_t, int32_t, int32_t), form = 0, 1
/// requires: (of_a.lines - 1) * of_a.leading + of_a.width + (batch - 1) * of_a.stride <= len(a),
///           (of_b.lines - 1) * of_b.leading + of_b.width + (batch - 1) * of_b.stride <= len(b),
///           (of_c.lines - 1) * of_c.leading + of_c.width + (batch - 1) * of_c.stride <= len(c),
///           of_a.lines <= 1000000000, of_a.width <= 1000000000, of_b.lines <= 1000000000, of_b.width <= 1000000000,
///           of_c.lines <= 1000000000, of_c.width <= 1000000000, of_c.width <= len(bias), room <= shared
/// optional: bias
template <class T, class Out, class Sum, int form>
__global__ void __launch_bounds__(256) gemm_strided(const T* __restrict__ a, const T* __restrict__ b, Out* __restrict__ c,
                                                    const Out* __restrict__ bias, Lines of_a, Lines of_b, Lines of_c,
                                                    unsigned int batch, Sum alpha, Sum beta, unsigned int activation,
                                                    unsigned int room, unsigned int a_by_columns, unsigned int b_by_columns) {
    extern __shared__ __align__(128) unsigned char gemm_room[];
#if defined(GS_HIP)
    // AMD's GPUs have too little shared memory for these.
    if constexpr (form == 1 && sizeof(T) != 4) return;
#endif
    const Results<Out, Sum> results{c, bias, of_c, alpha, beta, activation, false};
    multiply_in<Form<T, form>>(gemm_room, room, a, b, results, of_a, of_b, batch, a_by_columns != 0, b_by_columns != 0);
}

/// The same for floats that are rounded to ten bits of fraction before they are multiplied, on NVIDIA's matrix cores. On other
/// targets, the kernel does nothing and declares no shared memory.
/// requires: (of_a.lines - 1) * of_a.leading + of_a.width + (batch - 1) * of_a.stride <= len(a),
///           (of_b.lines - 1) * of_b.leading + of_b.width + (batch - 1) * of_b.stride <= len(b),
///           (of_c.lines - 1) * of_c.leading + of_c.width + (batch - 1) * of_c.stride <= len(c),
///           of_a.lines <= 1000000000, of_a.width <= 1000000000, of_b.lines <= 1000000000, of_b.width <= 1000000000,
///           of_c.lines <= 1000000000, of_c.width <= 1000000000, of_c.width <= len(bias), room <= shared
/// optional: bias
__global__ void __launch_bounds__(256) gemm_tf32(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                                                 const float* __restrict__ bias, Lines of_a, Lines of_b, Lines of_c,
                                                 unsigned int batch, float alpha, float beta, unsigned int activation,
                                                 unsigned int room, unsigned int a_by_columns, unsigned int b_by_columns) {
#if defined(GS_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    extern __shared__ __align__(128) unsigned char gemm_room[];
    const Results<float, float> results{c, bias, of_c, alpha, beta, activation, false};
    multiply_in<Form<gs::tf32, 1>>(gemm_room, room, a, b, results, of_a, of_b, batch, a_by_columns != 0, b_by_columns != 0);
#endif
}

/// The products of a group, with the small form.
__global__ void __launch_bounds__(group_threads) gemm_group_floats(const Group group, unsigned int room) {
    extern __shared__ __align__(128) unsigned char gemm_room[];
    typedef Form<float, 0> Chosen;
    if (room < sizeof(Room<Chosen>)) return;
    multiply_group<Chosen, float>(gs::shared_address(gemm_room), group);
}

/// Copies matrices for the large form of `gemm_strided`, which needs lines of whole pieces. If `is_turned` is 1, lines of `from`
/// become columns of `to`. What `to` has beyond `from` becomes 0.
/// types: T = int8_t, float, double
/// requires: (of.lines - 1) * of.leading + of.width + (batch - 1) * of.stride <= len(from),
///           (of_to.lines - 1) * of_to.leading + of_to.width + (batch - 1) * of_to.stride <= len(to)
template <class T>
__global__ void gemm_turn(const T* __restrict__ from, T* __restrict__ to, Lines of, Lines of_to, unsigned int batch,
                          unsigned int is_turned) {
    constexpr unsigned int side = 32;
    __shared__ T tile[side][side + 4 / sizeof(T) + (sizeof(T) == 8)];
    const size_t lines = is_turned ? of.width : of.lines, width = is_turned ? of.lines : of.width;
    const size_t across = (of_to.width + side - 1) / side, in_matrix = (of_to.lines + side - 1) / side * across;
    GS_FOR_EACH_TILE(t, in_matrix * batch) {
        const size_t matrix = t / in_matrix, of_matrix = t - matrix * in_matrix;
        const size_t line = of_matrix / across * side, column = of_matrix % across * side;
        GS_FOR_EACH_IN_BLOCK(i, side * side) {
            const size_t l = is_turned ? i % side : i / side, c = is_turned ? i / side : i % side;
            const size_t place = is_turned ? (column + c) * of.leading + line + l : (line + l) * of.leading + column + c;
            tile[l][c] = line + l < lines && column + c < width ? from[matrix * of.stride + place] : T(0);
        }
        __syncthreads();
        GS_FOR_EACH_IN_BLOCK(i, side * side) {
            const size_t l = line + i / side, c = column + i % side;
            if (l < of_to.lines && c < of_to.width) to[matrix * of_to.stride + l * of_to.leading + c] = tile[i / side][i % side];
        }
        __syncthreads();
    }
}
