//! An argument that a kernel writes is borrowed exclusively.
use gpustream::{Arg, Buffer};

fn argument(x: &Buffer<u32>) -> Arg<'_> {
    Arg::write(x)
}

fn main() {}
