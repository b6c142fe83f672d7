//! The untyped launch promises what nothing checks.
use gpustream::{Kernel, Launch, Result, Stream};

fn launch(kernel: &Kernel, s: &Stream) -> Result<()> {
    kernel.launch(s, &Launch::covering(10), &[])
}

fn main() {}
