//! How values change along a row of threads.
//!
//! A row is the threads in a block that only differ in `threadIdx.x`. If a value grows by one from thread to thread,
//! neighbours touch neighbouring memory, and one comparison of the first thread can answer for all of them. For
//! example, `blockIdx.x * blockDim.x + threadIdx.x` grows by one, and so does a variable with this value. The rewrite
//! must also know that the sum cannot wrap around in the middle of a row, so the types matter.

use std::ops::Range;

use tree_sitter::Node;

use super::variables::{Kind, Variable, Variables};
use super::waits::Macro;
use crate::parse::{children, named};

/// How a variable's value changes from thread to thread along a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// By no rule that we use.
    Other,
    /// It grows by one, because this part of its value does: `threadIdx.x`, or another variable that grows.
    Grows(Range<usize>),
    /// It grows by one, but may wrap around at 2^32.
    Wraps,
    /// It is this member of `gs_cpu_in_row`, the warp or the lane, if a condition holds. The compiler can decide the
    /// condition.
    OfWarp(&'static str, String),
}

/// A comparison that only few threads can fulfil.
pub(super) enum Pick<'n> {
    /// Few threads in a row fulfil it.
    Threads {
        /// The side that grows along the row.
        index: Node<'n>,
        /// The side that is the same for the whole row.
        common: Node<'n>,
        /// After this many threads `index` begins again, as in `threadIdx.x % 32`.
        every: Option<String>,
    },
    /// Either all threads in a row fulfil it, or none.
    Row(Node<'n>),
}

/// Signed integers with 32 bits. If an index has such a type, its sum must not overflow, so it grows along the row
/// without a jump.
const INT: [&str; 2] = ["int", "int32_t"];

/// Integers with 64 bits.
const WIDE: [&str; 9] = [
    "long",
    "long long",
    "int64_t",
    "ptrdiff_t",
    "ssize_t",
    "size_t",
    "unsigned long",
    "unsigned long long",
    "uint64_t",
];

/// Unsigned integers with 32 bits. They hold any `threadIdx.x`, but may wrap around.
const NARROW: [&str; 4] = ["unsigned", "unsigned int", "uint32_t", "uint"];

impl Variables<'_, '_> {
    /// Returns how a variable changes along a row. Each loop must compute the variable again.
    pub(super) fn course(&self, variable: &Variable<'_>) -> Course {
        let (ty, value) = (&*variable.ty, variable.value());
        let Some(value) = value.filter(|_| is_integer(ty)) else { return Course::Other };
        if let Some(step) = self.step(value).filter(|_| self.grows_as(ty, value)) {
            return Course::Grows(step.byte_range());
        }
        if self.grows(value) {
            return Course::Wraps;
        }
        self.of_warp(value).map_or(Course::Other, |(number, condition)| Course::OfWarp(number, condition))
    }

    /// Returns the part that makes an expression grow by one from thread to thread in x.
    pub(super) fn step<'n>(&self, node: Node<'n>) -> Option<Node<'n>> {
        self.part(node, &|course| matches!(course, Course::Grows(_)))
    }

    /// Returns true if an expression grows by one from thread to thread in x. It may wrap around at 2^32.
    pub(super) fn grows(&self, node: Node<'_>) -> bool {
        self.part(node, &|course| matches!(course, Course::Grows(_) | Course::Wraps)).is_some()
    }

    fn part<'n>(&self, node: Node<'n>, grows: &dyn Fn(&Course) -> bool) -> Option<Node<'n>> {
        match node.kind() {
            "field_expression" => self.is_x(node).then_some(node),
            "identifier" => self.meant(node).filter(|&index| grows(&self.list[index].course)).map(|_| node),
            "parenthesized_expression" => self.part(node.named_child(0)?, grows),
            "binary_expression" => {
                let (left, operator, right) = binary(node)?;
                match (self.depends_on_x(left), self.depends_on_x(right), operator) {
                    (true, false, "+" | "-") => self.part(left, grows),
                    (false, true, "+") => self.part(right, grows),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns true if a counter with this type and first value begins one later for each thread in a row, and if no
    /// thread can be below the bound unless the first thread is.
    pub(super) fn counts(&self, ty: &str, value: Node<'_>, bound: Node<'_>) -> bool {
        let signed = |ty: &str| is_integer(ty) && !ty.starts_with('u') && ty != "size_t";
        let variable = self.meant(bound).map(|index| &self.list[index]);
        let below = bound.kind() == "number_literal" || variable.is_some_and(|bound| signed(&bound.ty));
        self.is_count(value) || signed(ty) && below && self.grows_as(ty, value)
    }

    /// Returns true if an index that is converted to this type grows without a jump.
    fn grows_as(&self, ty: &str, value: Node<'_>) -> bool {
        INT.contains(&ty) || WIDE.contains(&ty) && self.widens(value)
    }

    /// Returns true if an expression is made of indices and extents only, because then it can neither be negative nor
    /// wrap around.
    fn is_count(&self, node: Node<'_>) -> bool {
        let inner = |name| node.child_by_field_name(name).is_some_and(|inner| self.is_count(inner));
        let text = &self.text[node.byte_range()];
        match node.kind() {
            "number_literal" => true,
            "field_expression" => {
                ["threadIdx.", "blockIdx.", "blockDim.", "gridDim."].iter().any(|of| text.starts_with(of))
            }
            "identifier" => {
                self.again(node).and_then(Variable::value).is_some_and(|value| self.is_count(value))
            }
            "parenthesized_expression" => node.named_child(0).is_some_and(|inner| self.is_count(inner)),
            "cast_expression" => inner("value"),
            "binary_expression" => binary(node).is_some_and(|(left, operator, right)| match operator {
                "+" => self.is_count(left) && self.is_count(right),
                // A factor that is the same for all threads, such as the number of elements for a block.
                "*" => {
                    [left, right].iter().all(|factor| self.is_count(*factor) || factor.kind() == "identifier")
                }
                _ => false,
            }),
            _ => false,
        }
    }

    /// Returns true if a 64-bit expression cannot wrap around along a row. Even in such an expression, a part with 32
    /// bits could.
    pub(super) fn widens(&self, node: Node<'_>) -> bool {
        let is_wide = |node: Node<'_>| {
            let variable = self.meant(node).filter(|_| node.kind() == "identifier");
            variable.is_some_and(|index| WIDE.contains(&&*self.list[index].ty))
        };
        match node.kind() {
            _ if self.is_count(node) => true,
            "identifier" => true,
            "parenthesized_expression" => node.named_child(0).is_some_and(|inner| self.widens(inner)),
            "binary_expression" => binary(node).is_some_and(|(left, _, right)| {
                let (index, other) = if self.depends_on_x(left) { (left, right) } else { (right, left) };
                is_wide(index) || is_wide(other) && self.widens(index)
            }),
            _ => false,
        }
    }

    pub(super) fn depends_on_x(&self, node: Node<'_>) -> bool {
        match node.kind() {
            "field_expression" => self.is_x(node),
            "identifier" => {
                let value = self.again(node).and_then(Variable::value);
                value.is_some_and(|value| self.depends_on_x(value))
            }
            _ => children(node).into_iter().any(|child| self.depends_on_x(child)),
        }
    }

    /// Returns the member of `gs_cpu_in_row` for a quotient or remainder of `threadIdx.x`, and the condition that makes
    /// them equal.
    fn of_warp(&self, value: Node<'_>) -> Option<(&'static str, String)> {
        let (left, operator, right) = binary(value)?;
        let (number, constant) = match operator {
            _ if !self.is_x(left) || !self.is_constant(right) => return None,
            "/" => ("warp_x", "GS_CPU_LOOPS_WARP"),
            ">>" => ("warp_x", "GS_CPU_LOOPS_WARP_BITS"),
            "%" => ("lane_x", "GS_CPU_LOOPS_WARP"),
            "&" => ("lane_x", "GS_CPU_LOOPS_WARP - 1"),
            _ => return None,
        };
        Some((number, format!("({}) == {constant}", &self.text[right.byte_range()])))
    }

    /// Returns true if an expression is `threadIdx.x`.
    fn is_x(&self, node: Node<'_>) -> bool {
        match node.kind() {
            "field_expression" => &self.text[node.byte_range()] == "threadIdx.x",
            "identifier" => self.again(node).is_some_and(|variable| {
                matches!(variable.course, Course::Grows(_) | Course::Wraps)
                    && variable.value().is_some_and(|value| self.is_x(value))
            }),
            "parenthesized_expression" => node.named_child(0).is_some_and(|inner| self.is_x(inner)),
            _ => false,
        }
    }

    /// Returns true if the compiler knows an expression's value.
    pub(super) fn is_constant(&self, node: Node<'_>) -> bool {
        let text = &self.text[node.byte_range()];
        match node.kind() {
            "number_literal" => true,
            "identifier" => {
                text == "warpSize"
                    || matches!(self.waits.macro_of(text), Macro::Of(_)) && self.is_uniform(node)
            }
            "parenthesized_expression" | "binary_expression" => {
                named(node).into_iter().all(|child| self.is_constant(child))
            }
            _ => false,
        }
    }

    /// Returns true if a loop goes from one constant to another by multiplying or dividing, as loops over a warp's
    /// lanes do.
    pub(super) fn is_short(&self, node: Node<'_>) -> bool {
        let field = |name| node.child_by_field_name(name).filter(|_| node.kind() == "for_statement");
        let constant = |node: Option<Node<'_>>| node.is_some_and(|node| self.is_constant(node));
        let first = field("initializer").and_then(|first| first.child_by_field_name("declarator"));
        let bound = field("condition").and_then(binary).map(|(_, _, bound)| bound);
        let update = field("update").filter(|update| update.kind() == "assignment_expression");
        let multiplies = update.and_then(|update| update.child_by_field_name("operator"));
        multiplies.is_some_and(|operator| matches!(operator.kind(), "*=" | "/=" | "<<=" | ">>="))
            && constant(first.and_then(|first| first.child_by_field_name("value")))
            && constant(bound)
            && constant(update.and_then(|update| update.child_by_field_name("right")))
    }

    /// Returns true if we may evaluate an expression although the kernel would not, because it cannot trap.
    pub(super) fn never_traps(&self, node: Node<'_>) -> bool {
        let divides = binary(node).filter(|(_, operator, _)| matches!(*operator, "/" | "%"));
        divides.is_none_or(|(_, _, by)| self.is_constant(by))
            && children(node).into_iter().all(|child| self.never_traps(child))
    }

    /// Returns an `==` that must hold if a condition does, and that compares an index with something that is the same
    /// for the whole row.
    pub(super) fn pick<'n>(&self, condition: Node<'n>) -> Option<Pick<'n>> {
        self.pick_in(condition, true)
    }

    /// Returns the same. `comes_first` says that each thread evaluates this part of the condition.
    fn pick_in<'n>(&self, condition: Node<'n>, comes_first: bool) -> Option<Pick<'n>> {
        match condition.kind() {
            "parenthesized_expression" | "condition_clause" => {
                self.pick_in(condition.named_child(0)?, comes_first)
            }
            "binary_expression" => {
                let (left, operator, right) = binary(condition)?;
                match operator {
                    "&&" => match (self.pick_in(left, comes_first), self.pick_in(right, false)) {
                        (Some(Pick::Row(_)) | None, Some(right @ Pick::Threads { .. })) => Some(right),
                        (left, right) => left.or(right),
                    },
                    "==" if comes_first || self.never_traps(condition) => {
                        let pick = |index, common| {
                            let every = self.every(index);
                            let grows = every.is_some() || self.grows(index);
                            let picks = grows
                                && self.is_index(index)
                                && self.is_fixed_in_row(common)
                                && self.never_traps(condition);
                            picks.then_some(Pick::Threads { index, common, every })
                        };
                        let row = || {
                            let fixed = self.is_fixed_in_row(left) && self.is_fixed_in_row(right);
                            (fixed && !self.is_uniform(condition)).then_some(Pick::Row(condition))
                        };
                        pick(left, right).or_else(|| pick(right, left)).or_else(row)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns the two sides of a comparison that the first threads in a row fulfil: `threadIdx.x`, and a variable below which
    /// it must be. The variable is the same for all threads and changes, as in a sum of halves:
    /// `for (int s = blockDim.x / 2; s > 0; s /= 2) if (threadIdx.x < s) …`.
    pub(super) fn below<'n>(&self, condition: Node<'n>) -> Option<(Node<'n>, Node<'n>)> {
        let inner = condition.named_child(0).filter(|_| condition.named_child_count() == 1);
        let (left, operator, right) = binary(inner?)?;
        let (index, bound) = match operator {
            "<" => (left, right),
            ">" => (right, left),
            _ => return None,
        };
        let value = self.again(index).filter(|variable| is_integer(&variable.ty)).and_then(Variable::value);
        let is_first = [Some(index), value].into_iter().flatten().any(|node| self.str(node) == "threadIdx.x");
        let changes =
            self.meant(bound).is_some_and(|at| self.list[at].kind == Kind::Uniform && self.is_written(at));
        (is_first && changes && bound.kind() == "identifier").then_some((index, bound))
    }

    /// Returns how many threads it takes until an index begins again.
    fn every(&self, index: Node<'_>) -> Option<String> {
        match index.kind() {
            "parenthesized_expression" => self.every(index.named_child(0)?),
            "identifier" => {
                self.every(self.again(index).filter(|variable| is_integer(&variable.ty))?.value()?)
            }
            _ => {
                let (left, operator, right) = binary(index)?;
                let by = &self.text[right.byte_range()];
                match operator {
                    _ if !self.grows(left) || !self.is_constant(right) => None,
                    "%" => Some(by.to_owned()),
                    "&" => Some(format!("({by}) + 1")),
                    _ => None,
                }
            }
        }
    }

    /// Returns the variable that a name means, if each loop computes it again.
    fn again(&self, name: Node<'_>) -> Option<&Variable<'_>> {
        self.meant(name).map(|index| &self.list[index]).filter(|variable| variable.kind == Kind::Again)
    }
}

/// Returns the first thread's value of something that grows along the row.
pub(super) fn first_of(index: &str) -> String {
    if index == "threadIdx.x" { "0u".to_owned() } else { format!("gs_first_{index}") }
}

/// Returns true if a type can hold the number of any thread.
pub(super) fn is_integer(ty: &str) -> bool {
    INT.contains(&ty) || WIDE.contains(&ty) || NARROW.contains(&ty)
}

/// Returns left side, operator and right side of a binary expression.
pub(super) fn binary(node: Node<'_>) -> Option<(Node<'_>, &str, Node<'_>)> {
    let field = |name| node.child_by_field_name(name).filter(|_| node.kind() == "binary_expression");
    Some((field("left")?, field("operator")?.kind(), field("right")?))
}
