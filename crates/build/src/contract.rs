//! The contract that may end a kernel's doc comment: `requires:`, `covers:`, `reads:`, `optional:` and `stacks:`.

mod expr;
mod place;

use std::ops::Range;

pub(crate) use expr::{Expr, LaunchValue, Operator};

use crate::definition::Definition;
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::names::places_of;
use crate::types::{Param, ParamType};

/// Where a contract is: the text that it is read from, and the names that it may use.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) file: &'a SourceFile,
    /// The file's text with everything blanked out except doc comments, so that a contract continues from
    /// line to line. Offsets are the file's own.
    pub(crate) text: &'a str,
    pub(crate) kernel: &'a str,
    pub(crate) params: &'a [Param],
    /// The structs that kernels take, whose members the contract may use.
    pub(crate) definitions: &'a [Definition],
}

impl Scope<'_> {
    fn refuse(self, range: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        self.file.diagnostic(range, message, help)
    }

    /// Returns the index of the parameter with this name.
    fn find(self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }
}

/// What the author of a kernel promises and asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contract {
    /// True if there is a `requires:` line, so the launcher is safe.
    pub(crate) safe: bool,
    pub(crate) requires: Vec<Clause>,
    /// True if all blocks must be on the device at once.
    pub(crate) cooperative: bool,
    pub(crate) covers: Option<Covers>,
    /// Indices of pointers that the kernel only reads through, although their type would let it write.
    pub(crate) reads: Vec<usize>,
    /// Indices of pointers that may be null.
    pub(crate) optional: Vec<usize>,
    /// True if the author knows that each thread needs a stack of its own on the CPU.
    pub(crate) stacks: bool,
}

/// One comparison of a `requires:` line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Clause {
    pub(crate) text: String,
    pub(crate) left: Expr,
    pub(crate) comparison: &'static str,
    pub(crate) right: Expr,
}

impl Clause {
    /// Returns true if the condition sets a lower bound for `value`.
    fn bounds_below(&self, value: &Expr) -> bool {
        let (left, right) = (self.left.direction(value), self.right.direction(value));
        match self.comparison {
            "<" | "<=" => right.rises || left.falls,
            ">" | ">=" => left.rises || right.falls,
            "==" => left.rises || left.falls || right.rises || right.falls,
            _ => false,
        }
    }
}

/// The default launch shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Covers {
    pub(crate) text: String,
    /// One to three extents, x first.
    pub(crate) extents: Vec<Expr>,
    /// The `by` part, with as many entries as `extents`.
    pub(crate) block: Option<Vec<u32>>,
}

/// The condition that all blocks of the grid must be on the device at once.
pub(crate) const COOPERATIVE: &str = "cooperative";

/// The largest block, in threads, that every backend allows.
const MAX_BLOCK: u64 = 1024;

/// The kind of a contract line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineKind {
    Requires,
    Covers,
    /// The types and numbers to compile a template for. They are read together with the template.
    Types,
    /// The pointers that the kernel only reads through.
    Reads,
    /// The pointers that may be null.
    Optional,
    /// A reason why threads need stacks on the CPU. The text is for people.
    Stacks,
    /// A line that looks like one of these but is not.
    Misspelt,
}

/// Words that begin a contract line, or that an author may have meant to.
const WORDS: [&str; 7] =
    ["require", "requires", "required", "cover", "covers", "precondition", "preconditions"];

/// Recognises a contract line by the word before its colon, and returns its kind and the offset after the
/// colon. If a line is decorated or lacks its colon, it is [`LineKind::Misspelt`]: read as prose it would
/// silently check nothing.
pub(crate) fn line_kind(line: &str) -> Option<(LineKind, usize)> {
    if let Some(colon) = line.find(':') {
        match line[..colon].trim() {
            "requires" => return Some((LineKind::Requires, colon + 1)),
            "covers" => return Some((LineKind::Covers, colon + 1)),
            "types" => return Some((LineKind::Types, colon + 1)),
            "reads" => return Some((LineKind::Reads, colon + 1)),
            "optional" => return Some((LineKind::Optional, colon + 1)),
            "stacks" => return Some((LineKind::Stacks, colon + 1)),
            _ => {}
        }
    }
    // `- requires:`, `**Requires**:`, `\\requires`, and colons of other alphabets.
    let mark = |c: char| !c.is_alphanumeric();
    let start = line.find(|c| !mark(c))?;
    let word = line[start..].split(mark).next()?;
    let after = start + word.len();
    let rest = &line[after..];
    let marks = &rest[..rest.find(|c| !mark(c)).unwrap_or(rest.len())];
    let colon = marks.contains([':', '\u{ff1a}', '\u{fe55}', '\u{2236}', '\u{a789}', '\u{2d0}']);
    let known = WORDS.contains(&word.to_ascii_lowercase().as_str());
    let compares = matches!(word, "requires" | "covers") && rest.contains(['<', '>', '=']);
    let after = if rest.starts_with(':') { after + 1 } else { after };
    (known && (colon || compares)).then_some((LineKind::Misspelt, after))
}

impl Contract {
    /// Returns true if some condition sets a lower bound for `value`.
    pub(crate) fn bounds_below(&self, value: &Expr) -> bool {
        self.requires.iter().any(|clause| clause.bounds_below(value))
    }

    /// Adds one part of the contract. `range` is the text from its colon to the next part.
    pub(crate) fn add(
        &mut self,
        kind: LineKind,
        range: Range<usize>,
        scope: Scope<'_>,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let result = match kind {
            LineKind::Requires => self.add_requires(range, scope, diagnostics),
            LineKind::Covers => self.add_covers(range, scope),
            LineKind::Reads | LineKind::Optional => self.add_pointers(kind, range, scope),
            LineKind::Types => Ok(()),
            LineKind::Stacks => {
                self.stacks = true;
                Ok(())
            }
            LineKind::Misspelt => Err(scope.refuse(
                range.start.saturating_sub(1)..range.start,
                "this looks like a contract line",
                "write `requires: n <= len(x)` or `covers: n`, in lower case",
            )),
        };
        diagnostics.extend(result.err());
    }

    fn add_requires(
        &mut self,
        range: Range<usize>,
        scope: Scope<'_>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Result<(), Diagnostic> {
        // Even a `requires:` line with mistakes means that the kernel has a contract.
        self.safe = true;
        let text = &scope.text[range.clone()];
        match text.trim() {
            "nothing" => return Ok(()),
            "" => {
                return Err(scope.refuse(
                    range,
                    "an empty `requires:` line",
                    "write conditions such as `requires: n <= len(x)`, or `requires: nothing`",
                ));
            }
            _ => {}
        }
        for part in expr::split_commas(scope.text, range) {
            if scope.text[part.clone()].trim() == COOPERATIVE && scope.find(COOPERATIVE).is_none() {
                self.cooperative = true;
                continue;
            }
            match clause(part, scope) {
                Ok(clause) => self.requires.push(clause),
                Err(diagnostic) => diagnostics.push(diagnostic),
            }
        }
        Ok(())
    }

    fn add_pointers(
        &mut self,
        kind: LineKind,
        range: Range<usize>,
        scope: Scope<'_>,
    ) -> Result<(), Diagnostic> {
        let (word, list) = match kind {
            LineKind::Reads => ("reads", &mut self.reads),
            _ => ("optional", &mut self.optional),
        };
        for part in expr::split_commas(scope.text, range) {
            let name = scope.text[part.clone()].trim();
            let refuse = |message: String| {
                let help = format!("write pointers of the kernel with commas between: `{word}: a, b`");
                Err(scope.refuse(expr::trimmed(scope.text, part.clone()), message, help))
            };
            match scope.find(name) {
                Some(index) => match scope.params[index].ty {
                    ParamType::Pointer { volatile: true, .. } => {
                        return refuse(format!("`{name}` is volatile: `{word}:` is for ordinary memory"));
                    }
                    ParamType::Pointer { .. } => list.push(index),
                    ParamType::Value(_) if scope.params[index].ty.is_refused() => {}
                    ParamType::Value(_) => return refuse(format!("`{name}` is not a pointer")),
                },
                None => return refuse(format!("kernel `{}` has no parameter `{name}`", scope.kernel)),
            }
        }
        Ok(())
    }

    /// Returns the first optional pointer whose length the launch's shape depends on.
    pub(crate) fn covered_optional(&self) -> Option<usize> {
        let extents = self.covers.iter().flat_map(|covers| &covers.extents);
        extents.flat_map(Expr::lengths).find(|index| self.optional.contains(index))
    }

    fn add_covers(&mut self, range: Range<usize>, scope: Scope<'_>) -> Result<(), Diagnostic> {
        let text = &scope.text[range.clone()];
        if self.covers.is_some() {
            return Err(scope.refuse(range, "a second `covers:` line", "a kernel has one default shape"));
        }
        let by = places_of(text, "by").next();
        let (extents_end, block_start) = (by.unwrap_or(text.len()), by.map(|at| at + "by".len()));
        let mut extents = Vec::new();
        for part in expr::split_commas(scope.text, range.start..range.start + extents_end) {
            let mut parser = expr::Parser::new(part, scope);
            let extent = parser.expression()?;
            parser.finish()?;
            if extent.uses_launch() {
                return Err(scope.refuse(
                    range,
                    "`covers:` cannot depend on the launch it describes",
                    "use integer parameters and len(pointer)",
                ));
            }
            extents.push(extent);
        }
        if extents.is_empty() || extents.len() > 3 {
            return Err(scope.refuse(
                range,
                format!("`covers:` has {} extents", extents.len()),
                "write one to three: `covers: n`, `covers: width, height by 16, 16`",
            ));
        }
        let block = match block_start {
            Some(start) => Some(block_shape(range.start + start..range.end, scope, extents.len())?),
            None if extents.len() > 1 => {
                return Err(scope.refuse(
                    range,
                    "`covers:` in more than one dimension needs a block shape",
                    "add it: `covers: width, height by 16, 16`",
                ));
            }
            None => None,
        };
        self.covers = Some(Covers { text: in_one_line(text), extents, block });
        Ok(())
    }
}

fn clause(range: Range<usize>, scope: Scope<'_>) -> Result<Clause, Diagnostic> {
    let text = in_one_line(&scope.text[range.clone()]);
    let mut parser = expr::Parser::new(range.clone(), scope);
    let left = parser.expression()?;
    let comparison = parser.comparison()?;
    let right = parser.expression()?;
    parser.finish()?;
    if left.is_constant() && right.is_constant() {
        return Err(scope.refuse(
            expr::trimmed(scope.text, range),
            "this condition names no parameter of the kernel",
            "compare a parameter, len(pointer), grid.x, block.x or shared; or write `requires: nothing`",
        ));
    }
    Ok(Clause { text, left, comparison, right })
}

fn block_shape(range: Range<usize>, scope: Scope<'_>, dimensions: usize) -> Result<Vec<u32>, Diagnostic> {
    let error = |message: String| {
        Err(scope.refuse(
            expr::trimmed(scope.text, range.clone()),
            message,
            format!(
                "write {dimensions} positive integers whose product is at most {MAX_BLOCK}, as in `by 16, 16`"
            ),
        ))
    };
    let mut block = Vec::new();
    for part in scope.text[range.clone()].split(',') {
        match part.trim().parse::<u32>() {
            Ok(threads) if threads > 0 => block.push(threads),
            _ => return error(format!("`{}` is not a block size", part.trim())),
        }
    }
    if block.len() != dimensions {
        return error(format!("the block has {} dimensions, the covered range {dimensions}", block.len()));
    }
    let threads = block.iter().fold(1_u64, |product, &b| product.saturating_mul(u64::from(b)));
    if threads > MAX_BLOCK {
        return error(format!("a block of {threads} threads"));
    }
    Ok(block)
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
