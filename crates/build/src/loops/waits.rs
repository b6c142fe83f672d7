//! Finds out which functions and macros can make a thread wait for others.
//!
//! A kernel may call `sync_all()`, which calls `__syncthreads()`, or use a macro that does. So we read your file, your
//! headers and ours, collect which function calls which, and go back from the functions that wait to everything that
//! leads to them. We also collect what the rest of the rewrite needs to know about names: which functions read
//! `threadIdx` or take references, and which macros change something or read memory. All of this is by name. If two
//! functions share a name, they count as one, so the answer may be "it can wait" for a call that never does. It must
//! not be the other way round.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use tree_sitter::{Node, Tree};

use super::{groups, turns};
use crate::diagnostic::{Error, Result};
use crate::headers;
use crate::names::{is_word, last_name};
use crate::parse::{
    declarators, declared, descendants, function_name, has_word, identifiers, reach, readable, tree, visit,
};

/// The functions in the device headers that wait. Some are defined by macros, so we could not find them by their calls.
const ROOTS: [&str; 17] = [
    turns::ANY,
    "gs_cpu_barrier",
    "gs_cpu_warp",
    "__shfl",
    "__shfl_up",
    "__shfl_down",
    "__shfl_xor",
    "__shfl_sync",
    "__shfl_up_sync",
    "__shfl_down_sync",
    "__shfl_xor_sync",
    "__reduce_add_sync",
    "__reduce_min_sync",
    "__reduce_max_sync",
    "__reduce_and_sync",
    "__reduce_or_sync",
    "__reduce_xor_sync",
];

type Words = HashSet<String>;

/// What each function calls and mentions, and the words in each macro.
#[derive(Clone, Default)]
struct Names {
    calls: HashMap<String, Words>,
    mentions: HashMap<String, Words>,
    /// How long each function's text is, in bytes.
    lengths: HashMap<String, usize>,
    macros: HashMap<String, Words>,
    /// The words in each macro that have a meaning at its use: neither parameters nor members.
    free: HashMap<String, Words>,
    /// Functions with a reference parameter.
    references: Words,
    /// Macros that change something.
    changing: Words,
    /// Macros that could read memory.
    reading: Words,
}

impl Names {
    fn gather(&mut self, text: &str, root: Node<'_>) {
        for node in descendants(root) {
            let field = |name| node.child_by_field_name(name);
            match node.kind() {
                "function_definition" => {
                    if let (Some(declarator), Some(body)) = (field("declarator"), field("body"))
                        && let Some(name) = function_name(node)
                    {
                        let name = last_name(&text[name.byte_range()]).to_owned();
                        called(text, body, self.calls.entry(name.clone()).or_default());
                        *self.lengths.entry(name.clone()).or_default() += body.byte_range().len();
                        identifiers(text, body, self.mentions.entry(name.clone()).or_default());
                        if text[declarator.byte_range()].contains('&') {
                            self.references.insert(name);
                        }
                    }
                }
                "preproc_def" | "preproc_function_def" => {
                    if let Some(name) = field("name") {
                        let name = text[name.byte_range()].to_owned();
                        identifiers(text, node, self.macros.entry(name.clone()).or_default());
                        self.free.entry(name.clone()).or_default().extend(free(text, node));
                        self.look_into(name, field("value").map_or("", |value| &text[value.byte_range()]));
                    }
                }
                _ => {}
            }
        }
    }

    /// Finds out if a macro assigns something, and if it could read memory.
    fn look_into(&mut self, name: String, value: &str) {
        let compares =
            ["==", "<=", ">=", "!="].iter().fold(value.to_owned(), |value, op| value.replace(op, ""));
        if compares.contains('=') || value.contains("++") || value.contains("--") {
            self.changing.insert(name.clone());
        }
        if value.contains('[') || value.contains("->") {
            self.reading.insert(name);
        }
    }

    /// Returns the functions and macros that lead to one of the roots.
    fn leading_to(&self, roots: impl IntoIterator<Item = &'static str>) -> Words {
        let roots = roots.into_iter().map(str::to_owned).collect();
        grown(roots, |waiting| {
            let waits = |word: &String| waiting.contains(word);
            let waiting_macro = |word: &String| waits(word) && self.macros.contains_key(word);
            let named = self.calls.iter().chain(&self.macros).filter(|(_, words)| words.iter().any(waits));
            let mentioned = self.mentions.iter().filter(|(_, words)| words.iter().any(waiting_macro));
            named.chain(mentioned).map(|(name, _)| name.clone()).collect()
        })
    }
}

/// Adds words until `more` finds none to add.
fn grown(mut words: Words, more: impl Fn(&Words) -> Words) -> Words {
    loop {
        let before = words.len();
        words.extend(more(&words));
        if words.len() == before {
            return words;
        }
    }
}

/// What a name means as a macro.
pub(super) enum Macro {
    /// It is not a macro.
    None,
    /// It could read memory or the thread's index.
    Varies,
    /// It leads only to these words, including its own name.
    Of(Words),
}

/// What we know about the functions and macros in a file, its headers and ours.
pub(super) struct Waits {
    waiting: Words,
    /// Functions that read `threadIdx`.
    indexed: Words,
    /// All names. We know that our own macros neither change anything nor read memory.
    names: Names,
    /// Your functions.
    functions: Words,
    /// Variables in memory that kernels can change.
    memory: Words,
    /// Your headers, and [`groups::reductions`]: their texts and trees.
    helpers: Vec<(String, Tree)>,
}

impl Waits {
    /// Reads a file and your headers.
    pub(super) fn collect<'a>(
        text: &str,
        root: Node<'_>,
        helpers: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        let ours = ours()?;
        let mut names = ours.clone();
        let mut memory = Words::new();
        let mut gather = |text: &str, root: Node<'_>| {
            names.gather(text, root);
            gather_memory(text, root, &mut memory);
        };
        gather(text, root);
        let mut kept = Vec::new();
        let mut keep = |helper: &str| {
            let readable = readable(helper);
            let tree = tree(&readable)?;
            gather(helper, tree.root_node());
            kept.push((helper.to_owned(), tree.clone()));
            Ok::<_, Error>(groups::own_operations(helper, tree.root_node()))
        };
        let mut operations = groups::own_operations(text, root);
        for helper in helpers {
            operations.extend(keep(helper)?);
        }
        keep(&groups::reductions(operations))?;
        let waiting = names.leading_to(ROOTS);
        let reads = |words: &Words| words.contains("threadIdx");
        let readers = names.mentions.iter().chain(&names.macros).filter(|(_, words)| reads(words));
        let readers = readers.map(|(name, _)| name.clone()).collect();
        let mut indexed = grown(readers, |indexed| {
            let callers = names.calls.iter().filter(|(_, calls)| !calls.is_disjoint(indexed));
            callers.map(|(name, _)| name.clone()).collect()
        });
        indexed.retain(|name| names.calls.contains_key(name));
        let functions = names.calls.keys().filter(|name| !ours.calls.contains_key(*name)).cloned().collect();
        Ok(Self { waiting, indexed, names, functions, memory, helpers: kept })
    }

    /// Returns the texts and trees of your headers, and of the functions that we put in.
    pub(super) fn others(&self) -> &[(String, Tree)] {
        &self.helpers
    }

    /// Returns true if a function with this name could change its arguments.
    pub(super) fn takes_references(&self, name: &str) -> bool {
        self.names.references.contains(name) || matches!(name, "swap" | "exchange" | "get" | "tie" | "ref")
    }

    /// Returns true if a node cannot change its arguments: it makes a number or a variable, or it calls a function
    /// without references, and not a macro that changes something.
    pub(super) fn keeps_arguments(&self, text: &str, call: Node<'_>) -> bool {
        let function = call.child_by_field_name("function");
        call.kind() != "call_expression"
            || function.is_some_and(|function| function.kind() == "primitive_type")
            || callee(text, call).is_some_and(|name| !self.takes_references(name) && !self.changes(name))
    }

    /// Returns the variables in memory that kernels can change.
    pub(super) fn memory(&self) -> &Words {
        &self.memory
    }

    /// Returns what a name means as a macro.
    pub(super) fn macro_of(&self, name: &str) -> Macro {
        let macros = &self.names.macros;
        let Some(mut words) = macros.get(name).cloned() else { return Macro::None };
        reach(&mut words, macros);
        words.insert(name.to_owned());
        let reads = |word: &str| self.names.reading.contains(word) || self.memory.contains(word);
        let varies = |word: &String| word == "threadIdx" || reads(word);
        let calls = |word: &String| self.indexed.contains(word) || self.waiting.contains(word);
        if words.iter().any(|word| varies(word) || calls(word)) { Macro::Varies } else { Macro::Of(words) }
    }

    /// Returns the words that come from macros in a text, each with one macro that it comes from.
    pub(super) fn in_macros(&self, text: &str, node: Node<'_>) -> HashMap<String, String> {
        let mut words = Words::new();
        identifiers(text, node, &mut words);
        let mut found = HashMap::new();
        for name in words {
            found.extend(self.free_of(&name).into_iter().map(|word| (word, name.clone())));
        }
        found
    }

    /// Returns the words that a macro adds to the text. Returns none if the name is not a macro.
    pub(super) fn free_of(&self, name: &str) -> Words {
        let mut free = self.names.free.get(name).cloned().unwrap_or_default();
        reach(&mut free, &self.names.free);
        free
    }

    /// Returns true if the name is a macro that changes something.
    pub(super) fn changes(&self, name: &str) -> bool {
        self.leads(name, &self.names.changing)
    }

    /// Returns true if the name is a macro that could read memory.
    pub(super) fn reads(&self, name: &str) -> bool {
        self.leads(name, &self.names.reading)
    }

    /// Returns true if a name cannot touch memory by itself: it is not one of your functions, and not a macro that does
    /// more than compute.
    pub(super) fn is_plain(&self, name: &str) -> bool {
        let plain = |word: &str| !self.memory.contains(word) && !self.functions.contains(word);
        !self.changes(name)
            && !self.reads(name)
            && !self.functions.contains(name)
            && self.free_of(name).iter().all(|word| plain(word))
    }

    /// Returns how long the texts of those of your functions are that these words name, with all that they call.
    pub(super) fn length(&self, words: &Words) -> usize {
        let own = |words: &Words| words.intersection(&self.functions).cloned().collect::<Words>();
        let mut reached = own(words);
        reach(&mut reached, &self.names.calls);
        own(&reached).iter().filter_map(|name| self.names.lengths.get(name)).sum()
    }

    /// Returns true if a macro is one of these, or leads to one.
    fn leads(&self, name: &str, macros: &Words) -> bool {
        macros.contains(name) || !self.free_of(name).is_disjoint(macros)
    }

    /// Returns a macro in a text that could return from the kernel.
    pub(super) fn returning(&self, text: &str, node: Node<'_>) -> Option<String> {
        let mut words = self.in_macros(text, node);
        words.remove("return").or_else(|| words.remove("goto"))
    }

    /// Returns true if a function that `node` calls, directly or in a macro, reads `threadIdx`.
    pub(super) fn read_index(&self, text: &str, node: Node<'_>) -> bool {
        let mut calls = Words::new();
        called(text, node, &mut calls);
        // Calls that make threads meet are replaced, so they do not count.
        calls.retain(|name| !self.waiting.contains(name));
        let mut own = Words::new();
        identifiers(text, node, &mut own);
        let macros = own.iter().filter_map(|word| self.names.macros.get(word)).flatten();
        // We cannot see calls of operators, and a failed assertion names its thread.
        self.indexed.iter().any(|name| name.starts_with("operator"))
            || calls.iter().chain(macros).any(|word| word == "assert" || self.indexed.contains(word))
    }

    /// Returns true if a thread can wait in an operator. We cannot see where one is called.
    pub(super) fn in_operators(&self) -> bool {
        self.waiting.iter().any(|name| name.starts_with("operator"))
    }

    /// Returns the first call, or use of a macro, that can make a thread wait.
    pub(super) fn first<'t>(&self, text: &str, node: Node<'t>) -> Option<Node<'t>> {
        self.first_beside(text, node, |_| false)
    }

    /// Returns the same, but skips nodes that are `known`, with everything inside them.
    pub(super) fn first_beside<'t>(
        &self,
        text: &str,
        node: Node<'t>,
        known: impl Fn(Node<'t>) -> bool,
    ) -> Option<Node<'t>> {
        let mut found = None;
        visit(node, &mut |node| {
            if found.is_some() || known(node) {
                return false;
            }
            let waits = match node.kind() {
                "call_expression" => callee(text, node).is_some_and(|name| self.waiting.contains(name)),
                "identifier" => {
                    let name = &text[node.byte_range()];
                    self.names.macros.contains_key(name) && self.waiting.contains(name)
                }
                _ => false,
            };
            found = waits.then_some(node);
            !waits
        });
        found
    }

    /// Returns the identifiers in `node` that may mean variables, including those from macros. A member's name does
    /// not, for example the `x` in `threadIdx.x`.
    pub(super) fn words(&self, text: &str, node: Node<'_>) -> Words {
        let mut words = Words::new();
        for leaf in descendants(node).filter(|node| node.child_count() == 0) {
            let is_member = leaf.kind() == "field_identifier";
            if !is_member || self.names.free.contains_key(&text[leaf.byte_range()]) {
                identifiers(text, leaf, &mut words);
            }
        }
        reach(&mut words, &self.names.free);
        words
    }
}

/// Returns the words in a macro that are neither parameters nor members.
fn free(text: &str, definition: Node<'_>) -> Words {
    let (mut parameters, mut words) = (Words::new(), Words::new());
    if let Some(list) = definition.child_by_field_name("parameters") {
        identifiers(text, list, &mut parameters);
    }
    if let Some(value) = definition.child_by_field_name("value") {
        let value = text[value.byte_range()].replace("->", ".");
        let first = |chain: &str| chain.split('.').next().map(str::to_owned);
        words.extend(value.split(|c| !is_word(c) && c != '.').filter_map(first));
    }
    words.retain(|word| !word.is_empty() && !parameters.contains(word));
    words
}

/// Returns what our device headers define.
fn ours() -> Result<&'static Names> {
    static OURS: OnceLock<Names> = OnceLock::new();
    if let Some(names) = OURS.get() {
        return Ok(names);
    }
    let mut names = Names::default();
    for text in headers::texts() {
        names.gather(text, tree(text)?.root_node());
    }
    names.changing.clear();
    names.reading.clear();
    Ok(OURS.get_or_init(|| names))
}

/// Returns the name of the function that an expression calls.
pub(super) fn callee<'t>(text: &'t str, call: Node<'_>) -> Option<&'t str> {
    let mut function = call.child_by_field_name("function")?;
    loop {
        function = match function.kind() {
            "identifier" | "field_identifier" => return Some(&text[function.byte_range()]),
            "field_expression" => function.child_by_field_name("field")?,
            "template_function" | "template_method" | "qualified_identifier" => {
                function.child_by_field_name("name")?
            }
            _ => return None,
        };
    }
}

fn called(text: &str, body: Node<'_>, words: &mut Words) {
    let calls = descendants(body).filter(|node| node.kind() == "call_expression");
    words.extend(calls.filter_map(|call| callee(text, call)).map(str::to_owned));
}

/// Collects a file's variables in memory that kernels can change.
fn gather_memory(text: &str, root: Node<'_>, memory: &mut Words) {
    visit(root, &mut |node| {
        if node.kind() == "declaration" {
            let has = |word| has_word(text, node, word);
            if !["constexpr", "const", "__constant__"].into_iter().any(has) {
                let names = declarators(node).into_iter().map(declared);
                memory.extend(names.map(|name| text[name.byte_range()].to_owned()));
            }
        }
        node.kind() != "function_definition"
    });
}
