//! Lets all threads run a loop equally often, because we can only cut a loop into parts if they do.
//!
//! In many kernels each warp has rows of its own, and one warp may have more of them than another:
//!
//! ```cpp
//! for (int row = warp; row < rows; row += warps) { out[row] = warp_sum(in[row]); }
//! ```
//!
//! If the threads in the loop only meet within a warp, those that have no turn left need not wait for the others. So all
//! go on until the last one is done, and those without a turn do nothing:
//!
//! ```cpp
//! { int row = warp; bool goes = true; while (goes) { goes = gs_cpu_any(row < rows); if (row < rows) { …; row += warps; } } }
//! ```
//!
//! The `if` is then a branch that some threads take. If the loop has a barrier for the block, that branch is refused.

use tree_sitter::Node;

use super::edits::{self, Edit, line_breaks};
use crate::parse::descendants;

/// The vote that we put in. It counts for those threads that run, so it may be in a branch that only some take.
pub(super) const ANY: &str = "gs_cpu_any";

/// Returns the text with one loop in a kernel changed, and the range of this loop. Each line stays in its place. `at` is
/// in the head of the loop, and `number` makes a name unique.
pub(super) fn shared(
    text: &str,
    kernel: Node<'_>,
    at: usize,
    number: usize,
) -> Option<(String, std::ops::Range<usize>)> {
    let is_head = |node: &Node<'_>| {
        let body = node.child_by_field_name("body").filter(|body| at < body.start_byte());
        matches!(node.kind(), "for_statement" | "while_statement")
            && node.byte_range().contains(&at)
            && body.is_some()
    };
    let node = descendants(kernel).filter(is_head).last()?;
    let part = |name| node.child_by_field_name(name).map_or("", |part: Node<'_>| &text[part.byte_range()]);
    let (body, condition) = (node.child_by_field_name("body")?, node.child_by_field_name("condition")?);
    let condition = &text[condition.byte_range()];
    let goes = format!("gs_goes_{number}");
    let head = format!(
        "{{ {}; bool {goes} = true; while ({goes}) {{ {goes} = {ANY}({condition}); if ({condition}) {{ ",
        part("initializer")
    );
    let tail = format!(" {}; }} }} }}", part("update"));
    let place = node.start_byte()..body.start_byte();
    let breaks = line_breaks(&text[place.clone()]);
    let (head, tail) = (head.replace('\n', " ") + &breaks, tail.replace('\n', " "));
    let edits: Vec<Edit> = vec![(place, head), (node.end_byte()..node.end_byte(), tail)];
    Some((edits::in_file(text, kernel, edits), node.byte_range()))
}
