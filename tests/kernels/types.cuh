// Types in a header, as other projects have them.
#ifndef TYPES_CUH
#define TYPES_CUH

#ifdef TYPES_DOUBLE
typedef double real;
#else
typedef float real;
#endif

#define LANES 3
#define WORD unsigned short

constexpr int ROWS = LANES - 1;

enum Mode { ADD = 1, MULTIPLY = ADD + 3 };

namespace shapes {
/// A box with padding before its volume and after its last member.
struct Box {
    char name;
    double volume;
    bool open;
};
}  // namespace shapes

typedef struct __align__(16) tag_cell {
    WORD counts[ROWS][LANES];
    shapes::Box box;
    Mode mode;
    real weight;
} Cell;

union Bits {
    float real_part;
    unsigned bits;
};

#endif
