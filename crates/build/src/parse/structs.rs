//! Structs that kernels take: their layout, and the obstacles to their being plain data.

use tree_sitter::Node;

use super::types::Types;
use super::{child_of_kind, children, doc};
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::signature::{Field, Struct};
use crate::types::{Scalar, ValueType};

impl<'a> Types<'a> {
    /// Lays a struct out as C does, and refuses members that Rust could not hold safely.
    pub(super) fn define(&mut self, name: &str, node: Node<'a>) -> Result<Struct, Diagnostic> {
        let source = self.source;
        if PRIMITIVES.contains(&name) || matches!(name, "Kernels" | "Self" | "Some" | "None" | "Ok" | "Err") {
            return Err(source.diagnostic(
                node.byte_range(),
                format!("`{name}` has a meaning of its own in the generated Rust"),
                "rename the struct",
            ));
        }
        if let Some(base) = child_of_kind(node, "base_class_clause") {
            return Err(source.diagnostic(
                base.byte_range(),
                format!("`{name}` inherits, so its layout is not Rust's to know"),
                "write the base's members into the struct",
            ));
        }
        let explicit_align = self.alignment(node)?;
        let mut fields: Vec<Field> = Vec::new();
        let (mut end, mut align) = (0_usize, explicit_align.unwrap_or(1));
        let body = node.child_by_field_name("body").unwrap_or(node);
        for member in body.named_children(&mut body.walk()) {
            match member.kind() {
                "field_declaration" => {}
                // Member functions do not change the layout.
                "function_definition"
                | "comment"
                | "access_specifier"
                | "alias_declaration"
                | "static_assert_declaration" => continue,
                _ => return Err(unbindable(source, member, name)),
            }
            for field in self.fields(member, name)? {
                let (size, field_align) = field.layout();
                let offset = end.next_multiple_of(field_align);
                if offset != end {
                    return Err(padding(source, member, name, &field.name, offset - end));
                }
                end = offset + size;
                align = align.max(field_align);
                fields.push(Field { offset, ..field });
            }
        }
        if fields.is_empty() {
            return Err(source.diagnostic(
                node.byte_range(),
                format!("`{name}` has no members"),
                "drop the parameter",
            ));
        }
        if end.next_multiple_of(align) != end {
            return Err(source.diagnostic(
                node.child_by_field_name("name").unwrap_or(node).byte_range(),
                format!("`{name}` ends with {} bytes of padding", end.next_multiple_of(align) - end),
                "add members that fill it; padding has no defined contents to send to a device",
            ));
        }
        let docs = self.docs.above(source, node.start_byte());
        Ok(Struct {
            name: name.to_owned(),
            docs: doc::text_lines(&source.text, &docs),
            fields,
            size: end,
            align,
            explicit_align,
        })
    }

    fn alignment(&self, node: Node<'a>) -> Result<Option<usize>, Diagnostic> {
        for child in children(node) {
            let text = self.text(child);
            if child.kind().contains("align") || text.starts_with("alignas") || text.starts_with("__align") {
                let digits = text.rsplit('(').next().unwrap_or_default().trim_end_matches(')').trim();
                return match digits.parse::<usize>() {
                    Ok(align) if align.is_power_of_two() && align <= 16 => Ok(Some(align)),
                    _ => Err(self.source.diagnostic(
                        child.byte_range(),
                        "this alignment cannot be carried over",
                        "write a power of two up to 16 as a number",
                    )),
                };
            }
        }
        Ok(None)
    }

    fn fields(&mut self, member: Node<'a>, of: &str) -> Result<Vec<Field>, Diagnostic> {
        let source = self.source;
        let Some(type_node) = member.child_by_field_name("type") else { return Ok(Vec::new()) };
        let mut cursor = member.walk();
        let declarators: Vec<_> = member.children_by_field_name("declarator", &mut cursor).collect();
        let static_member = child_of_kind(member, "storage_class_specifier").is_some();
        if static_member || declarators.iter().any(|d| d.kind() == "function_declarator") {
            return Ok(Vec::new());
        }
        let docs = self.docs.above(source, member.start_byte());
        let docs = doc::text_lines(&source.text, &docs);
        let mut fields = Vec::new();
        for declarator in declarators {
            let mut extents = Vec::new();
            let mut node = declarator;
            loop {
                match node.kind() {
                    "field_identifier" => break,
                    "array_declarator" => {
                        let extent = node.child_by_field_name("size");
                        let extent =
                            extent.and_then(|e| self.text(e).parse::<usize>().ok()).filter(|e| *e > 0);
                        extents.push(extent.ok_or_else(|| {
                            source.diagnostic(
                                node.byte_range(),
                                "an array member needs its length as a number",
                                "write for example `float v[4]`",
                            )
                        })?);
                    }
                    "pointer_declarator" | "reference_declarator" => {
                        return Err(source.diagnostic(
                            member.byte_range(),
                            format!("`{of}` holds a pointer"),
                            "pass it as a kernel parameter of its own, so that its memory is tracked",
                        ));
                    }
                    _ => return Err(unbindable(source, member, of)),
                }
                match node.child_by_field_name("declarator") {
                    Some(inner) => node = inner,
                    None => break,
                }
            }
            if child_of_kind(member, "bitfield_clause").is_some() {
                return Err(source.diagnostic(
                    member.byte_range(),
                    "a bit field has no place of its own in Rust",
                    "write an integer member and shift",
                ));
            }
            let ty = self.resolve(type_node)?;
            if ty == ValueType::Scalar(Scalar::Bool) {
                return Err(source.diagnostic(
                    member.byte_range(),
                    "a bool member could hold values that are neither true nor false",
                    "write `unsigned char`",
                ));
            }
            // Declarators nest from the inside out: `a[2][3]` names its last extent first.
            extents.reverse();
            let name = self.text(node).to_owned();
            fields.push(Field { name, docs: docs.clone(), ty, extents, offset: 0 });
        }
        Ok(fields)
    }
}

fn unbindable(source: &SourceFile, member: Node<'_>, of: &str) -> Diagnostic {
    source.diagnostic(
        member.byte_range(),
        format!("this member of `{of}` cannot be bound"),
        "members are scalars, arrays of scalars, and structs of this file",
    )
}

fn padding(source: &SourceFile, member: Node<'_>, of: &str, field: &str, bytes: usize) -> Diagnostic {
    source.diagnostic(
        member.byte_range(),
        format!("`{of}` has {bytes} bytes of padding before `{field}`"),
        "order members from large to small or add members that fill the gap; padding has no defined contents \
         to send to a device",
    )
}

/// The types of Rust that need no import and begin with a small letter.
const PRIMITIVES: [&str; 17] = [
    "bool", "char", "str", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "isize", "usize", "f32",
    "f64", "i128", "u128",
];
