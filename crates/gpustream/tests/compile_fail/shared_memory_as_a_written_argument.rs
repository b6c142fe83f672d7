//! What a kernel writes is held exclusively.
use gpustream::{Arg, Buffer};

fn argument(x: &Buffer<u32>) -> Arg<'_> {
    Arg::write(x)
}

fn main() {}
