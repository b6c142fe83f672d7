//! The device cannot write what a future holds a guard on, however long it is not polled.
use gpustream::{Buffer, Pinned, Result, Stream};

async fn work(s: &Stream, x: &Buffer<u32>, host: &mut Pinned<u32>) -> Result<u32> {
    let guard = host.read()?;
    s.copy(x, host)?;
    s.synchronize_async().await?;
    Ok(guard[0])
}

fn main() {}
