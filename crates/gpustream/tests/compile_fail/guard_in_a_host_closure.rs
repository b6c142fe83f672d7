//! A guard goes before its memory does, and a closure may run later.
use gpustream::{Pinned, Result, Stream};

fn misuse(s: &Stream, host: &Pinned<u32>) -> Result<()> {
    let values = host.read()?;
    s.host_fn(move || drop(values))
}

fn main() {}
