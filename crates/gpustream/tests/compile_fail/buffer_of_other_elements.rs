//! A buffer's type includes the type of its elements. If you want other elements, you can cast a view of the buffer.
use gpustream::{Arg, Buffer};

fn argument(values: &Buffer<f32>) -> Arg<'_> {
    Arg::read::<[f32; 4]>(values)
}

fn main() {}
