//! Changes to the text of a kernel.

use std::cmp::Reverse;
use std::ops::Range;

use tree_sitter::Node;

use super::variables::Variables;
use crate::parse::descendants;

/// A part of the file's text, and what stands there instead.
pub(super) type Edit = (Range<usize>, String);

/// Returns the text of a node with replacements in it.
pub(super) fn apply(text: &str, node: Node<'_>, mut replacements: Vec<Edit>) -> String {
    let mut text = text[node.byte_range()].to_owned();
    // From the end; at one place, a replacement is made before an insertion.
    replacements.sort_by_key(|(range, _)| (Reverse(range.start), Reverse(range.len())));
    for (range, new) in replacements {
        text.replace_range(range.start - node.start_byte()..range.end - node.start_byte(), &new);
    }
    text
}

/// Returns the file with replacements in one node.
pub(super) fn in_file(text: &str, node: Node<'_>, replacements: Vec<Edit>) -> String {
    [&text[..node.start_byte()], &apply(text, node, replacements), &text[node.end_byte()..]].concat()
}

/// Returns as many line breaks as a text has, to stand in its place.
pub(super) fn line_breaks(text: &str) -> String {
    text.chars().filter(|&c| c == '\n').collect()
}

/// The atomics that there are for memory of one OS thread.
const ATOMICS: [&str; 9] = [
    "atomicAdd",
    "atomicSub",
    "atomicAnd",
    "atomicOr",
    "atomicXor",
    "atomicExch",
    "atomicMin",
    "atomicMax",
    "atomicCAS",
];

/// Returns the changes to a text that no thread waits in: atomics on the block's shared memory become those that only
/// one OS thread may call, and sums in an index become sums that the compiler sees to grow.
pub(super) fn edits(variables: &Variables<'_, '_>, node: Node<'_>) -> Vec<Edit> {
    let str = |node| variables.str(node);
    let mut replacements = Vec::new();
    for node in descendants(node) {
        if node.kind() == "subscript_expression" {
            let indices = node.child_by_field_name("indices").or_else(|| node.child_by_field_name("index"));
            let index = indices.map(|list| {
                if list.kind() == "subscript_argument_list" { list.named_child(0) } else { Some(list) }
            });
            sums(index.flatten(), &mut replacements);
        }
        let function = node.child_by_field_name("function").filter(|function| {
            node.kind() == "call_expression"
                && function.kind() == "identifier"
                && ATOMICS.contains(&str(*function).trim_end_matches("_block"))
        });
        let place = node.child_by_field_name("arguments").and_then(|arguments| arguments.named_child(0));
        if let (Some(function), Some(place)) = (function, place)
            && variables.is_shared(str(base(place)))
        {
            let plain = str(function).trim_end_matches("_block");
            replacements.push((function.byte_range(), format!("gs_cpu_own::{plain}")));
        }
    }
    replacements
}

/// Returns the array in which a place lies: `a` of `&a[i]` and of `a + i`.
fn base(place: Node<'_>) -> Node<'_> {
    let inner = match place.kind() {
        "pointer_expression" | "subscript_expression" | "field_expression" => {
            place.child_by_field_name("argument")
        }
        "parenthesized_expression" => place.named_child(0),
        "binary_expression" => place.child_by_field_name("left"),
        _ => None,
    };
    inner.map_or(place, base)
}

/// Notes the changes that write a sum in an index as a call.
fn sums(index: Option<Node<'_>>, replacements: &mut Vec<Edit>) {
    let Some(index) = index.filter(|index| index.kind() == "binary_expression") else { return };
    let field = |name| index.child_by_field_name(name);
    let (Some(left), Some(operator), Some(right)) = (field("left"), field("operator"), field("right")) else {
        return;
    };
    let call = match operator.kind() {
        "+" => "gs_cpu_sum(",
        "-" => "gs_cpu_difference(",
        _ => return,
    };
    let (start, end) = (index.start_byte(), index.end_byte());
    // The inner call first: of two insertions at one place, the later comes to stand before.
    sums(Some(left), replacements);
    sums(Some(right), replacements);
    replacements.extend([
        (start..start, call.to_owned()),
        (operator.byte_range(), ",".to_owned()),
        (end..end, ")".to_owned()),
    ]);
}
