//! Loops that the threads in a row go through side by side.
//!
//! Look at the usual loop with a stride:
//!
//! ```cpp
//! for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = in[i];
//! ```
//!
//! If one thread runs the whole loop before the next one begins, it touches one element in each cache line, and the
//! next thread comes back to all of them. So we turn the loops inside out. We step through the kernel's loop once for
//! the row, with the first thread's counter, and in each turn the row's threads run one after the other. They touch
//! neighbouring elements, and the compiler can use vectors. The last turn may have room for only some threads, so each
//! still checks its own counter, unless the whole row is below the bound.

use tree_sitter::Node;

use super::edits;
use super::progression::first_of;
use super::steps::{Piece, Steps, jump};
use super::writes::changes;
use crate::parse::{declared, descendants};

/// A loop or an `if` in the kernel that goes around the loop over a row's threads. It must be the same for the whole
/// row, or it is a loop that begins one later for each thread.
pub(super) struct Rows {
    /// The text before the body.
    pub(super) head: Piece,
    /// The counter, if the loop begins one later for each thread.
    pub(super) counter: Option<Counter>,
}

/// A counter that begins one later for each thread in a row.
pub(super) struct Counter {
    /// Declares a thread's own counter.
    pub(super) declaration: String,
    /// The loop's condition for a thread's own counter.
    pub(super) condition: String,
    /// A condition for the row. If it holds, all threads fulfil `condition`.
    pub(super) holds: String,
    /// The first thread's counter, the step, the bound, and the pointers that the counter is an index for.
    pub(super) ahead: String,
}

impl<'t> Steps<'_, 't> {
    /// Returns how a row's threads can go through a `for` loop side by side, and the loop's body with its text. Returns
    /// `None` if they cannot.
    pub(super) fn side_by_side(&self, node: Node<'t>) -> Option<(Rows, Node<'t>, Piece)> {
        let field = |name| node.child_by_field_name(name).filter(|_| node.kind() == "for_statement");
        let (first, condition, update, body) =
            (field("initializer")?, field("condition")?, field("update")?, field("body")?);
        let declarator = first.child_by_field_name("declarator").filter(|d| d.kind() == "init_declarator")?;
        let (value, name) = (declarator.child_by_field_name("value")?, self.str(declared(declarator)));
        let left = condition.child_by_field_name("left").filter(|left| self.str(*left) == name)?;
        let bound = condition.child_by_field_name("right")?;
        let below =
            condition.child_by_field_name("operator").is_some_and(|op| matches!(op.kind(), "<" | "<="));
        let by = match update.kind() {
            "update_expression" => Some(update).filter(|update| self.str(*update).contains("++")),
            _ => update.child_by_field_name("right").filter(|_| self.str(update).contains("+=")),
        }?;
        let counted = left.kind() == "identifier" && below && jump(body, true).is_none();
        let fixed = |node: Node<'t>| self.variables.is_fixed_in_row(node);
        let step_fixed = update.kind() == "update_expression" || fixed(by);
        if !counted || !fixed(bound) || !step_fixed || self.text[body.byte_range()].contains("break") {
            return None;
        }
        let keeps = |call: Node<'t>| self.variables.keeps_arguments(call);
        if changes(self.text, self.waits, &keeps, body, name) > 0 {
            return None;
        }
        let words =
            self.waits.words(self.text, first).into_iter().chain(self.waits.words(self.text, condition));
        let words = words.chain(self.waits.words(self.text, update)).collect();
        let reads_index =
            [first, condition, update].iter().any(|part| self.waits.read_index(self.text, *part));
        let head = |text| Piece { words, reads_index, ..Piece::bare(node.start_byte(), text) };
        if fixed(value) {
            // If the body changes a variable, each thread would need it in an array. A sum is faster in a register.
            if !self.variables.written_in(body).is_empty() {
                return None;
            }
            let head = head(self.text[node.start_byte()..body.start_byte()].to_owned());
            let piece = self.piece_with(body, Vec::new(), Some(name));
            return Some((Rows { head, counter: None }, body, piece));
        }
        let ty = self.str(first.child_by_field_name("type")?);
        let counts = self.variables.is_index(value) && self.variables.counts(ty, value, bound);
        let step = self.variables.step(value).filter(|_| counts)?;
        let value = edits::apply(self.text, value, vec![(step.byte_range(), first_of(self.str(step)))]);
        let first = format!("gs_first_{name}");
        let operator = self.str(condition.child_by_field_name("operator")?);
        let (advance, by) = match update.kind() {
            "update_expression" => (format!("++{first}"), "1"),
            _ => (format!("{first} += {}", self.str(by)), self.str(by)),
        };
        let bound = self.str(bound);
        let text = format!("for ({ty} {first} = {value}; {first} {operator} {bound}; {advance})");
        let counter = Counter {
            declaration: format!("{ty} {name} = {first} + gs_turn.x;"),
            condition: format!("{name} {operator} {bound}"),
            ahead: [&[&*first, by, bound], &*self.indexed_by(name, body)].concat().join(", "),
            holds: format!("gs_row.below<true>({first}, {bound})"),
        };
        Some((Rows { head: head(text), counter: Some(counter) }, body, self.piece(body)))
    }

    /// Returns the pointer parameters that the body indexes with this name alone.
    fn indexed_by(&self, name: &str, body: Node<'t>) -> Vec<&'t str> {
        let mut pointers = Vec::new();
        for subscript in descendants(body).filter(|node| node.kind() == "subscript_expression") {
            let indices = subscript.child_by_field_name("indices");
            let is_index =
                indices.is_some_and(|indices| self.str(indices).trim_matches(['[', ']']).trim() == name);
            let pointer = subscript.child_by_field_name("argument").filter(|_| is_index);
            if let Some(pointer) = pointer.filter(|pointer| pointer.kind() == "identifier") {
                let variable = self.variables.meant(pointer).map(|index| &self.variables.list[index]);
                let is_parameter = variable.is_some_and(|v| v.declaration.is_none() && v.ty.ends_with('*'));
                if is_parameter && !pointers.contains(&self.str(pointer)) {
                    pointers.push(self.str(pointer));
                }
            }
        }
        pointers
    }
}
