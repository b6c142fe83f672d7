//! `cargo xtask device-header`: writes the page about the device header from the comments in it.
//!
//! A `///` comment in one of the [`HEADERS`] is an entry of the page. It documents the declarations below it, up to the next empty
//! line, or what its `Signature:` lines say if the text below reads badly (macros, one function per backend). `Threads:` says who
//! has to call a function, and `Shared memory:` what it uses of it. All other comments stay in the header. The `//` comment at a
//! header's beginning introduces its part of the page.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// Write the guide's page about `<gpustream/kernel.cuh>` from the comments of the headers
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check that the page is up to date
    #[arg(long)]
    check: bool,
}

/// The headers that `<gpustream/kernel.cuh>` includes, and those that a kernel includes too, in the page's order.
const HEADERS: [&str; 14] = [
    "for_each",
    "reduce",
    "warp",
    "atomics",
    "half",
    "wide",
    "grid",
    "cluster",
    "matrix",
    "async_copy",
    "matrix_block",
    "tensor_copy",
    "matrix_group",
    "backend",
];

const PAGE: &str = "crates/gpustream/src/guide/device_header.md";

const BEGIN: &str = "\
<!-- Written by `cargo xtask device-header` from the comments in kernels/include/gpustream. Change them, and run it again. -->

`#include <gpustream/kernel.cuh>` gives your kernels everything on this page but `matrix.cuh`, `async_copy.cuh`,
`matrix_block.cuh`, `tensor_copy.cuh` and `matrix_group.cuh`, which you include too. They work under nvcc, hipcc, NVRTC, HIPRTC
and the host compiler of the CPU backend. You can also include one header alone. Names are in the namespace `gs`, and macros begin
with `GS_`. What is not on this page is private to the headers, and may change.

**Threads** says which threads have to call a function. *Any* means that a thread may call it alone, and so inside of an `if`. If
all threads of a warp, a block or the grid have to call it, then the call must not depend on anything that differs between them.
A thread that has returned from the kernel is missing too, so let threads without work stay, and pass a value that changes nothing.
**Shared memory** says what a function uses of it. A function without such a line uses none.
";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (path, page) = (crate::workspace().join(PAGE), page()?);
    if !args.check {
        return std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()));
    }
    let old = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if old != page {
        bail!("{PAGE} is out of date: run `cargo xtask device-header`");
    }
    Ok(())
}

/// Returns the whole page.
fn page() -> anyhow::Result<String> {
    let mut page = BEGIN.to_owned();
    for name in HEADERS {
        let path: PathBuf = crate::workspace().join("kernels/include/gpustream").join(format!("{name}.cuh"));
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let part = part(&text).with_context(|| format!("in {name}.cuh"))?;
        write!(page, "\n# `{name}.cuh`\n\n{part}")?;
    }
    Ok(page)
}

/// Returns a header's part of the page, without its heading.
fn part(text: &str) -> anyhow::Result<String> {
    let introduction: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//")).collect();
    let mut part = paragraphs(&introduction);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(first) = line.strip_prefix("///") else { continue };
        let mut comment = vec![first];
        while let Some(next) = lines.peek().and_then(|line| line.strip_prefix("///")) {
            comment.push(next);
            lines.next();
        }
        let rest: Vec<&str> = lines.clone().collect();
        part += &Entry::read(&comment, &rest)?.render();
    }
    Ok(part)
}

/// One entry of the page.
#[derive(Default)]
struct Entry {
    signatures: Vec<String>,
    text: Vec<String>,
    threads: String,
    shared: String,
}

impl Entry {
    /// Reads a comment, and the declarations in the lines below it.
    fn read(comment: &[&str], below: &[&str]) -> anyhow::Result<Self> {
        let mut entry = Self::default();
        // What the lines belong to: nothing yet, the threads, or the shared memory.
        let mut label = "";
        for line in comment {
            let line = line.strip_prefix(' ').unwrap_or(line);
            if let Some(signature) = line.strip_prefix("Signature: ") {
                entry.signatures.push(signature.to_owned());
            } else if let Some(threads) = line.strip_prefix("Threads: ") {
                (entry.threads, label) = (threads.to_owned(), "threads");
            } else if let Some(shared) = line.strip_prefix("Shared memory: ") {
                (entry.shared, label) = (shared.to_owned(), "shared");
            } else {
                match label {
                    "" => entry.text.push(format!(" {line}")),
                    "threads" => entry.threads += &format!("\n  {line}"),
                    _ => entry.shared += &format!("\n  {line}"),
                }
            }
        }
        if entry.signatures.is_empty() {
            entry.signatures = declarations(below);
        }
        let Some(first) = entry.signatures.first() else {
            bail!("there is no declaration below the comment `{}`", comment.join(""));
        };
        if entry.threads.is_empty() && first.contains('(') && !first.contains("struct ") {
            bail!("the comment on `{first}` does not say `Threads:`, that is, which threads have to call it");
        }
        Ok(entry)
    }

    fn render(&self) -> String {
        let names: Vec<String> = self.signatures.iter().flat_map(|signature| names(signature)).collect();
        let mut unique: Vec<&String> = Vec::new();
        for name in &names {
            if !unique.contains(&name) {
                unique.push(name);
            }
        }
        let heading = unique.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let text: Vec<&str> = self.text.iter().map(String::as_str).collect();
        let mut rendered = format!("\n## {heading}\n\n");
        if self.signatures.iter().any(|signature| is_declaration(signature)) {
            rendered += &format!("```cpp\n{}\n```\n\n", self.signatures.join("\n"));
        }
        rendered += &paragraphs(&text);
        if !self.threads.is_empty() || !self.shared.is_empty() {
            rendered.push('\n');
        }
        for (label, what) in [("Threads", &self.threads), ("Shared memory", &self.shared)] {
            if !what.is_empty() {
                rendered += &format!("* **{label}:** {what}\n");
            }
        }
        rendered
    }
}

/// Returns the declarations in the first lines, up to an empty line or anything else that is none. Bodies are left out, and the
/// functions get their namespace.
fn declarations(lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = lines.iter();
    while let Some(first) = lines.next() {
        let is_macro = first.starts_with("#define ");
        if first.is_empty() || first.starts_with(['/', '}']) || (first.starts_with('#') && !is_macro) {
            break;
        }
        let mut text = (*first).to_owned();
        while !is_complete(&text, is_macro) {
            let Some(next) = lines.next() else { break };
            text = text + "\n" + next;
        }
        found.push(if is_macro {
            let end = text.find(')').map_or(text.len(), |at| at + 1);
            text["#define ".len()..end].to_owned()
        } else {
            let head = text[..text.find(['{', ';']).unwrap_or(text.len())].replace("GS_INLINE ", "");
            let head = head.split_whitespace().collect::<Vec<_>>().join(" ");
            let name = names(&head).concat();
            match name.strip_prefix("gs::").filter(|_| !head.contains("struct ")) {
                Some(plain) => head.replacen(&format!("{plain}("), &format!("{name}("), 1),
                None => head,
            }
        });
    }
    found
}

/// Returns true if a declaration has been read to its end.
fn is_complete(text: &str, is_macro: bool) -> bool {
    if is_macro {
        return !text.ends_with('\\');
    }
    let count = |brace: char| text.matches(brace).count();
    text.contains(['{', ';']) && count('{') == count('}')
}

fn is_declaration(signature: &str) -> bool {
    signature.contains('(') || signature.contains("struct ")
}

/// Returns the names that a signature declares. It may also be a list of names.
fn names(signature: &str) -> Vec<String> {
    if !is_declaration(signature) {
        return signature.split(", ").map(str::to_owned).collect();
    }
    let head = if signature.contains("struct ") {
        signature
    } else {
        signature.split('(').next().unwrap_or_default()
    };
    let name = head.rsplit([' ', '*']).next().unwrap_or_default();
    let name = name.strip_prefix("gs::").unwrap_or(name);
    vec![if name.starts_with("GS_") { name.to_owned() } else { format!("gs::{name}") }]
}

/// Returns the text of a comment in Markdown. Indented lines are code.
fn paragraphs(lines: &[&str]) -> String {
    let mut text = String::new();
    let mut in_code = false;
    for line in lines {
        let line = line.strip_prefix(' ').unwrap_or(line);
        let is_code = line.starts_with("  ");
        if is_code != in_code {
            text += if is_code { "```cpp\n" } else { "```\n" };
        }
        in_code = is_code;
        text += if is_code { line.strip_prefix("    ").unwrap_or(line) } else { line };
        text.push('\n');
    }
    if in_code {
        text += "```\n";
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_has_signatures_text_and_who_has_to_call() {
        let header = "// About sums.\n#ifndef X\n\n/// Returns a sum.\n///\n///     sum(1)\n///\n/// Threads: all of the\n/// block.\n\
                      /// Shared memory: none.\ntemplate <class T>\nGS_INLINE T sum(T x) {\n    return x;\n}\n\
                      GS_INLINE int sum_2(int) { return 2; }\n\n// Not this.\nGS_INLINE int other();\n\
                      /// Visits.\n/// Threads: any.\n#define GS_LOOP(i, n) \\\n    for (;;)\n#endif\n\
                      /// Operators.\nstruct Min {\n};\nstruct Max {\n};\n";
        let expected = "About sums.\n\n## `gs::sum`, `gs::sum_2`\n\n```cpp\ntemplate <class T> T gs::sum(T x)\nint gs::sum_2(int)\n```\n\n\
                        Returns a sum.\n\n```cpp\nsum(1)\n```\n\n* **Threads:** all of the\n  block.\n* **Shared memory:** none.\n\
                        \n## `GS_LOOP`\n\n```cpp\nGS_LOOP(i, n)\n```\n\nVisits.\n\n* **Threads:** any.\n\
                        \n## `gs::Min`, `gs::Max`\n\n```cpp\nstruct Min\nstruct Max\n```\n\nOperators.\n";
        assert_eq!(part(header).unwrap(), expected);
    }

    #[test]
    fn functions_have_to_say_who_calls_them() {
        let error = part("/// Returns a sum.\nGS_INLINE int sum();\n").unwrap_err().to_string();
        assert!(error.contains("`int gs::sum()` does not say `Threads:`"), "{error}");
        assert!(
            part("/// Nothing.\n\nGS_INLINE int sum();\n")
                .unwrap_err()
                .to_string()
                .contains("no declaration")
        );
    }

    /// The kernels' documentation is this page, so it must say what the headers say.
    #[test]
    fn page_is_up_to_date() {
        run(&Args { check: true }).unwrap();
    }
}
