//! Finds the places in a kernel that could change a variable.
//!
//! C++ has many ways to do that: an assignment, `++`, a reference, an address, a lambda, a method, a macro. If we are
//! not sure, the answer must be "it could change".

use tree_sitter::Node;

use super::progression;
use super::variables::{Variables, Write};
use super::waits::{Macro, Waits};
use crate::parse::{children, descendants};

impl<'t> Variables<'_, 't> {
    /// Returns the places in `body` that could change variables.
    pub(super) fn writes_in(&self, body: Node<'t>) -> Vec<Write<'t>> {
        let text = self.text;
        let mut writes = Vec::new();
        for node in descendants(body) {
            let mut whole = node;
            while let Some(parent) = whole.parent().filter(|parent| parent.kind() == "comma_expression") {
                whole = parent;
            }
            let statement = whole.parent().filter(|parent| {
                let header = parent.kind() == "for_statement"
                    && [parent.child_by_field_name("update"), parent.child_by_field_name("initializer")]
                        .contains(&Some(whole));
                parent.kind() == "expression_statement" || header
            });
            let statement = statement.map(|statement| statement.id());
            let mut write = |target: Option<Node<'t>>, from: Option<Vec<Node<'t>>>| {
                // If only an element or a field changes, the variable's value does not follow from the right side.
                let whole = target.filter(|target| target.kind() == "identifier");
                let whole = whole.and_then(|name| self.meant(name));
                let lends = from.is_none();
                let from = from.filter(|_| whole.is_some());
                let changed = target.map(|target| self.changed(target)).unwrap_or_default();
                writes.extend(changed.into_iter().map(|variable| Write {
                    variable,
                    statement,
                    from: from.clone(),
                    lends,
                }));
            };
            match node.kind() {
                "assignment_expression" => {
                    let from = node.child_by_field_name("right").into_iter().collect();
                    write(node.child_by_field_name("left"), Some(from));
                }
                "update_expression" => write(node.child_by_field_name("argument"), Some(Vec::new())),
                "pointer_expression" if text[node.byte_range()].starts_with('&') => {
                    write(node.child_by_field_name("argument"), None);
                }
                "call_expression" => {
                    // A function could take a reference. If the name is a variable, it could be a function object.
                    let known = self.keeps_arguments(node);
                    let arguments = node.child_by_field_name("arguments").map(children).unwrap_or_default();
                    let constant = |node: &Node<'_>| {
                        self.meant(whole_of(*node)).is_some_and(|index| self.list[index].constant)
                    };
                    for argument in arguments.into_iter().filter(|node| !known && !constant(node)) {
                        write(Some(argument), None);
                    }
                    // A method could change its object.
                    let method =
                        node.child_by_field_name("function").filter(|f| f.kind() == "field_expression");
                    write(method.and_then(|method| method.child_by_field_name("argument")), None);
                }
                "reference_declarator" => write(bound_to(node), None),
                "lambda_capture_specifier" => {
                    for name in children(node).into_iter().filter(|node| node.kind() == "identifier") {
                        write(Some(name), None);
                    }
                }
                "identifier" if self.waits.changes(&text[node.byte_range()]) => {
                    let variables = self.in_macro(node).into_iter();
                    writes.extend(variables.map(|variable| Write {
                        variable,
                        statement: None,
                        from: None,
                        lends: true,
                    }));
                }
                _ => {}
            }
        }
        writes
    }

    /// Returns the variables that change if this expression is changed. If it is memory behind a pointer, the pointer
    /// itself does not change.
    fn changed(&self, target: Node<'_>) -> Vec<usize> {
        let field = |name| target.child_by_field_name(name);
        match target.kind() {
            "identifier" => self.meant(target).map_or_else(|| self.in_macro(target), |index| vec![index]),
            "parenthesized_expression" => {
                target.named_child(0).map(|inner| self.changed(inner)).unwrap_or_default()
            }
            "subscript_expression" | "field_expression" => {
                let mut changed = field("argument").map(|inner| self.changed(inner)).unwrap_or_default();
                changed.retain(|&index| {
                    let variable = &self.list[index];
                    !variable.extents.is_empty() || !variable.ty.contains('*')
                });
                changed
            }
            // For a macro with arguments, an argument may be what changes. But if the macro has brackets, an integer is
            // only an index.
            "call_expression" => {
                let Some(name) = field("function").filter(|name| self.is_macro(*name)) else {
                    return Vec::new();
                };
                let is_index = |index: &usize| {
                    let variable = &self.list[*index];
                    variable.extents.is_empty() && progression::is_integer(&variable.ty)
                };
                let mut changed: Vec<_> = field("arguments")
                    .map(children)
                    .unwrap_or_default()
                    .into_iter()
                    .flat_map(|value| self.changed(value))
                    .collect();
                changed.retain(|index| !(self.waits.reads(&self.text[name.byte_range()]) && is_index(index)));
                changed.extend(self.in_macro(name));
                changed
            }
            _ => Vec::new(),
        }
    }

    fn is_macro(&self, name: Node<'_>) -> bool {
        !matches!(self.waits.macro_of(&self.text[name.byte_range()]), Macro::None)
    }

    /// Returns the variables that a macro mentions at this use.
    pub(super) fn in_macro(&self, name: Node<'_>) -> Vec<usize> {
        let words = self.waits.free_of(&self.text[name.byte_range()]);
        words.iter().filter_map(|word| self.find(word, name.start_byte())).collect()
    }
}

/// Returns how many places in `node` change a variable with this name, could change it, or declare another one. `keeps`
/// says if a call, or another node with arguments, cannot change its arguments.
pub(super) fn changes<'t>(
    text: &str,
    waits: &Waits,
    keeps: &dyn Fn(Node<'t>) -> bool,
    node: Node<'t>,
    name: &str,
) -> usize {
    let named = |node: Option<Node<'t>>| node.is_some_and(|node| &text[whole_of(node).byte_range()] == name);
    let is_change = |node: &Node<'t>| {
        let node = *node;
        match node.kind() {
            "assignment_expression" => named(node.child_by_field_name("left")),
            "update_expression" => named(node.child_by_field_name("argument")),
            "pointer_expression" if text[node.byte_range()].starts_with('&') => {
                named(node.child_by_field_name("argument"))
            }
            "init_declarator" => named(node.child_by_field_name("declarator")),
            "reference_declarator" => named(bound_to(node)),
            "argument_list" => {
                children(node).into_iter().any(|argument| named(Some(argument)))
                    && !node.parent().is_some_and(keeps)
            }
            // A macro could do anything with it.
            "identifier" => waits.free_of(&text[node.byte_range()]).contains(name),
            _ => false,
        }
    };
    descendants(node).filter(is_change).count()
}

/// Returns what a reference refers to.
fn bound_to(reference: Node<'_>) -> Option<Node<'_>> {
    let declaration = reference.parent()?;
    declaration.child_by_field_name("value").or_else(|| declaration.child_by_field_name("right"))
}

/// Returns the variable that an expression is a part of, for example `v` for `v.a[i].x`. For `p[i]` there is none,
/// because the memory behind `p` is not part of it.
fn whole_of(node: Node<'_>) -> Node<'_> {
    let inner = match node.kind() {
        "parenthesized_expression" => node.named_child(0),
        "field_expression" => node.child_by_field_name("argument"),
        "subscript_expression" => {
            node.child_by_field_name("argument").filter(|argument| argument.kind() != "identifier")
        }
        _ => None,
    };
    inner.map_or(node, whole_of)
}
