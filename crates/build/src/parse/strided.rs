//! Finds the functions that loop with `GS_FOR_EACH*`, and so are right for any grid.

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::tree;
use crate::diagnostic::Result;

const MACRO: &str = "GS_FOR_EACH";

/// Names of functions of this file and of `helpers` that use the macro, themselves or through each other.
pub(super) fn looping_functions(text: &str, root: Node<'_>, helpers: &[String]) -> Result<HashSet<String>> {
    let mut functions = HashMap::new();
    gather(text, root, &mut functions);
    for helper in helpers {
        // Parsing is the slow part: skip headers that cannot matter.
        if helper.contains(MACRO) {
            gather(helper, tree(helper)?.root_node(), &mut functions);
        }
    }
    let mut looping = HashSet::new();
    loop {
        let found: Vec<_> = functions
            .iter()
            .filter(|(name, words)| {
                !looping.contains(*name) && words.iter().any(|w| w.starts_with(MACRO) || looping.contains(w))
            })
            .map(|(name, _)| name.clone())
            .collect();
        if found.is_empty() {
            return Ok(looping);
        }
        looping.extend(found);
    }
}

/// Whether a kernel's body loops, itself or through a function it calls.
pub(super) fn loops(text: &str, body: Node<'_>, looping: &HashSet<String>) -> bool {
    let mut words = HashSet::new();
    identifiers(text, body, &mut words);
    words.iter().any(|w| w.starts_with(MACRO) || looping.contains(w))
}

fn gather(text: &str, node: Node<'_>, functions: &mut HashMap<String, HashSet<String>>) {
    if node.kind() == "function_definition"
        && let Some(declarator) = node.child_by_field_name("declarator")
        && let Some(body) = node.child_by_field_name("body")
        && let Some(name) = function_name(text, declarator)
    {
        identifiers(text, body, functions.entry(name).or_default());
        return;
    }
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        gather(text, child, functions);
    }
}

fn function_name(text: &str, declarator: Node<'_>) -> Option<String> {
    if declarator.kind() == "function_declarator" {
        let name = declarator.child_by_field_name("declarator")?;
        return Some(text[name.byte_range()].rsplit("::").next()?.to_owned());
    }
    function_name(text, declarator.child_by_field_name("declarator")?)
}

fn identifiers(text: &str, node: Node<'_>, words: &mut HashSet<String>) {
    if node.child_count() == 0 {
        if node.kind() == "preproc_arg" {
            // The body of a macro is one token.
            let split = text[node.byte_range()].split(|c: char| !c.is_alphanumeric() && c != '_');
            words.extend(split.map(str::to_owned));
        } else if node.kind().ends_with("identifier") {
            words.insert(text[node.byte_range()].to_owned());
        }
        return;
    }
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        identifiers(text, child, words);
    }
}
