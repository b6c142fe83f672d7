//! Errors that point into your kernel file.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::names::places_of;

/// The result of functions in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A source file, and the offset of each row of its text.
///
/// If a preprocessor wrote the text, its rows come from several files. Then [`Origin`] says from where, and we report
/// places in these files.
#[derive(Clone)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    row_starts: Vec<usize>,
    origin: Option<Arc<Origin>>,
}

/// Where the rows of a preprocessed text come from.
#[derive(Default)]
pub(crate) struct Origin {
    pub(crate) files: Vec<OriginFile>,
    /// The file, as an index, and the line, counted from 1, of each row.
    pub(crate) rows: Vec<(usize, usize)>,
}

/// One of your files from which rows of a preprocessed text come.
pub(crate) struct OriginFile {
    /// The path as compilers name it.
    pub(crate) path: PathBuf,
    /// The path as you named it.
    pub(crate) shown: PathBuf,
    pub(crate) lines: Vec<String>,
}

impl SourceFile {
    pub(crate) fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let text = text.into();
        let row_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Self { path: path.into(), text, row_starts, origin: None }
    }

    /// Returns a file whose text a preprocessor wrote.
    pub(crate) fn preprocessed(path: impl Into<PathBuf>, text: impl Into<String>, origin: Origin) -> Self {
        Self { origin: Some(Arc::new(origin)), ..Self::new(path, text) }
    }

    /// Returns the same file with another text, whose rows come from the same places.
    pub(crate) fn with_text(&self, text: impl Into<String>) -> Self {
        Self { origin: self.origin.clone(), ..Self::new(&self.path, text) }
    }

    /// Returns the files that a preprocessed text comes from.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.origin.iter().flat_map(|origin| origin.files.iter().map(|file| &*file.shown))
    }

    /// Returns true if a preprocessor wrote the text.
    pub(crate) fn is_preprocessed(&self) -> bool {
        self.origin.is_some()
    }

    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| {
            // Whole, because it shows where a relative path begins: at your crate's folder.
            let place = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            Error::message(format!("cannot read kernel file {}: {e}", place.display()))
        })?;
        Ok(Self::new(path, text(bytes)))
    }

    /// Returns the row of the text that has this offset, counted from 0.
    pub(crate) fn row(&self, offset: usize) -> usize {
        self.row_starts.partition_point(|&start| start <= offset).saturating_sub(1)
    }

    /// Returns a row's offset. Past the last row, returns the end of the text.
    pub(crate) fn start_of(&self, row: usize) -> usize {
        self.row_starts.get(row).copied().unwrap_or(self.text.len())
    }

    /// Returns line and column, both counted from 1. Columns count characters.
    pub(crate) fn position(&self, offset: usize) -> (usize, usize) {
        let row = self.row(offset);
        let start = self.start_of(row);
        let column = self.text.get(start..offset).map_or(0, |s| s.chars().count()) + 1;
        let Some((file, line)) = self.of_row(row) else {
            return (row + 1, column);
        };
        let written = file.lines.get(line - 1).map_or("", String::as_str);
        if self.text[start..].lines().next() == Some(written) {
            return (line, column);
        }
        // A macro may have made the text, so we look for the same word in the line.
        let end = self.text.get(offset..).map_or(offset, |rest| {
            offset + rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len()).max(1)
        });
        let found = self.text.get(offset..end).and_then(|word| places_of(written, word).next());
        (line, found.map_or(0, |at| written[..at].chars().count()) + 1)
    }

    /// Returns the file that has the text at an offset, as you named it.
    pub(crate) fn path_of(&self, offset: usize) -> &Path {
        self.of_row(self.row(offset)).map_or(&self.path, |(file, _)| &file.shown)
    }

    /// Returns the `#line` that makes a compiler report what follows at an offset's place. `own` is this file's path,
    /// escaped for C++ quotes.
    pub(crate) fn line_directive(&self, offset: usize, own: &str) -> String {
        match self.of_row(self.row(offset)) {
            Some((file, line)) => format!("#line {line} \"{}\"", quoted(&file.path.display().to_string())),
            None => format!("#line {} \"{own}\"", self.row(offset) + 1),
        }
    }

    /// Returns the file's name and the line of an offset, for documentation.
    pub(crate) fn named(&self, offset: usize) -> String {
        let file = self.path_of(offset).file_name().unwrap_or_default().to_string_lossy();
        format!("`{file}`, line {}", self.position(offset).0)
    }

    fn of_row(&self, row: usize) -> Option<(&OriginFile, usize)> {
        let origin = self.origin.as_ref()?;
        let &(file, line) = origin.rows.get(row)?;
        Some((origin.files.get(file)?, line))
    }

    fn line(&self, offset: usize) -> &str {
        let row = self.row(offset);
        if let Some((file, line)) = self.of_row(row) {
            return file.lines.get(line - 1).map_or("", String::as_str);
        }
        self.text[self.start_of(row)..self.start_of(row + 1)].trim_end_matches(['\n', '\r'])
    }

    /// Returns an error at `range`: what is wrong there, and what to write instead.
    pub(crate) fn diagnostic(
        &self,
        range: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Diagnostic {
        let (line, column) = self.position(range.start);
        let source_line = self.line(range.start).to_owned();
        let path = self.path_of(range.start).to_owned();
        let marked = self.text.get(range).unwrap_or_default();
        let marked = marked.lines().next().unwrap_or_default().chars().count().max(1);
        // In a preprocessed text, a macro may have made the marked part longer than the line that you wrote.
        let marked = if self.origin.is_some() {
            marked.min(source_line.chars().count().saturating_sub(column - 1).max(1))
        } else {
            marked
        };
        Diagnostic { path, line, column, message: message.into(), help: help.into(), source_line, marked }
    }
}

/// Escapes a path for C++ quotes.
pub(crate) fn quoted(path: &str) -> String {
    path.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Decodes a file's bytes. Compilers accept any bytes in comments and strings, so we replace bytes that are
/// not UTF-8. They also accept a byte order mark at the start of a file, but not in the middle. We must drop
/// it, because it would end up in the middle of the files that we generate from the text.
pub(crate) fn text(bytes: Vec<u8>) -> String {
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}

/// Something in a kernel file that we cannot bind, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The file, as you named it in [`Kernels::file`](crate::Kernels::file).
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do, usually what to write instead.
    pub help: String,
    source_line: String,
    marked: usize,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, column, message, help, source_line, marked } = self;
        writeln!(f, "{}:{line}:{column}: error: {message}", path.display())?;
        // We copy tabs into the caret's indent, so that the caret lines up whatever the tab width is.
        let indent: String =
            source_line.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "{line:5} | {source_line}")?;
        write!(f, "      | {indent}{}", "^".repeat(*marked))?;
        if !help.is_empty() {
            write!(f, "\n      = help: {help}")?;
        }
        Ok(())
    }
}

/// A failed build: every diagnostic of every file, or the message of a tool that failed.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    diagnostics: Vec<Diagnostic>,
    messages: Vec<String>,
}

impl Error {
    pub(crate) fn message(text: impl Into<String>) -> Self {
        Self { diagnostics: Vec::new(), messages: vec![text.into()] }
    }

    /// Returns an empty error, for code that goes on after a first failure and collects more.
    pub(crate) fn none() -> Self {
        Self { diagnostics: Vec::new(), messages: Vec::new() }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.diagnostics.is_empty() && self.messages.is_empty()
    }

    pub(crate) fn join(&mut self, error: Self) {
        self.diagnostics.extend(error.diagnostics);
        self.messages.extend(error.messages);
    }

    /// Joins what another error says in addition.
    pub(crate) fn join_new(&mut self, error: &Self) {
        let new = |diagnostic: &&Diagnostic| !self.diagnostics.contains(diagnostic);
        let diagnostics: Vec<_> = error.diagnostics.iter().filter(new).cloned().collect();
        let messages: Vec<_> =
            error.messages.iter().filter(|message| !self.messages.contains(message)).cloned().collect();
        self.join(Self { diagnostics, messages });
    }

    /// Returns `value` if no error was collected, otherwise the errors.
    pub(crate) fn or<T>(self, value: T) -> Result<T> {
        if self.is_none() { Ok(value) } else { Err(self) }
    }

    /// Fails if there are diagnostics.
    pub(crate) fn check(diagnostics: Vec<Diagnostic>) -> Result<()> {
        Self { diagnostics, messages: Vec::new() }.or(())
    }

    /// Returns what cannot be bound in the kernel files. Empty if a tool failed instead.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Prints the error and ends the process with status 1, as a build script should.
    pub fn exit(&self) -> ! {
        eprintln!("{self}");
        std::process::exit(1)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The compilers' messages come first, because ours may only be a consequence.
        let diagnostics = self.diagnostics.iter().map(Diagnostic::to_string);
        let parts: Vec<_> = self.messages.iter().cloned().chain(diagnostics).collect();
        f.write_str(&parts.join("\n\n"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::message(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caret_stands_below_its_text() {
        let source = SourceFile::new("a.cu", "one\n\tint& r;\nlast");
        let d = source.diagnostic(8..9, "a reference", "write a pointer");
        assert_eq!((d.line, d.column), (2, 5));
        assert_eq!(
            d.to_string(),
            "a.cu:2:5: error: a reference\n    2 | \tint& r;\n      | \t   ^\n      = help: write a pointer"
        );
    }

    #[test]
    fn positions_count_characters() {
        let source = SourceFile::new("a.cu", "// é\nint x;");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(source.text.len()), (2, 7));
        assert_eq!(source.position("// é".len()), (1, 5));
    }
}
