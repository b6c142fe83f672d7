//! The launchers of templates: one for all instances, generic over a trait that says which instance is meant.

use std::fmt::Write as _;

use super::ALLOW;
use crate::names::identifier;
use crate::signature::{Argument, Kernel, Module, Template};
use crate::types::ParamType;

/// Writes a type for each type of the file's templates that Rust has none for: a functor, say.
pub(super) fn write_types(text: &mut String, module: &Module) {
    let mut written = Vec::new();
    for argument in module.functions().flat_map(|(_, instance)| &instance.arguments) {
        if let Argument::Type { cpp, ty: None } = argument
            && !written.contains(&cpp)
        {
            let _ = writeln!(
                text,
                "/// Stands for the C++ type `{cpp}` among the arguments of kernel templates.\n{ALLOW}\n#[derive(Clone, \
                 Copy, Debug)]\npub struct {};\n",
                named(cpp)
            );
            written.push(cpp);
        }
    }
}

/// Writes the trait whose parameters are a template's, and which `Kernels` has for the arguments of each instance.
pub(super) fn write_trait(text: &mut String, kernel: &Kernel) {
    if kernel.template.is_empty() {
        return;
    }
    let (name, kernel_name) = (trait_name(kernel), &kernel.name);
    let instances: Vec<String> =
        kernel.instances.iter().map(|instance| format!("`{}`", kernel.instantiated(instance))).collect();
    let _ = writeln!(
        text,
        "::gpustream::__generated! {{\n/// The arguments for which `{kernel_name}` was compiled: {}.\n///\n/// # Safety\n/// `INSTANCE` \
         is that of these arguments.\n{ALLOW}\n#[diagnostic::on_unimplemented(message = \"`{kernel_name}` was not compiled \
         for these types or numbers\", note = \"there are {}\")]\npub unsafe trait {name} [{}] {{\n    /// The number of the \
         instance.\n    const INSTANCE: usize;\n}}\n}}",
        instances.join(", "),
        instances.join(", "),
        parameters(kernel),
    );
    for (number, instance) in kernel.instances.iter().enumerate() {
        let arguments: Vec<String> = instance.arguments.iter().map(rust).collect();
        let _ = writeln!(
            text,
            "// SAFETY: the array of kernels has this instance at this place.\n::gpustream::__generated!(unsafe impl \
             [{name}<{}>] for Kernels {{ const INSTANCE: usize = {number}; }});",
            arguments.join(", ")
        );
    }
    text.push('\n');
}

/// Returns the generic parameters of launchers, to be written between angle brackets.
pub(super) fn parameters(kernel: &Kernel) -> String {
    let parameter = |Template { name, constant, .. }: &Template| match constant {
        Some(scalar) => format!("const {}: {}", identifier(name), scalar.rust()),
        None => identifier(name),
    };
    kernel.template.iter().map(parameter).collect::<Vec<_>>().join(", ")
}

/// Returns the same names as arguments.
pub(super) fn arguments(kernel: &Kernel) -> String {
    kernel.template.iter().map(|parameter| identifier(&parameter.name)).collect::<Vec<_>>().join(", ")
}

/// Returns the bounds of launchers.
pub(super) fn bounds(kernel: &Kernel) -> String {
    if kernel.template.is_empty() {
        return String::new();
    }
    let mut bounds = format!("where Self: {}<{}>", trait_name(kernel), arguments(kernel));
    for (number, parameter) in kernel.template.iter().enumerate() {
        if kernel.generics.contains(&Some(number)) {
            let _ = write!(bounds, ", {}: ::gpustream::Pod", identifier(&parameter.name));
        }
    }
    bounds
}

/// Returns the expression of the loaded kernel.
pub(super) fn loaded(kernel: &Kernel) -> String {
    let field = super::names::field(&kernel.name);
    match &kernel.template[..] {
        [] => format!("self.{field}"),
        _ => format!("self.{field}[<Self as {}<{}>>::INSTANCE]", trait_name(kernel), arguments(kernel)),
    }
}

/// Returns the Rust type of a parameter's value or element.
pub(super) fn element(kernel: &Kernel, param: usize) -> String {
    if let Some(Some(generic)) = kernel.generics.get(param) {
        return identifier(&kernel.template[*generic].name);
    }
    match &kernel.params[param].ty {
        ParamType::Value(value) => value.rust(),
        ParamType::Pointer { element, .. } => element.rust(),
    }
}

/// Returns the trait's name: `AxpyFor` for `axpy`.
fn trait_name(kernel: &Kernel) -> String {
    let words = kernel.name.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    });
    words.collect::<String>() + "For"
}

fn rust(argument: &Argument) -> String {
    match argument {
        Argument::Type { ty: Some(ty), .. } => ty.rust(),
        Argument::Type { cpp, ty: None } => named(cpp),
        Argument::Constant { value, of_enum: Some(_), .. } => value.to_string(),
        Argument::Constant { .. } => argument.cpp(),
    }
}

/// Returns a name of Rust's for a type of C++.
fn named(cpp: &str) -> String {
    let name: String = cpp
        .trim_start_matches(':')
        .replace("::", "_")
        .replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_");
    identifier(&name)
}
