//! The caller of the untyped launch promises facts that the library does not check.
use gpustream::{Kernel, Launch, Result, Stream};

fn launch(kernel: &Kernel, s: &Stream) -> Result<()> {
    kernel.launch(s, &Launch::covering(10), &[])
}

fn main() {}
