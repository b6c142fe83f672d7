//! Cuts a kernel into steps: loops over a block's threads, and what the block does between them.
//!
//! We go through the statements in order and keep one loop over threads *open*. A statement without meetings joins the
//! open loop as a [`Piece`]. A meeting closes it, and the next statement opens another. Some statements must be alone,
//! for example an `if` that few threads enter, because such a loop need not visit all threads.

use std::collections::HashSet;

use tree_sitter::Node;

use super::edits::{self, Edit};
use super::lanes::Lanes;
use super::meetings::Meeting;
use super::order::Accesses;
use super::row_facts::{Look, Row};
use super::side_by_side::Rows;
use super::variables::{Kind, Variables};
use super::waits::Waits;
use crate::parse::{children, declarators, declared, has_word, named, visit};

/// Why a kernel's threads must run on stacks of their own, and the offset to blame. You see it in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) at: usize,
    pub(crate) reason: String,
}

pub(super) type Result<T> = std::result::Result<T, Refusal>;

pub(super) fn refuse<T>(node: Node<'_>, reason: impl Into<String>) -> Result<T> {
    Err(Refusal { at: node.start_byte(), reason: reason.into() })
}

/// Text from the kernel. Meetings in it are already replaced.
pub(super) struct Piece {
    pub(super) at: usize,
    pub(super) text: String,
    pub(super) words: HashSet<String>,
    /// The variable that the piece declares.
    pub(super) declares: Option<usize>,
    /// True if a function that the piece calls reads `threadIdx`. The loop must then set it.
    pub(super) reads_index: bool,
    /// The facts about a row that the piece can use.
    pub(super) row: Row,
    /// The places in memory that the piece touches.
    pub(super) accesses: Accesses,
}

impl Piece {
    /// Returns a piece that needs no variables.
    pub(super) fn bare(at: usize, text: String) -> Self {
        let (words, row, accesses) = (HashSet::new(), Row::default(), Accesses::default());
        Self { at, text, words, declares: None, reads_index: false, row, accesses }
    }
}

/// What a loop over threads is for, apart from running its pieces.
pub(super) enum Purpose {
    Run,
    /// Some threads return.
    Leave,
    /// The threads that fulfil a condition return.
    Guard,
    /// Stores each thread's value of an expression, so that a shuffle can read it. The number names the array.
    Gather(usize),
    /// Counts the threads that fulfil a predicate.
    Vote(usize),
    /// Runs its pieces row by row: inside a loop that the row's threads go through side by side, or only for the rows
    /// that fulfil a condition.
    Rows(Box<Rows>),
    /// Runs its pieces for the few threads that fulfil a condition.
    Few(Box<Few>),
}

impl Purpose {
    /// Returns the piece that the loop evaluates before the others.
    pub(super) fn head(&self) -> Option<&Piece> {
        match self {
            Self::Rows(rows) => Some(&rows.head),
            Self::Few(few) => Some(&few.condition),
            Self::Run | Self::Leave | Self::Guard | Self::Gather(_) | Self::Vote(_) => None,
        }
    }
}

/// A condition that few threads fulfil.
pub(super) struct Few {
    pub(super) condition: Piece,
    /// Where in a row these threads are, if we know it.
    pub(super) places: Option<Places>,
}

/// Which threads in a row can fulfil a condition. The loop need not visit the others.
pub(super) enum Places {
    At {
        /// How far one of them is from the first thread.
        distance: Piece,
        /// How many threads it is to the next one, if there is one.
        every: Option<String>,
    },
    /// The first ones. The piece is their number.
    Below(Piece),
}

/// A loop over a block's threads.
pub(super) struct Loop {
    pub(super) purpose: Purpose,
    pub(super) pieces: Vec<Piece>,
    /// The variables that it could change.
    pub(super) written: HashSet<usize>,
    /// The variables that it reads from other threads.
    pub(super) read: HashSet<usize>,
    /// The kernel's innermost loop around this one.
    pub(super) around: Option<usize>,
}

pub(super) enum Step {
    Loop(Loop),
    /// Text that the block executes once, as you wrote it.
    Common(Piece),
    /// The declaration of a variable, for the block or for each thread.
    Declare(usize),
    /// A statement that all threads enter together: its head, its body, and what follows the body.
    Inside {
        head: Piece,
        body: Vec<Step>,
        tail: String,
    },
    /// A branch that only some threads enter. `side` is a number for its name.
    Branch {
        side: usize,
        condition: Piece,
        negated: bool,
        around: Option<usize>,
        body: Vec<Step>,
    },
    /// Statements on vectors for whole warps, and the steps for all other threads.
    Lanes {
        lanes: Lanes,
        otherwise: Vec<Step>,
    },
}

/// Collects the kernel's steps.
pub(super) struct Steps<'k, 't> {
    pub(super) text: &'t str,
    pub(super) waits: &'k Waits,
    pub(super) variables: &'k Variables<'k, 't>,
    /// Variables that shuffles read from other threads.
    pub(super) stored: HashSet<usize>,
    /// The last number of a gathered value, vote or branch.
    count: usize,
    pub(super) around: Vec<usize>,
    /// True inside a branch that only some threads take.
    pub(super) in_branch: bool,
    /// True if these statements already have a vector form. Inside it we need no other.
    has_lanes: bool,
    /// True if we found a loop that the threads in a row go through side by side, each with its own counter.
    pub(super) strides: bool,
}

/// The steps of one statement list, and the loop over threads that is still open.
#[derive(Default)]
pub(super) struct Open {
    pub(super) done: Vec<Step>,
    pieces: Vec<Piece>,
    leaves: bool,
    pub(super) written: HashSet<usize>,
    /// Variables that the open loop reads from other threads.
    pub(super) read: HashSet<usize>,
}

impl<'k, 't> Steps<'k, 't> {
    pub(super) fn new(variables: &'k Variables<'k, 't>) -> Self {
        Self {
            text: variables.text,
            waits: variables.waits,
            variables,
            stored: HashSet::new(),
            count: 0,
            around: Vec::new(),
            in_branch: false,
            has_lanes: false,
            strides: false,
        }
    }

    pub(super) fn str(&self, node: Node<'_>) -> &'t str {
        &self.text[node.byte_range()]
    }

    pub(super) fn meets(&self, node: Node<'t>) -> bool {
        self.waits.first(self.text, node).is_some()
    }

    pub(super) fn number(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// Returns the steps for a kernel's body.
    pub(super) fn of_body(&mut self, body: Node<'t>) -> Result<Vec<Step>> {
        let mut steps = self.of(body)?;
        // After the last loop it makes no difference who has returned.
        if let Some(Step::Loop(Loop { purpose: purpose @ Purpose::Leave, .. })) = steps.last_mut() {
            *purpose = Purpose::Run;
        }
        Ok(steps)
    }

    /// Returns the steps for a statement list, or for a single statement.
    pub(super) fn of(&mut self, node: Node<'t>) -> Result<Vec<Step>> {
        let mut open = Open::default();
        let list = statements(node);
        let mut left = &list[..];
        while let Some((&first, rest)) = left.split_first() {
            if !self.has_lanes
                && let Some((lanes, count)) = self.in_lanes(left)
            {
                let (these, rest) = left.split_at(count);
                self.lanes(lanes, these, &mut open)?;
                left = rest;
            } else {
                self.statement(first, &mut open)?;
                left = rest;
            }
        }
        self.close(&mut open);
        Ok(open.done)
    }

    /// Adds statements with their vector form.
    fn lanes(&mut self, lanes: Lanes, list: &[Node<'t>], open: &mut Open) -> Result<()> {
        self.close(open);
        let outside = std::mem::replace(&mut self.has_lanes, true);
        let mut otherwise = Open::default();
        for &statement in list {
            self.statement(statement, &mut otherwise)?;
        }
        self.close(&mut otherwise);
        self.has_lanes = outside;
        // Both forms use the same variables, so their declarations go before them.
        let (declares, otherwise) =
            otherwise.done.into_iter().partition(|step| matches!(step, Step::Declare(_)));
        open.done.extend::<Vec<_>>(declares);
        open.done.push(Step::Lanes { lanes, otherwise });
        Ok(())
    }

    pub(super) fn close(&self, open: &mut Open) {
        let written = std::mem::take(&mut open.written);
        let read = std::mem::take(&mut open.read);
        if open.pieces.is_empty() {
            return;
        }
        let purpose = if std::mem::take(&mut open.leaves) { Purpose::Leave } else { Purpose::Run };
        let pieces = std::mem::take(&mut open.pieces);
        open.done.push(Step::Loop(Loop {
            purpose,
            pieces,
            written,
            read,
            around: self.around.last().copied(),
        }));
    }

    pub(super) fn piece(&self, node: Node<'t>) -> Piece {
        self.piece_with(node, Vec::new(), None)
    }

    /// Returns the text of a node with replacements in it. If `counter` is given, it is the same for all threads in a
    /// row.
    pub(super) fn piece_with(
        &self,
        node: Node<'t>,
        mut replacements: Vec<Edit>,
        counter: Option<&'t str>,
    ) -> Piece {
        let (row, uses) = Look::at(self.variables, counter, node);
        let inside = |(range, _): &Edit| replacements.iter().any(|(outer, _)| outer.contains(&range.start));
        let edits = edits::edits(self.variables, node).into_iter().chain(uses);
        let edits: Vec<_> = edits.filter(|edit| !inside(edit)).collect();
        replacements.extend(edits);
        Piece {
            words: self.waits.words(self.text, node),
            reads_index: self.waits.read_index(self.text, node),
            row,
            accesses: Accesses::of(self.variables, node),
            ..Piece::bare(node.start_byte(), edits::apply(self.text, node, replacements))
        }
    }

    /// Adds text to the open loop.
    fn push(&self, open: &mut Open, node: Node<'t>, piece: Piece) {
        open.written.extend(self.variables.written_in(node));
        open.pieces.push(piece);
    }

    /// Adds text that the block executes once.
    pub(super) fn common(&self, open: &mut Open, piece: Piece) {
        self.close(open);
        open.done.push(Step::Common(piece));
    }

    fn statement(&mut self, node: Node<'t>, open: &mut Open) -> Result<()> {
        match node.kind() {
            // A directive here is `#pragma unroll`, which is only advice.
            "comment" | ";" | "{" | "}" | "preproc_call" => Ok(()),
            "declaration" => self.declaration(node, open),
            "type_definition"
            | "alias_declaration"
            | "using_declaration"
            | "static_assert_declaration"
            | "struct_specifier"
            | "enum_specifier" => {
                // Such a declaration contains nothing that a thread computes.
                open.done.push(Step::Common(self.piece(node)));
                Ok(())
            }
            kind if kind.starts_with("preproc") => self.conditional_text(node, open),
            "expression_statement" => self.expression(node, open),
            "if_statement" => self.condition(node, open),
            "break_statement" | "continue_statement" | "return_statement" if !self.in_branch => {
                self.common(open, self.piece(node));
                Ok(())
            }
            "return_statement" => self.leave(node, open),
            "compound_statement" if self.meets(node) => {
                self.close(open);
                let body = self.of(node)?;
                let head = Piece::bare(node.start_byte(), String::new());
                open.done.push(Step::Inside { head, body, tail: String::new() });
                Ok(())
            }
            "for_statement" | "while_statement" | "do_statement" if self.meets(node) => {
                self.repeat(node, open)
            }
            // The parser takes `EACH(i, n) { … }` for a function without a type.
            "function_definition" if self.meets(node) => {
                let head = node.child_by_field_name("declarator").unwrap_or(node);
                let head = &self.text[head.byte_range()];
                refuse(node, format!("its threads meet after the macro `{head}`, which could be any loop"))
            }
            _ if self.meets(node) => {
                refuse(node, format!("its threads meet inside of a `{}`", node.kind().replace('_', " ")))
            }
            _ => self.plain(node, open),
        }
    }

    /// Adds a statement without meetings.
    pub(super) fn plain(&mut self, node: Node<'t>, open: &mut Open) -> Result<()> {
        if let Some(jump) = jump(node, false) {
            return refuse(jump, "only some threads leave a loop in which threads meet");
        }
        if returns(node) {
            if let Some(condition) = guard(node).filter(|_| open.pieces.is_empty() && !self.in_branch) {
                // Its own loop finds out whether any thread returned at all. If none did, later loops need no mask.
                self.alone(Purpose::Guard, condition, self.piece(condition), open);
                return Ok(());
            }
            self.leave(node, open)?;
        } else if let Some((rows, body, piece)) = self.side_by_side(node) {
            self.strides |= rows.counter.is_some();
            self.alone(Purpose::Rows(Box::new(rows)), body, piece, open);
            return Ok(());
        }
        let piece = self.piece(node);
        self.push(open, node, piece);
        Ok(())
    }

    /// Adds an `#if` with everything up to its `#endif`. Only the compiler knows which side counts.
    fn conditional_text(&mut self, node: Node<'t>, open: &mut Open) -> Result<()> {
        if self.meets(node) {
            return refuse(node, "its threads meet beside an `#if`");
        }
        let mut declares = None;
        visit(node, &mut |inner| {
            if inner.kind() == "declaration" && declares.is_none() {
                declares = Some(inner);
            }
            inner.kind() != "compound_statement"
        });
        if let Some(declaration) = declares {
            return refuse(declaration, "a variable is declared beside an `#if`");
        }
        if returns(node) || jump(node, true).is_some() {
            return refuse(node, "threads leave beside an `#if`");
        }
        let mut piece = self.piece(node);
        piece.text = format!("\n{}\n", piece.text);
        self.push(open, node, piece);
        Ok(())
    }

    /// Adds a loop over threads that contains only this statement.
    pub(super) fn alone(&self, purpose: Purpose, body: Node<'t>, piece: Piece, open: &mut Open) {
        self.close(open);
        let pieces = vec![piece];
        let (written, around) = (self.variables.written_in(body), self.around.last().copied());
        open.done.push(Step::Loop(Loop { purpose, pieces, written, read: HashSet::new(), around }));
    }

    fn leave(&self, node: Node<'t>, open: &mut Open) -> Result<()> {
        if self.in_branch {
            return refuse(node, "threads return inside of an `if` that only some threads enter");
        }
        open.leaves = true;
        Ok(())
    }

    fn declaration(&mut self, node: Node<'t>, open: &mut Open) -> Result<()> {
        let word = |word| has_word(self.text, node, word);
        if word("__shared__") && !word("extern") {
            // Each call of this function runs one block, so shared memory can be a local variable.
            let mut piece = self.piece(node);
            piece.text = piece.text.replacen("__shared__", "alignas(64)", 1).replacen("static ", "", 1);
            open.done.push(Step::Common(piece));
            return Ok(());
        }
        if word("extern") && word("__shared__") {
            // We ask for the address once. The array is thread-local, so the compiler would otherwise ask again and
            // again.
            for declarator in declarators(node) {
                let name = self.str(declared(declarator));
                let mut piece = self.piece(node);
                piece.text = format!(
                    "auto* const {name} = gs_cpu_address([] {{ {} return &{name}[0]; }}());",
                    piece.text
                );
                open.done.push(Step::Common(piece));
            }
            return Ok(());
        }
        if word("extern") || word("constexpr") {
            open.done.push(Step::Common(self.piece(node)));
            return Ok(());
        }
        if word("static") {
            return refuse(node, "a variable is `static`");
        }
        for declarator in declarators(node) {
            let name = self.str(declared(declarator));
            // `T v(x)` looks like the declaration of a function.
            let index = self.variables.find(name, declarator.start_byte());
            let Some(index) = index.filter(|_| declarator.kind() != "function_declarator") else {
                return refuse(declarator, format!("the declaration of `{name}` cannot be read"));
            };
            let variable = &self.variables.list[index];
            let reads = |value| variable.kind == Kind::Uniform && self.variables.reads_memory(value);
            if variable.value().is_some_and(reads) {
                self.close(open);
            }
            open.done.push(Step::Declare(index));
            if variable.kind != Kind::Own {
                continue;
            }
            let Some(value) = variable.value() else { continue };
            let mut piece = self.replaced(value, open)?;
            piece.declares = Some(index);
            piece.words.insert(name.to_owned());
            if !variable.extents.is_empty() {
                piece.accesses.initialise(name);
            }
            self.push(open, declarator, piece);
            open.written.insert(index);
        }
        Ok(())
    }

    fn expression(&mut self, node: Node<'t>, open: &mut Open) -> Result<()> {
        let Some(expression) = node.named_child(0) else { return Ok(()) };
        if let Some((_, Meeting::Barrier)) = self.meeting_of(expression) {
            self.close(open);
            return Ok(());
        }
        let target = match expression.kind() {
            "assignment_expression" => expression.child_by_field_name("left"),
            "update_expression" => expression.child_by_field_name("argument"),
            _ => None,
        };
        let uniform = target
            .filter(|target| target.kind() == "identifier")
            .and_then(|target| self.variables.meant(target))
            .is_some_and(|index| self.variables.list[index].kind == Kind::Uniform);
        let piece = self.replaced(node, open)?;
        if uniform {
            self.common(open, piece);
        } else {
            self.push(open, node, piece);
        }
        Ok(())
    }
}

/// Returns the statements in a list. A single statement counts as a list.
pub(super) fn statements(node: Node<'_>) -> Vec<Node<'_>> {
    match node.kind() {
        "compound_statement" => named(node),
        "else_clause" => named(node).into_iter().flat_map(statements).collect(),
        _ => vec![node],
    }
}

/// Returns the `break` or `continue` in a node that leaves a loop around the node. If `any` is set, a `return` counts
/// too.
pub(super) fn jump(node: Node<'_>, any: bool) -> Option<Node<'_>> {
    match node.kind() {
        "break_statement" | "continue_statement" | "goto_statement" => Some(node),
        "return_statement" if any => Some(node),
        // A `break` in a `switch` belongs to the `switch`. A `continue` in one is rare; its form would not compile,
        // because a piece is in a lambda, and so we would leave it out.
        "lambda_expression" | "for_statement" | "while_statement" | "do_statement" | "for_range_loop"
        | "switch_statement" => None,
        _ => children(node).into_iter().find_map(|child| jump(child, any)),
    }
}

/// Returns the condition of an `if` that contains nothing but a `return`.
pub(super) fn guard(node: Node<'_>) -> Option<Node<'_>> {
    let field = |name| node.child_by_field_name(name).filter(|_| node.kind() == "if_statement");
    let (condition, then) = (field("condition")?, field("consequence")?);
    let only = |node: Node<'_>| matches!(&statements(node)[..], [one] if one.kind() == "return_statement");
    (is_plain(condition) && only(then) && field("alternative").is_none()).then_some(condition)
}

/// Returns true if there is only an expression in the parentheses of an `if`, and no declaration.
pub(super) fn is_plain(condition: Node<'_>) -> bool {
    let value = condition.named_child(0).filter(|_| condition.named_child_count() == 1);
    value.is_some_and(|value| !value.kind().ends_with("declaration"))
}

/// Returns true if there is a `return` in the node.
pub(super) fn returns(node: Node<'_>) -> bool {
    match node.kind() {
        "return_statement" => true,
        "lambda_expression" => false,
        _ => children(node).into_iter().any(returns),
    }
}
