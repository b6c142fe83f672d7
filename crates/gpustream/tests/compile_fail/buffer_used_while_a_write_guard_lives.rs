//! The device may not touch memory that the host is writing.
use gpustream::{Buffer, Pinned, Result, Stream};

fn submit(s: &Stream, host: &mut Pinned<u32>, x: &mut Buffer<u32>) -> Result<()> {
    let mut guard = host.write()?;
    s.copy(host, x)?;
    guard[0] = 1;
    Ok(())
}

fn main() {}
