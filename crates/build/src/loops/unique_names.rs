//! Renames variables until no two in a kernel share a name. Then the rest of the rewrite can identify a variable by its
//! name.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tree_sitter::Node;

use super::MOST_REWRITES;
use super::edits::{self, Edit};
use super::inline::in_users_words;
use super::steps::{Refusal, Result};
use super::waits::Waits;
use crate::parse::{declarators, declared, descendants, has_word, identifiers, visit};

/// A variable.
struct Variable<'a> {
    name: &'a str,
    /// The range that the variable's name is valid in.
    scope: Range<usize>,
    /// True if this is shared memory whose size the launch gives. It must keep its name, because all functions share
    /// it.
    is_extern: bool,
}

/// Returns the file with the variables of a function renamed. Each line stays in its place. Returns `None` if all names
/// are different already.
pub(super) fn own(text: &str, function: Node<'_>, waits: &Waits) -> Result<Option<String>> {
    let mut variables = variables(text, function);
    // The first variable with a name keeps it.
    variables.sort_by_key(|variable| !variable.is_extern);
    let mut seen = HashSet::new();
    let again = variables.iter().map(|variable| !seen.insert(variable.name) && !variable.is_extern);
    let again: Vec<bool> = again.collect();
    if !again.contains(&true) {
        return Ok(None);
    }
    let in_macros = waits.in_macros(text, function);
    let mut taken = HashSet::new();
    identifiers(text, function, &mut taken);
    let mut own = HashMap::new();
    for (index, Variable { name, scope, .. }) in
        variables.iter().enumerate().filter(|(index, _)| again[*index])
    {
        if let Some(user) = in_macros.get(*name) {
            let reason = format!("the macro `{user}` could mean one of two variables `{name}`");
            return Err(Refusal { at: scope.start, reason });
        }
        // Smaller numbers are taken by the calls that we inline.
        let mut names = (MOST_REWRITES..).map(|number| format!("gs_{number}_{}", in_users_words(name)));
        own.extend(names.find(|new| taken.insert(new.clone())).map(|new| (index, new)));
    }
    let mut edits: Vec<Edit> = Vec::new();
    for node in descendants(function) {
        // In a template's arguments or in extra parentheses, the parser may take a name for a type.
        let qualified = node.parent().is_some_and(|parent| parent.kind() == "qualified_identifier");
        if let ("identifier" | "type_identifier", false) = (node.kind(), qualified) {
            let (name, at) = (&text[node.byte_range()], node.start_byte());
            let named = variables.iter().enumerate().filter(|(_, variable)| variable.name == name);
            let meant = named.filter(|(_, variable)| variable.scope.contains(&at));
            let meant = meant.min_by_key(|(_, variable)| variable.scope.len());
            let new = meant.and_then(|(index, _)| own.get(&index));
            edits.extend(new.map(|new| (node.byte_range(), new.clone())));
        }
    }
    Ok(Some(edits::in_file(text, function, edits)))
}

/// Returns the variables and parameters of a function, including those of lambdas in it.
fn variables<'a>(text: &'a str, function: Node<'_>) -> Vec<Variable<'a>> {
    let mut variables: Vec<Variable<'a>> = Vec::new();
    for node in descendants(function) {
        let scope = match node.kind() {
            "for_range_loop" => node.byte_range(),
            "declaration" | "parameter_declaration" | "optional_parameter_declaration" => {
                node.start_byte()..around(node).end_byte()
            }
            _ => continue,
        };
        let is_extern = has_word(text, node, "extern");
        for declarator in declarators(node) {
            visit(declared(declarator), &mut |name| {
                if name.kind() == "identifier" {
                    let name = &text[name.byte_range()];
                    // If both sides of an `#if` declare a variable, it is one variable.
                    let same = |other: &Variable<'_>| other.name == name && other.scope.end == scope.end;
                    if !variables.iter().any(same) {
                        variables.push(Variable { name, scope: scope.clone(), is_extern });
                    }
                }
                !name.kind().starts_with("abstract")
            });
        }
    }
    variables
}

/// Returns the statement or function that limits a declaration's names.
fn around(declaration: Node<'_>) -> Node<'_> {
    let mut node = declaration;
    while let Some(parent) = node.parent() {
        match parent.kind() {
            "compound_statement"
            | "for_statement"
            | "for_range_loop"
            | "if_statement"
            | "while_statement"
            | "switch_statement"
            | "lambda_expression"
            | "function_definition" => return parent,
            // These are the parameters of a function that is only declared here.
            "declaration" if node.kind() == "function_declarator" => return node,
            _ => node = parent,
        }
    }
    node
}
