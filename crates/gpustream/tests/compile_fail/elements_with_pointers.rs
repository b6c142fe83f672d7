//! Elements are plain data: a reference is not valid on a device.
use gpustream::{Buffer, Result, Stream};

fn upload<'a>(s: &Stream, values: &[&'a u32]) -> Result<Buffer<&'a u32>> {
    s.upload(values)
}

fn main() {}
