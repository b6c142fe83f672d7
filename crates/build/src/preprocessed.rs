//! What a compiler's preprocessor leaves of a file.
//!
//! Many kernels of real programs are not written out. Macros make them, an `#if` decides about them, or they are in a
//! header:
//!
//! ```cpp
//! #define OP(T, NAME, EXPR) extern "C" __global__ void NAME(T* x) { T v = x[threadIdx.x]; x[threadIdx.x] = EXPR; }
//! OP(float, square, v * v)
//! ```
//!
//! To read them as the compiler does, we ask the compiler what it sees. `c++ -E` prints megabytes, because it includes the
//! system's headers, with a *marker* such as `# 12 "ops.cuh" 1` wherever the file changes. This module keeps the rows from
//! your own files, and writes an `#include` again for each header of the system. So the result is a short text that the
//! parser can read and that a compiler can compile, and [`Origin`] knows the place of each row.
//!
//! Two things are not as a preprocessor leaves them. The words of CUDA, such as `__global__`, must not be expanded,
//! because the parser looks for them; [`kept_words`] has the directives for that. And `#define`s stay, because system
//! headers that follow may depend on them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Origin, OriginFile, SourceFile, quoted, text};
use crate::headers;
use crate::names::places_of;
use crate::parse::without_comments;

/// The words of CUDA that vendors' headers and ours define as macros, without and with arguments.
const WORDS: [&str; 11] = [
    "__global__",
    "__device__",
    "__host__",
    "__constant__",
    "__shared__",
    "__managed__",
    "__grid_constant__",
    "__forceinline__",
    "__noinline__",
    "__restrict__",
    "__inline_hint__",
];
const WORDS_WITH_ARGUMENTS: [&str; 6] = [
    "__launch_bounds__",
    "__cluster_dims__",
    "__block_size__",
    "__maxnreg__",
    "__align__",
    "__builtin_align__",
];

/// Which headers are yours.
pub(crate) struct Own {
    /// Your headers, with links resolved.
    pub(crate) headers: BTreeSet<PathBuf>,
    /// Folders whose headers are yours.
    pub(crate) folders: Vec<PathBuf>,
}

impl Own {
    fn has(&self, path: &Path) -> bool {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.headers.contains(&path) || self.folders.iter().any(|folder| path.starts_with(folder))
    }
}

/// Returns directives after which a preprocessor leaves CUDA's words and our own macros as they are. A macro that stands
/// for itself still counts as defined. Macros that are numbers may be expanded: the parser does not look for them.
pub(crate) fn kept_words() -> String {
    let mut kept = String::new();
    let mut keep = |name: &str, arguments: bool| {
        let list = if arguments { ("(...)", "(__VA_ARGS__)") } else { ("", "") };
        kept.push_str(&format!(
            "#ifdef {name}\n#undef {name}\n#define {name}{} {name}{}\n#endif\n",
            list.0, list.1
        ));
    };
    for name in WORDS {
        keep(name, false);
    }
    for name in WORDS_WITH_ARGUMENTS {
        keep(name, true);
    }
    for line in headers::texts().flat_map(str::lines) {
        let Some(rest) = line.trim_start().strip_prefix('#').map(str::trim_start) else { continue };
        let Some(rest) = rest.strip_prefix("define ").map(str::trim_start) else { continue };
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, value) = rest.split_at(end);
        let is_guard = value.trim().is_empty() && (name.ends_with("_CUH") || name.ends_with("_H"));
        let is_number = value.trim_start().starts_with(|c: char| c.is_ascii_digit());
        if !is_guard && !is_number && !name.starts_with("__has_") {
            keep(name, value.starts_with('('));
        }
    }
    kept
}

/// Reads a preprocessor's output. `main` is the kernel file's absolute path, and `shown` the path as you named it.
pub(crate) fn read(output: Vec<u8>, main: &Path, shown: &Path, own: &Own) -> SourceFile {
    let output = text(output);
    let code = without_comments(&output);
    let mut reader = Reader { main, shown, own, stack: Vec::new(), line: 0, writer: Writer::default() };
    let mut at = 0;
    for row in output.split_inclusive('\n') {
        let of_code = &code[at..at + row.len()];
        at += row.len();
        reader.row(row.trim_end_matches(['\n', '\r']), of_code.trim_end_matches(['\n', '\r']));
    }
    let mut writer = reader.writer;
    writer.end();
    SourceFile::preprocessed(shown, writer.text, writer.origin)
}

/// A file that the preprocessor is in.
struct Open {
    path: String,
    /// Its index in [`Origin::files`]; `None` if it is not yours.
    own: Option<usize>,
}

struct Reader<'a> {
    main: &'a Path,
    shown: &'a Path,
    own: &'a Own,
    stack: Vec<Open>,
    /// The line of the next row in the innermost file.
    line: usize,
    writer: Writer,
}

/// A line such as `# 12 "ops.cuh" 1 3`.
struct Marker {
    line: usize,
    path: String,
    enters: bool,
    returns: bool,
    of_system: bool,
}

impl Marker {
    fn read(row: &str) -> Option<Self> {
        let (line, rest) = row.strip_prefix("# ")?.split_once(" \"")?;
        let (path, flags) = rest.rsplit_once('"')?;
        let has = |flag: &str| flags.split_whitespace().any(|other| other == flag);
        Some(Self {
            line: line.parse().ok()?,
            path: path.replace("\\\"", "\"").replace("\\\\", "\\"),
            enters: has("1"),
            returns: has("2"),
            of_system: has("3"),
        })
    }
}

impl Reader<'_> {
    fn row(&mut self, row: &str, code: &str) {
        if let Some(marker) = Marker::read(row) {
            return self.marker(marker);
        }
        let line = self.line;
        self.line += 1;
        let Some(file) = self.stack.last().and_then(|open| open.own) else { return };
        let directive = code.trim_start().strip_prefix('#').map(str::trim_start);
        match directive {
            Some(directive) if is_circular(directive) => {}
            Some(_) => self.writer.directive(file, line, row.trim()),
            None if row.trim().is_empty() => {}
            None => self.writer.write(file, line, row, code),
        }
    }

    fn marker(&mut self, marker: Marker) {
        if marker.enters || self.stack.is_empty() {
            let own = self.file(&marker);
            self.stack.push(Open { path: marker.path, own });
        } else if marker.returns {
            let mut left = None;
            while self.stack.len() > 1 && self.stack.last().is_some_and(|open| open.path != marker.path) {
                left = self.stack.pop();
            }
            let into = self.stack.last().and_then(|open| open.own);
            if let (Some(Open { path, own: None }), Some(file)) = (left, into) {
                self.include(file, marker.line.saturating_sub(1), &path);
            }
        } else if let Some(open) = self.stack.last_mut()
            && open.path != marker.path
        {
            // A `#line` of the file, or the start of the whole.
            *open = Open { own: open.own.filter(|_| !marker.path.starts_with('<')), path: marker.path };
        }
        self.line = marker.line;
    }

    /// Returns the index of the file that a marker enters, if it is yours.
    fn file(&mut self, marker: &Marker) -> Option<usize> {
        let path = Path::new(&marker.path);
        let around = self.stack.last().and_then(|open| open.own);
        let files = &mut self.writer.origin.files;
        // After `#pragma GCC system_header`, what a header includes counts as the system's too.
        let is_system =
            || marker.of_system && around.is_none_or(|around| files[around].path.parent() != path.parent());
        if path != self.main && (around.is_none() || is_system() || !self.own.has(path)) {
            return None;
        }
        if let Some(known) = files.iter().position(|file| file.path == path) {
            return Some(known);
        }
        let lines = std::fs::read(path).map(text).unwrap_or_default();
        files.push(OriginFile {
            path: path.to_owned(),
            shown: if path == self.main { self.shown.to_owned() } else { path.to_owned() },
            lines: lines.lines().map(str::to_owned).collect(),
        });
        Some(files.len() - 1)
    }

    /// Writes an `#include` of yours again. If a macro stands for the name there, names the header by its path.
    fn include(&mut self, file: usize, line: usize, header: &str) {
        let written = self.writer.origin.files[file].lines.get(line.wrapping_sub(1));
        let written = written.map(|line| line.trim()).unwrap_or_default();
        let name = written.strip_prefix('#').map(str::trim_start);
        let name = name.and_then(|rest| rest.strip_prefix("include")).map(str::trim_start);
        let end = name.and_then(|name| match name.chars().next()? {
            '<' => name.find('>'),
            '"' => name[1..].find('"').map(|at| at + 1),
            _ => None,
        });
        let name = match (name, end) {
            (Some(name), Some(end)) => name[..=end].to_owned(),
            _ => format!("\"{}\"", quoted(header)),
        };
        self.writer.directive(file, line, &format!("#include {name}"));
    }
}

/// Returns true if a macro's text mentions the macro itself. If we kept it, the text would be expanded again.
fn is_circular(directive: &str) -> bool {
    let Some(rest) = directive.strip_prefix("define").map(str::trim_start) else { return false };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, value) = rest.split_at(end);
    places_of(value, name).next().is_some()
}

/// The text while we write it. Compilers count its lines, and we keep their count in step with your files: by empty rows,
/// by several lines in one row, and where that does not suffice, by a `#line` between two declarations.
#[derive(Default)]
struct Writer {
    text: String,
    origin: Origin,
    /// The file and line that compilers take the last row for.
    file: Option<usize>,
    line: usize,
    /// True if nothing may follow in this row.
    closed: bool,
    code: Nesting,
}

/// What is open at the end of the text.
#[derive(Default)]
struct Nesting {
    /// For each brace, true if declarations may stand in it.
    braces: Vec<bool>,
    parentheses: usize,
    /// The code since the last brace or semicolon.
    head: String,
}

impl Nesting {
    fn add(&mut self, code: &str) {
        for c in code.chars() {
            match c {
                '{' => {
                    let outer = self.is_outside();
                    let head = self.head.trim_start();
                    let opens = places_of(head, "namespace").next().is_some()
                        || places_of(head, "extern").next().is_some() && !head.contains('(');
                    self.braces.push(outer && opens);
                }
                '}' => drop(self.braces.pop()),
                '(' => self.parentheses += 1,
                ')' => self.parentheses = self.parentheses.saturating_sub(1),
                _ => {}
            }
            match c {
                '{' | '}' | ';' => self.head.clear(),
                c => self.head.push(c),
            }
        }
        self.head.push(' ');
    }

    fn is_outside(&self) -> bool {
        self.parentheses == 0 && self.braces.iter().all(|&outside| outside)
    }

    /// Returns true if a declaration may begin here.
    fn is_between(&self) -> bool {
        self.is_outside() && self.head.trim().is_empty()
    }
}

impl Writer {
    /// Writes a row of a file.
    fn write(&mut self, file: usize, line: usize, row: &str, code: &str) {
        self.go_to(file, line, false);
        self.text.push_str(row);
        self.code.add(code);
        self.closed = row.contains("//");
    }

    fn directive(&mut self, file: usize, line: usize, directive: &str) {
        self.go_to(file, line, true);
        self.text.push_str(directive);
        self.closed = true;
    }

    /// Begins the next row, which comes from this place.
    fn next(&mut self, file: usize, line: usize) {
        self.text.push('\n');
        self.origin.rows.push((file, line));
        self.line += 1;
        self.closed = false;
    }

    /// Goes to a line of a file, as far as compilers can follow.
    fn go_to(&mut self, file: usize, line: usize, alone: bool) {
        if self.file.is_none() {
            self.origin.rows.push((file, 1));
            (self.file, self.line) = (Some(file), 1);
        }
        let same = self.file == Some(file);
        if same && line > self.line {
            while self.line < line {
                self.next(file, self.line + 1);
            }
        } else if self.code.is_between() && (!same || line < self.line) {
            let path = quoted(&self.origin.files[file].path.display().to_string());
            if !self.is_new_row() {
                self.next(file, line);
            }
            self.text.push_str(&format!("#line {line} \"{path}\""));
            self.next(file, line);
            (self.file, self.line) = (Some(file), line);
        } else if self.closed || alone && !self.is_new_row() {
            self.next(file, line);
        } else if !self.is_new_row() {
            self.text.push(' ');
        }
    }

    fn is_new_row(&self) -> bool {
        self.text.is_empty() || self.text.ends_with('\n')
    }

    fn end(&mut self) {
        if let Some(file) = self.file {
            self.next(file, self.line + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Own {
        Own { headers: BTreeSet::new(), folders: vec![PathBuf::from("/own")] }
    }

    #[track_caller]
    fn check(output: &str, wanted: &str) {
        let source = read(output.into(), Path::new("/own/k.cu"), Path::new("k.cu"), &own());
        assert_eq!(source.text, wanted);
    }

    #[test]
    fn headers_of_the_system_become_includes_again() {
        let output = "# 1 \"/out/k.cpp\"\nint ours;\n# 1 \"/own/k.cu\" 1\n// one\n\n# 1 \"/usr/include/cmath\" 1 3\nint sqrt;\n\
            # 4 \"/own/k.cu\" 2\nint four;\n# 5 \"/out/k.cpp\" 2\nint ours;\n";
        check(output, "// one\n\n#include \"/usr/include/cmath\"\nint four;\n");
    }

    #[test]
    fn your_headers_are_written_out() {
        let output =
            "# 1 \"/own/k.cu\" 1\nint one;\n# 1 \"/own/a.cuh\" 1\nint a;\n# 3 \"/own/k.cu\" 2\nint three;\n";
        check(output, "int one;\n#line 1 \"/own/a.cuh\"\nint a;\n#line 3 \"/own/k.cu\"\nint three;\n");
        let table = "# 1 \"/own/k.cu\" 1\nint t[] = {\n# 1 \"/own/a.inc\" 1\n1,\n2\n# 3 \"/own/k.cu\" 2\n};\nint four;\n";
        check(table, "int t[] = { 1, 2\n\n};\nint four;\n");
    }

    #[test]
    fn what_a_macro_breaks_apart_is_one_row_again() {
        let output = "# 1 \"/own/k.cu\" 1\nvoid f() { g(\n# 1 \"/own/k.cu\" 3 4\n(1 / 0.f)\n# 1 \"/own/k.cu\"\n); }\nint two;\n";
        check(output, "void f() { g( (1 / 0.f) ); }\nint two;\n");
        let pragma = "# 1 \"/own/k.cu\" 1\nvoid f() {\n# 1 \"/own/k.cu\"\n#pragma unroll\n# 1 \"/own/k.cu\"\nfor (;;) {} }\nint two;\n";
        check(pragma, "void f() {\n#pragma unroll\nfor (;;) {} }\n#line 2 \"/own/k.cu\"\nint two;\n");
    }

    #[test]
    fn macros_stay_unless_they_name_themselves() {
        check(
            "# 1 \"/own/k.cu\" 1\n#define N 3\n#define x s.x\n#undef N\nint four;\n",
            "#define N 3\n\n#undef N\nint four;\n",
        );
    }

    #[test]
    fn places_are_those_of_the_files() {
        let output =
            "# 1 \"/own/k.cu\" 1\nint one;\n# 1 \"/own/a.cuh\" 1\nint a;\n# 3 \"/own/k.cu\" 2\nint three;\n";
        let source = read(output.into(), Path::new("/own/k.cu"), Path::new("k.cu"), &own());
        let place = |word: &str| {
            let at = source.text.find(word).unwrap();
            (source.path_of(at).to_owned(), source.position(at).0)
        };
        assert_eq!(place("one"), ("k.cu".into(), 1));
        assert_eq!(place("a;"), ("/own/a.cuh".into(), 1));
        assert_eq!(place("three"), ("k.cu".into(), 3));
    }
}
