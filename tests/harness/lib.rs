//! What the tests of all backends share: the harness, and the bindings of the test kernels.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod child;
mod device;
pub mod executor;
pub mod exits;
mod gate;
pub mod library_threads;
pub mod peer;
mod refused;
mod suite;
mod threads;
pub mod toolbox;
mod values;

pub use child::{Child, Ended};
pub use device::{
    has_cooperative_launches, kernels_and_streams, open, open_again, overlaps, streams,
    streams_are_independent, synchronize, with_stream,
};
pub use gate::{Gate, ONE, is_serial, runs_beside_closures, until};
#[doc(hidden)]
pub use linkme;
pub use refused::{failed, refused};
pub use suite::{FILES, File, Kind, Test, main};
pub use threads::on_threads;
pub use values::{Random, assert_all, next, noise};

/// Kernels that wait for flags.
pub mod sync {
    gpustream::include_kernels!("sync");
}

/// Kernels that store their arguments.
pub mod args {
    gpustream::include_kernels!("args");
}

/// Kernels that copy to shared memory while they compute.
pub mod async_copies {
    gpustream::include_kernels!("async_copies");
}

/// Kernels whose blocks read each other's shared memory.
pub mod clusters {
    gpustream::include_kernels!("clusters");
}

/// Kernels that read a constant.
pub mod constants {
    gpustream::include_kernels!("constants");
}

/// Kernels that use variables by name.
pub mod globals {
    gpustream::include_kernels!("globals");
}

/// Kernels that write variables which you can see only in the compiled images.
pub mod unlisted {
    gpustream::include_kernels!("unlisted");
}

/// Kernels as existing programs have them, in `kernels/foreign.cu`.
pub mod foreign {
    gpustream::include_kernels!("foreign");
}

/// Kernels with CUDA's headers for matrix cores and asynchronous copies, in `kernels/foreign_matrices.cu`.
pub mod foreign_matrices {
    gpustream::include_kernels!("foreign_matrices");
}

/// Kernels with `<curand_kernel.h>`, in `kernels/foreign_random.cu`.
pub mod foreign_random {
    gpustream::include_kernels!("foreign_random");
}

/// Kernels in the style of existing CUDA and HIP code.
pub mod idioms {
    gpustream::include_kernels!("idioms");
}

/// Kernels that split shared memory, count, lock, look up and select as existing programs do.
pub mod patterns {
    gpustream::include_kernels!("patterns");
}

/// Kernels with loops that start one thread after another.
pub mod grid_stride {
    gpustream::include_kernels!("grid_stride");
}

/// Kernels with every form of declaration.
pub mod declarations {
    gpustream::include_kernels!("declarations");
}

/// Kernels with comparisons that are true for all threads of a row, or for some.
pub mod rows {
    gpustream::include_kernels!("rows");
}

/// Kernels with every kind of barrier that the CPU backend can turn into loops.
pub mod meetings {
    gpustream::include_kernels!("meetings");
}

/// Kernels that take large arguments by value.
pub mod large {
    gpustream::include_kernels!("large");
}

/// Kernels that fill and check arrays with more elements than 32 bits can count.
pub mod long {
    gpustream::include_kernels!("long");
}

/// Kernels that print.
pub mod printing {
    gpustream::include_kernels!("printing");
}

/// Kernels that fetch from textures and write surfaces.
pub mod textures {
    gpustream::include_kernels!("textures");
}

/// Kernels that use the types of existing CUDA and HIP files.
pub mod types {
    gpustream::include_kernels!("types");
}

/// Kernels that compute with pairs of 16-bit numbers.
pub mod half_pairs {
    gpustream::include_kernels!("types-half2");
}

/// Kernels of a file that has its own macros, overloads and host code.
pub mod own_words {
    gpustream::include_kernels!("own_words");
}

/// Kernels that call the functions of the portable device headers.
pub mod library {
    gpustream::include_kernels!("library");
}

/// Kernels that multiply matrices on matrix cores.
pub mod matrix_cores {
    gpustream::include_kernels!("matrix_cores");
}

/// Kernels that multiply tiles which Hopper's matrix cores read themselves.
pub mod group_products {
    gpustream::include_kernels!("group_products");
}

/// Kernels that report a warp's lanes, votes and shuffles.
pub mod warps {
    gpustream::include_kernels!("warps");
}

/// Kernels that fail on purpose.
pub mod faulty {
    gpustream::include_kernels!("faults");
}
