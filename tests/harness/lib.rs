//! What the tests of all backends share: the harness, and the test kernels' bindings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod child;
mod device;
pub mod executor;
pub mod exits;
mod gate;
pub mod reactor_thread;
mod refused;
mod suite;
pub mod toolbox;

pub use child::{Child, Ended};
pub use device::{open, open_again, overlaps, streams_are_independent, synchronize};
pub use gate::{Gate, runs_beside_closures, until};
pub use refused::refused;
pub use suite::{File, Kind, Test, main};

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
