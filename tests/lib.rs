//! What the tests of all backends share: the harness, and the test kernels' bindings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

pub mod harness;
pub mod reactor_thread;
pub mod toolbox;

/// Kernels that wait for flags.
pub mod sync {
    gpustream::include_kernels!("sync");
}

/// Kernels that write down what they were given.
pub mod args {
    gpustream::include_kernels!("args");
}

/// Blocks that reach each other.
pub mod clusters {
    gpustream::include_kernels!("clusters");
}

/// What the portable device headers offer.
pub mod library {
    gpustream::include_kernels!("library");
}

/// What a warp says of itself.
pub mod warps {
    gpustream::include_kernels!("warps");
}

/// Kernels that go wrong on purpose.
pub mod faulty {
    gpustream::include_kernels!("faults");
}
