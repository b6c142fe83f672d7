//! In a batch, a copy's source must not overlap another copy's destination, because the copies have no order.

use gpustream::{Buffer, CopyBatch, Result, Stream};

fn shift(stream: &Stream, x: &mut Buffer<f32>, y: &mut Buffer<f32>) -> Result<()> {
    let mut batch = CopyBatch::new();
    batch.add(x.slice(..10)?, y.slice_mut(..10)?)?;
    batch.add(y.slice(5..15)?, x.slice_mut(10..20)?)?;
    stream.copy_batch(batch)
}

fn main() {}
