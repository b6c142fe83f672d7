//! A view borrows its buffer.
use gpustream::{Result, Stream, View};

fn escape(s: &Stream) -> Result<View<'static, u32>> {
    let x = s.zeros::<u32>(10)?;
    x.slice(..5)
}

fn main() {}
