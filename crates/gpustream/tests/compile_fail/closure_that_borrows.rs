//! A host closure may run long after the call has returned, so it cannot borrow from you.
use gpustream::{Result, Stream};

fn submit(s: &Stream) -> Result<()> {
    let mut count = 0;
    s.host_fn(|| count += 1)
}

fn main() {}
