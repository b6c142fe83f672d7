//! The device may not write memory that the host is reading.
use gpustream::{Buffer, Pinned, Result, Stream};

fn submit(s: &Stream, host: &mut Pinned<u32>, x: &Buffer<u32>) -> Result<u32> {
    let guard = host.read()?;
    s.copy(x, host)?;
    Ok(guard[0])
}

fn main() {}
