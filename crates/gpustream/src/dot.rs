//! Pictures of graphs in Graphviz's language.

use std::fmt::Write as _;

use gpustream_hal::Operation;

/// Draws operations, each with the indices of those that it follows directly.
pub(crate) fn dot<'a>(operations: impl Iterator<Item = (Operation, &'a [usize])>) -> String {
    let mut text = String::from("digraph {\n    node [shape=box];\n");
    for (index, (Operation { label, location }, after)) in operations.enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "    n{index} [label=\"{label}\", tooltip=\"{}:{}\"];",
            location.file().escape_default(),
            location.line()
        );
        for before in after {
            let _ = writeln!(text, "    n{before} -> n{index};");
        }
    }
    text + "}\n"
}
