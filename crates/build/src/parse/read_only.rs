//! Finds the variables that kernels only read: `const`, `constexpr` and `__constant__`.
//!
//! We need the source for that, because nvcc puts `const` variables next to those that a kernel may write, so
//! an image alone cannot tell them apart.

use std::collections::BTreeSet;

use gpustream_hal::variables;
use tree_sitter::Node;

use super::{children, declarators, declared, function_name, has_word, is_constant, visit};

/// Returns the paths of the variables that are read-only in each of their declarations: `solver::table`, or
/// `step::weights` for a variable inside a function. The texts contain all branches of their `#if`s.
pub(super) fn paths(texts: &[(&str, Node<'_>)]) -> Vec<String> {
    let (mut read_only, mut written) = (BTreeSet::new(), BTreeSet::new());
    for (text, root) in texts {
        visit(*root, &mut |node| {
            if matches!(node.kind(), "declaration" | "field_declaration") && lasts(text, node) {
                for declarator in declarators(node) {
                    let paths =
                        if is_read_only(text, node, declarator) { &mut read_only } else { &mut written };
                    paths.insert(path(text, node, declarator));
                }
            }
            true
        });
    }
    read_only.difference(&written).cloned().collect()
}

fn is_read_only(text: &str, declaration: Node<'_>, declarator: Node<'_>) -> bool {
    if ["__constant__", "constexpr"].iter().any(|word| has_word(text, declaration, word)) {
        return true;
    }
    // `const float* p` is a variable that points to constants. Only a `const` next to the name's own `*`
    // makes the variable read-only.
    match std::iter::successors(Some(declarator), inner).filter(|it| it.kind() == "pointer_declarator").last()
    {
        Some(pointer) => has_word(text, pointer, "const"),
        None => is_constant(text, declaration) && declarator.kind() != "reference_declarator",
    }
}

/// Returns the declarator inside a declarator.
fn inner<'a>(declarator: &Node<'a>) -> Option<Node<'a>> {
    children(*declarator).into_iter().find(|child| child.kind().ends_with("declarator"))
}

/// Returns true if the variables of a declaration outlive a kernel, as those outside functions and structs
/// do.
fn lasts(text: &str, declaration: Node<'_>) -> bool {
    let inside = |node: Node<'_>| matches!(node.kind(), "compound_statement" | "field_declaration_list");
    ["static", "__device__", "__constant__"].iter().any(|word| has_word(text, declaration, word))
        || !std::iter::successors(declaration.parent(), Node::parent).any(inside)
}

/// Returns a declarator's name, prefixed with the namespaces, structs and functions around it.
fn path(text: &str, declaration: Node<'_>, declarator: Node<'_>) -> String {
    let mut path = text[declared(declarator).byte_range()].to_owned();
    for outer in std::iter::successors(declaration.parent(), Node::parent) {
        let name = match outer.kind() {
            "function_definition" => function_name(outer),
            "namespace_definition" | "struct_specifier" | "class_specifier" | "union_specifier" => {
                outer.child_by_field_name("name")
            }
            _ => None,
        };
        if let Some(name) = name {
            path = format!("{}::{path}", &text[name.byte_range()]);
        }
    }
    variables::declared(&path).split_whitespace().collect()
}
