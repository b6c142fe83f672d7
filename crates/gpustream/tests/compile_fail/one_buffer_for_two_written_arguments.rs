//! Two arguments that a kernel writes must be different memory.
use gpustream::{Arg, Buffer, Kernel, Launch, Result, Stream};

fn launch(kernel: &Kernel, s: &Stream, x: &mut Buffer<u32>) -> Result<()> {
    // SAFETY: this program is never run.
    unsafe { kernel.launch(s, &Launch::covering(10), &[Arg::write(x), Arg::write(x)]) }
}

fn main() {}
