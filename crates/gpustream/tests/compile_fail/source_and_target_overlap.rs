//! A copy's source and target must be different memory.
use gpustream::{Buffer, Result, Stream};

fn submit(s: &Stream, x: &mut Buffer<u32>) -> Result<()> {
    s.copy(x, x)
}

fn main() {}
