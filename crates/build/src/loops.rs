//! Kernels as loops over the threads of a block.
//!
//! On the CPU a block runs on one OS thread. Where threads wait for each other at a barrier or in a shuffle, the usual
//! way is a stack per thread and a switch at each wait, which costs more than most kernels compute in between. So a
//! kernel gets a second form, if its text shows that all threads of a block come to the same barriers: the text between
//! two meetings becomes a loop over the block's threads, a variable that outlives such a loop becomes an array of one
//! value per thread, and a shuffle reads that array (Stratton et al., "MCUDA", LCPC 2008). A kernel whose text does not
//! show this stays as it is, and the reason is reported.
//!
//! A kernel whose threads never wait gets such a form where they go through a loop with a stride: one after the other,
//! each thread would go through all of the memory, and touch one element of each line.

mod branches;
mod counters;
mod edits;
mod emit;
mod find_variables;
mod groups;
mod inline;
mod lanes;
mod meetings;
mod order;
mod plain_declarations;
mod progression;
mod row_facts;
mod side_by_side;
mod steps;
mod unique_names;
mod variables;
mod waits;
mod writes;

use std::collections::HashMap;

use tree_sitter::Node;

use self::emit::Emitter;
use self::find_variables::find_variables;
use self::progression::Course;
pub(crate) use self::steps::Refusal;
use self::steps::Steps;
use self::variables::{Kind, Variable, Variables};
use self::waits::Waits;
use crate::diagnostic::{Error, Result, SourceFile};
use crate::parse::{children, declared, descendants, readable, tree};
use crate::signature::{Instance, Kernel};
use crate::unit::Unit;

/// The way in which the threads of a block run.
#[derive(Debug)]
pub(crate) enum Form {
    /// They never wait.
    Plain,
    /// They never wait, and have a form in which they go through a loop side by side.
    SideBySide(Second),
    /// As loops between the places where they meet.
    Loops(Second),
    /// Each on a stack of its own.
    Fibers(Refusal),
}

/// The second form of a kernel.
#[derive(Debug)]
pub(crate) struct Second {
    /// The function's name, which no other form's begins with.
    name: String,
    code: String,
    /// The place behind the kernel.
    end: usize,
}

impl Form {
    /// Returns the form of a kernel that ends at another place.
    fn ending_at(self, end: usize) -> Self {
        match self {
            Self::SideBySide(second) => Self::SideBySide(Second { end, ..second }),
            Self::Loops(second) => Self::Loops(Second { end, ..second }),
            form => form,
        }
    }

    /// Returns the second form, if there is one.
    fn second(&self) -> Option<&Second> {
        match self {
            Self::SideBySide(second) | Self::Loops(second) => Some(second),
            Self::Plain | Self::Fibers(_) => None,
        }
    }
}

/// The ways in which the threads of a file's kernels run.
#[derive(Default)]
pub(crate) struct Loops {
    /// The forms by the place of the kernel's name.
    forms: HashMap<usize, Form>,
}

/// The file of which the lines of a second form are said to be.
#[derive(Clone, Copy)]
pub(crate) enum Lines {
    /// The user's.
    Users,
    /// One of the form's name, by which a compiler then blames the form.
    Forms,
}

impl Loops {
    /// Returns how a kernel's threads run.
    pub(crate) fn form(&self, kernel: &Kernel) -> &Form {
        self.forms.get(&kernel.name_range.start).unwrap_or(&Form::Plain)
    }

    /// Returns whether a kernel has a second form.
    pub(crate) fn any(&self) -> bool {
        self.forms.values().any(|form| form.second().is_some())
    }

    /// Returns the C++ expression of the address of an instance's second form.
    pub(crate) fn address(&self, kernel: &Kernel, instance: &Instance) -> Option<String> {
        let Second { name, .. } = self.form(kernel).second()?;
        let path = &kernel.function.path;
        let scope = path.strip_suffix(kernel.function.name()).unwrap_or_default();
        Some(format!("&::{}", kernel.instantiated(instance).replacen(path, &format!("{scope}{name}"), 1)))
    }

    /// Returns the file without its host code, with the second forms in it, each behind its kernel; `None` if there are
    /// none.
    pub(crate) fn text(&self, unit: &Unit, lines: Lines) -> Result<Option<String>> {
        let mut seconds: Vec<_> = self.forms.values().filter_map(Form::second).collect();
        if seconds.is_empty() {
            return Ok(None);
        }
        seconds.sort_by_key(|second| std::cmp::Reverse(second.end));
        let path = unit.quoted_path();
        let part = unit.device_part.as_ref().map_err(Error::clone)?;
        let mut text = part.clone().unwrap_or_else(|| unit.source.text.clone());
        for Second { name, code, end } in seconds {
            let code = match lines {
                Lines::Users => code.clone(),
                Lines::Forms => code.replace(&format!("\"{path}\""), &format!("\"{name}\"")),
            };
            let (line, _) = unit.source.position(*end);
            text.insert_str(*end, &format!("\n{code}#line {line} \"{path}\"\n"));
        }
        Ok(Some(unit.in_place(&text)))
    }

    /// Leaves out the second forms of these names, which do not compile. Returns the names of those that there were.
    pub(crate) fn leave_out(&mut self, is_named: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for (at, form) in &mut self.forms {
            let Some(Second { name, .. }) = form.second().filter(|second| is_named(&second.name)) else {
                continue;
            };
            names.push(name.clone());
            *form = match form {
                Form::Loops(_) => {
                    Form::Fibers(Refusal { at: *at, reason: "its form as loops does not compile".to_owned() })
                }
                _ => Form::Plain,
            };
        }
        names
    }
}

/// Returns the name of the kernel of which a second form has this name.
pub(crate) fn kernel_of(form: &str) -> &str {
    form.splitn(4, '_').last().unwrap_or(form)
}

/// Writes the second forms of a file's kernels.
pub(crate) fn rewrite(unit: &Unit) -> Result<Loops> {
    let source = &unit.source;
    let readable = readable(&source.text);
    let tree = tree(&readable)?;
    let root = tree.root_node();
    let helpers = unit.headers.iter().filter(|header| header.path.is_some()).map(|header| &*header.text);
    let waits = Waits::collect(&source.text, root, helpers)?;
    let path = unit.quoted_path();
    let forms = unit.module.kernels.iter().enumerate().map(|(index, kernel)| {
        let form = form(source, &path, root, &waits, kernel, index, 0);
        (kernel.name_range.start, form.unwrap_or_else(Form::Fibers))
    });
    Ok(Loops { forms: forms.collect() })
}

/// The number of a warp's threads as a constant, unless a macro of the user's has this name.
const WARP_SIZE: &str =
    "#ifndef warpSize\n[[maybe_unused]] constexpr int warpSize = GS_CPU_LOOPS_WARP;\n#endif\n";

/// The most rewrites of a kernel after which another call is still written out in it: one of itself would have no end.
const MOST_REWRITES: usize = 64;

/// Returns how a kernel's threads run.
fn form(
    source: &SourceFile,
    path: &str,
    root: Node<'_>,
    waits: &Waits,
    kernel: &Kernel,
    index: usize,
    rewrites: usize,
) -> std::result::Result<Form, Refusal> {
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
        return if meets { Err(unreadable()) } else { Ok(Form::Plain) };
    }
    let plainer = match plainer(text, root, function, waits, rewrites) {
        Err(_) if !meets => return Ok(Form::Plain),
        plainer => plainer?,
    };
    if let Some(text) = plainer {
        let plain = SourceFile::new(&source.path, text);
        let readable = readable(&plain.text);
        let tree = tree(&readable).map_err(|_| unreadable())?;
        let form = form(&plain, path, tree.root_node(), waits, kernel, index, rewrites + 1);
        let refusal = |refusal: Refusal| Refusal {
            at: source.start_of(plain.position(refusal.at).0),
            reason: inline::in_users_words(&refusal.reason),
        };
        return form.map(|form| form.ending_at(whole(function).end_byte())).map_err(refusal);
    }
    if meets {
        return as_loops(source, path, waits, kernel, index, function).map(|(second, _)| Form::Loops(second));
    }
    // The usual loop over a row of threads is made for kernels over one dimension.
    let flat = !["threadIdx.y", "hipThreadIdx_y"].iter().any(|word| text[body.byte_range()].contains(word));
    let loops = as_loops(source, path, waits, kernel, index, function).ok();
    let gains = loops.filter(|(_, strides)| *strides || !flat);
    Ok(gains.map_or(Form::Plain, |(second, _)| Form::SideBySide(second)))
}

/// Returns the file with a kernel in plainer words, each line in its place; `None` if there are none for it.
fn plainer(
    text: &str,
    root: Node<'_>,
    kernel: Node<'_>,
    waits: &Waits,
    rewrites: usize,
) -> std::result::Result<Option<String>, Refusal> {
    if let Some(plain) = plain_declarations::plain(text, kernel) {
        return Ok(Some(plain));
    }
    if let Some(named) = unique_names::own(text, kernel, waits)? {
        return Ok(Some(named));
    }
    let in_calls = || inline::first_call(text, root, kernel, waits, rewrites);
    let without_calls = (rewrites < MOST_REWRITES).then(in_calls).flatten();
    let without_groups = without_calls.or_else(|| groups::without(text, kernel));
    Ok(without_groups.or_else(|| counters::own(text, kernel, waits)))
}

/// Returns the definition with its line of template parameters.
fn whole(function: Node<'_>) -> Node<'_> {
    function.parent().filter(|parent| parent.kind() == "template_declaration").unwrap_or(function)
}

/// Writes a kernel as loops. Returns also whether the threads of a row go through one of the kernel's own loops side by
/// side.
fn as_loops(
    source: &SourceFile,
    path: &str,
    waits: &Waits,
    kernel: &Kernel,
    index: usize,
    function: Node<'_>,
) -> std::result::Result<(Second, bool), Refusal> {
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
    let parameters = descendants(function).find(|node| node.kind() == "parameter_list");
    let parameters = parameters.ok_or_else(unreadable)?;
    let mut variables = Variables::new(text, waits);
    for parameter in children(parameters) {
        if let Some(declarator) = parameter.child_by_field_name("declarator") {
            variables.add(of_parameter(text, function, parameter, declarator));
        }
    }
    find_variables(text, waits, body, None, &mut variables);
    variables.decide(body);
    let mut steps = Steps::new(&variables);
    let list = steps.of_body(body)?;
    let strides = steps.strides;
    let stored = std::mem::take(&mut steps.stored);
    let body = Emitter::new(source, path, &variables, stored).body(&list);
    let (body, attributes) = body.map_err(|variable| Refusal {
        at: variable.declarator.start_byte(),
        reason: format!("no loop can keep the variable `{}`", variable.name),
    })?;
    let name = format!("gs_loops_{index}_{}", kernel.name);
    let heading = (&*name, attributes, &text[parameters.byte_range()]);
    let code = definition(text, kernel, function, heading, &body);
    Ok((Second { name, code, end: whole(function).end_byte() }, strides))
}

/// Returns a kernel's parameter as a variable.
fn of_parameter<'a>(
    text: &str,
    function: Node<'_>,
    parameter: Node<'_>,
    declarator: Node<'a>,
) -> Variable<'a> {
    let name = declared(declarator);
    let ty = text[parameter.start_byte()..name.start_byte()]
        .replace("__restrict__", "")
        .replace("__restrict", "")
        .replace("const __grid_constant__", "");
    // An array is a pointer to its elements, which may be arrays.
    let inwards = std::iter::successors(Some(declarator), |node| node.child_by_field_name("declarator"));
    let leads_to = match inwards.filter(|node| node.kind() == "array_declarator").count() {
        0 => "",
        1 => "*",
        _ => " (*)[]",
    };
    let ty = ty.trim().to_owned() + leads_to;
    // A pointer to arrays is declared around its name, and so not by its type alone.
    let storable = !ty.contains("(*");
    let constant = (ty.starts_with("const ") || ty.ends_with(" const")) && !ty.contains('*');
    Variable {
        name: text[name.byte_range()].to_owned(),
        kind: Kind::Own,
        declaration: None,
        declarator,
        ty,
        extents: String::new(),
        storable,
        constant,
        around: None,
        scope: function.byte_range(),
        course: Course::Other,
    }
}

/// Returns the definition of a second form, with this name, these attributes and parameters, and this body.
fn definition(
    text: &str,
    kernel: &Kernel,
    function: Node<'_>,
    (name, attributes, parameters): (&str, &str, &str),
    body: &str,
) -> String {
    let template = &text[whole(function).start_byte()..function.start_byte()];
    let comma = if kernel.params.is_empty() { "" } else { ", " };
    let list = parameters.trim_start_matches('(');
    let code = format!(
        "{template}static __attribute__((noinline, flatten)){attributes} void {name}(gs_cpu_block& gs_threads{comma}{list} {{\n\
         GS_CPU_LOOPS_BEGIN;\n{WARP_SIZE}{body}}}\n"
    );
    // A kernel may be defined outside of its namespace, by its path.
    match text[kernel.name_range.clone()].rsplit_once("::") {
        Some((namespace, _)) => format!("namespace {} {{\n{code}}}\n", namespace.trim_start_matches("::")),
        None => code,
    }
}
