//! Finds `extern __shared__ T name[]`, the array of dynamic shared memory.

use std::collections::BTreeSet;

use tree_sitter::Node;

use super::{child_of_kind, tree};
use crate::diagnostic::Result;

/// Returns the names of such arrays in this file and in `helpers`, each once.
pub(super) fn dynamic_arrays(text: &str, root: Node<'_>, helpers: &[String]) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    gather(text, root, &mut names);
    for helper in helpers {
        // Parsing is the slow part: skip headers that cannot matter.
        if helper.contains("extern") && helper.contains("__shared__") {
            gather(helper, tree(helper)?.root_node(), &mut names);
        }
    }
    Ok(names.into_iter().collect())
}

fn gather(text: &str, node: Node<'_>, names: &mut BTreeSet<String>) {
    if node.kind() == "declaration" && is_extern_shared(text, node) {
        // Searched for, not walked down to: `__align__(16)` is unknown to the grammar and garbles the rest.
        arrays(text, node, names);
        return;
    }
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        gather(text, child, names);
    }
}

fn arrays(text: &str, node: Node<'_>, names: &mut BTreeSet<String>) {
    if node.kind() == "array_declarator"
        && let Some(name) = node.child_by_field_name("declarator")
    {
        names.insert(text[name.byte_range()].to_owned());
        return;
    }
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        arrays(text, child, names);
    }
}

fn is_extern_shared(text: &str, node: Node<'_>) -> bool {
    let mut cursor = node.walk();
    child_of_kind(node, "storage_class_specifier").is_some_and(|s| &text[s.byte_range()] == "extern")
        && node.children(&mut cursor).any(|c| &text[c.byte_range()] == "__shared__")
}
