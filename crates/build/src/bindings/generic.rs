//! Kernel templates in Rust: one launcher for all instances, and a trait that selects the instance.
//!
//! Say that `axpy<T>` was compiled for `float` and `double`. Then `Kernels` has an array of two kernels, and we generate a
//! trait `HasAxpy` that `f32` and `f64` implement. Its constant is the index in that array. The launcher asks for
//! `T: HasAxpy`, so if you call it with another type, your program does not compile.

use super::ALLOW;
use super::fill::fill;
use crate::names::{self, identifier};
use crate::signature::{Argument, Instance, Kernel, Module, Template};
use crate::types::ParamType;

/// The trait that a type must implement if a launcher takes values of it, or memory that holds them.
const PLAIN: &str = "__gpustream::Plain";

/// Returns the types in template arguments that Rust has no type for, such as functors: their names in C++
/// and in Rust.
pub(super) fn types(module: &Module) -> Vec<(&str, String)> {
    let mut types: Vec<(&str, String)> = Vec::new();
    for argument in module.functions().flat_map(|(_, instance)| &instance.arguments) {
        if let Argument::Type { cpp, ty: None } = argument
            && types.iter().all(|(known, _)| known != cpp)
        {
            types.push((cpp, named(cpp)));
        }
    }
    types
}

const TYPE: &str = r"
/// Stands for the C++ type `{{cpp}}` among the arguments of kernel templates.
{{allow}}
#[derive(Clone, Copy, Debug)]
pub struct {{name}};

";

/// Returns the definition of one of these [`types`].
pub(super) fn definition((cpp, name): &(&str, String)) -> String {
    fill!(TYPE, cpp, allow = ALLOW, name)
}

/// The trait that selects an instance of a template. The template's first type implements it, or `Kernels` if
/// the template has only numbers. The template's other parameters become parameters of the trait.
const TRAIT: &str = r#"
__gpustream::__generated! {
/// The types or numbers that `{{kernel}}` was compiled for: {{instances}}.
///
/// # Safety
/// `INSTANCE` must be the number of the instance with these arguments.
{{allow}}
#[diagnostic::on_unimplemented(message = "`{{kernel}}` was not compiled for {{subject}}", note = "there are {{instances}}")]
pub unsafe trait {{name}} [{{parameters}}] [{{supertrait}}] {
    /// The index of the instance.
    const INSTANCE: usize;
}
}
{{implementations}}

"#;

const IMPLEMENTATION: &str = r"
// SAFETY: the array of kernels has this instance at this index.
__gpustream::__generated!(unsafe impl [{{name}}<{{arguments}}>] for {{ty}} { const INSTANCE: usize = {{number}}; });
";

/// Returns a kernel template's trait and its implementations. Empty if the kernel is not a template.
pub(super) fn selector(kernel: &Kernel) -> String {
    if kernel.template.is_empty() {
        return String::new();
    }
    let (name, subject) = (trait_name(kernel), subject(kernel));
    let instances: Vec<String> =
        kernel.instances.iter().map(|instance| format!("`{}`", kernel.instantiated(instance))).collect();
    let implementation = |(number, instance): (usize, &Instance)| {
        let ty = subject.map_or_else(|| "Kernels".to_owned(), |at| rust(&instance.arguments[at]));
        let arguments = listed(instance.arguments.iter().map(rust), subject);
        fill!(IMPLEMENTATION, name, arguments, ty, number)
    };
    fill!(
        TRAIT,
        kernel = &kernel.name,
        instances = instances.join(", "),
        allow = ALLOW,
        subject = match (&kernel.template[..], subject) {
            ([_], Some(_)) => "`{Self}`",
            _ => "these types or numbers",
        },
        parameters = listed(kernel.template.iter().map(parameter), subject),
        supertrait = if subject.is_some_and(|number| is_element(kernel, number)) { PLAIN } else { "Sized" },
        implementations = kernel.instances.iter().enumerate().map(implementation).collect::<String>(),
        name,
    )
}

/// Returns the index of the template parameter that implements the trait: the first type.
fn subject(kernel: &Kernel) -> Option<usize> {
    kernel.template.iter().position(|parameter| parameter.constant.is_none())
}

/// Returns true if a launcher takes values of this type parameter, or memory that holds them.
fn is_element(kernel: &Kernel, number: usize) -> bool {
    kernel.generics.contains(&Some(number))
}

/// Joins all with commas, but leaves out the one at index `but`.
fn listed(all: impl Iterator<Item = String>, but: Option<usize>) -> String {
    let rest = all.enumerate().filter(|(at, _)| Some(*at) != but).map(|(_, one)| one);
    rest.collect::<Vec<_>>().join(", ")
}

fn parameter(Template { name, constant, .. }: &Template) -> String {
    match constant {
        Some(scalar) => format!("const {}: {}", names::parameter(name), scalar.rust()),
        None => names::parameter(name),
    }
}

/// Returns the type that must implement the trait, and the trait with its parameters, as launchers name them.
fn requirement(kernel: &Kernel) -> (String, String) {
    let subject = subject(kernel);
    let ty = subject.map_or_else(|| "Self".to_owned(), |at| names::parameter(&kernel.template[at].name));
    let rest = listed(kernel.template.iter().map(|parameter| names::parameter(&parameter.name)), subject);
    (ty, format!("{}<{rest}>", trait_name(kernel)))
}

/// Returns the generic parameters of launchers, without angle brackets.
pub(super) fn parameters(kernel: &Kernel) -> String {
    listed(kernel.template.iter().map(parameter), None)
}

/// Returns the names of these parameters, to pass them on as arguments.
pub(super) fn arguments(kernel: &Kernel) -> String {
    kernel.template.iter().map(|parameter| names::parameter(&parameter.name)).collect::<Vec<_>>().join(", ")
}

/// Returns a launcher's `where` clause. Empty if the kernel is not a template.
pub(super) fn bounds(kernel: &Kernel) -> String {
    if kernel.template.is_empty() {
        return String::new();
    }
    let (ty, requirement) = requirement(kernel);
    let mut bounds = format!("where {ty}: {requirement}");
    for (number, parameter) in kernel.template.iter().enumerate() {
        if Some(number) != subject(kernel) && is_element(kernel, number) {
            bounds += &format!(", {}: {PLAIN}", names::parameter(&parameter.name));
        }
    }
    bounds
}

/// Returns the expression for the loaded kernel: a field of `Kernels`, or an element of the field.
pub(super) fn loaded(kernel: &Kernel) -> String {
    let field = super::names::field(&kernel.name);
    let loaded = if kernel.template.is_empty() {
        format!("self.{field}")
    } else {
        let (ty, requirement) = requirement(kernel);
        format!("self.{field}[<{ty} as {requirement}>::INSTANCE]")
    };
    match &kernel.targets {
        None => loaded,
        Some(targets) => format!(
            "(*__gpustream::codegen::compiled({loaded}.as_ref(), {:?}, {:?})?)",
            kernel.name,
            targets.join(", ")
        ),
    }
}

/// Returns the Rust type that a parameter has, or that its memory holds.
pub(super) fn element(kernel: &Kernel, param: usize) -> String {
    if let Some(Some(generic)) = kernel.generics.get(param) {
        return names::parameter(&kernel.template[*generic].name);
    }
    match &kernel.params[param].ty {
        ParamType::Value(value) => value.rust(),
        ParamType::Pointer { element, .. } => element.rust(),
    }
}

/// Returns the trait's name: `HasAxpy` for `axpy`.
fn trait_name(kernel: &Kernel) -> String {
    let words = kernel.name.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    });
    format!("Has{}", words.collect::<String>())
}

fn rust(argument: &Argument) -> String {
    match argument {
        Argument::Type { ty: Some(ty), .. } => ty.rust(),
        Argument::Type { cpp, ty: None } => named(cpp),
        Argument::Constant { value, of_enum: Some(_), .. } => value.to_string(),
        Argument::Constant { .. } => argument.cpp(),
    }
}

/// Makes a Rust name from a C++ type.
fn named(cpp: &str) -> String {
    let name: String = cpp
        .trim_start_matches(':')
        .replace("::", "_")
        .replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_");
    identifier(&name)
}
