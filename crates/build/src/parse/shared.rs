//! Finds `extern __shared__ T name[]`, the array of dynamic shared memory, and HIP's older macro for it.

use std::collections::BTreeSet;
use std::ops::Range;

use tree_sitter::Node;

use super::kernel::is_plain_name;
use super::preprocess::closing;
use super::{child_of_kind, has_word, visit};

/// HIP's macro. It takes the type and the name.
pub(super) const HIP_DYNAMIC_SHARED: &str = "HIP_DYNAMIC_SHARED";

pub(super) fn is_in(text: &str) -> bool {
    text.contains("__shared__") || text.contains(HIP_DYNAMIC_SHARED)
}

/// Returns place, type and name for every use of that macro in a text.
pub(crate) fn hip_arrays(text: &str) -> impl Iterator<Item = (Range<usize>, &str, &str)> {
    text.match_indices(HIP_DYNAMIC_SHARED).filter_map(|(at, word)| {
        let open = at + word.len();
        let end = closing(text, open)?;
        let (ty, name) = text[open..end].trim().strip_prefix('(')?.strip_suffix(')')?.rsplit_once(',')?;
        Some((at..end, ty.trim(), name.trim()))
    })
}

/// Adds the names of these arrays in a text, which comes with its root node. For an array in a namespace we also add the name
/// that C++ compilers give it.
pub(super) fn dynamic_arrays(text: &str, root: Node<'_>, names: &mut BTreeSet<String>) {
    let by_macro = hip_arrays(text).map(|(.., name)| name).filter(|name| is_plain_name(name));
    names.extend(by_macro.map(str::to_owned));
    visit(root, &mut |node| {
        if node.kind() != "declaration" || !is_extern_shared(text, node) {
            return true;
        }
        // We search for the declarator instead of walking down to it, because the grammar does not know
        // `__align__(16)` and garbles what follows.
        visit(node, &mut |node| {
            let name = node.child_by_field_name("declarator").filter(|_| node.kind() == "array_declarator");
            if let Some(name) = name {
                let name = &text[name.byte_range()];
                names.extend(mangled(text, node, name).into_iter().chain([name.to_owned()]));
            }
            name.is_none()
        });
        false
    });
}

/// Returns the symbol of a variable that is declared at a node, if it is in a namespace: in the C++ ABI of Itanium, each name
/// has its length in front.
fn mangled(text: &str, node: Node<'_>, name: &str) -> Option<String> {
    let mut names = vec![name];
    let around = std::iter::successors(node.parent(), Node::parent);
    for namespace in around.filter(|node| node.kind() == "namespace_definition") {
        let name = namespace.child_by_field_name("name").map(|name| &text[name.byte_range()]);
        names.extend(name.unwrap_or("_GLOBAL__N_1").rsplit("::").map(str::trim));
    }
    let parts = names.iter().rev().map(|name| format!("{}{name}", name.len()));
    (names.len() > 1).then(|| format!("_ZN{}E", parts.collect::<String>()))
}

fn is_extern_shared(text: &str, node: Node<'_>) -> bool {
    child_of_kind(node, "storage_class_specifier").is_some_and(|s| &text[s.byte_range()] == "extern")
        && has_word(text, node, "__shared__")
}
