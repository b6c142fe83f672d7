//! The calls that make threads meet, and what replaces them between two loops over threads.
//!
//! A barrier needs no replacement: it is the gap between two loops. For `v = __shfl_down_sync(m, v, 1) + 1`, all
//! threads must have stored `v` before the first one reads another's, so the loop before must end. The call then
//! becomes `gs_turn.down(gs_of_v, (1))`, which reads the array. A vote becomes a loop that counts.

use tree_sitter::Node;

use super::edits::Edit;
use super::steps::{Open, Piece, Purpose, Result, Steps, refuse};
use super::turns;
use super::variables::Kind;
use super::waits::callee;
use crate::parse::{descendants, named};

/// How threads meet in a call.
pub(super) enum Meeting {
    /// A barrier for the block or a part of it, without a result.
    Barrier,
    /// A shuffle. The text is the method that reads another thread's value.
    Shuffle(&'static str),
    /// A vote in a warp. The text is the method that returns the outcome.
    Vote(&'static str),
    /// A vote in the block. The text is the expression for the outcome; `@` means the count.
    Count(&'static str),
}

/// Returns how threads meet in a function, and which argument is the value.
pub(super) fn meeting(name: &str) -> Option<(Meeting, usize)> {
    let (plain, value) = match name.strip_suffix("_sync") {
        Some(plain) => (plain, 1),
        None => (name, 0),
    };
    Some((
        match plain {
            "__shfl" => Meeting::Shuffle("from"),
            "__shfl_up" => Meeting::Shuffle("up"),
            "__shfl_down" => Meeting::Shuffle("down"),
            "__shfl_xor" => Meeting::Shuffle("other"),
            "__ballot" => Meeting::Vote("ballot"),
            "__any" => Meeting::Vote("any"),
            "__all" => Meeting::Vote("every"),
            "__syncthreads" | "__syncwarp" => Meeting::Barrier,
            "__syncthreads_count" => Meeting::Count("(int)@.count"),
            turns::ANY | "__syncthreads_or" => Meeting::Count("(@.count != 0)"),
            "__syncthreads_and" => Meeting::Count("(@.against == 0)"),
            _ => return None,
        },
        value,
    ))
}

impl<'t> Steps<'_, 't> {
    pub(super) fn meeting_of(&self, call: Node<'t>) -> Option<(&'t str, Meeting)> {
        let name = callee(self.text, call).filter(|_| call.kind() == "call_expression")?;
        meeting(name).map(|(meeting, _)| (name, meeting))
    }

    /// Returns the text of `node`, with each call in it replaced by what the thread learns from the others.
    pub(super) fn replaced(&mut self, node: Node<'t>, open: &mut Open) -> Result<Piece> {
        let mut replacements: Vec<Edit> = Vec::new();
        for call in descendants(node).filter(|node| node.kind() == "call_expression") {
            let Some((meeting, place)) = callee(self.text, call).and_then(meeting) else { continue };
            if let Some(inner) = conditional(call, node) {
                return refuse(
                    inner,
                    "threads meet in a part of an expression that not all of them evaluate",
                );
            }
            let arguments = call.child_by_field_name("arguments").map(named).unwrap_or_default();
            let Some(&value) = arguments.get(place) else { return refuse(call, "a call lacks arguments") };
            if !self.variables.written_in(value).is_empty() {
                return refuse(value, "an argument of a call in which threads meet changes a variable");
            }
            if arguments.iter().any(|argument| self.meets(*argument)) {
                return refuse(call, "threads meet in an argument of a call in which they meet");
            }
            let text = match meeting {
                Meeting::Barrier => return refuse(call, "a barrier is a part of an expression"),
                Meeting::Shuffle(method) => {
                    let values = self.values(value, open);
                    let rest: Vec<_> =
                        arguments[place + 1..].iter().map(|node| format!("({})", self.str(*node))).collect();
                    format!("gs_turn.{method}({values}, {})", rest.join(", "))
                }
                Meeting::Vote(method) => format!("{}.{method}(gs_turn)", self.vote(value, open)),
                Meeting::Count(outcome) => outcome.replace('@', &self.vote(value, open)),
            };
            replacements.push((call.byte_range(), text));
        }
        let piece = self.piece_with(node, replacements, None);
        let known = |node: Node<'t>| self.meeting_of(node).is_some();
        if let Some(left) = self.waits.first_beside(self.text, node, known) {
            return refuse(left, format!("its threads meet in `{}`", first_line(self.str(left))));
        }
        Ok(piece)
    }

    /// Returns the array that holds each thread's value of an expression. If the expression is a variable, that is the
    /// variable's own array.
    fn values(&mut self, value: Node<'t>, open: &mut Open) -> String {
        let name = self.str(value);
        let variable = self.variables.find(name, value.start_byte()).filter(|&index| {
            let variable = &self.variables.list[index];
            let plain =
                variable.extents.is_empty() && variable.storable && !self.variables.is_addressed(index);
            variable.kind == Kind::Own && plain && value.kind() == "identifier"
        });
        if let Some(index) = variable {
            if open.written.contains(&index) {
                self.close(open);
            }
            open.read.insert(index);
            self.stored.insert(index);
            return format!("gs_of_{name}");
        }
        let number = self.number();
        self.alone(Purpose::Gather(number), value, self.piece(value), open);
        format!("gs_value_{number}")
    }

    fn vote(&mut self, value: Node<'t>, open: &mut Open) -> String {
        let number = self.number();
        self.alone(Purpose::Vote(number), value, self.piece(value), open);
        format!("gs_vote_{number}")
    }
}

/// Returns the part of `whole` around `call` that only some threads may evaluate, such as the right side of `&&`.
pub(super) fn conditional<'t>(call: Node<'t>, whole: Node<'t>) -> Option<Node<'t>> {
    let mut node = call;
    while node != whole {
        let parent = node.parent()?;
        let some = match parent.kind() {
            "conditional_expression" => parent.child_by_field_name("condition") != Some(node),
            "binary_expression" => {
                let lazy =
                    parent.child_by_field_name("operator").is_some_and(|op| matches!(op.kind(), "&&" | "||"));
                lazy && parent.child_by_field_name("right") == Some(node)
            }
            "lambda_expression" | "comma_expression" => true,
            _ => false,
        };
        if some {
            return Some(parent);
        }
        node = parent;
    }
    None
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
