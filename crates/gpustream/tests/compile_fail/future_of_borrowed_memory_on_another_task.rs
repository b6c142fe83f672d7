//! If an executor keeps a task, the task must own its memory.
use std::future::Future;

use gpustream::{Buffer, Result, Stream};

fn spawn(_: impl Future<Output = Result<()>> + Send + 'static) {}

fn start(s: Stream) -> Result<()> {
    let mut x: Buffer<u32> = s.zeros(10)?;
    spawn(async {
        s.fill(&mut x, 1)?;
        s.synchronize_async().await
    });
    Ok(())
}

fn main() {}
