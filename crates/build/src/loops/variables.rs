//! Decides how to keep each variable that may live across a meeting.
//!
//! A variable in a kernel is really one variable per thread. If each had to be an array, loops would mostly load and
//! store. Often we can do better:
//!
//! ```cpp
//! unsigned first = blockIdx.x * 256;   // the same for all threads: one variable for the block
//! unsigned i = first + threadIdx.x;    // follows from the index: each loop computes it again
//! float mine = in[i];                  // may be anything: an array with one value per thread
//! ```
//!
//! To decide that, we assume at first that all variables are the same for all threads. Then we look for reasons against
//! it: a value that depends on `threadIdx` or on a variable that varies, or a change in a branch that only some threads
//! take. Each variable that varies may make others vary, so we repeat this until nothing changes. We must be careful:
//! if we took a variable for uniform and it were not, the kernel would compute something wrong. So everything that we
//! do not understand counts as varying.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tree_sitter::Node;

use super::progression::Course;
use super::turns;
use super::waits::{Macro, Waits, callee};
use crate::parse::{children, declarators, declared, descendants, has_word, identifiers, named};

/// How a variable is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All threads have the same value at any time, so the block has one variable.
    Uniform,
    /// The value follows from the thread's index and uniform variables, so each loop computes it again.
    Again,
    /// Each thread has its own value, in an array. If only one loop uses it, it is a variable in that loop.
    Own,
}

/// One variable.
pub(super) struct Variable<'t> {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The declaration. A parameter has none.
    pub(super) declaration: Option<Node<'t>>,
    /// The declarator, with the value if there is one.
    pub(super) declarator: Node<'t>,
    /// The type as you wrote it, including pointers.
    pub(super) ty: String,
    /// The extents, `[4][4]`.
    pub(super) extents: String,
    /// True if an array can hold the type: it is neither a reference nor `auto`.
    pub(super) storable: bool,
    /// True if the variable is `const`, because then no function can change it.
    pub(super) constant: bool,
    /// The innermost loop around the declaration.
    pub(super) around: Option<usize>,
    /// The range that the name means this variable in.
    pub(super) scope: Range<usize>,
    /// How the value changes along a row of threads.
    pub(super) course: Course,
}

impl<'t> Variable<'t> {
    /// Returns the variable's first value.
    pub(super) fn value(&self) -> Option<Node<'t>> {
        (self.declarator.kind() == "init_declarator")
            .then(|| self.declarator.child_by_field_name("value"))
            .flatten()
    }
}

/// A place in the text that could change a variable.
pub(super) struct Write<'t> {
    pub(super) variable: usize,
    /// The statement, if it does nothing but this change.
    pub(super) statement: Option<usize>,
    /// The expressions that determine the new value. `None` if we do not know them.
    pub(super) from: Option<Vec<Node<'t>>>,
    /// True if something could keep the variable's address.
    pub(super) lends: bool,
}

/// What an expression may consist of.
struct Allowed<'a> {
    identifier: &'a dyn Fn(Node<'_>) -> bool,
    /// An element of an array.
    read: &'a dyn Fn(Node<'_>) -> bool,
    /// The outcome of [`turns::ANY`], in which all threads take part.
    outcome: bool,
}

/// A kernel's variables.
pub(super) struct Variables<'k, 't> {
    pub(super) waits: &'k Waits,
    pub(super) text: &'t str,
    pub(super) list: Vec<Variable<'t>>,
    by_name: HashMap<String, usize>,
    /// Names that may differ between threads, because they are declared further inside or mean memory.
    varying: HashSet<String>,
    /// Arrays in shared memory.
    shared: HashSet<String>,
    /// The names of the array whose size the launch gives.
    dynamic: HashSet<String>,
    writes: Vec<Write<'t>>,
    /// Statements that all threads come to together, unless an `if` around them separates the threads; and the offset
    /// of each.
    common: HashMap<usize, usize>,
    /// The `if` statements with meetings inside, and their conditions.
    branches: Vec<(Node<'t>, Node<'t>)>,
    /// The branches that only some threads enter.
    apart: Vec<Range<usize>>,
}

/// Functions whose result only depends on their arguments.
const PURE: [&str; 42] = [
    "log",
    "logf",
    "log2",
    "log2f",
    "__log2f",
    "__logf",
    "exp",
    "expf",
    "exp2f",
    "pow",
    "powf",
    "ceil",
    "ceilf",
    "floor",
    "floorf",
    "round",
    "roundf",
    "fabsf",
    "fabs",
    "rsqrtf",
    "__brev",
    "__popcll",
    "__clzll",
    "__ffsll",
    "bool",
    "float",
    "double",
    "uint32_t",
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
    /// Makes an empty list.
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

    /// Returns the variable that a name means at this offset. Elsewhere the name may mean something else, such as a
    /// function or a member.
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

    /// Adds an array in shared memory. If `is_dynamic` is set, the launch gives its size.
    pub(super) fn share(&mut self, name: &str, is_dynamic: bool) {
        self.dynamic.extend(is_dynamic.then(|| name.to_owned()));
        self.shared.insert(name.to_owned());
        self.varying.insert(name.to_owned());
    }

    /// Returns true if a name means an array in shared memory, and nothing else.
    pub(super) fn is_shared(&self, name: &str) -> bool {
        self.shared.contains(name) && !self.by_name.contains_key(name)
    }

    /// Returns true if the shared memory whose size the launch gives has several names, and this is one.
    pub(super) fn is_one_of_several(&self, name: &str) -> bool {
        self.dynamic.len() > 1 && self.dynamic.contains(name)
    }

    /// Adds a statement that all threads come to together.
    pub(super) fn common(&mut self, statement: Node<'t>) {
        self.common.insert(statement.id(), statement.start_byte());
    }

    /// Adds an `if` with meetings inside.
    pub(super) fn branch(&mut self, statement: Node<'t>, condition: Node<'t>) {
        self.branches.push((statement, condition));
    }

    /// Decides how each variable is kept.
    pub(super) fn decide(&mut self, body: Node<'t>) {
        self.nested(body);
        self.writes = self.writes_in(body);
        loop {
            self.find_uniform();
            // If a branch depends on the thread, only some threads execute what is inside. Variables that change there
            // may vary, so we must look at all of them again.
            let uniform = |condition: Node<'t>| self.is_uniform_condition(condition);
            let apart = self.branches.iter().position(|(_, condition)| !uniform(*condition));
            let Some(apart) = apart else { break };
            let (statement, _) = self.branches.swap_remove(apart);
            self.apart.push(statement.byte_range());
        }
        // We go in order, because a value can depend on variables above it.
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

    /// Returns true if a condition has the same outcome for all threads in the block. The node includes the
    /// parentheses.
    pub(super) fn is_uniform_condition(&self, condition: Node<'t>) -> bool {
        named(condition).into_iter().all(|child| self.is_uniform(child))
    }

    /// Finds the variables that are the same for all threads.
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

    /// Returns true if something could change the variable after its declaration.
    pub(super) fn is_written(&self, variable: usize) -> bool {
        self.writes.iter().any(|write| write.variable == variable)
    }

    /// Returns true if something could keep the variable's address.
    pub(super) fn is_lent(&self, variable: usize) -> bool {
        self.writes.iter().any(|write| write.variable == variable && write.lends)
    }

    /// Returns true if a part of the variable could change, or if something could change it through its address.
    pub(super) fn is_addressed(&self, variable: usize) -> bool {
        self.writes.iter().any(|write| write.variable == variable && write.from.is_none())
    }

    /// Returns the variables that `node` could change.
    pub(super) fn written_in(&self, node: Node<'t>) -> HashSet<usize> {
        self.writes_in(node).into_iter().map(|write| write.variable).collect()
    }

    /// Returns the variables that `node` mentions.
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

    /// Returns true if all threads get the same value, as long as they ask between the same two meetings. Memory cannot
    /// change in between, because that would be a data race.
    pub(super) fn is_uniform(&self, node: Node<'_>) -> bool {
        let common = |name: Node<'_>| {
            if let Some(index) = self.meant(name) {
                return self.list[index].kind == Kind::Uniform;
            }
            let name = &self.text[name.byte_range()];
            !self.varying.contains(name) || self.is_shared(name)
        };
        let read = |place: Node<'_>| self.is_common_place(place);
        self.is_simple(node, &Allowed { identifier: &common, read: &read, outcome: true })
    }

    /// Returns true if a uniform expression reads memory.
    pub(super) fn reads_memory(&self, node: Node<'_>) -> bool {
        node.kind() == "subscript_expression"
            || node.kind() == "identifier" && self.is_shared(&self.text[node.byte_range()])
            || children(node).into_iter().any(|child| self.reads_memory(child))
    }

    /// Returns true if all threads mean the same place in memory: in a shared array, or behind a uniform pointer.
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

    /// Returns true if an expression is the same for all threads in a row.
    pub(super) fn is_fixed_in_row(&self, node: Node<'_>) -> bool {
        self.follows(node) && !self.depends_on_x(node)
    }

    /// Returns true if an expression follows from the thread's index and differs between threads.
    pub(super) fn is_index(&self, node: Node<'_>) -> bool {
        self.follows(node) && !self.is_uniform(node)
    }

    /// Returns true if an expression has the same value whenever a thread evaluates it.
    fn follows(&self, node: Node<'_>) -> bool {
        self.follows_with(node, None)
    }

    /// Returns the same as [`follows`](Self::follows), but treats `counter` as fixed.
    pub(super) fn follows_with(&self, node: Node<'_>, counter: Option<&str>) -> bool {
        let fixed = |name: Node<'_>| match self.meant(name).map(|index| (index, self.list[index].kind)) {
            Some((index, Kind::Uniform)) => !self.is_written(index),
            Some((_, kind)) => kind == Kind::Again,
            None => {
                let name = &self.text[name.byte_range()];
                name == "threadIdx" || Some(name) == counter || !self.varying.contains(name)
            }
        };
        self.is_simple(node, &Allowed { identifier: &fixed, read: &|_| false, outcome: false })
    }

    /// Returns true if an expression only computes, and only from parts that are `allowed`.
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
                // If no word of the macro is a variable of the kernel, the macro is a constant.
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
                if allowed.outcome && callee(self.text, node) == Some(turns::ANY) {
                    return true;
                }
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

    /// Returns true if a macro only computes, from its arguments, constants and functions in [`PURE`].
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

    /// Returns true if a call cannot change its arguments. If the name may be a variable, it could be a function
    /// object, and that could do anything.
    pub(super) fn keeps_arguments(&self, call: Node<'_>) -> bool {
        let is_object = |name| self.by_name.contains_key(name) || self.varying.contains(name);
        // A constructor could take a reference.
        self.type_of_cast(call).is_some_and(|ty| !self.waits.takes_references(ty))
            || self.waits.keeps_arguments(self.text, call) && !callee(self.text, call).is_some_and(is_object)
    }

    /// Returns the type, if a call is really a conversion: `int(x)`, or `(T)(x)` if some variable has the type `T`.
    pub(super) fn type_of_cast(&self, call: Node<'_>) -> Option<&'t str> {
        let function = call.child_by_field_name("function").filter(|_| call.kind() == "call_expression")?;
        let name =
            if function.kind() == "parenthesized_expression" { function.named_child(0)? } else { function };
        let name = &self.text[name.byte_range()];
        (function.kind() == "primitive_type" || self.list.iter().any(|variable| variable.ty == name))
            .then_some(name)
    }

    /// Adds the names that are declared inside of loops over threads. A uniform expression must not mention them.
    fn nested(&mut self, body: Node<'t>) {
        self.varying.insert("threadIdx".to_owned());
        let mut names = HashSet::new();
        // A constant that the compiler knows is the same for all threads.
        let is_constant = |node: &Node<'_>| has_word(self.text, *node, "constexpr");
        let declares = |node: &Node<'_>| {
            node.kind() == "for_range_loop" || node.kind() == "declaration" && !is_constant(node)
        };
        for declarator in descendants(body).filter(declares).flat_map(declarators) {
            identifiers(self.text, declared(declarator), &mut names);
        }
        names.retain(|name| !self.by_name.contains_key(name));
        self.varying.extend(names);
    }
}
