//! The device cannot write memory while a future holds a guard on it, even if the future is never polled again.
use gpustream::{Buffer, Pinned, Result, Stream};

async fn work(s: &Stream, x: &Buffer<u32>, host: &mut Pinned<u32>) -> Result<u32> {
    let guard = host.read()?;
    s.copy(x, host)?;
    s.synchronize_async().await?;
    Ok(guard[0])
}

fn main() {}
