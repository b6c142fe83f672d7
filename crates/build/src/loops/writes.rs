//! The places of a kernel where its variables could change.

use tree_sitter::Node;

use super::progression;
use super::variables::{Variables, Write};
use super::waits::{Macro, Waits};
use crate::parse::{children, descendants};

impl<'t> Variables<'_, 't> {
    /// Returns the places inside of `body` where variables could change.
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
                // An element or a field is only a part: its variable has no single value.
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
                    // A function could take a reference, and a function object is a variable.
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

    /// Returns the variables that could change where an expression is changed. The memory that a pointer leads to is no
    /// part of the pointer.
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
            // A macro with values: the values may be the target too, but an integer beside brackets is an index.
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

    /// Returns the variables that a macro mentions where it stands.
    pub(super) fn in_macro(&self, name: Node<'_>) -> Vec<usize> {
        let words = self.waits.free_of(&self.text[name.byte_range()]);
        words.iter().filter_map(|word| self.find(word, name.start_byte())).collect()
    }
}

/// Returns the number of places inside of `node` that change a variable of this name, could do so, or declare another one. `keeps`
/// says of a call, or of another node with arguments, whether it leaves them as they are.
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

/// Returns the value to which a reference is bound.
fn bound_to(reference: Node<'_>) -> Option<Node<'_>> {
    let declaration = reference.parent()?;
    declaration.child_by_field_name("value").or_else(|| declaration.child_by_field_name("right"))
}

/// Returns the variable of which an expression is a part, as `v` of `v.a[i].x`. An element of what a name itself leads to
/// is a part of nothing.
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
