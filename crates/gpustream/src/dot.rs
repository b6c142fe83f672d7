//! Pictures of graphs in Graphviz's language.

use std::fmt::Write as _;

use gpustream_core::record::GraphOperation;
use gpustream_hal::CallSite;

/// An operation, the indices of those that it follows directly, and the operations of its body.
pub(crate) type Drawn<'a> = (CallSite, &'a [usize], &'a [GraphOperation]);

/// Returns a picture of the operations.
pub(crate) fn dot<'a>(mut operations: impl Iterator<Item = Drawn<'a>>) -> String {
    let mut text = String::from("digraph {\n    node [shape=box];\n");
    draw(&mut text, "n", &mut operations);
    text + "}\n"
}

/// Returns a recorded operation in the form that we draw.
pub(crate) fn recorded(operation: &GraphOperation) -> Drawn<'_> {
    (operation.call_site, &operation.after, &operation.body)
}

/// Draws operations, whose names begin with `prefix`. The body of a condition gets its own frame.
fn draw(text: &mut String, prefix: &str, operations: &mut dyn Iterator<Item = Drawn<'_>>) {
    for (index, (CallSite { label, location }, after, body)) in operations.enumerate() {
        let (name, shape) =
            (format!("{prefix}{index}"), if body.is_empty() { "" } else { ", shape=diamond" });
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "    {name} [label=\"{label}\", tooltip=\"{}:{}\"{shape}];",
            location.file().escape_default(),
            location.line()
        );
        for before in after {
            let _ = writeln!(text, "    {prefix}{before} -> {name};");
        }
        if !body.is_empty() {
            let _ = writeln!(text, "    subgraph cluster_{name} {{");
            draw(text, &format!("{name}_"), &mut body.iter().map(recorded));
            let _ = writeln!(text, "    }}\n    {name} -> {name}_0 [style=dashed];");
        }
    }
}
