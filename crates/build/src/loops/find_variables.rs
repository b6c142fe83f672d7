//! Finds the variables that are declared at a level of the kernel with meetings. These may live longer than one loop
//! over threads. All others are inside one statement, and we leave them as they are.

use std::ops::Range;

use tree_sitter::Node;

use super::progression::Course;
use super::steps::{jump, statements};
use super::variables::{Kind, Variable, Variables};
use super::waits::Waits;
use crate::parse::{child_of_kind, declarators, declared, has_word};

/// Adds the variables from a statement list, and from the statements in it that have meetings.
pub(super) fn find_variables<'t>(
    text: &'t str,
    waits: &Waits,
    list: Node<'t>,
    around: Option<usize>,
    variables: &mut Variables<'_, 't>,
) {
    for node in statements(list) {
        variables.common(node);
        if node.kind() == "declaration" {
            add_declared(text, node, &list.byte_range(), around, variables);
        }
        // An `if` with a `break` is also cut, because all threads must leave a loop together.
        let leaves = node.kind() == "if_statement" && jump(node, false).is_some();
        if waits.first(text, node).is_none() && !leaves {
            continue;
        }
        match node.kind() {
            "for_statement" | "while_statement" | "do_statement" => {
                if let Some(first) =
                    node.child_by_field_name("initializer").filter(|node| node.kind() == "declaration")
                {
                    add_declared(text, first, &node.byte_range(), Some(node.id()), variables);
                }
                if let Some(body) = node.child_by_field_name("body") {
                    find_variables(text, waits, body, Some(node.id()), variables);
                }
            }
            "if_statement" => {
                if let Some(condition) = node.child_by_field_name("condition") {
                    variables.branch(node, condition);
                }
                for field in ["consequence", "alternative"] {
                    if let Some(body) = node.child_by_field_name(field) {
                        find_variables(text, waits, body, around, variables);
                    }
                }
            }
            "compound_statement" => find_variables(text, waits, node, around, variables),
            _ => {}
        }
    }
}

fn add_declared<'t>(
    text: &'t str,
    node: Node<'t>,
    scope: &Range<usize>,
    around: Option<usize>,
    variables: &mut Variables<'_, 't>,
) {
    let word = |word| has_word(text, node, word);
    if word("constexpr") || word("static") && !word("__shared__") {
        return;
    }
    let shared = word("__shared__") || word("extern");
    let base = node.child_by_field_name("type").map_or("", |ty| &text[ty.byte_range()]);
    for declarator in declarators(node) {
        let name = declared(declarator);
        if name.kind() != "identifier" {
            continue;
        }
        if shared {
            variables.share(&text[name.byte_range()], word("extern"));
            continue;
        }
        let shape = if declarator.kind() == "init_declarator" {
            declarator.child_by_field_name("declarator").unwrap_or(declarator)
        } else {
            declarator
        };
        let (mut stars, mut extents, mut storable, mut inner) =
            (String::new(), String::new(), base != "auto", shape);
        while inner != name {
            match inner.kind() {
                "pointer_declarator" => stars.push('*'),
                "array_declarator" => {
                    let size = inner.child_by_field_name("size").map_or("", |size| &text[size.byte_range()]);
                    // The value decides the length, so we cannot declare the array without it.
                    storable &= !size.is_empty();
                    extents.insert_str(0, &format!("[{size}]"));
                }
                _ => storable = false,
            }
            match inner.child_by_field_name("declarator") {
                Some(next) => inner = next,
                None => break,
            }
        }
        let constant =
            child_of_kind(node, "type_qualifier").is_some_and(|word| &text[word.byte_range()] == "const");
        let qualifier = if constant && !stars.is_empty() { "const " } else { "" };
        let variable = Variable {
            name: text[name.byte_range()].to_owned(),
            kind: Kind::Own,
            declaration: Some(node),
            declarator,
            ty: format!("{qualifier}{base}{stars}"),
            extents,
            storable,
            constant: constant && stars.is_empty(),
            around,
            scope: node.start_byte()..scope.end,
            course: Course::Other,
        };
        variables.add(variable);
    }
}
