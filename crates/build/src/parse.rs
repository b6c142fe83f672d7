//! Reads kernels from a `.cu` file.
//!
//! We do not expand macros: a macro may stand for a type or a number, and types may come from your own headers, but each
//! kernel must be written out. If a file has kernels that are not, we read it again as the compiler's preprocessor leaves
//! it ([`crate::preprocessed`]). The rest of the file may use all of C++.

pub(crate) mod constants;
mod declared;
mod dependent_types;
mod device_part;
mod doc;
mod enums;
mod globals;
mod kernel;
pub(crate) mod kernel_templates;
mod launches;
mod preprocess;
mod promises;
mod read_only;
mod shared;
mod struct_templates;
mod structs;
mod types;
mod uses;

use std::collections::{BTreeSet, HashSet};

pub(crate) use preprocess::{Helper, readable, without_comments};
pub(crate) use shared::hip_arrays;
use tree_sitter::{Node, Tree, TreeCursor};

pub(crate) use self::device_part::{device_part, has_host_code};
pub(crate) use self::uses::{identifiers, reach};
use crate::diagnostic::{Diagnostic, Error, Result, SourceFile};
use crate::signature::Module;

/// What the build script says about all files.
#[derive(Clone, Copy, Default)]
pub(crate) struct Script<'a> {
    /// The macros from the build's options.
    pub(crate) defines: &'a [(String, Option<String>)],
    /// The template instances to compile.
    pub(crate) instances: &'a [String],
    /// Lines of contracts, each with its kernel's name.
    pub(crate) contracts: &'a [(String, SourceFile)],
    /// True if programs find kernels by their names, so that no kernel needs a launcher.
    pub(crate) by_name: bool,
    /// True if the compiler reads the host code too and instantiates templates for it, so that kernels need not be named here.
    pub(crate) host_instantiates: bool,
    /// True if the file will be read again, preprocessed. Then we do not look for the macros that make no difference.
    pub(crate) is_first: bool,
}

/// Parses a file, or returns every reason why it cannot be bound. `headers` are your own. We read them for
/// types, and to see which of their functions loop with `GS_FOR_EACH` or reach a grid barrier.
pub(crate) fn parse(source: &SourceFile, headers: &[Helper], script: Script<'_>) -> Result<Module> {
    let texts = Texts::new(source, headers)?;
    let mut module = texts.read(script.defines, script)?;
    if script.is_first || module.uninstantiated {
        return Ok(module);
    }
    let assumed = std::mem::take(&mut module.assumed);
    // Headers that we do not read define macros too. If a macro makes no difference to the result, it may be
    // defined there, so we do not insist that it is undefined.
    let changes = |names: &[String]| {
        let names = names.iter().map(|name| (name.clone(), None));
        let defines: Vec<_> = script.defines.iter().cloned().chain(names).collect();
        let other = texts.read(&defines, script);
        other.map_or(true, |other| Module { assumed: Vec::new(), ..other } != module)
    };
    let (mut told, rest): (Vec<_>, Vec<_>) =
        assumed.into_iter().partition(|name| changes(std::slice::from_ref(name)));
    if rest.len() > 1 && changes(&rest) {
        told.extend(rest);
    }
    module.assumed = told;
    module.read_only = texts.read_only()?;
    Ok(module)
}

/// A file and its headers. We read them several times, with other macros each time, so we keep what stays the same.
struct Texts<'a> {
    source: &'a SourceFile,
    headers: &'a [Helper],
    /// The headers as they are, with every branch of every `#if`.
    trees: Vec<(&'a str, Tree)>,
    /// What we found in the headers. The file's own uses and `extern __shared__` arrays are added in each reading.
    uses: uses::Uses,
    dynamic_shared: BTreeSet<String>,
    /// What [`preprocess`] made of the texts.
    kept: preprocess::Trees,
}

impl<'a> Texts<'a> {
    fn new(source: &'a SourceFile, headers: &'a [Helper]) -> Result<Self> {
        let texts = headers.iter().map(|header| &*header.source.text);
        let trees = texts.map(|text| Ok((text, tree(text)?))).collect::<Result<Vec<_>>>()?;
        let mut uses = uses::Uses::default();
        let mut dynamic_shared = BTreeSet::new();
        for (text, tree) in &trees {
            uses.gather(text, tree.root_node());
            shared::dynamic_arrays(text, tree.root_node(), &mut dynamic_shared);
        }
        Ok(Self { source, headers, trees, uses, dynamic_shared, kept: preprocess::Trees::default() })
    }

    /// Returns the variables that kernels only read, in every branch of every `#if`.
    fn read_only(&self) -> Result<Vec<String>> {
        let own = tree(&self.source.text)?;
        let headers = self.trees.iter().map(|(text, tree)| (*text, tree.root_node()));
        let texts: Vec<_> = headers.chain([(&*self.source.text, own.root_node())]).collect();
        Ok(read_only::paths(&texts))
    }

    /// Parses the file like [`parse`] does, assuming that every unknown macro is undefined.
    fn read(&self, defines: &[(String, Option<String>)], script: Script<'_>) -> Result<Module> {
        let parts = preprocess::Parts::read(self.source, self.headers, defines, &self.kept)?;
        read(self, &parts, script)
    }
}

fn read(texts: &Texts<'_>, parts: &preprocess::Parts<'_>, script: Script<'_>) -> Result<Module> {
    let (source, root) = (texts.source, parts.root());
    let mut uses = texts.uses.clone();
    uses.gather(&source.text, root);
    let mut dynamic_shared = texts.dynamic_shared.clone();
    shared::dynamic_arrays(&source.text, root, &mut dynamic_shared);
    let mut file = File {
        source,
        types: types::Types::collect(source, parts),
        docs: doc::Docs::collect(source, root),
        uses,
        dynamic_shared: dynamic_shared.into_iter().collect(),
        wanted: kernel_templates::wanted(source, root, script.instances),
        functions: kernel::functions(parts),
        contracts: script.contracts.to_vec(),
        kernels: Vec::new(),
        unused: Vec::new(),
        by_name: script.by_name,
        diagnostics: Vec::new(),
        warnings: Vec::new(),
    };
    file.walk(root, Context::default());
    file.diagnostics.extend(file.docs.unused_contracts());
    if file.kernels.is_empty() && !script.host_instantiates {
        file.diagnostics.append(&mut file.unused);
    }
    for Diagnostic { path, line, column, message, help, .. } in &file.unused {
        file.warnings.push(format!("{}:{line}:{column}: {message}; {help}", path.display()));
    }
    if file.kernels.is_empty() && file.unused.is_empty() && file.diagnostics.is_empty() {
        file.diagnostics.push(no_kernel(source, root, parts));
    }
    kernel::tell_apart(&mut file.kernels);
    kernel::check_names(source, &file.kernels, &mut file.diagnostics);
    let globals = file.globals(parts);
    let mut diagnostics = file.diagnostics;
    diagnostics.sort_by_key(|d| (d.line, d.column));
    diagnostics.dedup();
    Error::check(diagnostics)?;
    let types::Types { used: definitions, tags, halves, .. } = file.types;
    Ok(Module {
        name: module_name(source),
        definitions,
        tags,
        halves,
        assumed: parts.macros.assumed(),
        kernels: file.kernels,
        globals,
        read_only: Vec::new(),
        dynamic_shared: file.dynamic_shared,
        warnings: file.warnings,
        uninstantiated: !file.unused.is_empty(),
    })
}

/// Returns the file's stem. The generated files are named after it. Characters that could mean something
/// there become `_`.
pub(crate) fn module_name(source: &SourceFile) -> String {
    let stem = source.path.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '+');
    stem.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

const NO_KERNEL: &str = "no kernel in this file";

/// Returns true if the only thing wrong with a file is that it has no kernels.
pub(crate) fn is_without_kernels(error: &Error) -> bool {
    matches!(error.diagnostics(), [one] if one.message == NO_KERNEL)
}

/// Returns the error for a file without kernels. If some text cannot be read, the kernel may be there, so we
/// point at it.
fn no_kernel(source: &SourceFile, root: Node<'_>, parts: &preprocess::Parts<'_>) -> Diagnostic {
    let broken = descendants(root).find(|node| node.is_error() || node.is_missing());
    // Without the word, no text that we cannot read hides a kernel.
    match broken.filter(|_| !source.is_preprocessed() || source.text.contains("__global__")) {
        Some(node) if node.is_missing() => source.diagnostic(
            node.byte_range(),
            format!("`{}` is missing here", node.kind()),
            "without it no kernel can be found in this file",
        ),
        Some(node) => source.diagnostic(
            node.byte_range(),
            "this text cannot be read",
            "look for a missing semicolon, an unbalanced brace, or a macro that stands for part of a declaration",
        ),
        None if parts.left_out_kernel => source.diagnostic(
            0..0,
            "every kernel of this file is inside an `#if` whose condition is false",
            "define its macro: `Kernels::define(\"NAME\", \"1\")`",
        ),
        None => source.diagnostic(
            0..0,
            NO_KERNEL,
            "write `__global__ void name(float* x, size_t n) { … }`",
        ),
    }
}

/// Returns true if we understood the whole file. If not, our errors may be about things that are not there.
pub(crate) fn is_understood(source: &SourceFile) -> bool {
    tree(&readable(&source.text)).is_ok_and(|tree| !tree.root_node().has_error())
}

pub(crate) fn tree(text: &str) -> Result<Tree> {
    let mut parser = tree_sitter::Parser::new();
    parser
        .set_language(&tree_sitter_cuda::LANGUAGE.into())
        .map_err(|e| Error::message(format!("tree-sitter refuses the CUDA grammar: {e}")))?;
    parser.parse(text, None).ok_or_else(|| Error::message("tree-sitter gave no tree"))
}

/// A file while we gather its kernels.
struct File<'a> {
    source: &'a SourceFile,
    types: types::Types<'a>,
    docs: doc::Docs<'a>,
    uses: uses::Uses,
    /// Names of `extern __shared__` arrays.
    dynamic_shared: Vec<String>,
    /// The template instances that were asked for.
    wanted: Vec<kernel_templates::Wanted<'a>>,
    /// Names of functions that are not kernels.
    functions: HashSet<String>,
    /// Lines of contracts in the build script, each with its kernel's name.
    contracts: Vec<(String, SourceFile)>,
    kernels: Vec<crate::signature::Kernel>,
    /// Templates without instances.
    unused: Vec<Diagnostic>,
    /// True if no kernel needs a launcher.
    by_name: bool,
    diagnostics: Vec<Diagnostic>,
    warnings: Vec<String>,
}

/// What surrounds a declaration.
#[derive(Clone, Copy, Default)]
struct Context {
    extern_c: bool,
    conditional: bool,
    class: bool,
    /// True inside text that tree-sitter could not read.
    broken: bool,
}

impl<'a> File<'a> {
    fn walk(&mut self, node: Node<'a>, mut context: Context) {
        match node.kind() {
            "function_definition" | "declaration" | "field_declaration" => {
                if let Some(keyword) = child_of_kind(node, "__global__") {
                    self.kernel(node, keyword, context);
                    return;
                }
                // A broken declaration may have swallowed a kernel. An intact one cannot contain any.
                if !node.has_error() {
                    return;
                }
            }
            "__global__" => {
                self.diagnostics.push(self.source.diagnostic(
                    node.byte_range(),
                    "this kernel's declaration cannot be read",
                    "write `__global__ void name(parameters) { … }`, without macros in between",
                ));
                return;
            }
            "linkage_specification" => {
                context.extern_c |= node
                    .child_by_field_name("value")
                    .is_some_and(|v| &self.source.text[v.byte_range()] == "\"C\"");
            }
            // These were already read, as instances of templates.
            "template_instantiation" if child_of_kind(node, "__global__").is_some() => return,
            "struct_specifier" | "class_specifier" => context.class = true,
            "preproc_if" | "preproc_ifdef" | "preproc_else" | "preproc_elif" => {
                context.conditional |= !is_include_guard(self.source, node);
            }
            "preproc_def" | "preproc_function_def" => {
                // After preprocessing, the kernels that a macro makes are there.
                if !self.source.is_preprocessed() {
                    self.check_macro(node);
                }
                return;
            }
            "ERROR" => context.broken = true,
            _ => {}
        }
        for child in children(node) {
            self.walk(child, context);
        }
    }

    /// Warns about the text at an offset. The same warning appears once, although we read a template once per
    /// instance.
    fn warn(&mut self, offset: usize, warning: &str) {
        self.warn_in(self.source, offset, warning);
    }

    /// Warns like [`warn`](Self::warn), in the file or one of its headers.
    fn warn_in(&mut self, source: &SourceFile, offset: usize, warning: &str) {
        let (line, column) = source.position(offset);
        let warning = format!("{}:{line}:{column}: {warning}", source.path_of(offset).display());
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn check_macro(&mut self, node: Node<'a>) {
        let Some(value) = node.child_by_field_name("value") else { return };
        let text = &self.source.text[value.byte_range()];
        if let Some(at) = text.find("__global__") {
            let start = value.start_byte() + at;
            self.diagnostics.push(self.source.diagnostic(
                start..start + "__global__".len(),
                "a kernel made by a macro cannot be bound",
                "write each kernel out, with its types; let them share a `__device__` function template",
            ));
        }
    }
}

pub(crate) fn children(node: Node<'_>) -> Vec<Node<'_>> {
    node.children(&mut node.walk()).collect()
}

/// Returns the children that carry meaning, without punctuation.
pub(crate) fn named(node: Node<'_>) -> Vec<Node<'_>> {
    node.named_children(&mut node.walk()).collect()
}

/// Returns a node and everything below it, in source order.
pub(crate) fn descendants(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let mut cursor = node.walk();
    std::iter::successors(Some(node), move |_| {
        (cursor.goto_first_child() || goto_next(&mut cursor)).then(|| cursor.node())
    })
}

/// Goes to the node that follows everything below this one. Returns false at the end.
fn goto_next(cursor: &mut TreeCursor<'_>) -> bool {
    while !cursor.goto_next_sibling() {
        if !cursor.goto_parent() {
            return false;
        }
    }
    true
}

pub(crate) fn child_of_kind<'a>(node: Node<'a>, kind: &str) -> Option<Node<'a>> {
    children(node).into_iter().find(|c| c.kind() == kind)
}

/// Returns true if a declaration has a word such as `extern`.
pub(crate) fn has_word(text: &str, declaration: Node<'_>, word: &str) -> bool {
    children(declaration).into_iter().any(|child| &text[child.byte_range()] == word)
}

/// Returns the declarators of a declaration.
pub(crate) fn declarators(declaration: Node<'_>) -> Vec<Node<'_>> {
    declaration.children_by_field_name("declarator", &mut declaration.walk()).collect()
}

/// Returns the name that a declarator declares. If it declares none, or several, returns the innermost
/// declarator.
pub(crate) fn declared(declarator: Node<'_>) -> Node<'_> {
    let kind = declarator.kind();
    if !kind.ends_with("declarator") || kind == "structured_binding_declarator" {
        return declarator;
    }
    // A reference's declarator has no field for the inner one.
    let is_inner =
        |node: &Node<'_>| node.kind().ends_with("identifier") || node.kind().ends_with("declarator");
    let inner =
        declarator.child_by_field_name("declarator").or_else(|| named(declarator).into_iter().find(is_inner));
    inner.map_or(declarator, self::declared)
}

/// Returns the name in a function's declaration or definition, with its scope.
pub(crate) fn function_name(declaration: Node<'_>) -> Option<Node<'_>> {
    let mut at = declaration.child_by_field_name("declarator")?;
    while at.kind() != "function_declarator" {
        let inner = || children(at).into_iter().find(|child| child.kind().ends_with("declarator"));
        at = at.child_by_field_name("declarator").or_else(inner)?;
    }
    at.child_by_field_name("declarator")
}

/// Returns name and value of each variable that a declaration initialises.
fn initialised(declaration: Node<'_>) -> impl Iterator<Item = (Node<'_>, Node<'_>)> {
    let declarators = children(declaration).into_iter().filter(|child| child.kind() == "init_declarator");
    declarators
        .filter_map(|it| Some((it.child_by_field_name("declarator")?, it.child_by_field_name("value")?)))
}

/// Returns true if a declaration is `const` or `constexpr`.
fn is_constant(text: &str, declaration: Node<'_>) -> bool {
    children(declaration).into_iter().any(|child| {
        child.kind() == "type_qualifier" && matches!(&text[child.byte_range()], "const" | "constexpr")
    })
}

/// Calls `f` for a node. If `f` returns true, goes on with the node's children, in source order.
pub(crate) fn visit<'a>(node: Node<'a>, f: &mut impl FnMut(Node<'a>) -> bool) {
    let mut cursor = node.walk();
    while f(cursor.node()) && cursor.goto_first_child() || goto_next(&mut cursor) {}
}

/// Returns true if the node is `#ifndef NAME` directly followed by `#define NAME`.
fn is_include_guard(source: &SourceFile, node: Node<'_>) -> bool {
    if node.kind() != "preproc_ifdef" || node.child(0).is_none_or(|c| c.kind() != "#ifndef") {
        return false;
    }
    let Some(name) = node.child_by_field_name("name") else { return false };
    let Some(define) = name.next_named_sibling().filter(|n| n.kind() == "preproc_def") else { return false };
    define
        .child_by_field_name("name")
        .is_some_and(|n| source.text[n.byte_range()] == source.text[name.byte_range()])
}

#[cfg(test)]
mod tests;
