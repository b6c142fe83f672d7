//! No other thread may launch a graph while you record it again.
use gpustream::{Buffer, Graph, Result, Stream};

fn misuse(graph: &Graph, s: &Stream, x: &mut Buffer<u32>) -> Result<()> {
    graph.update(s, |s| s.fill(x, 1))?;
    graph.launch(s)
}

fn main() {}
