//! The methods that bindings have for variables: each variable can be found, and a constant can also be set.

use super::fill::fill;
use super::{docs_or, literal};
use crate::names::identifier;
use crate::signature::{Global, GlobalType, Module};

/// Lists a module's variables, without brackets.
pub(super) fn list(module: &Module) -> String {
    let entry = |global: &Global| {
        fill!(
            "__gpustream::GlobalVariable { name: {{name}}, memory: __gpustream::GlobalMemory::{{memory}} }",
            name = literal(&global.path),
            memory = if global.constant { "Constant" } else { "Device" },
        )
    };
    module.globals.iter().map(entry).collect::<Vec<_>>().join(", ")
}

/// Returns the variables whose symbols a run-time compiler must report, with C++ expressions for their
/// addresses. Other variables have their names as symbols, or symbols that no compiler reports.
pub(super) fn addresses(module: &Module) -> impl Iterator<Item = (String, String)> {
    let within = module.globals.iter().filter(|global| global.path.contains("::") && !global.internal);
    within.map(|Global { path, .. }| (path.clone(), format!("&{path}")))
}

const FINDER: &str = r"

/// {{docs}}
/// Returns the {{variable}}, which is in {{place}}.
///
/// # Errors
/// `GlobalNotFound` if the loaded image has no such variable. A compiler may leave out a `static` one or hide it from the driver.
#[track_caller]
pub fn {{name}}(&self) -> __gpustream::Result<__gpustream::Global<{{element}}>> {
    // SAFETY: every compiler has asserted the type, and the kernels' author vouches for all of its values.
    __gpustream::__generated!(unsafe { __gpustream::codegen::global::<{{element}}>(&self.module, {{path}}, {{count}}) })
}
";

const SETTER: &str = r"

/// Copies `{{parameter}}` to the {{variable}}, in stream order. The variable is in {{place}}.
///
/// # Errors
/// Those of [`{{name}}`](Self::{{name}}) and [`Global::upload`](__gpustream::Global::upload).
/// {{mismatch}}
#[track_caller]
pub fn set_{{name}}(&self, stream: &__gpustream::Stream, {{parameter}}: {{ty}}) -> __gpustream::Result<()> {
    self.{{finder}}()?.upload(stream, {{values}})
}
";

/// Returns the methods of a variable. A variable without a type has none.
pub(super) fn methods(global: &Global) -> String {
    let Some(GlobalType { element, len }) = &global.ty else { return String::new() };
    let Global { name, path, constant, place, .. } = global;
    let element = element.rust();
    let kind = if *constant { "__constant__" } else { "__device__" };
    let size = len.map_or(String::new(), |len| format!(" of {len} elements"));
    let variable = format!("`{kind}` variable `{path}`{size}");
    let mut docs = docs_or(&global.docs, "");
    if !docs.is_empty() {
        docs.push('\n');
    }
    let (path, count) = (literal(path), len.unwrap_or(1));
    let finder = fill!(FINDER, docs, variable, place, name = identifier(name), element, path, count);
    if !constant {
        return finder;
    }
    let mismatch = "`ArgumentMismatch` if the number of values differs.";
    let (parameter, ty, values, mismatch) = match len {
        Some(_) => ("values", format!("&[{element}]"), "values", mismatch),
        None => ("value", element, "&[value]", ""),
    };
    let name_of_finder = identifier(name);
    let setter =
        fill!(SETTER, parameter, variable, place, name, mismatch, ty, finder = name_of_finder, values);
    finder + &setter
}
