//! The way in which values go along a row of a block's threads.

use std::ops::Range;

use tree_sitter::Node;

use super::variables::{Kind, Variable, Variables};
use super::waits::Macro;
use crate::parse::{children, named};

/// The way in which the value of a variable goes from thread to thread of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// It follows no rule that is used.
    Other,
    /// It grows by one, as this part of it does: `threadIdx.x`, or another variable that grows.
    Grows(Range<usize>),
    /// It grows by one modulo 2^32.
    Wraps,
    /// It is this number of `gs_cpu_in_row`, the warp or the lane, if a condition holds that the compiler can decide.
    OfWarp(&'static str, String),
}

/// The comparison by which a condition holds for few threads.
pub(super) enum Pick<'n> {
    /// The condition holds for few threads of a row.
    Threads {
        /// The side that grows along the row.
        index: Node<'n>,
        /// The side that is one number in the row.
        common: Node<'n>,
        /// The number of threads after which `index` begins again.
        every: Option<String>,
    },
    /// The condition holds for all threads of a row, or for none.
    Row(Node<'n>),
}

/// The integers of 32 bits in which an index along a row is a sum that does not wrap around in any sensible program.
const INT: [&str; 2] = ["int", "int32_t"];

/// The integers of 64 bits.
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

/// The other integers that hold a part of `threadIdx.x`.
const NARROW: [&str; 4] = ["unsigned", "unsigned int", "uint32_t", "uint"];

impl Variables<'_, '_> {
    /// Returns how a variable that each loop computes again goes along a row.
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

    /// Returns the part of an expression that grows by one from thread to thread in x, and by which the expression does.
    pub(super) fn step<'n>(&self, node: Node<'n>) -> Option<Node<'n>> {
        self.part(node, &|course| matches!(course, Course::Grows(_)))
    }

    /// Returns whether an expression grows by one from thread to thread in x, modulo 2^32.
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

    /// Returns whether a counter of this type that begins with `value` begins one later for each thread of a row, and is below a
    /// bound for none if it is not for the first.
    pub(super) fn counts(&self, ty: &str, value: Node<'_>, bound: Node<'_>) -> bool {
        let signed = |ty: &str| is_integer(ty) && !ty.starts_with('u') && ty != "size_t";
        let variable = self.meant(bound).map(|index| &self.list[index]);
        let below = bound.kind() == "number_literal" || variable.is_some_and(|bound| signed(&bound.ty));
        self.is_count(value) || signed(ty) && below && self.grows_as(ty, value)
    }

    /// Returns whether an index that becomes an integer of this type grows without a jump.
    fn grows_as(&self, ty: &str, value: Node<'_>) -> bool {
        INT.contains(&ty) || WIDE.contains(&ty) && self.widens(value)
    }

    /// Returns whether an expression is made of indices and extents so that it is no negative number and does not wrap around.
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
                // A factor that is the same for all, as the elements of a block.
                "*" => {
                    [left, right].iter().all(|factor| self.is_count(*factor) || factor.kind() == "identifier")
                }
                _ => false,
            }),
            _ => false,
        }
    }

    /// Returns whether an expression of 64 bits wraps around nowhere along a row: a part of it with 32 bits could.
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

    /// Returns the number of `gs_cpu_in_row` that is a quotient or a rest of `threadIdx.x`, and the condition for that.
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

    /// Returns whether an expression is `threadIdx.x`.
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

    /// Returns whether the compiler knows an expression's value.
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

    /// Returns whether a loop goes from one constant to another by multiplication, as through the lanes of a warp.
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

    /// Returns whether an expression can be evaluated where the kernel would not.
    pub(super) fn never_traps(&self, node: Node<'_>) -> bool {
        let divides = binary(node).filter(|(_, operator, _)| matches!(*operator, "/" | "%"));
        divides.is_none_or(|(_, _, by)| self.is_constant(by))
            && children(node).into_iter().all(|child| self.never_traps(child))
    }

    /// Returns an `==` that must hold if a condition does, of an index with what the threads of a row have in common.
    pub(super) fn pick<'n>(&self, condition: Node<'n>) -> Option<Pick<'n>> {
        match condition.kind() {
            "parenthesized_expression" | "condition_clause" => self.pick(condition.named_child(0)?),
            "binary_expression" => {
                let (left, operator, right) = binary(condition)?;
                match operator {
                    "&&" => match (self.pick(left), self.pick(right)) {
                        (Some(Pick::Row(_)) | None, Some(right @ Pick::Threads { .. })) => Some(right),
                        (left, right) => left.or(right),
                    },
                    "==" if self.never_traps(condition) => {
                        let pick = |index, common| {
                            let every = self.every(index);
                            let grows = every.is_some() || self.grows(index);
                            let picks = grows && self.is_index(index) && self.is_fixed_in_row(common);
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

    /// Returns the number of threads after which an index begins again.
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

    /// Returns the variable that each loop computes again, if a name means one.
    fn again(&self, name: Node<'_>) -> Option<&Variable<'_>> {
        self.meant(name).map(|index| &self.list[index]).filter(|variable| variable.kind == Kind::Again)
    }
}

/// Returns the value for a row's first thread of what grows along the row.
pub(super) fn first_of(index: &str) -> String {
    if index == "threadIdx.x" { "0u".to_owned() } else { format!("gs_first_{index}") }
}

/// Returns whether a type holds the numbers of all threads.
pub(super) fn is_integer(ty: &str) -> bool {
    INT.contains(&ty) || WIDE.contains(&ty) || NARROW.contains(&ty)
}

/// Returns the left side, the operator and the right side of a binary expression.
pub(super) fn binary(node: Node<'_>) -> Option<(Node<'_>, &str, Node<'_>)> {
    let field = |name| node.child_by_field_name(name).filter(|_| node.kind() == "binary_expression");
    Some((field("left")?, field("operator")?.kind(), field("right")?))
}
