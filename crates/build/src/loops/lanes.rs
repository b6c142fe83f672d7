//! Statements that only compute and shuffle. They run on vectors with one value per lane.
//!
//! A sum over a warp takes five shuffles, and each needs the result of the one before. As loops over threads that would
//! be five loops, and each would store its values so that the next can read them. The processor has to wait for that.
//! So if there is only arithmetic between such shuffles, we let each warp go through all of the statements at once, and
//! replace each variable by a vector that holds one value per lane (`gpustream/cpu/lanes.cuh`). The values then stay in
//! registers.
//!
//! All lanes evaluate all expressions, even if only some need the result. Therefore nothing here may touch memory or
//! trap.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tree_sitter::Node;

use super::edits::{self, Edit};
use super::meetings::{Meeting, meeting};
use super::progression::{Course, binary};
use super::steps::{Steps, statements};
use super::variables::Kind;
use super::waits::{Macro, callee};
use crate::parse::{children, declarators, declared, descendants, has_word, named};

/// Statements on vectors.
#[derive(Default)]
pub(super) struct Lanes {
    /// The statements' text, each with its offset.
    pub(super) statements: Vec<(usize, String)>,
    /// The variables that exist before the statements.
    pub(super) used: BTreeSet<usize>,
    /// Which of those in `used` could change.
    pub(super) written: BTreeSet<usize>,
    /// Declarations of variables that follow from the thread's index.
    pub(super) again: BTreeMap<usize, String>,
    /// The types that need a vector. At run time, the form is only used if there is one for each.
    pub(super) types: BTreeSet<String>,
}

impl Lanes {
    fn join(&mut self, other: Self) {
        self.statements.extend(other.statements);
        self.used.extend(other.used);
        self.written.extend(other.written);
        self.again.extend(other.again);
        self.types.extend(other.types);
    }
}

/// Functions with two values, their names for vectors, and the type that their arguments become.
const OF_TWO: [(&str, &str, Option<&str>); 4] = [
    ("min", "gs_cpu_least", None),
    ("max", "gs_cpu_most", None),
    ("fminf", "gs_cpu_least", Some("float")),
    ("fmaxf", "gs_cpu_most", Some("float")),
];

impl<'t> Steps<'_, 't> {
    /// Returns the vector form for the first statements in a list, and how many these are. Returns `None` if there is
    /// no such form, or if no shuffle depends on another, because then loops are as fast.
    pub(super) fn in_lanes(&self, list: &[Node<'t>]) -> Option<(Lanes, usize)> {
        list.first().filter(|first| self.meets(**first))?;
        let mut lanes = Lanes::default();
        let mut waiting = Lanes::default();
        let mut count = 0;
        for (at, &statement) in list.iter().enumerate() {
            let mut rewriter = Rewriter {
                steps: self,
                lanes: Lanes::default(),
                declared: HashSet::new(),
                edits: Vec::new(),
            };
            if rewriter.statement(statement, Place::List).is_none() {
                break;
            }
            let Rewriter { lanes: rewritten, edits, .. } = rewriter;
            waiting.join(rewritten);
            if !matches!(statement.kind(), "comment" | "preproc_call") {
                waiting.statements.push((statement.start_byte(), edits::apply(self.text, statement, edits)));
            }
            // Statements after the last shuffle can join the loop that follows.
            if self.meets(statement) {
                lanes.join(std::mem::take(&mut waiting));
                count = at + 1;
            }
        }
        self.depend(&list[..count]).then_some((lanes, count))
    }

    /// Returns true if a shuffle in the statements depends on an earlier one. The first statement must have one.
    fn depend(&self, list: &[Node<'t>]) -> bool {
        let mut changed = HashSet::new();
        list.iter().any(|&statement| {
            let mut depends = statement.kind() == "for_statement" && self.meets(statement);
            let mut shuffles = descendants(statement).filter(|node| self.meeting_of(*node).is_some());
            depends |= shuffles.any(|node| !self.variables.mentioned_in(node).is_disjoint(&changed));
            changed.extend(self.variables.written_in(statement));
            for declarator in declarators(statement) {
                changed.extend(self.variables.meant(declared(declarator)));
            }
            depends
        })
    }
}

/// Where a statement is. It decides what the statement may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the list, next to statements that are not rewritten.
    List,
    /// Inside a statement that is rewritten.
    Inside,
    /// Under a condition.
    Under,
}

/// Rewrites one statement. Its functions return `None` if there is no vector form.
struct Rewriter<'s, 'k, 't> {
    steps: &'s Steps<'k, 't>,
    lanes: Lanes,
    /// The variables that the statement declares inside.
    declared: HashSet<usize>,
    edits: Vec<Edit>,
}

impl<'t> Rewriter<'_, '_, 't> {
    fn str(&self, node: Node<'_>) -> &'t str {
        &self.steps.text[node.byte_range()]
    }

    fn replace(&mut self, start: usize, end: usize, text: impl Into<String>) {
        self.edits.push((start..end, text.into()));
    }

    /// Puts a node between two texts.
    fn enclose(&mut self, node: Node<'_>, before: impl Into<String>, after: &str) {
        self.replace(node.start_byte(), node.start_byte(), before);
        self.replace(node.end_byte(), node.end_byte(), after);
    }

    fn statement(&mut self, node: Node<'t>, place: Place) -> Option<()> {
        match (node.kind(), place) {
            ("comment", _) => Some(()),
            // This is `#pragma unroll`, which is only advice.
            ("preproc_call", _) => {
                self.replace(node.start_byte(), node.end_byte(), "\n");
                Some(())
            }
            ("expression_statement", _) => self.change(node.named_child(0)?, place),
            (_, Place::Under) => None,
            ("declaration", _) => self.declaration(node, place),
            ("if_statement", _) => self.condition(node),
            ("for_statement", _) => self.repeat(node),
            _ => None,
        }
    }

    /// Rewrites all statements in a list, or a single one.
    fn list(&mut self, node: Node<'t>, place: Place) -> Option<()> {
        statements(node).into_iter().try_for_each(|statement| self.statement(statement, place))
    }

    fn declaration(&mut self, node: Node<'t>, place: Place) -> Option<()> {
        let has = |word| has_word(self.steps.text, node, word);
        if ["constexpr", "static", "extern", "__shared__"].into_iter().any(has) {
            return None;
        }
        let declarators = declarators(node);
        let uniform = |declarator: &Node<'t>| {
            let index = self.steps.variables.meant(declared(*declarator));
            index.is_some_and(|index| self.steps.variables.list[index].kind == Kind::Uniform)
        };
        if place == Place::Inside && declarators.iter().all(uniform) {
            return Some(());
        }
        let first = declarators.first()?.start_byte();
        self.replace(node.start_byte(), first, if place == Place::List { "" } else { "auto " });
        for declarator in declarators {
            let name = declared(declarator);
            let index = self.steps.variables.meant(name)?;
            let variable = &self.steps.variables.list[index];
            let value = variable.value();
            let plain = value
                .map_or(declarator, |_| declarator.child_by_field_name("declarator").unwrap_or(declarator));
            let assigned =
                value.is_none_or(|value| self.steps.text[name.end_byte()..value.start_byte()].trim() == "=");
            if plain != name || !assigned {
                return None;
            }
            match (place, value) {
                (Place::List, Some(_)) if variable.kind == Kind::Own && variable.storable => {
                    self.lanes.written.insert(index);
                    self.lanes.used.insert(index);
                }
                (Place::Inside, Some(value)) if variable.kind != Kind::Uniform => {
                    self.declared.insert(index);
                    if variable.ty != "auto" {
                        self.enclose(value, format!("gs_turn.template as<{}>(", variable.ty), ")");
                    }
                }
                _ => return None,
            }
            self.ty(&variable.ty);
            self.expression(value?)?;
        }
        Some(())
    }

    /// Remembers the type of a value.
    fn ty(&mut self, ty: &str) {
        if ty != "auto" {
            self.lanes.types.insert(ty.to_owned());
        }
    }

    /// Rewrites an assignment. Also removes a `__syncwarp`, because a warp's lanes are always together here.
    fn change(&mut self, node: Node<'t>, place: Place) -> Option<()> {
        if let Some((name, Meeting::Barrier)) = self.steps.meeting_of(node) {
            let warps = name == "__syncwarp" && place != Place::Under;
            return warps.then(|| self.replace(node.start_byte(), node.end_byte(), ""));
        }
        let field = |name| node.child_by_field_name(name).filter(|_| node.kind() == "assignment_expression");
        let (target, operator, value) = (field("left")?, field("operator")?, field("right")?);
        let index = self.steps.variables.meant(target).filter(|_| target.kind() == "identifier")?;
        let is_own = self.steps.variables.list[index].kind == Kind::Own;
        let computes = !matches!(operator.kind(), "/=" | "%=") || self.steps.variables.is_constant(value);
        if !is_own || !computes {
            return None;
        }
        self.name(target)?;
        if !self.declared.contains(&index) {
            self.lanes.written.insert(index);
        }
        self.expression(value)?;
        if place == Place::Under {
            let name = self.str(target);
            let before = match operator.kind().strip_suffix('=')? {
                "" => String::new(),
                operator => format!("{name} {operator} "),
            };
            self.replace(
                operator.start_byte(),
                value.start_byte(),
                format!("= gs_cpu_choose(gs_if, decltype({name})({before}("),
            );
            self.replace(value.end_byte(), value.end_byte(), format!(")), {name})"));
        }
        Some(())
    }

    fn condition(&mut self, node: Node<'t>) -> Option<()> {
        let field = |name| node.child_by_field_name(name);
        let (condition, then) = (field("condition")?, field("consequence")?);
        let value = condition.named_child(0).filter(|_| condition.named_child_count() == 1)?;
        if field("alternative").is_some() || self.steps.meets(node) {
            return None;
        }
        self.replace(node.start_byte(), value.start_byte(), "{ const auto gs_if = (");
        self.expression(value)?;
        self.replace(value.end_byte(), then.start_byte(), "); ");
        self.list(then, Place::Under)?;
        self.replace(node.end_byte(), node.end_byte(), " }");
        Some(())
    }

    fn repeat(&mut self, node: Node<'t>) -> Option<()> {
        let field = |name| node.child_by_field_name(name);
        self.steps.check_turns(node).ok()?;
        // The counter must be declared in the head, because each warp begins the loop again.
        field("initializer").filter(|first| first.kind() == "declaration")?;
        let counts = |index: &usize| self.steps.variables.list[*index].scope.start >= node.start_byte();
        if !field("update").is_some_and(|update| self.steps.variables.written_in(update).iter().all(counts)) {
            return None;
        }
        self.replace(node.start_byte(), node.start_byte(), self.steps.unrolled(node));
        self.list(field("body")?, Place::Inside)
    }

    fn expression(&mut self, node: Node<'t>) -> Option<()> {
        let all =
            |rewriter: &mut Self| named(node).into_iter().try_for_each(|node| rewriter.expression(node));
        match node.kind() {
            "number_literal" | "true" | "false" | "comment" => Some(()),
            "identifier" => self.name(node),
            "field_expression" => {
                let of = self.str(node.child_by_field_name("argument")?);
                matches!(of, "threadIdx" | "blockIdx" | "blockDim" | "gridDim").then_some(())
            }
            "parenthesized_expression" | "unary_expression" => all(self),
            "binary_expression" => {
                let (_, operator, right) = binary(node)?;
                if matches!(operator, "/" | "%") && !self.steps.variables.is_constant(right) {
                    return None;
                }
                all(self)
            }
            "conditional_expression" => {
                for mark in children(node).into_iter().filter(|child| matches!(child.kind(), "?" | ":")) {
                    self.replace(mark.start_byte(), mark.end_byte(), ",");
                }
                self.enclose(node, "gs_cpu_choose(", ")");
                all(self)
            }
            "cast_expression" => {
                let (ty, value) = (node.child_by_field_name("type")?, node.child_by_field_name("value")?);
                self.cast(node, self.str(ty), value)
            }
            "call_expression" => self.call(node),
            _ => None,
        }
    }

    /// Remembers the variable that a name means.
    fn name(&mut self, node: Node<'t>) -> Option<()> {
        let variables = self.steps.variables;
        let name = self.str(node);
        let Some(index) = variables.meant(node) else {
            let is_constant =
                matches!(variables.waits.macro_of(name), Macro::Of(_)) && variables.is_uniform(node);
            return (name == "warpSize" || is_constant).then_some(());
        };
        let variable = &variables.list[index];
        let is_plain = variable.extents.is_empty()
            && !variable.ty.contains(['*', '&'])
            && !variables.is_addressed(index);
        if !is_plain {
            return None;
        }
        self.ty(&variable.ty);
        if self.declared.contains(&index) {
            return Some(());
        }
        if !variable.storable {
            return None;
        }
        self.lanes.used.insert(index);
        if variable.kind != Kind::Again || self.lanes.again.contains_key(&index) {
            return Some(());
        }
        let value = variable.value()?;
        let edits = std::mem::take(&mut self.edits);
        self.expression(value)?;
        let value = edits::apply(self.steps.text, value, std::mem::replace(&mut self.edits, edits));
        let value = match &variable.course {
            Course::OfWarp(number, condition) => {
                format!("gs_cpu_choose({condition}, gs_turn.{number}, {value})")
            }
            _ => value,
        };
        let text = format!("const auto {name} = gs_turn.template as<{}>({value});", variable.ty);
        self.lanes.again.insert(index, text);
        Some(())
    }

    fn cast(&mut self, node: Node<'t>, ty: &str, value: Node<'t>) -> Option<()> {
        self.replace(node.start_byte(), value.start_byte(), format!("gs_turn.template as<{ty}>("));
        self.replace(value.end_byte(), node.end_byte(), ")");
        self.ty(ty);
        self.expression(value)
    }

    fn call(&mut self, node: Node<'t>) -> Option<()> {
        let variables = self.steps.variables;
        let list = node.child_by_field_name("arguments")?;
        let arguments: Vec<_> = named(list).into_iter().filter(|node| node.kind() != "comment").collect();
        if let (Some(ty), [value]) = (variables.type_of_cast(node), &arguments[..]) {
            return self.cast(node, ty, *value);
        }
        let name = callee(self.steps.text, node)?;
        if let Some((Meeting::Shuffle(method), place)) = meeting(name) {
            let (&value, rest) = arguments.get(place..)?.split_first()?;
            let others = rest.iter().all(|argument| variables.is_uniform(*argument));
            let changes = !variables.written_in(list).is_empty();
            if changes || !others || rest.is_empty() || variables.is_uniform(value) {
                return None;
            }
            self.replace(node.start_byte(), value.start_byte(), format!("gs_turn.{method}("));
            return self.expression(value);
        }
        let &(_, of_vectors, ty) = OF_TWO.iter().find(|(own, ..)| *own == name)?;
        let function =
            node.child_by_field_name("function").filter(|function| function.kind() == "identifier")?;
        let [left, right] = arguments[..] else { return None };
        if !variables.waits.is_plain(name) || variables.is_uniform(node) {
            return None;
        }
        self.replace(function.start_byte(), function.end_byte(), of_vectors);
        for argument in [left, right] {
            if let Some(ty) = ty {
                self.enclose(argument, format!("gs_turn.template as<{ty}>("), ")");
            }
            self.expression(argument)?;
        }
        Some(())
    }
}
