//! The flags by which a kernel's translation unit is compiled and linked, each with its reason.
//!
//! Two steps, because linking with `-fsanitize` would pull in a run-time library that the prelude replaces. The symbol
//! table must not be stripped: shared arrays are found through it.

/// Flags for every compiler; `-march=` and the include path come on top. These are left out on purpose:
/// `-fno-strict-aliasing` (kernels without `__restrict__` stop vectorising), `-DNDEBUG` (ends `assert` in kernels),
/// initial-exec thread-local storage (a module is loaded late).
pub const COMPILE: &[&str] = &[
    "-std=c++17",
    "-O3",
    "-fPIC",
    // Kernels are inlined into the loop over their threads only if no other code can replace or call them.
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fno-semantic-interposition",
    // The guard `if (i < n)` and calls of sqrtf stop vectorisation otherwise.
    "-fno-trapping-math",
    "-fno-math-errno",
    // As GPU compilers do.
    "-ffp-contract=fast",
    // A frame larger than the guard pages below a thread's stack must not reach beyond them.
    "-fstack-clash-protection",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
];

/// Flags for g++.
pub const COMPILE_GCC: &[&str] = &[
    // Shared arrays in templates would be one per process instead of one per module.
    "-fno-gnu-unique",
    // Dynamic shared arrays need no initialiser.
    "-fno-extern-tls-init",
];

/// Further flags for g++, for an image that reports indices beyond a shared array's end in checked mode. Loops over
/// arrays of known size are not vectorised with these flags.
pub const CHECKED_GCC: &[&str] = &["-fsanitize=bounds", "-DGS_CPU_CHECKED"];

/// The flags of [`CHECKED_GCC`] for clang++.
pub const CHECKED_CLANG: &[&str] = &["-fsanitize=array-bounds", "-DGS_CPU_CHECKED"];

/// Flags for linking, by the same driver.
pub const LINK: &[&str] = &[
    "-shared",
    // The image runs on machines that lack the compiler's libraries.
    "-static-libgcc",
    "-static-libstdc++",
    "-Wl,--as-needed",
    "-Wl,-Bsymbolic",
    "-Wl,-z,defs",
    "-Wl,-z,noexecstack",
];
