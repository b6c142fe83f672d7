//! Writes a kernel's launchers: one with the default shape from its contract, and one that takes a shape.

use std::collections::BTreeSet;

use super::names::fresh;
use super::{generic, write_docs};
use crate::contract::{Contract, Covers, Expr, LaunchValue, Operator};
use crate::names::{identifier, parameter};
use crate::signature::Kernel;
use crate::types::{Object, ParamType, Scalar, ValueType};

/// A kernel, and the names that its launchers use for their own values.
struct Names<'a> {
    kernel: &'a Kernel,
    stream: String,
    launch: String,
    config: String,
    args: Vec<String>,
    /// The kernel's file and line.
    place: &'a str,
}

impl Names<'_> {
    /// Returns true if an argument is an `Option`.
    fn is_optional(&self, param: usize) -> bool {
        self.kernel.contract.optional.contains(&param)
    }

    /// Returns a name for one of the launcher's own values that no parameter has.
    fn fresh(kernel: &Kernel, name: &str) -> String {
        fresh(name, |name| kernel.params.iter().any(|param| param.name == name))
    }
}

/// Writes the launchers of a kernel. `place` says where it is, and `values` are the types in the bindings
/// that are values too.
pub(super) fn write(text: &mut String, kernel: &Kernel, values: &[&str], place: &str) {
    let [stream, launch, config] = ["stream", "launch", "config"].map(|name| Names::fresh(kernel, name));
    let argument = |name: &str| {
        let is_value = values.contains(&name);
        let written = if is_value { format!("{name}_") } else { parameter(name) };
        let is_own = written == name || written.strip_prefix("r#") == Some(name);
        let is_taken = |name: &str| values.contains(&name) || kernel.params.iter().any(|p| p.name == name);
        if is_own { written } else { fresh(&written, is_taken) }
    };
    let args = kernel.params.iter().map(|p| argument(&p.name)).collect();
    let names = Names { kernel, stream, launch, config, args, place };
    match &kernel.contract.covers {
        Some(covers) => {
            write_default(text, covers, &names);
            write_with(text, &format!("{}_with", kernel.name), &names);
        }
        None => write_with(text, &kernel.name, &names),
    }
}

/// Closes an `unsafe fn`. A macro of the library writes it, because the user's crate may forbid `unsafe`.
fn write_tail(text: &mut String, kernel: &Kernel) {
    if !kernel.contract.safe {
        text.push_str("    }\n");
    }
}

/// Writes the doc comment, attributes and signature, up to the opening brace.
fn write_head(text: &mut String, method: &str, takes_launch: bool, names: &Names<'_>) {
    let kernel = names.kernel;
    text.push('\n');
    if !kernel.contract.safe {
        text.push_str("    __gpustream::__generated! {\n");
    }
    let Contract { safe, requires, cooperative, covers, reads, optional } = &kernel.contract;
    let mut docs = kernel.docs.clone();
    if docs.is_empty() {
        docs.push(format!("Launches `{}`.", kernel.name));
    }
    if !requires.is_empty() {
        docs.extend(["", "Requires:"].map(str::to_owned));
        docs.extend(requires.iter().map(|clause| format!("* `{}`", clause.text)));
    }
    let shape = match covers {
        Some(covers) if !takes_launch => {
            let strided = strided(kernel, covers);
            let how =
                if strided { "a grid that the device chooses and that loops over" } else { "threads for" };
            format!("{how} `{}`", covers.text)
        }
        _ => "the given shape".to_owned(),
    };
    let list = |numbers: &[usize]| {
        numbers.iter().map(|&i| format!("`{}`", kernel.params[i].name)).collect::<Vec<_>>().join(", ")
    };
    docs.extend([
        String::new(),
        format!("The launch has {shape}. Does not block. The kernel is in {}.", names.place),
    ]);
    if !reads.is_empty() {
        docs.push(format!("The author promises that the kernel only reads {}.", list(reads)));
    }
    if !optional.is_empty() {
        docs.push(format!(
            "If you pass `None`, the kernel gets a null pointer, and requirements on its length count as satisfied: {}.",
            list(optional)
        ));
    }
    let blocks = "All blocks must be on the device at once, because they wait for each other.";
    let violated = "`ContractViolated` if a requirement does not hold.";
    let unsupported = "`Unsupported` if the device has no cooperative launches.";
    let promise =
        "The kernel has no contract. You must make sure that it is sound with these arguments in this shape.";
    for (applies, lines) in [
        (*cooperative, &[blocks][..]),
        (true, &["", "# Errors"]),
        (!requires.is_empty(), &[violated]),
        (true, &["`InvalidLaunch` if the shape exceeds the device's limits."]),
        (*cooperative, &[unsupported]),
        (!safe, &["", "# Safety", promise]),
    ] {
        docs.extend(lines.iter().filter(|_| applies).map(|&line| line.to_owned()));
    }
    write_docs(text, "    ", &docs, "");
    // Each function around a driver's call costs time.
    text.push_str("    #[inline(always)]\n    #[track_caller]\n");
    let safety = if *safe { "" } else { "unsafe " };
    let parameters = match &*generic::parameters(kernel) {
        "" => String::new(),
        // The macro that writes an `unsafe fn` cannot see where angle brackets end.
        parameters if !*safe => format!(" [{parameters}]"),
        parameters => format!("<{parameters}>"),
    };
    text.push_str(&format!("    pub {safety}fn {}{parameters}(\n", identifier(method)));
    text.push_str(&format!("        &self,\n        {}: &__gpustream::Stream,\n", names.stream));
    if takes_launch {
        text.push_str(&format!("        {}: &__gpustream::Launch,\n", names.launch));
    }
    for (number, arg) in names.args.iter().enumerate() {
        text.push_str(&format!("        {arg}: {},\n", argument_type(kernel, number)));
    }
    let (result, bounds) = ("__gpustream::Result<()>", generic::bounds(kernel));
    text.push_str(&match (&*bounds, kernel.contract.safe) {
        ("", true) => format!("    ) -> {result} {{\n"),
        ("", false) => format!("    ) -> ({result}) {{\n"),
        (bounds, true) => format!("    ) -> {result}\n    {bounds} {{\n"),
        (bounds, false) => format!("    ) -> ({result}) [{bounds}] {{\n"),
    });
}

fn argument_type(kernel: &Kernel, param: usize) -> String {
    let ty = generic::element(kernel, param);
    if let Some(object) = kernel.params[param].ty.object() {
        return object.argument().to_owned();
    }
    match &kernel.params[param].ty {
        ParamType::Value(_) => ty,
        ParamType::Pointer { volatile, .. } => {
            let mutable = is_written(kernel, param);
            let (traits, _) = memory(*volatile, mutable);
            let borrow = if mutable { "&mut " } else { "&" };
            // The type `None` would not tell us what it is an option of, so the parameter's type must be
            // concrete.
            if kernel.contract.optional.contains(&param) {
                return format!("::core::option::Option<{borrow}(dyn __gpustream::{traits}<{ty}> + '_)>");
            }
            format!("{borrow}(impl __gpustream::{traits}<{ty}> + ?Sized)")
        }
    }
}

/// Returns true if the launcher needs exclusive access to a pointer's memory.
fn is_written(kernel: &Kernel, param: usize) -> bool {
    let mutable = matches!(kernel.params[param].ty, ParamType::Pointer { mutable: true, .. });
    mutable && !kernel.contract.reads.contains(&param)
}

/// Returns the trait that a pointer's argument must implement, and its method.
fn memory(volatile: bool, mutable: bool) -> (&'static str, &'static str) {
    match (volatile, mutable) {
        (false, false) => ("AsView", "view"),
        (false, true) => ("AsViewMut", "view_mut"),
        (true, false) => ("AsVolatile", "volatile"),
        (true, true) => ("AsVolatileMut", "volatile_mut"),
    }
}

/// Returns true if the device chooses the default shape. A block shape in the contract wins, because the
/// kernel may rely on it.
fn strided(kernel: &Kernel, covers: &Covers) -> bool {
    kernel.strided && covers.block.is_none()
}

fn write_default(text: &mut String, covers: &Covers, names: &Names<'_>) {
    let kernel = names.kernel;
    write_head(text, &kernel.name, false, names);
    let extents: Vec<String> = covers
        .extents
        .iter()
        .zip(["x", "y", "z"])
        .map(|(extent, axis)| write_extent(text, covers, extent, axis, names))
        .collect();
    let shape = match &covers.block {
        None if kernel.strided && kernel.shares => format!("filling({})", extents[0]),
        None if kernel.strided => format!("strided({})", extents[0]),
        None => format!("covering({})", extents[0]),
        Some(block) => {
            let mut extents = extents;
            extents.resize(3, "1".to_owned());
            let mut block = block.clone();
            block.resize(3, 1);
            format!("covering_blocks([{}], {block:?})", extents.join(", "))
        }
    };
    text.push_str(&format!("        let {} = __gpustream::Launch::{shape};\n", names.launch));
    let mut args = vec![names.stream.clone(), format!("&{}", names.launch)];
    args.extend(names.args.iter().cloned());
    let call = format!("self.{}_with{}({})", kernel.name, turbofish(kernel), args.join(", "));
    if kernel.contract.safe {
        text.push_str(&format!("        {call}\n    }}\n"));
    } else {
        text.push_str(&format!("        // SAFETY: the caller's promise is the same.\n        __gpustream::__generated!(unsafe {{ {call} \
             }})\n    }}\n"
        ));
        write_tail(text, kernel);
    }
}

/// Writes the evaluation of one extent of `covers:`. Returns a name or expression for the result, a usize.
fn write_extent(text: &mut String, covers: &Covers, extent: &Expr, axis: &str, names: &Names<'_>) -> String {
    let kernel = names.kernel;
    if let Expr::Param(i) = extent
        && kernel.params[*i].ty == ParamType::Value(ValueType::Scalar(Scalar::Usize))
    {
        return names.args[*i].clone();
    }
    let lengths: BTreeSet<_> = extent.lengths().collect();
    let name = Names::fresh(kernel, &format!("extent_{axis}"));
    text.push_str(&format!("        let {name} = {{\n"));
    for i in lengths {
        if let ParamType::Pointer { .. } = &kernel.params[i].ty {
            let (arg, element) = (&names.args[i], generic::element(kernel, i));
            text.push_str(&format!(
                "            let {arg} = __gpustream::AsView::<{element}>::view(&*{arg});\n"
            ));
        }
    }
    // An extent that is negative or overflows violates the contract like any false condition.
    let clause = format!("a size to cover (`covers: {}`)", covers.text);
    text.push_str(&format!("            let Some(extent) = (|| usize::try_from({}).ok())() else {{\n                return Err({});\n            \
         }};\n            extent\n        }};\n",
        expression(extent, names),
        violated(&clause, &[extent], names)
    ));
    name
}

fn write_with(text: &mut String, method: &str, names: &Names<'_>) {
    write_head(text, method, true, names);
    let Names { kernel, stream, launch, config, .. } = names;
    text.push_str(&format!("        if {launch}.is_empty() {{\n            return Ok(());\n        }}\n"));
    // We ask each argument for its view only once. Otherwise an argument could show us one view for the check
    // and another for the launch.
    for (number, arg) in names.args.iter().enumerate() {
        write_view(text, kernel, number, arg);
    }
    let requires = &kernel.contract.requires;
    let cooperative = kernel.contract.cooperative;
    let resolved = cooperative || requires.iter().any(|c| c.left.uses_launch() || c.right.uses_launch());
    if cooperative {
        text.push_str(&format!(
            "        let {config} = __gpustream::codegen::resolve_cooperative({launch}, &{}, {stream})?;\n",
            generic::loaded(kernel)
        ));
    } else if resolved {
        text.push_str(&format!(
            "        let {config} = __gpustream::codegen::resolve({launch}, &{}, {stream})?;\n",
            generic::loaded(kernel)
        ));
    }
    for clause in requires {
        let left = expression(&clause.left, names);
        let right = expression(&clause.right, names);
        let holds = if clause.left.computes() || clause.right.computes() {
            format!("(|| Some({left} {} {right}))() == Some(true)", clause.comparison)
        } else {
            format!("{left} {} {right}", clause.comparison)
        };
        let lengths = clause.left.lengths().chain(clause.right.lengths());
        let mut absent: Vec<_> = lengths.filter(|i| names.is_optional(*i)).collect();
        absent.dedup();
        let absent = absent.into_iter().map(|i| format!("{}.is_none() || ", names.args[i]));
        let holds = absent.collect::<String>() + &holds;
        let violated = violated(&clause.text, &[&clause.left, &clause.right], names);
        text.push_str(&format!(
            "        if !({holds}) {{\n            return Err({violated});\n        }}\n"
        ));
    }
    let mut args = Vec::new();
    for (number, (param, arg)) in kernel.params.iter().zip(&names.args).enumerate() {
        if let Some(object) = param.ty.object() {
            args.push(match object {
                Object::Texture => format!("__gpustream::Arg::texture({arg})"),
                Object::Surface => format!("__gpustream::Arg::surface({arg})"),
            });
            continue;
        }
        args.push(match &param.ty {
            ParamType::Value(ValueType::Scalar(Scalar::Bool)) => {
                // C++ and Rust agree on a bool's two values, and as a byte it is plain data.
                text.push_str(&format!("        let {arg} = u8::from({arg});\n"));
                format!("__gpustream::Arg::value(&{arg})")
            }
            ParamType::Value(_) => format!("__gpustream::Arg::value(&{arg})"),
            ParamType::Pointer { .. } if names.is_optional(number) => {
                let (borrow, method) =
                    if is_written(kernel, number) { ("&mut ", "write") } else { ("&", "read") };
                format!(
                    "match {borrow}{arg} {{ Some(view) => __gpustream::Arg::{method}(view), None => \
                     __gpustream::Arg::value(&0_usize) }}"
                )
            }
            ParamType::Pointer { volatile, .. } => match (volatile, is_written(kernel, number)) {
                (false, false) => format!("__gpustream::Arg::read(&{arg})"),
                (false, true) => format!("__gpustream::Arg::write(&mut {arg})"),
                (true, false) => format!("__gpustream::Arg::volatile({arg})"),
                (true, true) => format!("__gpustream::Arg::volatile_mut({arg})"),
            },
        });
    }
    let safety = if kernel.contract.safe {
        "the kernel's author says that it is sound if its requirements hold, and we just checked them"
    } else {
        "the caller promises that the kernel's work is sound"
    };
    text.push_str(&format!("        // SAFETY: {safety}.\n        // Arguments match the compiled parameters, which were compared at load.\n"
    ));
    let (args, loaded) = (args.join(", "), generic::loaded(kernel));
    let call = if resolved {
        format!("__gpustream::codegen::launch(&{loaded}, {stream}, &{config}, &[{args}])")
    } else {
        format!("{loaded}.launch({stream}, {launch}, &[{args}])")
    };
    text.push_str(&format!("        __gpustream::__generated!(unsafe {{ {call} }})\n    }}\n"));
    write_tail(text, kernel);
}

/// Returns the template's arguments for calling the other launcher.
fn turbofish(kernel: &Kernel) -> String {
    let arguments = generic::arguments(kernel);
    if arguments.is_empty() { String::new() } else { format!("::<{arguments}>") }
}

/// Replaces a memory argument by its view.
fn write_view(text: &mut String, kernel: &Kernel, param: usize, arg: &str) {
    if let ParamType::Pointer { volatile, .. } = &kernel.params[param].ty {
        let mutable = is_written(kernel, param);
        let (element, (traits, method)) = (generic::element(kernel, param), memory(*volatile, mutable));
        let binding = if mutable && !*volatile { "mut " } else { "" };
        if kernel.contract.optional.contains(&param) {
            text.push_str(&format!("        let {binding}{arg} = {arg}.map(|memory| __gpustream::{traits}::<{element}>::{method}(memory));\n"
            ));
            return;
        }
        text.push_str(&format!(
            "        let {binding}{arg} = __gpustream::{traits}::<{element}>::{method}({arg});\n"
        ));
    }
}

/// Writes the error for a condition, with the values that violate it.
fn violated(clause: &str, expressions: &[&Expr], names: &Names<'_>) -> String {
    let kernel = names.kernel;
    let mut values: Vec<(String, String)> = Vec::new();
    for leaf in expressions.iter().flat_map(|expr| expr.values()) {
        let label = label(leaf, kernel);
        if values.iter().all(|(l, _)| *l != label) {
            values.push((label, expression(leaf, names)));
        }
    }
    let values: Vec<String> = values.into_iter().map(|(l, v)| format!("({l:?}, {v})")).collect();
    format!("__gpustream::codegen::violated({:?}, {clause:?}, &[{}])", kernel.name, values.join(", "))
}

/// Returns a value as the contract writes it.
fn label(leaf: &Expr, kernel: &Kernel) -> String {
    const AXES: [&str; 3] = ["x", "y", "z"];
    match leaf {
        Expr::Param(i) => kernel.params[*i].name.clone(),
        Expr::Len(i) => format!("len({})", kernel.params[*i].name),
        Expr::Launch(LaunchValue::Grid(axis)) => format!("grid.{}", AXES[*axis]),
        Expr::Launch(LaunchValue::Block(axis)) => format!("block.{}", AXES[*axis]),
        Expr::Launch(LaunchValue::Shared) => "shared".to_owned(),
        Expr::Literal(_) | Expr::Negate(_) | Expr::Binary(..) => String::new(),
    }
}

/// Returns a Rust expression of type i128. It uses `?` on overflow, so it must be inside a closure that
/// returns an Option.
fn expression(expr: &Expr, names: &Names<'_>) -> String {
    match expr {
        Expr::Literal(value) => format!("{value}_i128"),
        Expr::Param(i) => format!("({} as i128)", names.args[*i]),
        Expr::Len(i) => {
            let arg = &names.args[*i];
            if names.is_optional(*i) {
                return format!("({arg}.as_ref().map_or(0, |view| view.len()) as i128)");
            }
            format!("({arg}.len() as i128)")
        }
        Expr::Launch(LaunchValue::Grid(axis)) => format!("({}.grid[{axis}] as i128)", names.config),
        Expr::Launch(LaunchValue::Block(axis)) => format!("({}.block[{axis}] as i128)", names.config),
        Expr::Launch(LaunchValue::Shared) => format!("({}.dynamic_shared as i128)", names.config),
        Expr::Negate(inner) => format!("{}.checked_neg()?", expression(inner, names)),
        Expr::Binary(operator, left, right) => {
            let method = match operator {
                Operator::Add => "checked_add",
                Operator::Subtract => "checked_sub",
                Operator::Multiply => "checked_mul",
                Operator::Divide => "checked_div",
                Operator::Remainder => "checked_rem",
            };
            format!("{}.{method}({})?", expression(left, names), expression(right, names))
        }
    }
}
