//! Methods for variables: one that finds the variable, and for constants one that sets it.

use super::write_docs;
use crate::names::identifier;
use crate::signature::{Global, GlobalType, Module};

/// Returns the list of a module's variables, without brackets.
pub(super) fn list(module: &Module) -> String {
    let entry = |global: &Global| {
        let memory = if global.constant { "Constant" } else { "Device" };
        format!(
            "__gpustream::GlobalVariable {{ name: {:?}, memory: __gpustream::GlobalMemory::{memory} }}",
            global.path
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

/// Writes the methods of a variable. A variable without a type has none.
pub(super) fn write(text: &mut String, global: &Global) {
    let Some(GlobalType { element, len }) = &global.ty else { return };
    let Global { name, path, constant, docs, place, .. } = global;
    let (element, kind) = (element.rust(), if *constant { "__constant__" } else { "__device__" });
    let (count, size) = (len.unwrap_or(1), len.map_or(String::new(), |len| format!(" of {len} elements")));
    let mut about = docs.clone();
    if !about.is_empty() {
        about.push(String::new());
    }
    about.push(format!("Returns the `{kind}` variable `{path}`{size}, which is in {place}."));
    about.extend(
        [
            "",
            "# Errors",
            "`GlobalNotFound` if the loaded image has no such variable. A compiler may leave out a `static` one or hide it \
             from the driver.",
        ]
        .map(str::to_owned),
    );
    text.push('\n');
    write_docs(text, "    ", &about, "");
    text.push_str(&format!("    #[track_caller]\n    pub fn {}(&self) -> __gpustream::Result<__gpustream::Global<{element}>> {{\n        // SAFETY: every compiler has \
         asserted the type, and the kernels' author vouches for all of its values.\n        \
         __gpustream::__generated!(unsafe {{ __gpustream::codegen::global::<{element}>(&self.module, {path:?}, {count}) }})\n    }}\n",
        identifier(name),
    ));
    if !constant {
        return;
    }
    let (parameter, values, what) = match len {
        Some(_) => (format!("values: &[{element}]"), "values", "`values`"),
        None => (format!("value: {element}"), "&[value]", "`value`"),
    };
    let mut about = vec![
        format!(
            "Copies {what} to the `{kind}` variable `{path}`{size}, in stream order. The variable is in {place}."
        ),
        String::new(),
        "# Errors".to_owned(),
        format!("Those of [`{name}`](Self::{name}) and [`Global::upload`](__gpustream::Global::upload)."),
    ];
    if len.is_some() {
        about.push("`ArgumentMismatch` if the number of values differs.".to_owned());
    }
    text.push('\n');
    write_docs(text, "    ", &about, "");
    text.push_str(&format!("    #[track_caller]\n    pub fn set_{name}(&self, stream: &__gpustream::Stream, {parameter}) -> __gpustream::Result<()> \
         {{\n        self.{}()?.upload(stream, {values})\n    }}\n",
        identifier(name)
    ));
}
