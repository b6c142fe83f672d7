//! C++ types that Rust can name: scalars, short vectors, structs of the file, aliases of these.

use std::collections::HashMap;

use tree_sitter::Node;

use super::{child_of_kind, doc};
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::signature::{Field, Scalar, Struct, ValueType, vector_from_cpp};

/// The types a file declares, resolved as they are asked for.
pub(super) struct Types<'a> {
    source: &'a SourceFile,
    structs: HashMap<String, Node<'a>>,
    aliases: HashMap<String, Node<'a>>,
    docs: doc::Docs,
    used: Vec<Struct>,
    /// Names on the way, against cycles.
    open: Vec<String>,
}

impl<'a> Types<'a> {
    pub(super) fn collect(source: &'a SourceFile, root: Node<'a>) -> Self {
        let mut types = Self {
            source,
            structs: HashMap::new(),
            aliases: HashMap::new(),
            docs: doc::Docs::collect(source, root),
            used: Vec::new(),
            open: Vec::new(),
        };
        types.gather(root);
        types
    }

    /// The structs kernels refer to, those they contain first.
    pub(super) fn into_used(self) -> Vec<Struct> {
        self.used
    }

    fn text(&self, node: Node<'_>) -> &'a str {
        &self.source.text[node.byte_range()]
    }

    fn gather(&mut self, node: Node<'a>) {
        match node.kind() {
            "struct_specifier" | "class_specifier" => {
                if let (Some(name), Some(_)) =
                    (node.child_by_field_name("name"), node.child_by_field_name("body"))
                {
                    self.structs.insert(self.text(name).to_owned(), node);
                }
                return;
            }
            "type_definition" | "alias_declaration" => {
                let name =
                    node.child_by_field_name("declarator").or_else(|| node.child_by_field_name("name"));
                let aliased = node.child_by_field_name("type");
                if let (Some(name), Some(aliased)) = (name, aliased)
                    && name.kind() == "type_identifier"
                {
                    let name = self.text(name).to_owned();
                    if aliased.child_by_field_name("body").is_some() {
                        // `typedef struct { … } Name;`
                        self.structs.insert(name, aliased);
                    } else {
                        self.aliases.insert(name, aliased);
                    }
                }
                return;
            }
            "function_definition" | "template_declaration" | "namespace_definition" => return,
            _ => {}
        }
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.gather(child);
        }
    }

    /// The type of memory a kernel reads or writes.
    pub(super) fn resolve_element(&mut self, node: Node<'a>, name: &str) -> Result<ValueType, Diagnostic> {
        match self.text(node) {
            "void" => Err(self.source.diagnostic(
                node.byte_range(),
                format!("`{name}` points to void"),
                format!("say what it points to; for bytes `unsigned char* {name}`"),
            )),
            "bool" => Err(self.source.diagnostic(
                node.byte_range(),
                "memory of bools could hold values that are neither true nor false",
                format!("write `unsigned char* {name}`"),
            )),
            _ => self.resolve(node),
        }
    }

    /// The type a type node stands for.
    pub(super) fn resolve(&mut self, node: Node<'a>) -> Result<ValueType, Diagnostic> {
        let refuse = |message: String, help: &str| {
            Err(self.source.diagnostic(node.byte_range(), message, help.to_owned()))
        };
        let text = self.text(node);
        match node.kind() {
            "primitive_type" | "sized_type_specifier" | "type_identifier" | "qualified_identifier" => {}
            "struct_specifier" | "class_specifier" => {
                if let Some(name) = node.child_by_field_name("name") {
                    return self.resolve_struct(self.text(name).to_owned(), node);
                }
                return refuse("a struct without a name".to_owned(), "declare it above the kernel");
            }
            "type_descriptor" => {
                if let Some(inner) = node.child_by_field_name("type")
                    && node.child_by_field_name("declarator").is_none()
                {
                    return self.resolve(inner);
                }
                return refuse(
                    format!("`{text}` is not a plain value"),
                    "an alias of a scalar or a struct of this file can be used",
                );
            }
            "template_type" => {
                return refuse(
                    format!("`{text}` is a template"),
                    "write a struct of this file with the members it needs",
                );
            }
            "enum_specifier" => {
                return refuse(
                    "an enum cannot be passed".to_owned(),
                    "write `int`, and name its values in Rust",
                );
            }
            "placeholder_type_specifier" | "auto" | "decltype" => {
                return refuse("a deduced type cannot be bound".to_owned(), "write the type");
            }
            _ => {
                return refuse(
                    format!("`{text}` cannot be a kernel parameter"),
                    "use a scalar, a pointer to scalars, or a struct of this file by value",
                );
            }
        }
        let name = canonical(text);
        if let Some(scalar) = Scalar::from_cpp(&name) {
            return Ok(ValueType::Scalar(scalar));
        }
        if let Some(vector) = vector_from_cpp(&name) {
            return Ok(vector);
        }
        match name.as_str() {
            "char" => {
                return refuse(
                    "`char` is signed on some systems and unsigned on others".to_owned(),
                    "write `signed char` or `unsigned char`",
                );
            }
            "void" => return refuse("a parameter of type void".to_owned(), "give it a type"),
            "long double" => {
                return refuse("GPUs have no `long double`".to_owned(), "write `double`");
            }
            _ if name.contains('<') => {
                return refuse(
                    format!("`{text}` is a template"),
                    "write a struct of this file with the members it needs",
                );
            }
            _ => {}
        }
        if self.open.contains(&name) {
            return refuse(format!("`{name}` refers to itself"), "spell the type out");
        }
        if let Some(&aliased) = self.aliases.get(&name) {
            self.open.push(name);
            let resolved = self.resolve(aliased);
            self.open.pop();
            return resolved;
        }
        self.resolve_struct(name, node)
    }

    fn resolve_struct(&mut self, name: String, node: Node<'a>) -> Result<ValueType, Diagnostic> {
        if let Some(known) = self.used.iter().find(|s| s.name == name) {
            return Ok(ValueType::Struct { name, size: known.size, align: known.align });
        }
        let Some(&definition) = self.structs.get(&name) else {
            return Err(self.source.diagnostic(
                node.byte_range(),
                format!("unknown type `{name}`"),
                "use a scalar (float, double, half, int, size_t, int32_t, …), a vector such as float4, or a \
                 struct or alias declared in this file",
            ));
        };
        self.open.push(name.clone());
        let result = self.define(&name, definition);
        self.open.pop();
        let definition = result?;
        let ty = ValueType::Struct { name, size: definition.size, align: definition.align };
        self.used.push(definition);
        Ok(ty)
    }

    /// Lays a struct out as C does, and refuses what Rust could not hold safely.
    fn define(&mut self, name: &str, node: Node<'a>) -> Result<Struct, Diagnostic> {
        let source = self.source;
        if name.starts_with(|c: char| c.is_ascii_lowercase()) && is_rust_primitive(name)
            || name == "Kernels"
            || name == "Self"
        {
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
        let mut cursor = body.walk();
        for member in body.named_children(&mut cursor) {
            if member.kind() != "field_declaration" {
                match member.kind() {
                    // Member functions do not change the layout.
                    "function_definition"
                    | "comment"
                    | "access_specifier"
                    | "alias_declaration"
                    | "static_assert_declaration" => continue,
                    _ => {
                        return Err(source.diagnostic(
                            member.byte_range(),
                            format!("this member of `{name}` cannot be bound"),
                            "members are scalars, arrays of scalars, and structs of this file",
                        ));
                    }
                }
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
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
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
                    _ => {
                        return Err(source.diagnostic(
                            member.byte_range(),
                            format!("this member of `{of}` cannot be bound"),
                            "members are scalars, arrays of scalars, and structs of this file",
                        ));
                    }
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

fn padding(source: &SourceFile, member: Node<'_>, of: &str, field: &str, bytes: usize) -> Diagnostic {
    source.diagnostic(
        member.byte_range(),
        format!("`{of}` has {bytes} bytes of padding before `{field}`"),
        "order members from large to small or add members that fill the gap; padding has no defined contents \
         to send to a device",
    )
}

/// `std::` and `gs::` removed, integer words in one order: `long unsigned int` is `unsigned long`.
fn canonical(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let name = joined.trim_start_matches("::");
    let name = name.strip_prefix("std::").or_else(|| name.strip_prefix("gs::")).unwrap_or(name);
    let mut words: Vec<&str> = name.split(' ').collect();
    let integer = ["signed", "unsigned", "short", "long", "int", "char"];
    if !words.iter().all(|w| integer.contains(w)) {
        return name.to_owned();
    }
    let has = |word: &str| words.contains(&word);
    if words.len() > 1 && has("int") {
        words.retain(|w| *w != "int");
        return canonical(&words.join(" "));
    }
    let unsigned = has("unsigned");
    if has("char") {
        return if unsigned {
            "unsigned char"
        } else if has("signed") {
            "signed char"
        } else {
            "char"
        }
        .to_owned();
    }
    let longs = words.iter().filter(|w| **w == "long").count();
    let base = match (has("short"), longs) {
        (true, _) => "short",
        (_, 1) => "long",
        (_, 2) => "long long",
        _ => "int",
    };
    match (unsigned, base) {
        (true, "int") => "unsigned".to_owned(),
        (true, base) => format!("unsigned {base}"),
        (false, base) => base.to_owned(),
    }
}

fn is_rust_primitive(name: &str) -> bool {
    matches!(
        name,
        "bool"
            | "char"
            | "str"
            | "i8"
            | "u8"
            | "i16"
            | "u16"
            | "i32"
            | "u32"
            | "i64"
            | "u64"
            | "isize"
            | "usize"
            | "f32"
            | "f64"
            | "i128"
            | "u128"
    )
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn integer_words_come_in_any_order() {
        for (text, expected) in [
            ("long unsigned int", "unsigned long"),
            ("unsigned long long int", "unsigned long long"),
            ("unsigned", "unsigned"),
            ("unsigned int", "unsigned"),
            ("signed", "int"),
            ("short int", "short"),
            ("signed char", "signed char"),
            ("char unsigned", "unsigned char"),
            ("std::size_t", "size_t"),
            ("gs::half", "half"),
            ("long double", "long double"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }
}
