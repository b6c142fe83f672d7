//! The device may write any byte, and not every byte is a valid `bool`.
use gpustream::{Buffer, Result, Stream};

fn allocate(s: &Stream) -> Result<Buffer<bool>> {
    s.zeros(10)
}

fn main() {}
