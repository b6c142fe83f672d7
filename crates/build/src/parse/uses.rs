//! What the functions of a file use, directly or through each other.
//!
//! This answers three questions. Does a kernel loop with `GS_FOR_EACH*`, so that it is correct for any grid?
//! Can it reach a barrier of the whole grid? Does it use dynamic shared memory?

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::{children, descendants, function_name, initialised};
use crate::names::{is_word, last_name};

const LOOP: &str = "GS_FOR_EACH";

/// Our portable header's grid barrier.
const GRID_BARRIER: &str = "grid_barrier";
/// Names in the vendors' cooperative groups that may stand for a grid, and names that wait.
const GRID_GROUPS: [&str; 4] = ["this_grid", "grid_group", "this_multi_grid", "multi_grid_group"];
const GROUP_WAITS: [&str; 3] = ["sync", "barrier_arrive", "barrier_wait"];

type Words = HashSet<String>;

/// For every name that a file and its headers define, the identifiers in its definition.
#[derive(Clone, Default)]
pub(super) struct Uses {
    /// Function bodies.
    functions: HashMap<String, Words>,
    /// Everything that a name can stand for: functions with their heads, macros, types, and initialised
    /// variables. We look at names only, so two functions with the same name count as one.
    all: HashMap<String, Words>,
}

impl Uses {
    /// Returns true if a kernel's body loops over elements, directly or through a function that it calls.
    pub(super) fn loops(&self, text: &str, body: Node<'_>) -> bool {
        reached(text, body, &self.functions).iter().any(|word| word.starts_with(LOOP))
    }

    /// Returns true if a kernel can reach a barrier of the whole grid.
    pub(super) fn meets(&self, text: &str, kernel: Node<'_>) -> bool {
        let words = reached(text, kernel, &self.all);
        let any = |of: &[&str]| of.iter().any(|word| words.contains(*word));
        words.contains(GRID_BARRIER) || any(&GRID_GROUPS) && any(&GROUP_WAITS)
    }

    /// Returns the first of `names` that a kernel can reach.
    pub(super) fn first_of<'n>(&self, text: &str, kernel: Node<'_>, names: &'n [String]) -> Option<&'n str> {
        if names.is_empty() {
            return None;
        }
        let words = reached(text, kernel, &self.all);
        names.iter().map(String::as_str).find(|name| words.contains(*name))
    }

    /// Adds what a node of the file or of a header defines.
    pub(super) fn gather(&mut self, text: &str, node: Node<'_>) {
        match node.kind() {
            "function_definition" => {
                if let (Some(name), Some(body)) = (function_name(node), node.child_by_field_name("body")) {
                    let name = last_name(&text[name.byte_range()]).to_owned();
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
                let mut names = Words::new();
                initialised(node).for_each(|(name, _)| identifiers(text, name, &mut names));
                for name in names {
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

/// Returns the identifiers in `node` and in everything that they stand for.
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

pub(crate) fn identifiers(text: &str, node: Node<'_>, words: &mut Words) {
    for leaf in descendants(node).filter(|node| node.child_count() == 0) {
        let text = &text[leaf.byte_range()];
        if leaf.kind() == "preproc_arg" {
            // The body of a macro is a single token. Words in strings are not names, but where a string ends is only
            // clear if no quotation mark is part of one.
            let step = if text.contains("\\\"") || text.contains("'\"'") { 1 } else { 2 };
            let code = text.split('"').step_by(step);
            words.extend(code.flat_map(|code| code.split(|c| !is_word(c))).map(str::to_owned));
        } else if leaf.kind().ends_with("identifier") {
            words.insert(text.to_owned());
        }
    }
}
