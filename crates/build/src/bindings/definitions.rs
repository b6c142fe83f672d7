//! A kernel file's structs and enums in Rust.

use super::fill::fill;
use super::{ALLOW, docs_or};
use crate::definition::{Definition, Enum, Struct};
use crate::names::identifier;

pub(super) fn definition(definition: &Definition) -> String {
    match definition {
        Definition::Struct(definition) => of_struct(definition),
        Definition::Enum(definition) => of_enum(definition),
    }
}

/// A struct with C's layout. Padding is a member, because every byte must have a value.
const STRUCT: &str = r"
/// {{docs}}
{{allow}}
#[repr(C{{align_to}})]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct {{name}} {
    {{members}}
}
// SAFETY: every member is valid for all bit patterns, zero included, and the assertion shows that there
// is no padding between or after them.
__gpustream::__generated!(unsafe impl (__gpustream::Zeroable) for {{name}});
// SAFETY: every member is valid for all bit patterns, and there is no padding between or after them.
__gpustream::__generated!(unsafe impl (__gpustream::Pod) for {{name}});
const _: () = {
    assert!(::core::mem::size_of::<{{name}}>() == {{size}} && ::core::mem::align_of::<{{name}}>() == {{align}});
    {{offsets}}
};
{{default}}
";

const MEMBER: &str = r"
/// {{docs}}
pub {{name}}: {{ty}},
";

/// A member in place of padding. Its offset is part of its name.
const PADDING: &str = r"
/// Padding.
pub {{name}}: __gpustream::Padding<{{size}}>,
";

const DEFAULT: &str = r"
{{allow}}
impl ::core::default::Default for {{name}} {
    fn default() -> Self {
        __gpustream::Zeroable::zeroed()
    }
}

";

fn of_struct(definition: &Struct) -> String {
    let Struct { name, size, align, fields, .. } = definition;
    let natural = fields.iter().map(|field| field.ty.rust_align()).max().unwrap_or(1);
    let (mut members, mut offsets) = (String::new(), String::new());
    let mut end = 0;
    for field in fields {
        let name = identifier(&field.name);
        let in_arrays = |ty, extent: &usize| format!("[{ty}; {extent}]");
        let ty = field.extents.iter().rev().fold(field.ty.rust(), in_arrays);
        let docs = docs_or(&field.docs, &format!("`{}`.", field.name));
        members += &padding(definition, end, field.offset);
        members += &fill!(MEMBER, docs, name, ty);
        offsets +=
            &format!("assert!(::core::mem::offset_of!({}, {name}) == {});\n", definition.name, field.offset);
        end = field.offset + field.layout().0;
    }
    members += &padding(definition, end, *size);
    fill!(
        STRUCT,
        docs = docs_or(&definition.docs, &format!("`{name}`, as the kernels declare it.")),
        allow = ALLOW,
        align_to = if natural < *align { format!(", align({align})") } else { String::new() },
        default = fill!(DEFAULT, name, allow = ALLOW),
        name,
        members,
        size,
        align,
        offsets,
    )
}

/// Returns the member in place of the padding between two offsets, if there is any.
fn padding(definition: &Struct, from: usize, to: usize) -> String {
    if from >= to {
        return String::new();
    }
    let is_taken = |name: &str| definition.fields.iter().any(|field| field.name == name);
    let name = super::names::fresh(&format!("padding_{from}"), is_taken);
    fill!(PADDING, name, size = to - from)
}

/// An enum is a struct around its integer. A Rust enum would be unsound, because device memory may hold
/// values without a name.
const ENUM: &str = r"
/// {{docs}}
{{allow}}
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct {{name}}(pub {{integer}});

{{allow}}
impl {{name}} {
    {{values}}
}
// SAFETY: an integer is valid for all bit patterns, zero included.
__gpustream::__generated!(unsafe impl (__gpustream::Zeroable) for {{name}});
// SAFETY: an integer is valid for all bit patterns, and has no padding.
__gpustream::__generated!(unsafe impl (__gpustream::Pod) for {{name}});

{{default}}
";

const ENUM_VALUE: &str = r"
/// `{{cpp}}`, which is {{value}}.
pub const {{name}}: Self = Self({{value}}_i128 as {{integer}});
";

fn of_enum(Enum { name, docs, repr, values, .. }: &Enum) -> String {
    let integer = repr.rust();
    let value =
        |(cpp, value): &(String, i128)| fill!(ENUM_VALUE, name = identifier(cpp), cpp, value, integer);
    fill!(
        ENUM,
        docs = docs_or(docs, &format!("`{name}`, as the kernels declare it; it may hold any integer.")),
        allow = ALLOW,
        values = values.iter().map(value).collect::<String>(),
        default = fill!(DEFAULT, name, allow = ALLOW),
        name,
        integer,
    )
}
