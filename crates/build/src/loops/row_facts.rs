//! Facts that we can check once for a row instead of once for each thread.
//!
//! Most kernels begin with something like `if (x < width && y < height)`. If each thread tests that, the compiler must
//! mask its vectors. But `y < height` is the same for the whole row, and if the last thread's `x` is below `width`, so
//! are all the others. So the loop asks for the row first, and if the answer is yes, `gs_within` is true and the test
//! disappears: `if ((gs_within || x < width) && …)`.
//!
//! The second kind of fact is which memory the row touches. It lets us fetch the next block's memory ahead of time.

use std::collections::HashSet;

use tree_sitter::Node;

use super::edits::Edit;
use super::progression::binary;
use super::variables::Variables;
use crate::parse::visit;

/// The facts that a part of a loop asks for, as text that we evaluate for the row's first thread.
#[derive(Default)]
pub(super) struct Row {
    /// Conditions. If all of them hold, so does each comparison after a `gs_within ||` in the loop, for every thread.
    pub(super) conditions: Vec<String>,
    /// Pointers, each with the first thread's index. The index grows by one from thread to thread.
    pub(super) touched: Vec<String>,
    /// The identifiers in both.
    pub(super) words: HashSet<String>,
}

impl Row {
    /// Returns true if there are no facts.
    pub(super) fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.touched.is_empty()
    }
}

/// Finds facts in one part of a loop.
pub(super) struct Look<'l, 't> {
    variables: &'l Variables<'l, 't>,
    /// The counter of a loop that all threads in a row go through together.
    counter: Option<&'l str>,
    row: Row,
    /// The edits that make use of the facts.
    edits: Vec<Edit>,
}

impl<'l, 't> Look<'l, 't> {
    /// Returns the facts that a part of a loop can use, and the edits that use them.
    pub(super) fn at(
        variables: &'l Variables<'l, 't>,
        counter: Option<&'l str>,
        part: Node<'t>,
    ) -> (Row, Vec<Edit>) {
        let mut look = Self { variables, counter, row: Row::default(), edits: Vec::new() };
        visit(part, &mut |node| {
            match node.kind() {
                // A lambda or a class cannot see the loop's variables.
                "lambda_expression" | "struct_specifier" | "class_specifier" => return false,
                "if_statement" | "conditional_expression" => {
                    if let Some(condition) = node.child_by_field_name("condition") {
                        look.condition(condition);
                    }
                }
                "subscript_expression" => look.element(node),
                _ => {}
            }
            true
        });
        (look.row, look.edits)
    }

    fn str(&self, node: Node<'_>) -> &'t str {
        self.variables.str(node)
    }

    /// Adds the comparisons that must hold if a condition does.
    fn condition(&mut self, condition: Node<'t>) {
        if let "parenthesized_expression" | "condition_clause" = condition.kind() {
            if let (1, Some(inner)) = (condition.named_child_count(), condition.named_child(0)) {
                self.condition(inner);
            }
            return;
        }
        let Some((left, operator, right)) = binary(condition) else { return };
        if operator == "&&" {
            self.condition(left);
            self.condition(right);
        } else if let Some(holds) = self.holds(condition) {
            self.notes(condition);
            self.row.conditions.push(holds);
            let (start, end) = (condition.start_byte(), condition.end_byte());
            self.edits.extend([(start..start, "(gs_within || ".to_owned()), (end..end, ")".to_owned())]);
        }
    }

    /// Adds an element, if neighbouring threads touch neighbouring elements.
    fn element(&mut self, element: Node<'t>) {
        if let Some(touched) = self.touched(element) {
            self.notes(element);
            self.row.touched.push(touched);
        }
    }

    /// Adds the identifiers in a fact.
    fn notes(&mut self, node: Node<'t>) {
        self.row.words.extend(self.variables.waits.words(self.variables.text, node));
    }

    /// Returns a condition for the row. If it holds, a comparison holds for all threads in the row.
    fn holds(&self, comparison: Node<'t>) -> Option<String> {
        let (left, operator, right) = binary(comparison)?;
        let (low, high) = match operator {
            "<" | "<=" => (left, right),
            ">" | ">=" => (right, left),
            _ => return None,
        };
        let plain = self.follows(comparison) && self.variables.never_traps(comparison);
        if !plain || self.variables.is_uniform(comparison) {
            return None;
        }
        let (low_text, high_text, text) = (self.str(low), self.str(high), self.str(comparison));
        match (self.variables.depends_on_x(low), self.variables.depends_on_x(high)) {
            (false, false) => Some(text.to_owned()),
            (true, false) => Some(format!("gs_row.below<{}>({low_text}, {high_text})", self.grows(low)?)),
            (false, true) => Some(format!("gs_row.grows<{}>({high_text}) && {text}", self.grows(high)?)),
            (true, true) => None,
        }
    }

    /// Returns a pointer and the first thread's index, if neighbouring threads touch neighbouring elements.
    fn touched(&self, element: Node<'t>) -> Option<String> {
        let pointer = element.child_by_field_name("argument").filter(|node| node.kind() == "identifier")?;
        let index = beside_constant(element.child_by_field_name("indices")?.named_child(0)?);
        let ty = &self.variables.list[self.variables.meant(pointer)?].ty;
        let is_pointer = ty.trim_end_matches("const").trim_end().ends_with('*');
        let known = is_pointer && self.follows(pointer) && self.follows(index);
        let index = self.wide(index).filter(|_| known && self.variables.grows(index))?;
        Some(format!("{}, {index}", self.str(pointer)))
    }

    /// Returns an index computed with unsigned 64-bit numbers. These may wrap around, because the kernel might not
    /// evaluate the index for this row at all.
    fn wide(&self, index: Node<'_>) -> Option<String> {
        match index.kind() {
            "identifier" | "field_expression" | "number_literal" => {
                Some(format!("(uint64_t)({})", self.str(index)))
            }
            "parenthesized_expression" => self.wide(index.named_child(0)?),
            "cast_expression" => self.wide(index.child_by_field_name("value")?),
            "binary_expression" => {
                let (left, operator, right) = binary(index)?;
                let known = matches!(operator, "+" | "-" | "*");
                known.then_some(format!("({} {operator} {})", self.wide(left)?, self.wide(right)?))
            }
            _ => None,
        }
    }

    /// For an expression that grows by one from thread to thread, returns true if it cannot wrap around at 32 bits.
    fn grows(&self, node: Node<'_>) -> Option<bool> {
        self.variables.grows(node).then(|| self.variables.step(node).is_some() && self.variables.widens(node))
    }

    fn follows(&self, node: Node<'_>) -> bool {
        self.variables.follows_with(node, self.counter)
    }
}

/// Returns an index without added constants. A constant only moves the whole row.
pub(super) fn beside_constant(index: Node<'_>) -> Node<'_> {
    match binary(index) {
        Some((left, "+" | "-", right)) if right.kind() == "number_literal" => beside_constant(left),
        Some((left, "+", right)) if left.kind() == "number_literal" => beside_constant(right),
        _ => index,
    }
}
