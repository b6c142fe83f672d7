//! The things that the functions of a file use, themselves or through each other.
//!
//! They answer three questions: does a kernel loop with `GS_FOR_EACH*`, and so is right for any grid; can it come
//! to a barrier of the whole grid; and does it use dynamic shared memory.

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::{children, tree, visit};
use crate::diagnostic::Result;

const LOOP: &str = "GS_FOR_EACH";

/// The portable header's barrier of a grid.
const GRID_BARRIER: &str = "grid_barrier";
/// The names in the vendors' cooperative groups that stand for a grid, and that wait in it.
const GRID_GROUPS: [&str; 4] = ["this_grid", "grid_group", "this_multi_grid", "multi_grid_group"];
const GROUP_WAITS: [&str; 3] = ["sync", "barrier_arrive", "barrier_wait"];

type Words = HashSet<String>;

/// The identifiers in everything that has a name in a file and its headers.
pub(super) struct Calls {
    /// Bodies of functions.
    functions: HashMap<String, Words>,
    /// Functions with their heads, macros, types, and variables with a value: all that a name can stand for.
    all: HashMap<String, Words>,
}

impl Calls {
    /// Reads this file and `helpers`, the texts of the user's own headers.
    pub(super) fn collect(text: &str, root: Node<'_>, helpers: &[String]) -> Result<Self> {
        let mut calls = Self { functions: HashMap::new(), all: HashMap::new() };
        calls.gather(text, root);
        for helper in helpers {
            calls.gather(helper, tree(helper)?.root_node());
        }
        Ok(calls)
    }

    /// Returns whether a kernel's body loops over elements, itself or through a function that it calls.
    pub(super) fn loops(&self, text: &str, body: Node<'_>) -> bool {
        reached(text, body, &self.functions).iter().any(|word| word.starts_with(LOOP))
    }

    /// Returns whether a kernel can come to a barrier of the whole grid.
    pub(super) fn meets(&self, text: &str, kernel: Node<'_>) -> bool {
        let words = reached(text, kernel, &self.all);
        let any = |of: &[&str]| of.iter().any(|word| words.contains(*word));
        words.contains(GRID_BARRIER) || any(&GRID_GROUPS) && any(&GROUP_WAITS)
    }

    /// Returns the first of `names` that a kernel can come to.
    pub(super) fn first_of<'n>(&self, text: &str, kernel: Node<'_>, names: &'n [String]) -> Option<&'n str> {
        if names.is_empty() {
            return None;
        }
        let words = reached(text, kernel, &self.all);
        names.iter().map(String::as_str).find(|name| words.contains(*name))
    }

    fn gather(&mut self, text: &str, node: Node<'_>) {
        match node.kind() {
            "function_definition" => {
                if let Some(declarator) = node.child_by_field_name("declarator")
                    && let Some(body) = node.child_by_field_name("body")
                    && let Some(name) = function_name(text, declarator)
                {
                    identifiers(text, body, self.functions.entry(name.clone()).or_default());
                    identifiers(text, node, self.all.entry(name).or_default());
                    return;
                }
            }
            "preproc_def"
            | "preproc_function_def"
            | "struct_specifier"
            | "class_specifier"
            | "union_specifier"
            | "alias_declaration" => {
                if let Some(name) = node.child_by_field_name("name") {
                    identifiers(text, node, self.all.entry(text[name.byte_range()].to_owned()).or_default());
                }
            }
            "declaration" => {
                for name in initialised(text, node) {
                    identifiers(text, node, self.all.entry(name).or_default());
                }
            }
            _ => {}
        }
        for child in children(node) {
            self.gather(text, child);
        }
    }
}

/// Returns the identifiers in `node`, and in everything that these stand for.
fn reached(text: &str, node: Node<'_>, named: &HashMap<String, Words>) -> Words {
    let mut words = Words::new();
    identifiers(text, node, &mut words);
    reach(&mut words, named);
    words
}

/// Adds everything that the words stand for.
pub(crate) fn reach(words: &mut Words, named: &HashMap<String, Words>) {
    let mut new: Vec<String> = words.iter().cloned().collect();
    while let Some(word) = new.pop() {
        for next in named.get(&word).into_iter().flatten() {
            if words.insert(next.clone()) {
                new.push(next.clone());
            }
        }
    }
}

/// Returns the names of the variables that a declaration gives a value.
fn initialised(text: &str, declaration: Node<'_>) -> Words {
    let mut names = Words::new();
    for child in children(declaration).into_iter().filter(|child| child.kind() == "init_declarator") {
        if let Some(name) = child.child_by_field_name("declarator") {
            identifiers(text, name, &mut names);
        }
    }
    names
}

fn function_name(text: &str, declarator: Node<'_>) -> Option<String> {
    if declarator.kind() == "function_declarator" {
        let name = declarator.child_by_field_name("declarator")?;
        return Some(text[name.byte_range()].rsplit("::").next()?.to_owned());
    }
    function_name(text, declarator.child_by_field_name("declarator")?)
}

pub(crate) fn identifiers(text: &str, node: Node<'_>, words: &mut Words) {
    visit(node, &mut |node| {
        let text = &text[node.byte_range()];
        if node.child_count() > 0 {
            return true;
        } else if node.kind() == "preproc_arg" {
            // The body of a macro is one token.
            words.extend(text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
        } else if node.kind().ends_with("identifier") {
            words.insert(text.to_owned());
        }
        false
    });
}
