//! A kernel's launchers: one with the default shape from its contract, and one that takes a shape.

use std::collections::BTreeSet;

use super::conditions::{check, expression, violated};
use super::fill::fill;
use super::names::{Names, fresh};
use super::{docs_or, generic};
use crate::contract::{Contract, Covers, Expr};
use crate::names::{identifier, parameter};
use crate::signature::Kernel;
use crate::types::{Object, ParamType, Scalar, ValueType};

/// Returns a kernel's launchers. `values` are generated types whose names are also
/// values, such as tuple structs: an argument with such a name would be a pattern, so we give it another name.
pub(super) fn launchers(kernel: &Kernel, values: &[&str]) -> String {
    let [stream, launch, config] = ["stream", "launch", "config"].map(|name| Names::fresh(kernel, name));
    let argument = |name: &str| {
        let is_value = values.contains(&name);
        let written = if is_value { format!("{name}_") } else { parameter(name) };
        let is_own = written == name || written.strip_prefix("r#") == Some(name);
        let is_taken = |name: &str| values.contains(&name) || kernel.params.iter().any(|p| p.name == name);
        if is_own { written } else { fresh(&written, is_taken) }
    };
    let args = kernel.params.iter().map(|p| argument(&p.name)).collect();
    let names = Names { kernel, stream, launch, config, args };
    match &kernel.contract.covers {
        Some(covers) => {
            in_default_shape(&kernel.name, covers, &names)
                + &in_given_shape(&format!("{}_with", kernel.name), &names)
        }
        None => in_given_shape(&kernel.name, &names),
    }
}

/// A launcher. It is always inlined, because each function around a driver's call costs time.
const LAUNCHER: &str = r"
/// {{docs}}
/// {{requires}}
///
/// The launch has {{shape}}. {{other}} Does not block. The kernel is in {{place}}.
/// {{reads}}
/// {{optional}}
/// {{blocks}}
///
/// # Errors
/// {{violated}}
/// `InvalidLaunch` if the shape exceeds the device's limits.
/// {{unsupported}}
/// {{not_everywhere}}
/// {{safety}}
#[inline(always)]
#[track_caller]
pub {{qualifier}}fn {{method}}{{generics}}(
    &self,
    {{stream}}: &__gpustream::Stream,
    {{parameters}}
) -> {{result}}{{bounds}} {
    {{body}}
}
";

const SAFE: &str = r"

{{launcher}}
";

/// A macro of ours writes the `unsafe fn`, because the user's crate may forbid `unsafe`.
const UNSAFE: &str = r"

__gpustream::__generated! {
{{launcher}}
}
";

/// Returns a launcher with this body. `shape` describes the launch's shape for its documentation, and `other` says how to get
/// another one. `takes` is its parameter for the shape, if it has one.
fn launcher(method: &str, [shape, other]: [&str; 2], takes: &str, body: &str, names: &Names<'_>) -> String {
    let kernel = names.kernel;
    let Contract { safe, requires, cooperative, reads, optional, .. } = &kernel.contract;
    let only_if = |applies: bool, line: &'static str| if applies { line } else { "" };
    let about = |params: &[usize], text: &str| {
        let list: Vec<_> = params.iter().map(|&i| format!("`{}`", kernel.params[i].name)).collect();
        if list.is_empty() { String::new() } else { text.replace("{}", &list.join(", ")) }
    };
    let requirements: String = requires.iter().flat_map(|clause| ["\n* `", &clause.text, "`"]).collect();
    let parameters = names.args.iter().enumerate();
    let parameters = parameters.map(|(number, arg)| format!("{arg}: {},\n", argument_type(kernel, number)));
    // A macro writes the `unsafe fn`. It cannot tell when angle brackets or a `where` clause end, so we put them into
    // brackets that it can match.
    let (generics, bounds, result) =
        (generic::parameters(kernel), generic::bounds(kernel), "__gpustream::Result<()>");
    let (generics, result, bounds) = match (&*generics, safe) {
        ("", true) => (generics, result.to_owned(), bounds),
        ("", false) => (generics, format!("({result})"), bounds),
        (_, true) => (format!("<{generics}>"), result.to_owned(), format!("\n{bounds}")),
        (_, false) => (format!(" [{generics}]"), format!("({result})"), format!(" [{bounds}]")),
    };
    let launcher = fill!(
        LAUNCHER,
        docs = docs_or(&kernel.docs, &format!("Launches `{}`.", kernel.name)),
        requires = if requires.is_empty() { String::new() } else { format!("\nRequires:{requirements}") },
        shape,
        other,
        place = &kernel.place,
        reads = about(reads, "The author promises that the kernel only reads {}."),
        optional = about(
            optional,
            "If you pass `None`, the kernel gets a null pointer, and requirements on its length count as satisfied: {}."
        ),
        blocks = only_if(
            *cooperative,
            "All blocks must be on the device at once, because they wait for each other."
        ),
        violated = only_if(!requires.is_empty(), "`ContractViolated` if a requirement does not hold."),
        unsupported = only_if(*cooperative, "`Unsupported` if the device has no cooperative launches."),
        not_everywhere = kernel.targets.as_ref().map_or(String::new(), |targets| {
            format!(
                "`KernelNotFound` if the device's image has no such kernel. It was compiled for {}.",
                targets.join(", ")
            )
        }),
        safety = only_if(
            !safe,
            "\n# Safety\n\
             The kernel has no contract. You must make sure that it is sound with these arguments in this shape. \
             A `requires:` line above the kernel, with the conditions for that, can make this function safe."
        ),
        qualifier = only_if(!safe, "unsafe "),
        method = identifier(method),
        generics,
        stream = &names.stream,
        parameters = takes.to_owned() + &parameters.collect::<String>(),
        result,
        bounds,
        body,
    );
    if *safe { fill!(SAFE, launcher) } else { fill!(UNSAFE, launcher) }
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
            // With `impl` in an option, a caller who passes `None` would have to say which type it is an
            // option of. With `dyn` the type is known.
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

const IN_DEFAULT_SHAPE: &str = r"
{{extents}}
let {{launch}} = __gpustream::Launch::{{shape}};
{{call}}
";

const UNSAFE_CALL: &str = r"
// SAFETY: the caller's promise is the same.
__gpustream::__generated!(unsafe { {{call}} })
";

/// Returns the launcher without a shape. It computes the shape from the contract and calls the other launcher.
fn in_default_shape(method: &str, covers: &Covers, names: &Names<'_>) -> String {
    let Names { kernel, stream, launch, .. } = names;
    let in_axes = covers.extents.iter().zip(["x", "y", "z"]);
    let extents: Vec<_> = in_axes.map(|(extent, axis)| Extent::new(covers, extent, axis, names)).collect();
    let args = [stream.clone(), format!("&{launch}")].into_iter().chain(names.args.iter().cloned());
    let args = args.collect::<Vec<_>>().join(", ");
    let call = format!("self.{}_with{}({args})", kernel.name, turbofish(kernel));
    let body = fill!(
        IN_DEFAULT_SHAPE,
        extents = extents.iter().map(|extent| &*extent.computed).collect::<String>(),
        launch,
        shape = default_shape(kernel, covers, extents),
        call = if kernel.contract.safe { call } else { fill!(UNSAFE_CALL, call) },
    );
    // A block shape in the contract wins over the device's choice, because the kernel may rely on it.
    let strided = kernel.strided && covers.block.is_none();
    let how = if strided { "a grid that the device chooses and that loops over" } else { "threads for" };
    let name = &kernel.name;
    let other = format!("[`{name}_with`](Self::{name}_with) takes the shape.");
    launcher(method, [&format!("{how} `{}`", covers.text), &other], "", &body, names)
}

/// Returns the call that makes a `Launch` for these extents.
fn default_shape(kernel: &Kernel, covers: &Covers, extents: Vec<Extent>) -> String {
    let mut extents: Vec<_> = extents.into_iter().map(|extent| extent.name).collect();
    match &covers.block {
        None if kernel.strided && kernel.shares => format!("filling({})", extents[0]),
        None if kernel.strided => format!("strided({})", extents[0]),
        None => format!("covering({})", extents[0]),
        Some(block) => {
            extents.resize(3, "1".to_owned());
            let mut block = block.clone();
            block.resize(3, 1);
            format!("covering_blocks([{}], {block:?})", extents.join(", "))
        }
    }
}

/// One extent of `covers:`.
struct Extent {
    /// An argument or a variable, of type `usize`.
    name: String,
    /// The statement that computes the variable. Empty for an argument.
    computed: String,
}

const EXTENT: &str = r"
let {{name}} = {
    {{views}}
    let Some(extent) = (|| usize::try_from({{extent}}).ok())() else {
        return Err({{violated}});
    };
    extent
};
";

impl Extent {
    fn new(covers: &Covers, extent: &Expr, axis: &str, names: &Names<'_>) -> Self {
        let kernel = names.kernel;
        if let Expr::Param(i) = extent
            && kernel.params[*i].ty == ParamType::Value(ValueType::Scalar(Scalar::Usize))
        {
            return Self { name: names.args[*i].clone(), computed: String::new() };
        }
        let lengths: BTreeSet<_> = extent.lengths().collect();
        let pointers =
            lengths.into_iter().filter(|i| matches!(kernel.params[*i].ty, ParamType::Pointer { .. }));
        let view = |i: usize| {
            let (arg, element) = (&names.args[i], generic::element(kernel, i));
            format!("let {arg} = __gpustream::AsView::<{element}>::view(&*{arg});\n")
        };
        let name = Names::fresh(kernel, &format!("extent_{axis}"));
        // An extent that is negative or overflows violates the contract like any false condition.
        let clause = format!("a size to cover (`covers: {}`)", covers.text);
        let computed = fill!(
            EXTENT,
            name,
            views = pointers.map(view).collect::<String>(),
            extent = expression(extent, names),
            violated = violated(&clause, &[extent], names),
        );
        Self { name, computed }
    }
}

const IN_GIVEN_SHAPE: &str = r"
if {{launch}}.is_empty() {
    return Ok(());
}
{{views}}
{{resolved}}
{{checks}}
{{bytes}}
// SAFETY: {{safety}}.
// Arguments match the compiled parameters, which were compared at load.
__gpustream::__generated!(unsafe { {{call}} })
";

/// Returns the launcher that takes a shape.
fn in_given_shape(method: &str, names: &Names<'_>) -> String {
    let Names { kernel, stream, launch, config, .. } = names;
    let Contract { safe, requires, cooperative, .. } = &kernel.contract;
    let (params, loaded) = (0..kernel.params.len(), generic::loaded(kernel));
    let resolve = if *cooperative { "resolve_cooperative" } else { "resolve" };
    let is_resolved = *cooperative || requires.iter().any(|c| c.left.uses_launch() || c.right.uses_launch());
    let resolved = format!("let {config} = __gpustream::codegen::{resolve}({launch}, &{loaded}, {stream})?;");
    let args = params.clone().map(|param| passed(param, names)).collect::<Vec<_>>().join(", ");
    let body = fill!(
        IN_GIVEN_SHAPE,
        launch,
        // We ask each argument for its view only once. Otherwise an argument could show us one view for the
        // check and another for the launch.
        views = params.clone().map(|param| view(param, names)).collect::<String>(),
        resolved = if is_resolved { resolved } else { String::new() },
        checks = requires.iter().map(|clause| check(clause, names)).collect::<String>(),
        bytes = params.map(|param| bool_as_byte(param, names)).collect::<String>(),
        safety = if *safe {
            "the kernel's author says that it is sound if its requirements hold, and we just checked them"
        } else {
            "the caller promises that the kernel's work is sound"
        },
        call = if is_resolved {
            format!("__gpustream::codegen::launch(&{loaded}, {stream}, &{config}, &[{args}])")
        } else {
            format!("{loaded}.launch({stream}, {launch}, &[{args}])")
        },
    );
    let name = &kernel.name;
    let other = if kernel.contract.covers.is_some() {
        format!("[`{name}`](Self::{name}) chooses it.")
    } else {
        format!(
            "There is no `{name}_with`, because this launcher takes the shape already. If `{name}` should choose it, write a \
             `covers:` line above the kernel, such as `covers: n`."
        )
    };
    launcher(method, ["the given shape", &other], &format!("{launch}: &__gpustream::Launch,\n"), &body, names)
}

/// Returns the statement that replaces a memory argument by its view.
fn view(param: usize, names: &Names<'_>) -> String {
    let (kernel, arg) = (names.kernel, &names.args[param]);
    let ParamType::Pointer { volatile, .. } = kernel.params[param].ty else { return String::new() };
    let mutable = is_written(kernel, param);
    let (element, (traits, method)) = (generic::element(kernel, param), memory(volatile, mutable));
    let binding = if mutable && !volatile { "mut " } else { "" };
    let view = format!("__gpustream::{traits}::<{element}>::{method}");
    if names.is_optional(param) {
        return format!("let {binding}{arg} = {arg}.map(|memory| {view}(memory));\n");
    }
    format!("let {binding}{arg} = {view}({arg});\n")
}

/// Returns the statement that makes a bool a byte. C++ and Rust agree on a bool's two values, and as a byte it
/// is plain data.
fn bool_as_byte(param: usize, names: &Names<'_>) -> String {
    let arg = &names.args[param];
    match names.kernel.params[param].ty {
        ParamType::Value(ValueType::Scalar(Scalar::Bool)) => format!("let {arg} = u8::from({arg});\n"),
        _ => String::new(),
    }
}

/// Returns the expression that passes an argument to the kernel.
fn passed(param: usize, names: &Names<'_>) -> String {
    let (kernel, arg) = (names.kernel, &names.args[param]);
    let ty = &kernel.params[param].ty;
    let is_written = is_written(kernel, param);
    match (ty.object(), ty) {
        (Some(Object::Texture), _) => format!("__gpustream::Arg::texture({arg})"),
        (Some(Object::Surface), _) => format!("__gpustream::Arg::surface({arg})"),
        (None, ParamType::Value(_)) => format!("__gpustream::Arg::value(&{arg})"),
        (None, ParamType::Pointer { .. }) if names.is_optional(param) => {
            let (borrow, method) = if is_written { ("&mut ", "write") } else { ("&", "read") };
            fill!(
                "match {{borrow}}{{arg}} { Some(view) => __gpustream::Arg::{{method}}(view), None => __gpustream::Arg::value(&0_usize) }",
                borrow,
                arg,
                method,
            )
        }
        (None, ParamType::Pointer { volatile, .. }) => match (volatile, is_written) {
            (false, false) => format!("__gpustream::Arg::read(&{arg})"),
            (false, true) => format!("__gpustream::Arg::write(&mut {arg})"),
            (true, false) => format!("__gpustream::Arg::volatile({arg})"),
            (true, true) => format!("__gpustream::Arg::volatile_mut({arg})"),
        },
    }
}

/// Returns the `::<…>` for a call of the other launcher. Empty if the kernel is not a template.
fn turbofish(kernel: &Kernel) -> String {
    let arguments = generic::arguments(kernel);
    if arguments.is_empty() { String::new() } else { format!("::<{arguments}>") }
}
