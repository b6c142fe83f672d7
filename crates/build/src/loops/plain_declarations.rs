//! Rewrites declarations in the one form that the rest of the rewrite can read.

use std::ops::Range;

use tree_sitter::Node;

use super::edits::{self, Edit};
use crate::parse::{child_of_kind, declarators, declared, descendants, hip_arrays, named};

/// Returns the file with variables declared as `T v = T(x)`, and shared memory whose size the launch gives as `extern
/// __shared__ T v[]`. Each line stays in its place. Returns `None` if the function does so already.
pub(super) fn plain(text: &str, function: Node<'_>) -> Option<String> {
    let body = function.child_by_field_name("body")?;
    let mut edits = dynamic(text, body);
    let declarations = descendants(body).filter(|node| node.kind() == "declaration");
    edits.extend(declarations.filter_map(|node| direct(text, node)));
    if edits.is_empty() {
        return None;
    }
    Some(edits::in_file(text, function, edits))
}

/// Returns the edits for `HIP_DYNAMIC_SHARED`, which HIP had before `extern __shared__`.
fn dynamic(text: &str, body: Node<'_>) -> Vec<Edit> {
    let start = body.start_byte();
    let edit = |(range, ty, name): (Range<usize>, &str, &str)| {
        (start + range.start..start + range.end, format!("extern __shared__ {ty} {name}[];"))
    };
    hip_arrays(&text[body.byte_range()]).map(edit).collect()
}

/// Returns the edit for `T v(x);`. Without types we could not tell this variable from a function that takes an `x`.
fn direct(text: &str, declaration: Node<'_>) -> Option<Edit> {
    let declarator = declaration.child_by_field_name("declarator")?;
    let list =
        child_of_kind(declarator, "parameter_list").filter(|_| declarator.kind() == "function_declarator")?;
    let values = named(list);
    // A value may be a name or an element of an array.
    let is_value = |value: Node<'_>| {
        let part = |field, kind| value.child_by_field_name(field).is_none_or(|part| part.kind() == kind);
        part("type", "type_identifier") && part("declarator", "abstract_array_declarator")
    };
    let are_values = !values.is_empty() && values.into_iter().all(is_value);
    let single = declarators(declaration).len() == 1;
    let (ty, end) = (declaration.child_by_field_name("type")?, declared(declarator).end_byte());
    let (open, close) = if ty.kind() == "sized_type_specifier" { ("(", ")") } else { ("", "") };
    (are_values && single).then(|| (end..end, format!(" = {open}{}{close}", &text[ty.byte_range()])))
}
