//! Memory that a captured copy writes cannot be open to the host.
use gpustream::{Buffer, Graph, Pinned, Result, Stream};

fn capture(s: &Stream, x: &Buffer<u32>, host: &mut Pinned<u32>) -> Result<(Graph, u32)> {
    let guard = host.read()?;
    let graph = s.capture(|s| s.copy(x, host))?;
    Ok((graph, guard[0]))
}

fn main() {}
