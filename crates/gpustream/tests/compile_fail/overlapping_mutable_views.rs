//! Two views that may be written at once must come from one split.
use gpustream::{Buffer, Result, Stream};

fn submit(s: &Stream, x: &mut Buffer<u32>) -> Result<()> {
    let mut left = x.slice_mut(..10)?;
    let mut right = x.slice_mut(5..)?;
    s.fill(&mut left, 1)?;
    s.fill(&mut right, 2)
}

fn main() {}
