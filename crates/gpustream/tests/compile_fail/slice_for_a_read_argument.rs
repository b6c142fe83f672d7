//! A device cannot read an ordinary slice, so the message says that you must upload it.
use gpustream::{Arg, Result, Stream};

fn argument(values: &[f32]) -> Arg<'_> {
    Arg::read::<f32>(values)
}

fn download(stream: &Stream, values: Vec<f32>) -> Result<Vec<f32>> {
    stream.download(&values)
}

fn main() {}
