//! Writes a kernel file's structs and enums in Rust.

use super::{ALLOW, write_docs};
use crate::names::identifier;
use crate::signature::{Definition, Enum, Struct};

pub(super) fn write(text: &mut String, definition: &Definition) {
    match definition {
        Definition::Struct(definition) => write_struct(text, definition),
        Definition::Enum(definition) => write_enum(text, definition),
    }
    text.push_str(&format!(
        "{ALLOW}\nimpl ::core::default::Default for {0} {{\n    fn default() -> Self {{\n        \
         __gpustream::Zeroable::zeroed()\n    }}\n}}\n\n",
        definition.name()
    ));
}

/// Writes a struct with C's layout. Padding becomes a member, because every byte must have a value.
fn write_struct(text: &mut String, definition: &Struct) {
    let Struct { name, size, align, .. } = definition;
    write_docs(text, "", &definition.docs, &format!("`{name}`, as the kernels declare it."));
    let natural = definition.fields.iter().map(|field| field.ty.rust_align()).max().unwrap_or(1);
    let explicit = if natural < *align { format!(", align({align})") } else { String::new() };
    text.push_str(&format!(
        "{ALLOW}\n#[repr(C{explicit})]\n#[derive(Clone, Copy, Debug, PartialEq)]\npub struct {name} {{\n"
    ));
    let mut end = 0;
    for field in &definition.fields {
        write_padding(text, definition, end, field.offset);
        write_docs(text, "    ", &field.docs, &format!("`{}`.", field.name));
        let mut ty = field.ty.rust();
        for extent in field.extents.iter().rev() {
            ty = format!("[{ty}; {extent}]");
        }
        text.push_str(&format!("    pub {}: {ty},\n", identifier(&field.name)));
        end = field.offset + field.layout().0;
    }
    write_padding(text, definition, end, *size);
    text.push_str("}\n");
    text.push_str(&format!("// SAFETY: every member is valid for all bit patterns, zero included, and the assertion shows that there\n\
         // is no padding between or after them.\n\
         __gpustream::__generated!(unsafe impl (__gpustream::Zeroable) for {name});\n\
         // SAFETY: every member is valid for all bit patterns, and there is no padding between or after them.\n\
         __gpustream::__generated!(unsafe impl (__gpustream::Pod) for {name});\n\
         const _: () = {{\n    assert!(::core::mem::size_of::<{name}>() == {size} && ::core::mem::align_of::<{name}>() == {align});\n"
    ));
    for field in &definition.fields {
        let (offset, field) = (field.offset, identifier(&field.name));
        text.push_str(&format!("    assert!(::core::mem::offset_of!({name}, {field}) == {offset});\n"));
    }
    text.push_str("};\n");
}

/// Writes the member that fills a gap. Its offset is part of its name.
fn write_padding(text: &mut String, definition: &Struct, from: usize, to: usize) {
    if from < to {
        let is_taken = |name: &str| definition.fields.iter().any(|field| field.name == name);
        let name = super::names::fresh(&format!("padding_{from}"), is_taken);
        text.push_str(&format!("    /// Padding.\n    pub {name}: __gpustream::Padding<{}>,\n", to - from));
    }
}

/// Writes an enum as a struct around its integer. A Rust enum would be unsound, because device memory may
/// hold values without a name.
fn write_enum(text: &mut String, definition: &Enum) {
    let Enum { name, docs, repr, values, .. } = definition;
    write_docs(text, "", docs, &format!("`{name}`, as the kernels declare it; it may hold any integer."));
    let integer = repr.rust();
    text.push_str(&format!("{ALLOW}\n#[repr(transparent)]\n#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\npub struct {name}(pub {integer});\n\n\
         {ALLOW}\nimpl {name} {{\n"
    ));
    for (value_name, value) in values {
        text.push_str(&format!("    /// `{value_name}`, which is {value}.\n    pub const {}: Self = Self({value}_i128 as {integer});\n",
            identifier(value_name)
        ));
    }
    text.push_str(&format!(
        "}}\n// SAFETY: an integer is valid for all bit patterns, zero included.\n\
         __gpustream::__generated!(unsafe impl (__gpustream::Zeroable) for {name});\n\
         // SAFETY: an integer is valid for all bit patterns, and has no padding.\n\
         __gpustream::__generated!(unsafe impl (__gpustream::Pod) for {name});\n\n"
    ));
}
