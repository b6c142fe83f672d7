//! Changes to a kernel's text.

use std::cmp::Reverse;
use std::ops::Range;

use tree_sitter::Node;

use super::variables::Variables;
use crate::parse::descendants;

/// A range in the file, and the text that replaces it.
pub(super) type Edit = (Range<usize>, String);

/// Returns a node's text with replacements in it.
pub(super) fn apply(text: &str, node: Node<'_>, mut replacements: Vec<Edit>) -> String {
    let mut text = text[node.byte_range()].to_owned();
    // We begin at the end, so that offsets stay valid. If an insertion and a replacement start at the same place, the
    // replacement must be first.
    replacements.sort_by_key(|(range, _)| (Reverse(range.start), Reverse(range.len())));
    for (range, new) in replacements {
        text.replace_range(range.start - node.start_byte()..range.end - node.start_byte(), &new);
    }
    text
}

/// Returns the whole file with replacements in one node.
pub(super) fn in_file(text: &str, node: Node<'_>, replacements: Vec<Edit>) -> String {
    [&text[..node.start_byte()], &apply(text, node, replacements), &text[node.end_byte()..]].concat()
}

/// Returns the line breaks in a text. If they replace it, later lines keep their numbers, and compilers report errors
/// in the right line.
pub(super) fn line_breaks(text: &str) -> String {
    text.chars().filter(|&c| c == '\n').collect()
}

/// The atomics that have a version for memory that only one OS thread uses.
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

/// Returns changes that make a text without meetings faster. Since a block runs on one OS thread, atomics on its shared
/// memory can become ordinary reads and writes. Sums in an index become calls that tell the compiler that they do not
/// wrap around.
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

/// Returns the array that a place belongs to: `a` for `&a[i]` and for `a + i`.
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

/// Turns each sum in an index into a call.
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
    // The inner call must be first: if there are two insertions at one place, the later one ends up before the other.
    sums(Some(left), replacements);
    sums(Some(right), replacements);
    replacements.extend([
        (start..start, call.to_owned()),
        (operator.byte_range(), ",".to_owned()),
        (end..end, ")".to_owned()),
    ]);
}
