//! The text that we read types from: macros, conditions and includes of a file and your headers.
//!
//! This is not a preprocessor, because it expands nothing. It follows `#include`, notes every `#define`, and
//! drops what an `#if` excludes, if the condition depends only on your own macros. A macro counts as
//! undefined if neither the files nor the build's options define it, unless its name looks like one that
//! compilers or vendors define. If we guess wrong, the build fails, because each compiler asserts the
//! resulting types.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use tree_sitter::{Node, Tree};

use super::constants::{Name, evaluate};
use super::shared::HIP_DYNAMIC_SHARED;
use super::tree;
use crate::diagnostic::{Result, SourceFile};
use crate::headers::{Included, includes};
use crate::names::places_of;

/// One of your headers.
pub(crate) struct Helper {
    pub(crate) source: SourceFile,
    /// Where the file and its headers include this one.
    pub(crate) included: Vec<Included>,
}

impl Helper {
    fn is_included(&self, by: &Path, written: &str) -> bool {
        self.included.iter().any(|included| included.by == by && included.written == written)
    }
}

/// One file, as we read its types.
pub(super) struct Part<'s> {
    pub(super) source: &'s SourceFile,
    /// The syntax tree of the text that no `#if` excludes. Offsets are the file's own.
    pub(super) tree: Tree,
}

/// The trees that we have parsed so far, by their text. A header that a macro does not change is not parsed again.
#[derive(Default)]
pub(super) struct Trees(RefCell<HashMap<String, Tree>>);

impl Trees {
    fn of(&self, text: &str) -> Result<Tree> {
        if let Some(tree) = self.0.borrow().get(text) {
            return Ok(tree.clone());
        }
        let tree = tree(&readable(text))?;
        self.0.borrow_mut().insert(text.to_owned(), tree.clone());
        Ok(tree)
    }
}

/// The file and the headers that it includes. Each comes before the file that includes it.
#[derive(Default)]
pub(super) struct Parts<'s> {
    pub(super) files: Vec<Part<'s>>,
    pub(super) macros: Macros,
    /// Quoted headers that we did not find.
    pub(super) missing: Vec<String>,
    /// True if an `#if` excludes a kernel.
    pub(super) left_out_kernel: bool,
}

/// What all `#define`s say.
#[derive(Default)]
pub(super) struct Macros {
    /// The macros at the current place of the text. Macros with parameters have no value.
    current: HashMap<String, Option<String>>,
    /// All macros; `None` for a macro with parameters or several values.
    all: HashMap<String, Option<String>>,
    /// Names in conditions that we took to be undefined.
    assumed: RefCell<BTreeSet<String>>,
}

/// How deeply macros may stand for macros before we give up on an expression.
const MAX_DEPTH: usize = 32;

impl Macros {
    /// Returns the text that a macro stands for, wherever it is defined.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.all.get(name)?.as_deref()
    }

    fn define(&mut self, name: &str, value: Option<String>) {
        let known = self.all.entry(name.to_owned()).or_insert_with(|| value.clone());
        if *known != value {
            *known = None;
        }
        self.current.insert(name.to_owned(), value);
    }

    /// Returns the value of an `#if`, or `None` if it depends on the compiler and we cannot know.
    fn condition(&self, text: &str, depth: usize) -> Option<i128> {
        if depth > MAX_DEPTH {
            return None;
        }
        evaluate(text, &mut |name| match name {
            Name::Defined(name) => self.is_defined(name),
            Name::Value(name) => match self.current.get(name) {
                Some(value) => self.condition(value.as_deref()?, depth + 1),
                None => self.undefined(name),
            },
            Name::Size(_) => None,
        })
    }

    fn is_defined(&self, name: &str) -> Option<i128> {
        if self.current.contains_key(name) { Some(1) } else { self.undefined(name) }
    }

    /// Returns the value of a name that no file defines.
    fn undefined(&self, name: &str) -> Option<i128> {
        if is_foreign(name) {
            return None;
        }
        self.assumed.borrow_mut().insert(name.to_owned());
        Some(0)
    }

    /// Returns the names that must not be defined when a compiler reads the file, because we read it as if
    /// they were not.
    pub(super) fn assumed(&self) -> Vec<String> {
        let assumed = self.assumed.borrow();
        let plain = |name: &&String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assumed.iter().filter(|name| !self.all.contains_key(*name)).filter(plain).cloned().collect()
    }
}

/// Returns true if compilers, vendors' headers or our own may define a macro of this name.
fn is_foreign(name: &str) -> bool {
    const PREFIXES: [&str; 22] = [
        "_",
        "CUDA",
        "CUDNN",
        "CUB_",
        "HIP",
        "ROCM",
        "THRUST",
        "NV",
        "GS_",
        "GPUSTREAM",
        "M_",
        "INT",
        "UINT",
        "CHAR_",
        "SCHAR_",
        "UCHAR_",
        "SHRT_",
        "LONG_",
        "ULONG_",
        "FLT_",
        "DBL_",
        "SIZE_MAX",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

impl<'s> Parts<'s> {
    /// Reads `source` and the `helpers` that it includes, in the same order as a compiler. `defines` come
    /// from the build script. `trees` has what earlier calls have parsed.
    pub(super) fn read(
        source: &'s SourceFile,
        helpers: &'s [Helper],
        defines: &[(String, Option<String>)],
        trees: &Trees,
    ) -> Result<Self> {
        let mut parts = Self::default();
        for (name, value) in defines {
            parts.macros.define(name, Some(value.clone().unwrap_or_else(|| "1".to_owned())));
        }
        parts.include(source, helpers, trees, &mut HashSet::new())?;
        Ok(parts)
    }

    /// Returns the root node of the file itself.
    pub(super) fn root(&self) -> Node<'_> {
        // The file itself is read last.
        self.files[self.files.len() - 1].tree.root_node()
    }

    fn include(
        &mut self,
        source: &'s SourceFile,
        helpers: &'s [Helper],
        trees: &Trees,
        seen: &mut HashSet<&'s Path>,
    ) -> Result<()> {
        let text = &source.text;
        let code = without_comments(text);
        let mut kept = text.clone().into_bytes();
        let mut conditions: Vec<Condition> = Vec::new();
        let mut at = 0;
        while at < code.len() {
            let end = logical_line(&code, at);
            let line = &code[at..end];
            let active = conditions.iter().all(|condition| condition.active);
            match line.trim_start().strip_prefix('#').map(str::trim_start) {
                Some(directive) => {
                    let directive = directive.replace("\\\n", " ").replace("\\\r\n", " ");
                    if let Some(known) = self.conditional(&directive, &mut conditions, active) {
                        if known {
                            blank(&mut kept[at..end]);
                        }
                    } else if active && directive.starts_with("include") {
                        // File names look like strings and comments, so we read them from the original text.
                        let line = &text[at..end];
                        for written in includes(line).map(|at| &line[at]) {
                            let helper = helpers.iter().find(|h| h.is_included(&source.path, written));
                            match helper {
                                Some(helper) if seen.insert(&helper.source.path) => {
                                    self.include(&helper.source, helpers, trees, seen)?;
                                }
                                None if written.starts_with('"') && !written.starts_with("\"gpustream/") => {
                                    self.missing.push(written.trim_matches('"').to_owned());
                                }
                                _ => {}
                            }
                        }
                    } else if active {
                        self.directive(&directive);
                    }
                }
                None if !active => {
                    self.left_out_kernel |= line.contains("__global__");
                    blank(&mut kept[at..end]);
                }
                None => {}
            }
            at = end;
        }
        // We only replaced whole lines, and only with spaces.
        let kept = String::from_utf8_lossy(&kept);
        self.files.push(Part { source, tree: trees.of(&kept)? });
        Ok(())
    }

    /// Follows a directive that begins, continues or ends a condition. Returns whether we know its outcome,
    /// or `None` for any other directive.
    fn conditional(&self, directive: &str, open: &mut Vec<Condition>, active: bool) -> Option<bool> {
        let word = directive.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(directive.len());
        let (word, rest) = directive.split_at(word);
        let negated = |value: Option<i128>| value.map(|value| i128::from(value == 0));
        let opened = match word {
            "if" => self.macros.condition(rest, 0),
            "ifdef" => self.macros.is_defined(rest.trim()),
            "ifndef" => negated(self.macros.is_defined(rest.trim())),
            "elif" | "else" => {
                let last = open.last_mut()?;
                last.next(match word {
                    _ if last.taken => Some(0),
                    "elif" => self.macros.condition(rest, 0),
                    _ => Some(1),
                });
                return Some(last.known);
            }
            "endif" => return Some(open.pop()?.known),
            _ => return None,
        };
        // Inside excluded text, everything is excluded.
        let opened = if active { opened } else { Some(0) };
        let mut condition = Condition { active: true, taken: false, known: true };
        condition.next(opened);
        open.push(condition);
        Some(opened.is_some())
    }

    fn directive(&mut self, directive: &str) {
        if let Some(rest) = directive.strip_prefix("define") {
            let rest = rest.trim_start();
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, value) = rest.split_at(end);
            let value =
                (!value.starts_with('(')).then(|| value.split_whitespace().collect::<Vec<_>>().join(" "));
            if !name.is_empty() {
                self.macros.define(name, value);
            }
        } else if let Some(rest) = directive.strip_prefix("undef") {
            self.macros.current.remove(rest.trim());
        }
    }
}

/// An `#if` that is still open.
struct Condition {
    /// True if the text of this branch counts.
    active: bool,
    /// True if an earlier branch was definitely taken.
    taken: bool,
    /// True if we knew every condition so far.
    known: bool,
}

impl Condition {
    /// Begins the next branch. It is taken if `value` is true and no earlier branch was.
    fn next(&mut self, value: Option<i128>) {
        self.known &= value.is_some();
        self.active = value != Some(0);
        // After a condition that only compilers know, we can be certain of no branch.
        self.taken |= self.known && self.active;
    }
}

/// Returns the end of the line that begins at `start`, including continuation lines.
fn logical_line(text: &str, start: usize) -> usize {
    let mut at = start;
    loop {
        let Some(end) = text[at..].find('\n').map(|end| at + end + 1) else { return text.len() };
        if !text[at..end].trim_end_matches(['\n', '\r']).ends_with('\\') {
            return end;
        }
        at = end;
    }
}

/// Replaces everything except line breaks with spaces.
fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// Returns the text with comments and the contents of strings replaced by spaces. Offsets stay the same.
pub(crate) fn without_comments(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (end, skip) = match &bytes[at..] {
            [b'/', b'/', ..] => (find(&bytes, at, b"\n").unwrap_or(bytes.len()), 0),
            [b'/', b'*', ..] => (find(&bytes, at + 2, b"*/").map_or(bytes.len(), |end| end + 2), 0),
            [quote @ (b'"' | b'\''), ..] => {
                let mut end = at + 1;
                while end < bytes.len() && bytes[end] != *quote && bytes[end] != b'\n' {
                    end += if bytes[end] == b'\\' && bytes.get(end + 1) != Some(&b'\n') { 2 } else { 1 };
                }
                // The quote in a number such as 1'000 begins no character literal.
                (end.min(bytes.len()), 1)
            }
            _ => {
                at += 1;
                continue;
            }
        };
        blank(&mut bytes[(at + skip).min(end)..end]);
        at = (end + skip).max(at + 1);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|at| from + at)
}

/// Words that the grammar does not know and that change no type. The flag says whether the word takes an
/// argument in parentheses.
const UNREAD: [(&str, bool); 9] = [
    ("GS_INLINE", false),
    ("GS_GROUP", false),
    (HIP_DYNAMIC_SHARED, true),
    ("__restrict__", false),
    ("__restrict", false),
    ("restrict", false),
    ("__align__", true),
    ("alignas", true),
    ("__attribute__", true),
];

const LAUNCH_BOUNDS: &str = "__launch_bounds__";

/// Returns the text with spaces in place of words that confuse the grammar. Offsets stay the same.
pub(crate) fn readable(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (word, argument) in UNREAD {
        for at in places_of(text, word) {
            let end = at + word.len();
            let end = if argument { closing(text, end) } else { Some(end) };
            if let Some(end) = end {
                blank(&mut bytes[at..end]);
            }
        }
    }
    // The grammar only knows two arguments of `__launch_bounds__`. The third, about clusters, comes last.
    for at in places_of(text, LAUNCH_BOUNDS) {
        let start = at + LAUNCH_BOUNDS.len();
        let Some(end) = closing(text, start) else { continue };
        let mut depth = 0;
        let commas = text[start..end].char_indices().filter(|(_, c)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            *c == ',' && depth == 1
        });
        if let [_, .., (last, _)] = commas.collect::<Vec<_>>()[..] {
            blank(&mut bytes[start + last..end - 1]);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the end of the parentheses that begin after `from` on the same line.
pub(super) fn closing(text: &str, from: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text[from..].char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some(from + at + 1),
            ')' => depth -= 1,
            '\n' => return None,
            c if depth == 0 && !c.is_whitespace() => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::descendants;
    use super::*;

    fn kept(text: &str, defines: &[(&str, &str)]) -> String {
        let source = SourceFile::new("k.cu", text);
        let defines: Vec<_> = defines.iter().map(|(n, v)| ((*n).to_owned(), Some((*v).to_owned()))).collect();
        let parts = Parts::read(&source, &[], &defines, &Trees::default()).unwrap();
        let root = parts.files[0].tree.root_node();
        let names = descendants(root).filter(|node| {
            node.kind() == "identifier" && node.parent().is_some_and(|p| p.kind() == "declaration")
        });
        names.map(|node| &text[node.byte_range()]).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn conditions_on_the_users_own_macros_choose_a_branch() {
        let text =
            "#if defined(DOUBLE) // or not\nint d;\n#elif SIZE == 2\nint two;\n#else\nint other;\n#endif\n";
        assert_eq!(kept(text, &[]), "other");
        assert_eq!(kept(text, &[("DOUBLE", "1")]), "d");
        assert_eq!(kept(text, &[("SIZE", "2")]), "two");
        assert_eq!(kept(&format!("#define SIZE (1 + 1)\n{text}"), &[]), "two");
        assert_eq!(kept(&format!("/*\n#define SIZE 2\n*/\n{text}"), &[]), "other");
        let nested = "#ifdef A\n#if B\nint x;\n#else\nint y;\n#endif\n#else\nint z;\n#endif\n";
        assert_eq!(kept(nested, &[]), "z");
        assert_eq!(kept(nested, &[("A", "1")]), "y");
    }

    #[test]
    fn conditions_of_compilers_keep_every_branch() {
        assert_eq!(kept("#ifdef __CUDACC__\nint a;\n#else\nint b;\n#endif\n", &[]), "a b");
        assert_eq!(kept("#if CUDA_VERSION > 1 && 0\nint a;\n#else\nint b;\n#endif\n", &[]), "b");
    }

    proptest! {
        #[test]
        fn any_text_keeps_its_offsets(text: String) {
            prop_assert_eq!(readable(&text).len(), text.len());
            prop_assert_eq!(without_comments(&text).len(), text.len());
        }

        #[test]
        fn any_directives_end_in_an_answer(lines in prop::collection::vec(
            prop::sample::select(vec!["#if A\n", "#ifdef A\n", "#ifndef é\n", "#elif 1\n", "#else\n", "#endif\n", "#define A A\n",
                "#define A 1 \\\n", "#undef A\n", "#include \"a.h\"\n", "\"é\\", "'", "/*", "*/", "__align__(", ")", "struct S {};\n"]), 0..24)
        ) {
            let source = SourceFile::new("k.cu", lines.concat());
            let _ = Parts::read(&source, &[], &[], &Trees::default());
        }
    }
}
