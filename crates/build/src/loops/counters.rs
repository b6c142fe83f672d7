//! Gives a loop its own counter, because the rest of the rewrite only knows loops that declare one.
//!
//! Many kernels count in a variable from before the loop: `int i = …; while (i < n) { …; i += step; }`. If nothing else
//! needs `i`, this is the same as `for (int i = …; i < n; i += step) { … }`.

use std::collections::HashSet;

use tree_sitter::Node;

use super::edits::{self, Edit, line_breaks};
use super::waits::Waits;
use super::writes::changes;
use crate::parse::{children, declared, descendants, identifiers, named};

/// Returns condition, update and body of a `while`, or of a `for` without an initializer. For a `while`, the update is
/// the last statement in the body, and is returned as well.
fn parts(node: Node<'_>) -> Option<(Node<'_>, Node<'_>, Node<'_>, Option<Node<'_>>)> {
    let (condition, body) = (node.child_by_field_name("condition")?, node.child_by_field_name("body")?);
    match node.kind() {
        "for_statement" if node.child_by_field_name("initializer").is_none() => {
            Some((condition, node.child_by_field_name("update")?, body, None))
        }
        "while_statement" => {
            let last = named(body).into_iter().rfind(|node| node.kind() != "comment")?;
            let update = last.named_child(0).filter(|_| last.kind() == "expression_statement")?;
            Some((condition.named_child(0)?, update, body, Some(last)))
        }
        _ => None,
    }
}

/// Returns the file with one loop in a function changed. Each line stays in its place. Returns `None` if there is no
/// such loop.
pub(super) fn own(text: &str, function: Node<'_>, waits: &Waits) -> Option<String> {
    let body = function.child_by_field_name("body")?;
    let edits = children(body).into_iter().find_map(|node| own_in(text, function, waits, node))?;
    Some(edits::in_file(text, function, edits))
}

/// Returns the edits that give a loop its own counter. The loop must count up from a thread's index, nothing else may
/// change the variable, and nothing may need it after the loop.
fn own_in<'t>(text: &str, function: Node<'t>, waits: &Waits, node: Node<'t>) -> Option<Vec<Edit>> {
    let (condition, update, body, last) = parts(node)?;
    let str = |node: Node<'_>| &text[node.byte_range()];
    let name = str(condition.child_by_field_name("left").filter(|left| left.kind() == "identifier")?);
    let changed = match update.kind() {
        "assignment_expression" => update.child_by_field_name("left"),
        "update_expression" => update.child_by_field_name("argument"),
        _ => None,
    };
    let leaves = ["break", "continue", "return", "goto"].iter().any(|word| str(body).contains(word));
    if str(changed?) != name || leaves || waits.first(text, node).is_some() {
        return None;
    }
    let statements = children(function.child_by_field_name("body")?).into_iter();
    let mut declarations = statements.filter(|node| node.kind() == "declaration");
    let declarator_of = |node: Node<'t>| {
        node.child_by_field_name("declarator").filter(|declarator| str(declared(*declarator)) == name)
    };
    let (declaration, declarator) =
        declarations.find_map(|node| declarator_of(node).map(|declarator| (node, declarator)))?;
    let value = declarator.child_by_field_name("value").filter(|_| declarator.kind() == "init_declarator")?;
    let (mut behind, mut captured) = (false, false);
    let mut here = Vec::new();
    for inner in descendants(function) {
        if inner.kind() == "identifier" && str(inner) == name {
            behind |= inner.start_byte() > node.end_byte();
            if node.byte_range().contains(&inner.start_byte()) {
                here.push(inner.byte_range());
            }
        }
        captured |= inner.kind() == "lambda_expression";
    }
    let mut from = HashSet::new();
    identifiers(text, value, &mut from);
    let keeps = |call: Node<'_>| waits.keeps_arguments(text, call);
    let changes = |name: &str| changes(text, waits, &keeps, function, name);
    let holds = from.iter().all(|from| from != name && changes(from) == 0);
    // These two are the declaration and the update.
    let counted = changes(name) == 2;
    if behind || captured || !counted || !holds || !str(value).contains("threadIdx") {
        return None;
    }
    let own = format!("gs_own_{name}");
    let renamed = |part: Node<'_>| {
        let inside = here.iter().filter(|range| part.byte_range().contains(&range.start));
        edits::apply(text, part, inside.map(|range| (range.clone(), own.clone())).collect())
    };
    let head = node.start_byte()..body.start_byte();
    let ty = str(declaration.child_by_field_name("type")?);
    let for_ = format!("for ({ty} {own} = {}; {}; {}) ", str(value), renamed(condition), renamed(update))
        .replace('\n', " ");
    let mut edits: Vec<Edit> = vec![(head.clone(), for_ + &line_breaks(&text[head]))];
    let gone = last.map(|last| last.byte_range());
    edits.extend(gone.clone().map(|range| (range.clone(), line_breaks(&text[range]))));
    let stays = |at: usize| at >= body.start_byte() && gone.as_ref().is_none_or(|gone| !gone.contains(&at));
    edits.extend(here.iter().filter(|range| stays(range.start)).map(|range| (range.clone(), own.clone())));
    Some(edits)
}
