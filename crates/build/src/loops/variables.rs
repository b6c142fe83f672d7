//! The variables of a kernel that live where its threads meet, and how each is kept.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tree_sitter::Node;

use super::progression::Course;
use super::waits::{Macro, Waits, callee};
use crate::parse::{children, declarators, declared, descendants, identifiers, named};

/// The way in which a variable is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All threads have one value at any time: one variable of the block.
    Uniform,
    /// Its value follows from the thread's index and uniform variables: each loop computes it again.
    Again,
    /// Each thread has its own: an array, or a variable of the one loop that uses it.
    Own,
}

/// One variable.
pub(super) struct Variable<'t> {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The declaration; a parameter has none.
    pub(super) declaration: Option<Node<'t>>,
    /// The declarator, with a value where the kernel gives one.
    pub(super) declarator: Node<'t>,
    /// The type as it is written, pointers included.
    pub(super) ty: String,
    /// The extents, `[4][4]`.
    pub(super) extents: String,
    /// Whether the type is one that an array can hold: no reference and not `auto`.
    pub(super) storable: bool,
    /// Whether it is `const`, so that no function changes it.
    pub(super) constant: bool,
    /// The innermost loop around the declaration.
    pub(super) around: Option<usize>,
    /// The text in which the name means this variable.
    pub(super) scope: Range<usize>,
    /// The way in which the value goes along a row of threads.
    pub(super) course: Course,
}

impl<'t> Variable<'t> {
    /// Returns the expression that the variable begins with.
    pub(super) fn value(&self) -> Option<Node<'t>> {
        (self.declarator.kind() == "init_declarator")
            .then(|| self.declarator.child_by_field_name("value"))
            .flatten()
    }
}

/// One place where a variable could change.
pub(super) struct Write<'t> {
    pub(super) variable: usize,
    /// The statement, where the change is all that it does.
    pub(super) statement: Option<usize>,
    /// The expressions that determine the new value; `None` where it is unknown.
    pub(super) from: Option<Vec<Node<'t>>>,
    /// Whether something could hold on to the variable's place.
    pub(super) lends: bool,
}

/// The parts of which an expression may be made.
struct Allowed<'a> {
    identifier: &'a dyn Fn(Node<'_>) -> bool,
    /// An element of an array.
    read: &'a dyn Fn(Node<'_>) -> bool,
}

/// The variables of a kernel.
pub(super) struct Variables<'k, 't> {
    pub(super) waits: &'k Waits,
    pub(super) text: &'t str,
    pub(super) list: Vec<Variable<'t>>,
    by_name: HashMap<String, usize>,
    /// Names that are declared deeper inside, or by the file as memory.
    varying: HashSet<String>,
    /// Arrays in shared memory.
    shared: HashSet<String>,
    /// The names of the one whose size the launch gives.
    dynamic: HashSet<String>,
    writes: Vec<Write<'t>>,
    /// Statements that the whole block executes at once, by their identity, with their places.
    common: HashMap<usize, usize>,
    /// The `if` statements in which threads meet, and their conditions.
    branches: Vec<(Node<'t>, Node<'t>)>,
    /// The branches that only some threads of the block enter.
    apart: Vec<Range<usize>>,
}

/// Functions whose result follows from their arguments.
const PURE: [&str; 14] = [
    "min",
    "max",
    "abs",
    "fminf",
    "fmaxf",
    "sqrtf",
    "sqrt",
    "__popc",
    "__clz",
    "__ffs",
    "size_t",
    "static_cast",
    "int",
    "unsigned",
];

impl<'k, 't> Variables<'k, 't> {
    /// Returns no variables.
    pub(super) fn new(text: &'t str, waits: &'k Waits) -> Self {
        let memory = waits.memory().clone();
        Self {
            waits,
            text,
            list: Vec::new(),
            by_name: HashMap::new(),
            varying: memory,
            shared: HashSet::new(),
            dynamic: HashSet::new(),
            writes: Vec::new(),
            common: HashMap::new(),
            branches: Vec::new(),
            apart: Vec::new(),
        }
    }

    /// Returns the variable that a name means at a place; elsewhere it may be that of a function or a member.
    pub(super) fn find(&self, name: &str, at: usize) -> Option<usize> {
        self.by_name.get(name).copied().filter(|&index| self.list[index].scope.contains(&at))
    }

    pub(super) fn str(&self, node: Node<'_>) -> &'t str {
        &self.text[node.byte_range()]
    }

    pub(super) fn meant(&self, identifier: Node<'_>) -> Option<usize> {
        self.find(self.str(identifier), identifier.start_byte())
    }

    pub(super) fn add(&mut self, variable: Variable<'t>) {
        self.by_name.insert(variable.name.clone(), self.list.len());
        self.list.push(variable);
    }

    /// Notes an array of the block's shared memory, whose size the launch may give.
    pub(super) fn share(&mut self, name: &str, is_dynamic: bool) {
        self.dynamic.extend(is_dynamic.then(|| name.to_owned()));
        self.shared.insert(name.to_owned());
        self.varying.insert(name.to_owned());
    }

    /// Returns whether the name is that of an array in shared memory, and of nothing else.
    pub(super) fn is_shared(&self, name: &str) -> bool {
        self.shared.contains(name) && !self.by_name.contains_key(name)
    }

    /// Returns whether the name is one of several for the shared memory whose size the launch gives.
    pub(super) fn is_one_of_several(&self, name: &str) -> bool {
        self.dynamic.len() > 1 && self.dynamic.contains(name)
    }

    /// Notes that the whole block executes a statement at once.
    pub(super) fn common(&mut self, statement: Node<'t>) {
        self.common.insert(statement.id(), statement.start_byte());
    }

    /// Notes an `if` in which threads meet.
    pub(super) fn branch(&mut self, statement: Node<'t>, condition: Node<'t>) {
        self.branches.push((statement, condition));
    }

    /// Decides how each variable is kept, from all that the kernel's body does.
    pub(super) fn decide(&mut self, body: Node<'t>) {
        self.nested(body);
        self.writes = self.writes_in(body);
        loop {
            self.find_uniform();
            // Only some threads execute the statements in a branch that depends on the thread.
            let uniform = |condition: Node<'t>| self.is_uniform_condition(condition);
            let apart = self.branches.iter().position(|(_, condition)| !uniform(*condition));
            let Some(apart) = apart else { break };
            let (statement, _) = self.branches.swap_remove(apart);
            self.apart.push(statement.byte_range());
        }
        // In order: a value can follow from variables above.
        for index in 0..self.list.len() {
            let variable = &self.list[index];
            let again = variable.kind == Kind::Own
                && variable.extents.is_empty()
                && !self.is_written(index)
                && variable.value().is_some_and(|value| self.follows(value));
            if again {
                self.list[index].kind = Kind::Again;
                self.list[index].course = self.course(&self.list[index]);
            }
        }
    }

    /// Returns whether all threads of the block find the same in a condition, with its parentheses.
    pub(super) fn is_uniform_condition(&self, condition: Node<'t>) -> bool {
        named(condition).into_iter().all(|child| self.is_uniform(child))
    }

    /// Finds the variables of which all threads have one value.
    fn find_uniform(&mut self) {
        for variable in &mut self.list {
            variable.kind = Kind::Uniform;
        }
        loop {
            let varies = |index: usize| {
                let variable = &self.list[index];
                variable.kind == Kind::Uniform
                    && (variable.value().is_some_and(|value| !self.is_uniform(value))
                        || !variable.extents.is_empty()
                        || self
                            .writes
                            .iter()
                            .any(|write| write.variable == index && !self.keeps_uniform(write)))
            };
            let varying: Vec<usize> = (0..self.list.len()).filter(|&index| varies(index)).collect();
            if varying.is_empty() {
                break;
            }
            for index in varying {
                self.list[index].kind = Kind::Own;
            }
        }
    }

    /// Returns whether something could change the variable after its declaration.
    fn is_written(&self, variable: usize) -> bool {
        self.writes.iter().any(|write| write.variable == variable)
    }

    /// Returns whether something could hold on to the variable's place.
    pub(super) fn is_lent(&self, variable: usize) -> bool {
        self.writes.iter().any(|write| write.variable == variable && write.lends)
    }

    /// Returns whether the variable changes in its place: a part of it, or by something that could hold on to it.
    pub(super) fn is_addressed(&self, variable: usize) -> bool {
        self.writes.iter().any(|write| write.variable == variable && write.from.is_none())
    }

    /// Returns the variables that something inside of `node` could change.
    pub(super) fn written_in(&self, node: Node<'t>) -> HashSet<usize> {
        self.writes_in(node).into_iter().map(|write| write.variable).collect()
    }

    /// Returns the variables whose names are inside of `node`.
    pub(super) fn mentioned_in(&self, node: Node<'_>) -> HashSet<usize> {
        let words = self.waits.words(self.text, node);
        words.iter().filter_map(|word| self.find(word, node.start_byte())).collect()
    }

    fn keeps_uniform(&self, write: &Write<'t>) -> bool {
        if self.list[write.variable].constant {
            return true;
        }
        let declared = self.list[write.variable].scope.start;
        let together = |place: &usize| {
            self.apart.iter().all(|branch| !branch.contains(place) || branch.contains(&declared))
        };
        write.statement.and_then(|statement| self.common.get(&statement)).is_some_and(together)
            && write.from.as_ref().is_some_and(|from| from.iter().all(|node| self.is_uniform(*node)))
    }

    /// Returns whether all threads of the block find the same value, if they look for it between the same two meetings:
    /// another thread that changes memory in between would be a data race.
    pub(super) fn is_uniform(&self, node: Node<'_>) -> bool {
        let common = |name: Node<'_>| {
            if let Some(index) = self.meant(name) {
                return self.list[index].kind == Kind::Uniform;
            }
            let name = &self.text[name.byte_range()];
            !self.varying.contains(name) || self.is_shared(name)
        };
        let read = |place: Node<'_>| self.is_common_place(place);
        self.is_simple(node, &Allowed { identifier: &common, read: &read })
    }

    /// Returns whether an expression that is uniform reads memory.
    pub(super) fn reads_memory(&self, node: Node<'_>) -> bool {
        node.kind() == "subscript_expression"
            || node.kind() == "identifier" && self.is_shared(&self.text[node.byte_range()])
            || children(node).into_iter().any(|child| self.reads_memory(child))
    }

    /// Returns whether all threads name the same place in memory: one in an array of the block, or behind a pointer that
    /// they have in common.
    fn is_common_place(&self, place: Node<'_>) -> bool {
        let (Some(array), Some(index)) =
            (place.child_by_field_name("argument"), place.child_by_field_name("indices"))
        else {
            return false;
        };
        let name = &self.text[array.byte_range()];
        let pointer = self.meant(array).is_some_and(|index| {
            let variable = &self.list[index];
            variable.kind == Kind::Uniform && variable.ty.ends_with('*') && !variable.ty.contains("volatile")
        });
        array.kind() == "identifier"
            && (pointer || self.is_shared(name))
            && named(index).into_iter().all(|index| self.is_uniform(index))
    }

    /// Returns whether an expression has one value for all threads of a row.
    pub(super) fn is_fixed_in_row(&self, node: Node<'_>) -> bool {
        self.follows(node) && !self.depends_on_x(node)
    }

    /// Returns whether an expression follows from the thread's index and differs between threads.
    pub(super) fn is_index(&self, node: Node<'_>) -> bool {
        self.follows(node) && !self.is_uniform(node)
    }

    /// Returns whether an expression has the same value whenever a thread evaluates it.
    fn follows(&self, node: Node<'_>) -> bool {
        self.follows_with(node, None)
    }

    /// Returns the same where a counter is known to have one value.
    pub(super) fn follows_with(&self, node: Node<'_>, counter: Option<&str>) -> bool {
        let fixed = |name: Node<'_>| match self.meant(name).map(|index| (index, self.list[index].kind)) {
            Some((index, Kind::Uniform)) => !self.is_written(index),
            Some((_, kind)) => kind == Kind::Again,
            None => {
                let name = &self.text[name.byte_range()];
                name == "threadIdx" || Some(name) == counter || !self.varying.contains(name)
            }
        };
        self.is_simple(node, &Allowed { identifier: &fixed, read: &|_| false })
    }

    /// Returns whether an expression only computes, from parts that are `allowed`.
    fn is_simple(&self, node: Node<'_>, allowed: &Allowed<'_>) -> bool {
        match node.kind() {
            "number_literal"
            | "qualified_identifier"
            | "char_literal"
            | "true"
            | "false"
            | "null"
            | "sizeof_expression"
            | "type_descriptor"
            | "primitive_type"
            | "comment" => true,
            "identifier" => match self.waits.macro_of(&self.text[node.byte_range()]) {
                Macro::None => (allowed.identifier)(node),
                Macro::Varies => false,
                // Constants alone, if no word means one of the kernel's variables.
                Macro::Of(words) => {
                    !words.iter().any(|word| self.by_name.contains_key(word) || self.varying.contains(word))
                }
            },
            "subscript_expression" => (allowed.read)(node),
            "field_expression" => {
                let argument = node.child_by_field_name("argument");
                let direct =
                    node.child_by_field_name("operator").is_none_or(|op| &self.text[op.byte_range()] == ".");
                direct && argument.is_some_and(|argument| self.is_simple(argument, allowed))
            }
            "binary_expression"
            | "parenthesized_expression"
            | "conditional_expression"
            | "cast_expression"
            | "unary_expression"
            | "argument_list" => named(node).into_iter().all(|node| self.is_simple(node, allowed)),
            "call_expression" => {
                let pure = callee(self.text, node)
                    .is_some_and(|name| PURE.contains(&name) || self.computes(name))
                    || node.child_by_field_name("function").is_some_and(|f| f.kind() == "primitive_type");
                pure && node
                    .child_by_field_name("arguments")
                    .is_some_and(|node| self.is_simple(node, allowed))
            }
            _ => false,
        }
    }

    /// Returns whether a macro only computes with its values, constants and such functions.
    fn computes(&self, name: &str) -> bool {
        let known = |word: &String| {
            word.starts_with(|c: char| c.is_ascii_digit())
                || PURE.contains(&&**word)
                || !matches!(self.waits.macro_of(word), Macro::None)
        };
        match self.waits.macro_of(name) {
            Macro::Of(_) => !self.waits.changes(name) && self.waits.free_of(name).iter().all(known),
            Macro::None | Macro::Varies => false,
        }
    }

    /// Returns whether a node leaves its arguments as they are. A function object could change them.
    pub(super) fn keeps_arguments(&self, call: Node<'_>) -> bool {
        let is_object = |name| self.by_name.contains_key(name) || self.varying.contains(name);
        // A constructor could take a reference.
        self.type_of_cast(call).is_some_and(|ty| !self.waits.takes_references(ty))
            || self.waits.keeps_arguments(self.text, call) && !callee(self.text, call).is_some_and(is_object)
    }

    /// Returns the type to which what reads like a call converts its value: `int(x)`, or `(T)(x)` with a variable's type.
    pub(super) fn type_of_cast(&self, call: Node<'_>) -> Option<&'t str> {
        let function = call.child_by_field_name("function").filter(|_| call.kind() == "call_expression")?;
        let name =
            if function.kind() == "parenthesized_expression" { function.named_child(0)? } else { function };
        let name = &self.text[name.byte_range()];
        (function.kind() == "primitive_type" || self.list.iter().any(|variable| variable.ty == name))
            .then_some(name)
    }

    /// Notes the variables that are declared inside of loops over threads, which no uniform expression can mean.
    fn nested(&mut self, body: Node<'t>) {
        self.varying.insert("threadIdx".to_owned());
        let mut names = HashSet::new();
        let declares = |node: &Node<'_>| matches!(node.kind(), "declaration" | "for_range_loop");
        for declarator in descendants(body).filter(declares).flat_map(declarators) {
            identifiers(self.text, declared(declarator), &mut names);
        }
        names.retain(|name| !self.by_name.contains_key(name));
        self.varying.extend(names);
    }
}
