//! Kernels as loops over the threads of a block.
//!
//! On the CPU a block runs on one OS thread. Where threads wait for each other at a barrier or in a shuffle, the usual
//! way is a stack per thread and a switch at each wait, which costs more than most kernels compute in between. So a
//! kernel gets a second form, if its text shows that all threads of a block come to the same barriers: the text between
//! two meetings becomes a loop over the block's threads, a variable that outlives such a loop becomes an array of one
//! value per thread, and a shuffle reads that array (Stratton et al., "MCUDA", LCPC 2008). A kernel of which this is not
//! plain stays as it is, and the reason is said.
//!
//! A kernel whose threads never wait gets such a form where they go through a loop with a stride: one after the other,
//! each thread would go through all of the memory, and touch one element of each line.

mod counters;
mod course;
mod declare;
mod edits;
mod emit;
mod groups;
mod inline;
mod meetings;
mod row;
mod side_by_side;
mod steps;
mod variables;
mod waits;

use std::collections::HashMap;

use tree_sitter::Node;

use self::course::Course;
use self::declare::declare;
use self::emit::Emitter;
pub(crate) use self::steps::Refusal;
use self::steps::Steps;
use self::variables::{Kind, Variable, Variables, declared};
use self::waits::Waits;
use crate::diagnostic::{Error, Result, SourceFile};
use crate::parse::{children, readable, tree, visit};
use crate::signature::{Instance, Kernel};
use crate::unit::Unit;

/// How the threads of a block run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// They never wait.
    Plain,
    /// They never wait. The name of the form in which they go through a loop side by side.
    SideBySide(String),
    /// As loops between the places where they meet; the name of that form.
    Loops(String),
    /// Each on a stack of its own.
    Fibers(Refusal),
}

/// The second forms of a file's kernels.
pub(crate) struct Loops {
    /// The file without its host code, with these forms in it; `None` if there are none.
    pub(crate) text: Option<String>,
    /// The forms by the place of the kernel's name.
    forms: HashMap<usize, Form>,
}

impl Loops {
    /// Returns the forms of a file that has none.
    pub(crate) fn none() -> Self {
        Self { text: None, forms: HashMap::new() }
    }

    /// Returns how a kernel's threads run.
    pub(crate) fn form(&self, kernel: &Kernel) -> &Form {
        self.forms.get(&kernel.name_range.start).unwrap_or(&Form::Plain)
    }

    /// Returns the C++ expression of the address of an instance's second form.
    pub(crate) fn address(&self, kernel: &Kernel, instance: &Instance) -> Option<String> {
        let (Form::Loops(name) | Form::SideBySide(name)) = self.form(kernel) else { return None };
        let path = &kernel.function.path;
        let scope = path.strip_suffix(kernel.function.name()).unwrap_or_default();
        Some(format!("&::{}", kernel.instantiated(instance).replacen(path, &format!("{scope}{name}"), 1)))
    }
}

/// Writes the second forms of a file's kernels, each behind its kernel.
pub(crate) fn rewrite(unit: &Unit) -> Result<Loops> {
    let source = &unit.source;
    let readable = readable(&source.text);
    let tree = tree(&readable)?;
    let root = tree.root_node();
    let helpers = unit.headers.iter().filter(|header| header.path.is_some()).map(|header| &*header.text);
    let waits = Waits::collect(&source.text, root, helpers)?;
    let path = unit.quoted_path();
    let (mut forms, mut insertions) = (HashMap::new(), Vec::new());
    for (index, kernel) in unit.module.kernels.iter().enumerate() {
        let form = match form(source, &path, root, &waits, kernel, index, 0) {
            Ok(None) => Form::Plain,
            Ok(Some(Second { end, code, form })) => {
                insertions.push((end, code));
                form
            }
            Err(refusal) => Form::Fibers(refusal),
        };
        forms.insert(kernel.name_range.start, form);
    }
    if insertions.is_empty() {
        return Ok(Loops { text: None, forms });
    }
    insertions.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let part = unit.device_part.as_ref().map_err(Error::clone)?;
    let mut text = part.clone().unwrap_or_else(|| source.text.clone());
    for (at, code) in insertions {
        let (line, _) = source.position(at);
        text.insert_str(at, &format!("\n{code}#line {line} \"{path}\"\n"));
    }
    Ok(Loops { text: Some(unit.in_place(&text)), forms })
}

/// The second form of a kernel.
struct Second {
    /// The place behind the kernel.
    end: usize,
    code: String,
    /// How threads run in it.
    form: Form,
}

/// The most calls that are written out in one kernel; a function that calls itself has no end.
const MOST_CALLS: usize = 24;

/// Returns the second form of a kernel, unless its threads never wait and gain nothing by it.
fn form(
    source: &SourceFile,
    path: &str,
    root: Node<'_>,
    waits: &Waits,
    kernel: &Kernel,
    index: usize,
    calls: usize,
) -> std::result::Result<Option<Second>, Refusal> {
    let text = &*source.text;
    let at = kernel.name_range.start;
    let unreadable = || Refusal { at, reason: "the kernel's text cannot be read".to_owned() };
    let mut function = root.descendant_for_byte_range(at, kernel.name_range.end).ok_or_else(unreadable)?;
    while function.kind() != "function_definition" {
        function = function.parent().ok_or_else(unreadable)?;
    }
    let body = function.child_by_field_name("body").ok_or_else(unreadable)?;
    let meets = waits.first(text, body).is_some();
    if function.has_error() {
        return if meets { Err(unreadable()) } else { Ok(None) };
    }
    let end = whole(function).end_byte();
    let in_calls = || inline::first_call(text, root, function, waits, calls);
    let rewritten = (meets && calls < MOST_CALLS).then(in_calls).flatten();
    let rewritten = rewritten.or_else(|| groups::without(text, function));
    if let Some(text) = rewritten.or_else(|| counters::own(text, function, waits)) {
        let plain = SourceFile::new(&source.path, text);
        let readable = readable(&plain.text);
        let tree = tree(&readable).map_err(|_| unreadable())?;
        let form = form(&plain, path, tree.root_node(), waits, kernel, index, calls + 1);
        let refusal = |refusal: Refusal| Refusal {
            at: source.start_of(plain.position(refusal.at).0),
            reason: inline::in_users_words(&refusal.reason),
        };
        return form.map(|form| form.map(|form| Second { end, ..form })).map_err(refusal);
    }
    if !meets {
        // The usual loop over a row of threads is made for kernels over one dimension.
        let flat =
            !["threadIdx.y", "hipThreadIdx_y"].iter().any(|word| text[body.byte_range()].contains(word));
        let loops = as_loops(source, path, waits, kernel, index, function).ok();
        let gains = loops.filter(|loops| loops.strides || !flat);
        return Ok(gains.map(|AsLoops { name, code, .. }| Second {
            end,
            code,
            form: Form::SideBySide(name),
        }));
    }
    let AsLoops { name, code, .. } = as_loops(source, path, waits, kernel, index, function)?;
    Ok(Some(Second { end, code, form: Form::Loops(name) }))
}

/// Returns the definition with its line of template parameters.
fn whole(function: Node<'_>) -> Node<'_> {
    function.parent().filter(|parent| parent.kind() == "template_declaration").unwrap_or(function)
}

/// A kernel as loops.
struct AsLoops {
    name: String,
    code: String,
    /// Whether the threads of a row go through one of its own loops side by side.
    strides: bool,
}

/// Writes a kernel as loops.
fn as_loops(
    source: &SourceFile,
    path: &str,
    waits: &Waits,
    kernel: &Kernel,
    index: usize,
    function: Node<'_>,
) -> std::result::Result<AsLoops, Refusal> {
    let text = &*source.text;
    let refuse = |reason: &str| Refusal { at: kernel.name_range.start, reason: reason.to_owned() };
    let unreadable = || refuse("the kernel's text cannot be read");
    let body = function.child_by_field_name("body").ok_or_else(unreadable)?;
    if let Some(name) = waits.returning(text, body) {
        return Err(refuse(&format!("the macro `{name}` could return from it")));
    }
    if waits.in_operators() {
        return Err(refuse("threads meet in an operator of this file, which is called without its name"));
    }
    let mut parameters = None;
    visit(function, &mut |node| {
        if node.kind() == "parameter_list" && parameters.is_none() {
            parameters = Some(node);
        }
        parameters.is_none()
    });
    let parameters = parameters.ok_or_else(unreadable)?;
    let mut variables = Variables::new(text, waits);
    for parameter in children(parameters) {
        let Some(declarator) = parameter.child_by_field_name("declarator") else { continue };
        let name = declared(declarator);
        let parameter_text = &text[parameter.start_byte()..name.start_byte()];
        let ty = parameter_text
            .replace("__restrict__", "")
            .replace("__restrict", "")
            .replace("const __grid_constant__", "");
        let ty = ty.trim();
        let constant = (ty.starts_with("const ") || ty.ends_with(" const")) && !ty.contains('*');
        variables.add(Variable {
            name: text[name.byte_range()].to_owned(),
            kind: Kind::Own,
            declaration: None,
            declarator,
            ty: ty.to_owned(),
            extents: String::new(),
            storable: true,
            constant,
            around: None,
            scope: function.byte_range(),
            course: Course::Other,
        });
    }
    declare(text, waits, body, None, &mut variables);
    variables.decide(body);
    let mut steps = Steps::new(text, waits, &variables);
    let list = steps.of_body(body)?;
    let strides = steps.strides;
    let stored = std::mem::take(&mut steps.stored);
    let body = Emitter::new(source, path, &variables, stored).text(&list).map_err(|variable| Refusal {
        at: variable.declarator.start_byte(),
        reason: format!("no loop can keep the variable `{}`", variable.name),
    })?;
    let name = format!("gs_loops_{index}_{}", kernel.name);
    let template = &text[whole(function).start_byte()..function.start_byte()];
    let comma = if kernel.params.is_empty() { "" } else { ", " };
    let list = text[parameters.byte_range()].trim_start_matches('(');
    let code = format!(
        "{template}static __attribute__((noinline, flatten)) void {name}(gs_cpu_threads& gs_threads{comma}{list} {{\nGS_CPU_LOOPS_BEGIN;\n{body}}}\n"
    );
    // A kernel may be defined outside of its namespace, by its path.
    let code = match text[kernel.name_range.clone()].rsplit_once("::") {
        Some((namespace, _)) => format!("namespace {} {{\n{code}}}\n", namespace.trim_start_matches("::")),
        None => code,
    };
    Ok(AsLoops { name, code, strides })
}
