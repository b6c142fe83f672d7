//! Rewrites kernels for the CPU, so that a block's threads run as loops instead of on stacks.
//!
//! On the CPU one OS thread runs a whole block. If the threads never wait for each other, we call the kernel once for
//! each of them, and we are done. But look at this kernel. Each thread adds its neighbour's value:
//!
//! ```cpp
//! __global__ void pairs(const float* in, float* out) {
//!     __shared__ float tile[256];
//!     unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//!     float mine = in[i];
//!     tile[threadIdx.x] = mine;
//!     __syncthreads();
//!     out[i] = mine + tile[threadIdx.x ^ 1];
//! }
//! ```
//!
//! Thread 0 must not read `tile[1]` before thread 1 has written it, so it has to stop at the barrier until all others
//! are there. The obvious way is to give each thread a stack (a *fiber*) and to switch stacks at the barrier. That
//! always works, but a switch costs more than most kernels compute between two barriers, and the compiler cannot use
//! vectors.
//!
//! The other way is to cut the kernel at the barrier, and to run each half for all threads before the next half begins.
//! Then nothing has to wait. This module writes that form, a second function next to the kernel. In essence it is:
//!
//! ```cpp
//! static void gs_loops_0_pairs(gs_cpu_block& gs_threads, const float* in, float* out) {
//!     float tile[256];                                   // the function runs one block, so this is its own
//!     gs_cpu_values<float> gs_of_mine;                   // lives across the barrier: one value for each thread
//!     gs_cpu_each(gs_threads, [&](auto gs_turn) {
//!         uint3 threadIdx = gs_turn.index;
//!         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//!         float mine = in[i];
//!         tile[threadIdx.x] = mine;
//!         gs_of_mine.at[gs_turn.thread] = mine;
//!     });
//!     gs_cpu_each(gs_threads, [&](auto gs_turn) {        // the barrier is the gap between the loops
//!         uint3 threadIdx = gs_turn.index;
//!         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;   // cheaper to compute again than to keep
//!         float mine = gs_of_mine.at[gs_turn.thread];
//!         out[i] = mine + tile[threadIdx.x ^ 1];
//!     });
//! }
//! ```
//!
//! The compiler can turn both loops into vector code. The idea is from Stratton et al., "MCUDA", LCPC 2008.
//!
//! A place that lets threads wait for each other is a *meeting*: a barrier, a shuffle or a vote. A shuffle is like a
//! barrier, but the next loop also reads the other thread's value from an array such as `gs_of_mine`.
//!
//! # When this is not possible
//!
//! We may only cut a kernel if all threads of a block come to the same meetings. Here they do not:
//!
//! ```cpp
//! if (threadIdx.x < n) { tile[threadIdx.x] = 1; __syncthreads(); }
//! ```
//!
//! We have the kernel's text and a syntax tree, but no types and no values. If the text does not show that a rewrite is
//! right, we refuse: the kernel runs on fibers, and the report says why ([`Refusal`]). That is slow but correct. So if you
//! change something here and are in doubt whether a case is safe, refuse it.
//!
//! # Kernels without meetings
//!
//! A kernel that never waits gets a second form if it has a loop with a stride. Otherwise one thread after the other
//! would go through all of the memory and touch one element in each cache line. In the second form the threads in a row
//! go through that loop side by side. A kernel that uses `threadIdx.y` gets one too, because the usual loop over
//! threads is only good at one dimension.
//!
//! # How it works
//!
//! | step | modules |
//! |---|---|
//! | Say the kernel in plainer words, until there is nothing left to simplify: one kind of declaration, unique names, no calls that lead to a meeting, no barriers, pipelines, matrices and groups as objects, loops that declare their counter and that all threads run equally often | `declarations`, `names`, `inline`, `cuda_objects`, `groups`, `counters`, `turns` |
//! | Find out which functions and macros can wait, read `threadIdx` or change their arguments | `waits` |
//! | Decide for each variable: one for the block, computed again by each loop, or one value per thread | `declare`, `variables`, `writes`, `progression` |
//! | Cut the kernel into loops over threads, and what is between them | `steps`, `branches`, `meetings` |
//! | Make the loops fast: warps as vectors, rows side by side, one check for a whole row, any order | `lanes`, `side_by_side`, `row_facts`, `order` |
//! | Write the C++ | `emit`, `edits`, and `gpustream/cpu/loops.cuh` for what it calls |
//!
//! The compiler then sees the kernel and its second form in the same file. If a second form does not compile, we leave out
//! that one, and its kernel runs as it would without.

mod branches;
mod counters;
mod cuda_objects;
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
mod turns;
mod unique_names;
mod variables;
mod waits;
mod writes;

use std::collections::HashMap;
use std::ops::Range;

use tree_sitter::Node;

use self::branches::UNEVEN;
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

/// How a block's threads run.
#[derive(Debug)]
pub(crate) enum Form {
    /// They never wait.
    Plain,
    /// They never wait. A second form lets neighbours go through a loop side by side.
    SideBySide(Second),
    /// As loops between the meetings.
    Loops(Second),
    /// Each on a stack of its own.
    Fibers(Refusal),
}

/// A kernel's second form.
#[derive(Debug)]
pub(crate) struct Second {
    /// The function's name. No other form's name may begin with it, because we look for names in error messages.
    name: String,
    code: String,
    /// The offset just after the kernel. We insert the form there, because it may use everything that the kernel may
    /// use.
    end: usize,
}

impl Form {
    /// Returns the same form for a kernel that ends at another place.
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

/// How the threads of each kernel in a file run.
#[derive(Default)]
pub(crate) struct Loops {
    /// The forms. The key is the offset of the name of the kernel.
    forms: HashMap<usize, Form>,
}

/// Which file the compiler should name if it finds an error in a second form.
#[derive(Clone, Copy)]
pub(crate) enum Lines {
    /// Your file. So if you see an error, it is in a line that you know.
    Users,
    /// A file that is named after the form. We use this if the file did not compile, to find out which form is to
    /// blame.
    Forms,
}

impl Loops {
    /// Returns how a kernel's threads run.
    pub(crate) fn form(&self, kernel: &Kernel) -> &Form {
        self.forms.get(&kernel.name_range.start).unwrap_or(&Form::Plain)
    }

    /// Returns true if a kernel has a second form.
    pub(crate) fn any(&self) -> bool {
        self.forms.values().any(|form| form.second().is_some())
    }

    /// Returns the address of the second form of an instance, as a C++ expression.
    pub(crate) fn address(&self, kernel: &Kernel, instance: &Instance) -> Option<String> {
        let Second { name, .. } = self.form(kernel).second()?;
        let path = &kernel.function.path;
        let scope = path.strip_suffix(kernel.function.name()).unwrap_or_default();
        Some(format!("&::{}", kernel.instantiated(instance).replacen(path, &format!("{scope}{name}"), 1)))
    }

    /// Returns the file without its host code, with each second form after its kernel. Returns `None` if there are
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
                Lines::Forms => named_after(name, code),
            };
            let back = unit.source.line_directive(*end, &path);
            text.insert_str(*end, &format!("\n{code}{back}\n"));
        }
        Ok(Some(unit.in_place(&text)))
    }

    /// Leaves out the second forms with these names, because they do not compile. The kernels then run on stacks or
    /// alone. Returns the names that it found.
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

/// Returns a form's code with its own name as the file in each `#line`.
fn named_after(name: &str, code: &str) -> String {
    let renamed = |line: &str| match line.strip_prefix("#line ").and_then(|rest| rest.split_once(' ')) {
        Some((number, _)) => format!("#line {number} \"{name}\"\n"),
        None => format!("{line}\n"),
    };
    code.lines().map(renamed).collect()
}

/// Returns the name of the kernel that has this second form.
pub(crate) fn kernel_of(form: &str) -> &str {
    form.splitn(4, '_').last().unwrap_or(form)
}

/// Writes a second form for each kernel in a file that can have one.
pub(crate) fn rewrite(unit: &Unit) -> Result<Loops> {
    let source = &unit.source;
    let readable = readable(&source.text);
    let tree = tree(&readable)?;
    let root = tree.root_node();
    let helpers = unit.headers.iter().filter(|header| header.path.is_some()).map(|header| &*header.text);
    let waits = Waits::collect(&source.text, root, helpers)?;
    let path = unit.quoted_path();
    let forms = unit.module.kernels.iter().enumerate().map(|(index, kernel)| {
        let form = form(source, &path, (&source.text, root), (root, &waits), kernel, index, 0);
        (kernel.name_range.start, form.unwrap_or_else(Form::Fibers))
    });
    let mut loops = Loops { forms: forms.collect() };
    limit_large(&mut loops, &unit.module.kernels);
    Ok(loops)
}

/// Leaves out all but the shortest of a file's large loop forms, because a compiler takes 2 to 4 seconds for each.
fn limit_large(loops: &mut Loops, kernels: &[Kernel]) {
    let is_large = |kernel: &Kernel| match loops.form(kernel) {
        Form::Loops(second) if second.code.contains(emit::LARGE) => {
            Some((second.code.len(), kernel.name_range.start, kernel.instances.len()))
        }
        _ => None,
    };
    let mut large: Vec<_> = kernels.iter().filter_map(is_large).collect();
    large.sort_unstable();
    let mut count = 0;
    for (_, at, instances) in large {
        count += instances;
        if count > MOST_LARGE {
            let reason = format!(
                "the file has more than {MOST_LARGE} kernels with so much code between two meetings, and as loops they would \
                 take too long to compile"
            );
            loops.forms.insert(at, Form::Fibers(Refusal { at, reason }));
        }
    }
}

/// How many large loop forms a file may have, counted by instances.
const MOST_LARGE: usize = 16;

/// Declares `warpSize` as a constant, unless you have a macro with this name. The compiler can then unroll loops over a
/// warp.
const WARP_SIZE: &str =
    "#ifndef warpSize\n[[maybe_unused]] constexpr int warpSize = GS_CPU_LOOPS_WARP;\n#endif\n";

/// How often we rewrite a kernel before we stop to inline calls. A function that calls itself would otherwise never
/// end.
const MOST_REWRITES: usize = 64;

/// Returns how a kernel's threads run. First says the kernel in plainer words, as long as that is possible. `file` is the
/// file's text and tree, with all functions that the kernel may call.
fn form(
    source: &SourceFile,
    path: &str,
    file: (&str, Node<'_>),
    (root, waits): (Node<'_>, &Waits),
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
    if let Some(wrong) = descendants(function).find(|node| node.is_error() || node.is_missing()) {
        let reason = "the statement here cannot be read, perhaps because it begins with a macro".to_owned();
        return if meets { Err(Refusal { at: wrong.start_byte(), reason }) } else { Ok(Form::Plain) };
    }
    let plainer = match plainer(text, file, function, waits, rewrites) {
        Err(_) if !meets => return Ok(Form::Plain),
        plainer => plainer?,
    };
    let rewritten = |text: String| {
        let plain = source.with_text(only(whole(function).byte_range(), source.text.len(), text));
        let readable = readable(&plain.text);
        let tree = tree(&readable).map_err(|_| unreadable())?;
        let form = form(&plain, path, file, (tree.root_node(), waits), kernel, index, rewrites + 1);
        let refusal = |refusal: Refusal| Refusal {
            at: source.start_of(plain.row(refusal.at)),
            reason: inline::in_users_words(&refusal.reason),
        };
        form.map(|form| form.ending_at(whole(function).end_byte())).map_err(refusal)
    };
    if let Some(text) = plainer {
        return rewritten(text);
    }
    if meets {
        let loops = as_loops(source, path, waits, kernel, index, function);
        let uneven =
            loops.as_ref().err().filter(|refusal| refusal.reason == UNEVEN && rewrites < MOST_REWRITES);
        let shared = uneven.and_then(|refusal| turns::shared(text, function, refusal.at, rewrites));
        if let Some((text, range)) = shared {
            // If the loop itself is still in the way, the first reason says more.
            let lines = source.row(range.start)..=source.row(range.end);
            match rewritten(text) {
                Err(refusal) if lines.contains(&source.row(refusal.at)) => {}
                form => return form,
            }
        }
        return loops.map(|(second, _)| Form::Loops(second));
    }
    // A kernel over one dimension already gets a good loop over its row of threads, so it gains nothing unless it
    // strides.
    let flat = !["threadIdx.y", "hipThreadIdx_y"].iter().any(|word| text[body.byte_range()].contains(word));
    let loops = as_loops(source, path, waits, kernel, index, function).ok();
    let gains = loops.filter(|(_, strides)| *strides || !flat);
    Ok(gains.map_or(Form::Plain, |(second, _)| Form::SideBySide(second)))
}

/// Returns the file with one thing in a kernel said in plainer words. Each line stays in its place. Returns `None` if
/// nothing can be plainer.
fn plainer(
    text: &str,
    file: (&str, Node<'_>),
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
    let in_calls = || inline::first_call(text, file, kernel, waits, rewrites);
    let without_calls = (rewrites < MOST_REWRITES).then(in_calls).flatten();
    let without_objects = without_calls.or_else(|| cuda_objects::without(text, kernel));
    let without_groups = without_objects.or_else(|| groups::without(text, kernel));
    Ok(without_groups.or_else(|| counters::own(text, kernel, waits)))
}

/// Returns a rewritten text with spaces in place of all but the kernel, because we parse it again after each step, and a
/// file may be large. The kernel was in `range` of a text of `length` bytes.
fn only(range: Range<usize>, length: usize, text: String) -> String {
    let end = text.len() - (length - range.end);
    let mut bytes = text.into_bytes();
    for part in [0..range.start, end..bytes.len()] {
        bytes[part].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    // We replaced whole characters, byte by byte.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the definition, including its line of template parameters.
fn whole(function: Node<'_>) -> Node<'_> {
    function.parent().filter(|parent| parent.kind() == "template_declaration").unwrap_or(function)
}

/// Writes a kernel as loops. Also returns true if the threads in a row go side by side through a loop that the kernel
/// has.
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
    // A kernel may be defined outside of its namespace, by its path, but the form must be inside.
    match text[kernel.name_range.clone()].rsplit_once("::") {
        Some((namespace, _)) => format!("namespace {} {{\n{code}}}\n", namespace.trim_start_matches("::")),
        None => code,
    }
}
