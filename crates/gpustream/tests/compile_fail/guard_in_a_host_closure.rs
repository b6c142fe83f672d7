//! A guard must be dropped before its memory, and a closure may run after that.
use gpustream::{Pinned, Result, Stream};

fn misuse(s: &Stream, host: &Pinned<u32>) -> Result<()> {
    let values = host.read()?;
    s.host_fn(move || drop(values))
}

fn main() {}
