//! A batch takes a copy whose source overlaps another one's destination.

use gpustream::{Buffer, CopyBatch, Result, Stream};

fn shift(stream: &Stream, x: &mut Buffer<f32>, y: &mut Buffer<f32>) -> Result<()> {
    let mut batch = CopyBatch::new();
    batch.add(x.slice(..10)?, y.slice_mut(..10)?)?;
    batch.add(y.slice(5..15)?, x.slice_mut(10..20)?)?;
    stream.copy_batch(batch)
}

fn main() {}
