//! A flag cannot be copied, since it has no view.
use gpustream::{Buffer, Flag, Stream};

fn download(stream: &Stream, flag: &Flag, x: &mut Buffer<u32>) {
    let _ = stream.copy(flag, x);
}

fn main() {}
