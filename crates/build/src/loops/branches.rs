//! Turns branches and loops into steps.
//!
//! If threads meet inside a branch, we must know who takes it. If all threads take it together, the branch stays a C++
//! `if` around the steps inside. If only some do, a barrier in it could wait forever, so we refuse; but shuffles are
//! fine, because those that take the branch only wait for each other. A loop with meetings must run equally often for
//! all threads.

use tree_sitter::Node;

use super::progression::Pick;
use super::side_by_side::Rows;
use super::steps::{
    Few, Open, Piece, Places, Purpose, Result, Step, Steps, guard, is_plain, jump, refuse, returns,
};
use super::variables::Kind;
use super::waits::callee;
use crate::parse::{children, declarators, declared, descendants};

/// Why a loop cannot be cut. `turns` can often help.
pub(super) const UNEVEN: &str = "no proof that all threads run a loop equally often";

impl<'t> Steps<'_, 't> {
    pub(super) fn condition(&mut self, node: Node<'t>, open: &mut Open) -> Result<()> {
        let (Some(condition), Some(then)) =
            (node.child_by_field_name("condition"), node.child_by_field_name("consequence"))
        else {
            return refuse(node, "an `if` cannot be read");
        };
        let otherwise = node.child_by_field_name("alternative");
        let uniform = self.variables.is_uniform_condition(condition);
        // Either all threads leave a loop together, or none do.
        let leaves = uniform && !self.in_branch && jump(node, false).is_some();
        if !self.meets(node) && !leaves {
            if uniform && !self.in_branch && guard(node).is_some() {
                self.common(open, self.piece(node));
                return Ok(());
            }
            let plain = otherwise.is_none() && jump(then, true).is_none() && !returns(then);
            if plain && self.picks_few(condition) {
                let pick = self.variables.pick(condition);
                if let Some(Pick::Row(part)) = pick {
                    // No thread evaluates a condition in a row in which none runs, so it must not trap there.
                    let text = format!("if (gs_row.runs() && ({}))", self.str(part));
                    let head = Piece { text, ..self.piece(part) };
                    let rows = Rows { head, counter: None };
                    self.alone(Purpose::Rows(Box::new(rows)), node, self.piece(node), open);
                } else {
                    let (condition, places) =
                        (self.piece(condition), pick.and_then(|pick| self.places(pick)));
                    let few = Few { condition, places };
                    self.alone(Purpose::Few(Box::new(few)), then, self.piece(then), open);
                }
                return Ok(());
            }
            let below = plain.then(|| self.variables.below(condition)).flatten();
            if let Some((index, bound)) = below.filter(|_| self.variables.written_in(condition).is_empty()) {
                let (mut count, other) = (self.piece(index), self.piece(bound));
                count.text = format!("gs_cpu_count_below({}, {})", count.text, other.text);
                count.words.extend(other.words);
                let few = Few { condition: self.piece(condition), places: Some(Places::Below(count)) };
                self.alone(Purpose::Few(Box::new(few)), then, self.piece(then), open);
                return Ok(());
            }
            return self.plain(node, open);
        }
        if self.meets(condition) {
            return refuse(condition, "threads meet in the condition of an `if`");
        }
        self.close(open);
        if uniform {
            let body = self.of(then)?;
            let head = Piece { text: format!("if {}", self.str(condition)), ..self.piece(condition) };
            open.done.push(Step::Inside { head, body, tail: String::new() });
            if let Some(otherwise) = otherwise {
                let body = self.of(otherwise)?;
                let head = Piece::bare(otherwise.start_byte(), "else".to_owned());
                open.done.push(Step::Inside { head, body, tail: String::new() });
            }
            return Ok(());
        }
        let is_barrier = |node: &Node<'t>| {
            let name = callee(self.text, *node).filter(|_| node.kind() == "call_expression");
            name.is_some_and(|name| name.starts_with("__syncthreads"))
        };
        if let Some(barrier) = descendants(node).find(is_barrier) {
            return refuse(barrier, "no proof that all threads of the block come to this barrier");
        }
        if !self.variables.written_in(condition).is_empty() {
            return refuse(condition, "the condition of an `if` in which threads meet changes a variable");
        }
        let (outside, side) = (std::mem::replace(&mut self.in_branch, true), self.number());
        let around = self.around.last().copied();
        let body = self.of(then)?;
        let condition = self.piece(condition);
        open.done.push(Step::Branch { side, condition, negated: false, around, body });
        if let Some(otherwise) = otherwise {
            let body = self.of(otherwise)?;
            let empty = Piece::bare(otherwise.start_byte(), String::new());
            open.done.push(Step::Branch { side, condition: empty, negated: true, around, body });
        }
        self.in_branch = outside;
        Ok(())
    }

    /// Returns true if a condition probably holds for few threads and changes nothing. We judge that by an `==` with
    /// the thread's index, as in `if (threadIdx.x == 0)`.
    fn picks_few(&self, condition: Node<'t>) -> bool {
        let compares = descendants(condition).any(|node| {
            let equals = node.child_by_field_name("operator").is_some_and(|operator| operator.kind() == "==");
            equals && children(node).into_iter().any(|side| self.variables.is_index(side))
        });
        compares && is_plain(condition) && self.variables.written_in(condition).is_empty()
    }

    /// Returns which places in a row a comparison picks.
    fn places(&self, pick: Pick<'t>) -> Option<Places> {
        let Pick::Threads { index, common, every } = pick else { return None };
        let (mut distance, common) = (self.piece(index), self.piece(common));
        distance.text = format!("gs_cpu_distance({}, {})", distance.text, common.text);
        distance.words.extend(common.words);
        Some(Places::At { distance, every })
    }

    pub(super) fn repeat(&mut self, node: Node<'t>, open: &mut Open) -> Result<()> {
        let field = |name| node.child_by_field_name(name);
        let Some(body) = field("body") else { return refuse(node, "a loop cannot be read") };
        self.check_turns(node)?;
        self.close(open);
        self.around.push(node.id());
        let steps = self.of(body);
        self.around.pop();
        let (head, tail) = if node.kind() == "do_statement" {
            ("do ".to_owned(), self.text[body.end_byte()..node.end_byte()].to_owned())
        } else {
            let head = &self.text[node.start_byte()..body.start_byte()];
            (format!("{}{head}", self.unrolled(node)), String::new())
        };
        let head = Piece::bare(node.start_byte(), head);
        open.done.push(Step::Inside { head, body: steps?, tail });
        Ok(())
    }

    /// Refuses a loop unless all threads in the block run it equally often.
    pub(super) fn check_turns(&self, node: Node<'t>) -> Result<()> {
        let field = |name| node.child_by_field_name(name);
        let condition = field("condition");
        let uniform = condition.is_none_or(|condition| {
            self.variables.is_uniform(condition)
                || condition.kind() == "condition_clause" && self.variables.is_uniform_condition(condition)
        });
        if !uniform {
            return refuse(condition.unwrap_or(node), UNEVEN);
        }
        for part in [field("initializer"), field("update")].into_iter().flatten() {
            let mut changed = self.variables.written_in(part);
            if part.kind() == "declaration" {
                let names = declarators(part).into_iter().map(declared);
                changed.extend(names.filter_map(|name| self.variables.meant(name)));
            }
            let varies = |index: &usize| self.variables.list[*index].kind != Kind::Uniform;
            if changed.iter().any(varies) || self.meets(part) {
                return refuse(part, UNEVEN);
            }
        }
        Ok(())
    }

    /// Returns a pragma for a loop that halves or doubles its counter. If the compiler unrolls it, each shuffle has a
    /// constant distance between lanes.
    pub(super) fn unrolled(&self, node: Node<'t>) -> &'static str {
        if self.variables.is_short(node) { "_Pragma(\"GCC unroll 8\") " } else { "" }
    }
}
