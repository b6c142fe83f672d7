//! Loops of a kernel through which the threads of a row go side by side, so that neighbours touch neighbouring memory one
//! after the other.

use tree_sitter::Node;

use super::edits;
use super::progression::first_of;
use super::steps::{Piece, Steps, jump};
use super::writes::changes;
use crate::parse::{declared, descendants};

/// A loop or an `if` of the kernel that is the same for all threads of a row, or a loop that begins one later for each.
pub(super) struct Rows {
    /// The text before the body.
    pub(super) head: Piece,
    /// The counter of a loop that begins one later for each thread.
    pub(super) counter: Option<Counter>,
}

/// A counter that begins one later for each thread of a row.
pub(super) struct Counter {
    /// The declaration of a thread's own.
    pub(super) declaration: String,
    /// The condition on it.
    pub(super) condition: String,
    /// The condition on the row that it holds for all threads.
    pub(super) holds: String,
    /// The first thread's, its step, the bound, and the pointers that are indexed by it.
    pub(super) ahead: String,
}

impl<'t> Steps<'_, 't> {
    /// Returns how the threads of a row go through a `for` loop side by side, and the loop's body with its text: so
    /// neighbours touch neighbouring memory one after the other.
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
            // A sum in a register is better than a sum in an array.
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

    /// Returns the pointers among the parameters of which a name is the index.
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
