//! The flags for compiling and linking a kernel's translation unit, and why we need each.
//!
//! There are two steps, because linking with `-fsanitize` would pull in a run-time library that the prelude
//! replaces. Do not strip the symbol table, because we find shared arrays through it.

/// Flags for every compiler, in addition to `-march=` and the include path. Some flags are missing on
/// purpose: `-fno-strict-aliasing` (kernels without `__restrict__` would no longer vectorise), `-DNDEBUG` (it
/// would disable `assert` in kernels), and initial-exec thread-local storage (a module is loaded late).
pub const COMPILE: &[&str] = &[
    "-std=c++17",
    "-O3",
    "-fPIC",
    // The compiler only inlines kernels into the loop over their threads if no other code can replace or call
    // them.
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fno-semantic-interposition",
    // Otherwise the guard `if (i < n)` and calls of sqrtf would prevent vectorisation.
    "-fno-trapping-math",
    "-fno-math-errno",
    // As GPU compilers do.
    "-ffp-contract=fast",
    // A frame that is larger than the guard pages below a thread's stack must not jump past them.
    "-fstack-clash-protection",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
];

/// Flags for g++.
pub const COMPILE_GCC: &[&str] = &[
    // Otherwise shared arrays in templates would exist once per process instead of once per module.
    "-fno-gnu-unique",
    // Dynamic shared arrays need no initialiser.
    "-fno-extern-tls-init",
];

/// More flags for g++, for an image that reports out-of-bounds indices of shared arrays in checked mode. With
/// them, loops over arrays of known size are not vectorised.
pub const CHECKED_GCC: &[&str] = &["-fsanitize=bounds", "-DGS_CPU_CHECKED"];

/// [`CHECKED_GCC`] for clang++.
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
