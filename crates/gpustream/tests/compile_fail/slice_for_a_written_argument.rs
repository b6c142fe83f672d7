//! A device can write neither to an ordinary vector nor through a shared view.
use gpustream::{Arg, Buffer, Result, Stream, View};

fn argument(values: &mut Vec<f32>) -> Arg<'_> {
    Arg::write::<f32>(values)
}

fn copy(stream: &Stream, from: &Buffer<f32>, mut to: View<'_, f32>) -> Result<()> {
    stream.copy(from, &mut to)
}

fn main() {}
