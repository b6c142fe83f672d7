//! No other thread may launch a graph while you change a node of it.
use gpustream::{Buffer, Graph, Node, Result};

fn change(graph: &Graph, node: Node, x: &mut Buffer<u32>) -> Result<()> {
    graph.set_node(node, |s| s.fill(x, 1))
}

fn main() {}
