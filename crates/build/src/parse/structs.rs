//! Structs and unions that kernels take: their layout, and what keeps them from being plain data.

use tree_sitter::Node;

use super::declared::declarator_name;
use super::preprocess::closing;
use super::types::{Place, Shape, Types, scope};
use super::{child_of_kind, children, declarators, descendants};
use crate::definition::{Field, Struct};
use crate::diagnostic::Diagnostic;
use crate::types::{Scalar, ValueType};

impl<'a> Types<'a> {
    /// Lays out a struct or union as C does, and refuses members that have no counterpart in Rust.
    pub(super) fn define(&mut self, cpp: &str, place: Place<'a>) -> Result<Struct, Diagnostic> {
        let node = place.node;
        if let Some(base) = child_of_kind(node, "base_class_clause") {
            return Err(place.at(base).refuse(
                format!("`{cpp}` inherits, so its layout is not Rust's to know"),
                "write the base's members into the struct",
            ));
        }
        let explicit_align = self.alignment(place)?;
        let mut fields: Vec<Field> = Vec::new();
        let body = node.child_by_field_name("body").unwrap_or(node);
        let mut private = node.kind() == "class_specifier";
        for member in children(body) {
            let members = self.member(place.at(member), cpp)?;
            if member.kind() == "access_specifier" {
                private = !place.at(member).text().starts_with("public");
            } else if private && !members.is_empty() {
                return Err(place.at(member).refuse(
                    format!(
                        "this member of `{cpp}` is private, so we cannot check where a compiler places it"
                    ),
                    "make it public",
                ));
            }
            fields.extend(members);
        }
        if fields.is_empty() {
            return Err(place.refuse(format!("`{cpp}` has no members"), "drop the parameter"));
        }
        let aligns = fields.iter().map(|field| field.layout().1);
        let align = aligns.chain(explicit_align).max().unwrap_or(1);
        let mut end = 0_usize;
        if node.kind() == "union_specifier" {
            end = fields.iter().map(|field| field.layout().0).max().unwrap_or_default();
            let size = end.next_multiple_of(align);
            fields = vec![words(size, align)];
        } else {
            for field in &mut fields {
                let (size, field_align) = field.layout();
                field.offset = end.next_multiple_of(field_align);
                end = field.offset.checked_add(size).filter(|end| *end <= MAX_SIZE).ok_or_else(|| {
                    place.refuse(format!("`{cpp}` is too large"), "pass a pointer to such memory")
                })?;
            }
        }
        Ok(Struct {
            name: self.rust_name(cpp, place)?,
            cpp: cpp.to_owned(),
            docs: self.docs(place),
            hazard: fields.iter().find_map(|field| field.ty.hazard()),
            fields,
            size: end.next_multiple_of(align),
            align,
        })
    }

    /// Returns the alignment that is written before or after a struct's body.
    fn alignment(&mut self, place: Place<'a>) -> Result<Option<usize>, Diagnostic> {
        let (node, text) = (place.node, &place.source.text);
        let body = node.child_by_field_name("body").map_or(node.byte_range(), |body| body.byte_range());
        let rest = text[node.end_byte()..].find(';').map_or(text.len(), |at| node.end_byte() + at);
        let mut largest = None;
        for range in [node.start_byte()..body.start, node.end_byte()..rest] {
            let part = &text[range];
            if part.contains("packed") {
                return Err(place.refuse(
                    "a packed struct",
                    "order its members from large to small instead, so that nothing has to be packed",
                ));
            }
            for word in ["alignas", "__align__", "aligned"] {
                let Some(at) = part.find(word).map(|at| at + word.len()) else { continue };
                let argument = closing(part, at).map(|end| part[at..end].trim());
                let value = argument.and_then(|argument| self.evaluate(argument, &scope(place)));
                let align = value.and_then(|value| usize::try_from(value).ok());
                match align.filter(|align| align.is_power_of_two() && *align <= MAX_ALIGN) {
                    Some(align) => largest = largest.max(Some(align)),
                    None => {
                        return Err(place.refuse(
                            format!(
                                "the alignment `{}` cannot be carried over",
                                argument.unwrap_or_default()
                            ),
                            format!("write a power of two up to {MAX_ALIGN}"),
                        ));
                    }
                }
            }
        }
        Ok(largest)
    }

    /// Returns the fields that a member declares. Functions and types declare none.
    fn member(&mut self, place: Place<'a>, of: &str) -> Result<Vec<Field>, Diagnostic> {
        if !declares_fields(place, of)? {
            return Ok(Vec::new());
        }
        let docs = self.docs(place);
        let mut fields = Vec::new();
        for declarator in declarators(place.node) {
            fields.push(Field { docs: docs.clone(), ..self.field(place, declarator, of)? });
        }
        Ok(fields)
    }

    /// Returns the field of one declarator, without its docs.
    fn field(&mut self, place: Place<'a>, declarator: Node<'a>, of: &str) -> Result<Field, Diagnostic> {
        let Some(name) = declarator_name(place.at(declarator)) else { return Err(unbindable(place, of)) };
        let mut declared = self.declaration(place, Some(declarator))?;
        let mut extents = Vec::new();
        while let Shape::Array(element, len) = declared.shape {
            extents.push(len.ok_or_else(|| {
                place.refuse(
                    format!("`{name}` is an array without a length"),
                    "write for example `float v[4]`",
                )
            })?);
            declared = *element;
        }
        let (constant, volatile) = (declared.constant, declared.volatile);
        let ty = match declared.shape {
            Shape::Value(value) => value.stored(),
            Shape::Pointer(_) | Shape::Function => ValueType::Address,
            Shape::Refused(why) => return Err(*why),
            Shape::Void | Shape::Reference | Shape::Array(..) => return Err(unbindable(place, of)),
        };
        let (name, docs) = (name.to_owned(), Vec::new());
        let field = Field { name, docs, ty, extents, offset: 0, in_cpp: true, constant, volatile };
        if field.size().is_none() {
            let message = format!("`{of}::{}` is too large", field.name);
            return Err(place.refuse(message, "pass a pointer to such memory"));
        }
        Ok(field)
    }
}

/// Returns false if a member does not change the layout, for example because it is a function or a type.
/// Refuses members that have no counterpart in Rust.
fn declares_fields(place: Place<'_>, of: &str) -> Result<bool, Diagnostic> {
    let member = place.node;
    if place.text().starts_with("virtual") {
        return Err(place.refuse(
            format!("`{of}` has virtual functions, so a host's value means nothing on a device"),
            "choose by an integer or an enum member",
        ));
    }
    match member.kind() {
        "field_declaration" => {}
        "{"
        | "}"
        | ";"
        | ":"
        | "function_definition"
        | "comment"
        | "access_specifier"
        | "alias_declaration"
        | "type_definition"
        | "using_declaration"
        | "friend_declaration"
        | "template_declaration"
        | "static_assert_declaration"
        | "preproc_def"
        | "preproc_function_def"
        | "preproc_call" => return Ok(false),
        "declaration" if declares_function(member) => return Ok(false),
        _ => return Err(unbindable(place, of)),
    }
    let declarators = declarators(member);
    if child_of_kind(member, "storage_class_specifier").is_some()
        || declarators.iter().any(|declarator| declares_function(*declarator))
    {
        return Ok(false);
    }
    if child_of_kind(member, "bitfield_clause").is_some() {
        return Err(
            place.refuse("a bit field has no place of its own in Rust", "write an integer member and shift")
        );
    }
    let Some(ty) = member.child_by_field_name("type") else { return Err(unbindable(place, of)) };
    let anonymous = ty.child_by_field_name("name").is_none() && ty.kind() != "enum_specifier";
    if declarators.is_empty() && anonymous { Err(unbindable(place, of)) } else { Ok(!declarators.is_empty()) }
}

fn declares_function(node: Node<'_>) -> bool {
    descendants(node).any(|node| node.kind() == "function_declarator" && !is_pointer(node))
}

/// The largest alignment that we can support. Memory for kernels always has at least this alignment.
const MAX_ALIGN: usize = 128;

/// A struct must be smaller than this, or we give up.
pub(crate) const MAX_SIZE: usize = 1 << 40;

/// Returns the single field that represents a union in Rust. We cannot know which member is valid, so the
/// field is an array of integers, as large as the union's alignment allows.
fn words(size: usize, align: usize) -> Field {
    let word =
        [Scalar::U64, Scalar::U32, Scalar::U16].into_iter().find(|word| align.is_multiple_of(word.size()));
    let word = word.unwrap_or(Scalar::U8);
    Field {
        name: "words".to_owned(),
        docs: vec!["The union's bytes.".to_owned()],
        ty: ValueType::Scalar(word),
        extents: vec![size / word.size()],
        offset: 0,
        in_cpp: false,
        constant: false,
        volatile: false,
    }
}

/// Returns true if a function's declarator belongs to a pointer to a function.
fn is_pointer(node: Node<'_>) -> bool {
    node.child_by_field_name("declarator").is_some_and(|inner| inner.kind().contains("parenthesized"))
}

fn unbindable(place: Place<'_>, of: &str) -> Diagnostic {
    place.refuse(
        format!("this member of `{of}` cannot be bound"),
        "members are scalars, enums, pointers, structs with a name, and arrays of these",
    )
}
