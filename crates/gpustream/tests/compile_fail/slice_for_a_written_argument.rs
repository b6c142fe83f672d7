//! A device cannot write to an ordinary vector, and you cannot let it write through a shared view.
use gpustream::{Arg, Buffer, Result, Stream, View};

fn argument(values: &mut Vec<f32>) -> Arg<'_> {
    Arg::write::<f32>(values)
}

fn copy(stream: &Stream, from: &Buffer<f32>, mut to: View<'_, f32>) -> Result<()> {
    stream.copy(from, &mut to)
}

fn main() {}
