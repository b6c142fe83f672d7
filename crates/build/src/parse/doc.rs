//! Doc comments and the contracts in them.

use std::ops::Range;

use tree_sitter::Node;

use super::visit;
use crate::contract::{LineKind, line_kind};
use crate::diagnostic::{Diagnostic, SourceFile};

/// One line of a doc comment: its byte range in the file, without the comment marks.
#[derive(Clone, Debug)]
pub(super) struct DocLine {
    pub(super) range: Range<usize>,
    pub(super) contract: Option<(LineKind, usize)>,
}

/// A file's doc comments. Comments that follow each other without a gap are joined.
pub(super) struct Docs<'a> {
    pub(super) source: &'a SourceFile,
    blocks: Vec<Block>,
    /// Contracts in ordinary comments, each with the offset of its end. They have no effect, so we must warn
    /// you.
    ordinary: Vec<(Range<usize>, usize)>,
    /// The file's text with everything blanked out except doc comments.
    pub(super) blanked: String,
}

struct Block {
    /// A contract line in an ordinary comment directly above.
    stray: Option<Range<usize>>,
    lines: Vec<DocLine>,
    end_byte: usize,
    used: bool,
}

impl<'a> Docs<'a> {
    pub(super) fn collect(source: &'a SourceFile, root: Node<'_>) -> Self {
        let mut comments = Vec::new();
        visit(root, &mut |node| {
            if node.kind() == "comment" {
                comments.push(node.byte_range());
            }
            // Comments inside a function are not documentation.
            node.kind() != "compound_statement"
        });
        let mut blocks: Vec<Block> = Vec::new();
        let mut all: Vec<(Range<usize>, usize)> = Vec::new();
        // The contract in the ordinary comments above, and the offset of their end.
        let mut ordinary: Option<(Range<usize>, usize)> = None;
        for range in comments {
            let Some(mut lines) = doc_lines(&source.text, range.clone()) else {
                let goes_on = ordinary.filter(|(_, end)| adjacent(&source.text, *end, range.start));
                let contract =
                    goes_on.map(|(contract, _)| contract).or_else(|| stray(&source.text, range.clone()));
                ordinary = contract.map(|contract| (contract, range.end));
                all.extend(ordinary.clone());
                continue;
            };
            let stray = ordinary.take().filter(|(_, end)| adjacent(&source.text, *end, range.start));
            match blocks.last_mut() {
                Some(last) if adjacent(&source.text, last.end_byte, range.start) => {
                    last.lines.append(&mut lines);
                    last.end_byte = range.end;
                }
                _ => blocks.push(Block {
                    stray: stray.map(|(contract, _)| contract),
                    lines,
                    end_byte: range.end,
                    used: false,
                }),
            }
        }
        let blanked = blanked(&source.text, blocks.iter().flat_map(|block| &block.lines));
        Self { source, blocks, ordinary: all, blanked }
    }

    /// Returns the doc comment that ends directly above `start`.
    pub(super) fn above(&mut self, start: usize) -> Vec<DocLine> {
        for block in &mut self.blocks {
            if block.end_byte <= start && adjacent(&self.source.text, block.end_byte, start) {
                block.used = true;
                return block.lines.clone();
            }
        }
        Vec::new()
    }

    /// Returns the contract in an ordinary comment directly above `start`.
    pub(super) fn ordinary_above(&self, start: usize) -> Option<Range<usize>> {
        let above = |end: usize| end <= start && adjacent(&self.source.text, end, start);
        self.ordinary.iter().find(|(_, end)| above(*end)).map(|(contract, _)| contract.clone())
    }

    /// Returns an error for each contract line that belongs to no kernel. You would think that it is checked,
    /// but it could not be.
    pub(super) fn unused_contracts(&self) -> Vec<Diagnostic> {
        let is_contract =
            |line: &DocLine| matches!(line.contract, Some((LineKind::Requires | LineKind::Covers, _)));
        let unused = self.blocks.iter().filter(|block| !block.used).flat_map(|block| &block.lines);
        let unused = unused.filter(|line| is_contract(line)).map(|line| {
            self.source.diagnostic(
                line.range.clone(),
                "this contract is not above a kernel",
                "put it directly above `extern \"C\" __global__`, with no blank line or other comment between",
            )
        });
        let split = self.blocks.iter().filter(|block| block.used && block.lines.iter().any(is_contract));
        let strays = split.filter_map(|block| block.stray.clone()).map(|range| {
            self.source.diagnostic(
                range,
                "this part of the contract is in an ordinary comment, which we do not read",
                "begin each of its lines with `///`",
            )
        });
        unused.chain(strays).collect()
    }
}

/// Returns the lines of a text without comment marks.
pub(super) fn plain_lines(text: &str) -> Vec<DocLine> {
    let lines = text.split_inclusive('\n').scan(0, |end, line| {
        let start = *end;
        *end += line.len();
        Some(DocLine { range: start..start + line.trim_end().len(), contract: line_kind(line) })
    });
    lines.collect()
}

/// Returns the parts of the contract in a doc comment, each with the text after its colon. A part continues
/// until the next one begins or the comment ends, so no line is ignored.
pub(super) fn contract(lines: &[DocLine]) -> Vec<(LineKind, Range<usize>)> {
    let mut parts: Vec<(LineKind, Range<usize>)> = Vec::new();
    for line in lines {
        match (line.contract, parts.last_mut()) {
            (Some((kind, after)), _) => parts.push((kind, line.range.start + after..line.range.end)),
            // The line above is an error, and one error is enough.
            (None, Some((LineKind::Misspelt, _)) | None) => {}
            (None, Some((_, range))) => range.end = line.range.end,
        }
    }
    parts
}

/// Replaces every byte outside `lines` with a space, except line breaks.
fn blanked<'a>(text: &str, lines: impl Iterator<Item = &'a DocLine>) -> String {
    let blank = |text: &str, into: &mut String| {
        into.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
    };
    let (mut result, mut end) = (String::with_capacity(text.len()), 0);
    for line in lines {
        blank(&text[end..line.range.start], &mut result);
        result.push_str(&text[line.range.clone()]);
        end = line.range.end;
    }
    blank(&text[end..], &mut result);
    result
}

/// Returns true if there is nothing in between except white space with at most one line break.
fn adjacent(text: &str, end: usize, start: usize) -> bool {
    text.get(end..start).is_some_and(|gap| gap.trim().is_empty() && gap.matches('\n').count() <= 1)
}

/// Returns the first contract line in an ordinary comment.
fn stray(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let mut at = range.start;
    for line in text[range].split_inclusive('\n') {
        let body = line.trim_end().trim_end_matches("*/");
        let inner = body.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '/' | '*' | '!'));
        let contract = line_kind(inner).is_some_and(|(kind, _)| kind != LineKind::Misspelt);
        if contract {
            return Some(at + body.len() - inner.len()..at + body.len());
        }
        at += line.len();
    }
    None
}

fn doc_lines(text: &str, range: Range<usize>) -> Option<Vec<DocLine>> {
    let comment = &text[range.clone()];
    let mut lines = Vec::new();
    if comment.starts_with("///") && !comment.starts_with("////") {
        lines.push(range.start + 3..range.end);
    } else if !comment.starts_with("/***")
        && let Some(inner) = comment.strip_prefix("/**").and_then(|rest| rest.strip_suffix("*/"))
    {
        let mut at = range.start + 3;
        for line in inner.split_inclusive('\n') {
            // The column of stars on the left is decoration.
            let body = line.trim_end_matches('\n');
            let skipped = match body.trim_start().strip_prefix('*') {
                Some(rest) if at != range.start + 3 => body.len() - rest.len(),
                _ => 0,
            };
            lines.push(at + skipped..at + body.len());
            at += line.len();
        }
    } else {
        return None;
    }
    let lines = lines
        .into_iter()
        .map(|range| {
            let line = text[range.clone()].trim_end();
            let range = range.start..range.start + line.len();
            DocLine { contract: line_kind(line), range }
        })
        .collect();
    Some(lines)
}

/// Returns the lines before the contract for rustdoc: dedented, and without blank lines at the ends.
pub(super) fn text_lines(text: &str, lines: &[DocLine]) -> Vec<String> {
    let lines: Vec<&str> =
        lines.iter().take_while(|l| l.contract.is_none()).map(|l| text[l.range.clone()].trim_end()).collect();
    let indent =
        lines.iter().filter(|l| !l.is_empty()).map(|l| l.len() - l.trim_start().len()).min().unwrap_or(0);
    let mut in_code = false;
    let mut lines: Vec<String> = lines
        .into_iter()
        .map(|line| {
            let line = line.get(indent..).unwrap_or_default();
            if let Some(language) = line.trim_start().strip_prefix("```") {
                in_code = !in_code;
                // A fence without a language would become a Rust doc test.
                if in_code && language.is_empty() {
                    return format!("{line}text");
                }
            } else if !in_code && line.starts_with("    ") {
                // Four spaces would make this a code block, and therefore a Rust doc test.
                return format!("   {}", line.trim_start());
            }
            line.to_owned()
        })
        .collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    while lines.first().is_some_and(String::is_empty) {
        lines.remove(0);
    }
    lines
}
