//! Not every byte is a bool, and the device writes any byte.
use gpustream::{Buffer, Result, Stream};

fn allocate(s: &Stream) -> Result<Buffer<bool>> {
    s.zeros(10)
}

fn main() {}
