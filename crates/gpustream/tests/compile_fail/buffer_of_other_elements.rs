//! The element type is part of a buffer's type; a view of the buffer can be cast.
use gpustream::{Arg, Buffer};

fn argument(values: &Buffer<f32>) -> Arg<'_> {
    Arg::read::<[f32; 4]>(values)
}

fn main() {}
