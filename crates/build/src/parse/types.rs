//! C++ types that Rust can name: scalars, short vectors, structs of the file, aliases of these.

use std::collections::HashMap;

use tree_sitter::Node;

use super::{doc, visit};
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::signature::{Argument, Struct, Template};
use crate::types::{Scalar, ValueType, vector_from_cpp};

/// The types that a file declares, resolved as they are asked for.
pub(super) struct Types<'a> {
    pub(super) source: &'a SourceFile,
    structs: HashMap<String, Node<'a>>,
    aliases: HashMap<String, Node<'a>>,
    /// Names with a second, different definition.
    ambiguous: HashMap<String, Node<'a>>,
    pub(super) docs: doc::Docs,
    used: Vec<Struct>,
    halves: Vec<(Scalar, String)>,
    /// The names that are being resolved, against cycles.
    open: Vec<String>,
    /// The types for which a template's parameters stand while an instance's declaration is read.
    substituted: HashMap<String, ValueType>,
}

impl<'a> Types<'a> {
    pub(super) fn collect(source: &'a SourceFile, root: Node<'a>) -> Self {
        let mut types = Self {
            source,
            structs: HashMap::new(),
            aliases: HashMap::new(),
            ambiguous: HashMap::new(),
            docs: doc::Docs::collect(source, root),
            used: Vec::new(),
            halves: Vec::new(),
            open: Vec::new(),
            substituted: HashMap::new(),
        };
        visit(root, &mut |node| types.gather(node));
        types
    }

    /// Returns the structs that kernels refer to, those that they contain first; and the names of 16-bit floating-point
    /// types.
    pub(super) fn into_used(self) -> (Vec<Struct>, Vec<(Scalar, String)>) {
        (self.used, self.halves)
    }

    pub(super) fn text(&self, node: Node<'_>) -> &'a str {
        &self.source.text[node.byte_range()]
    }

    /// Notes the type that a node declares. Returns whether there may be others below.
    fn gather(&mut self, node: Node<'a>) -> bool {
        match node.kind() {
            "struct_specifier" | "class_specifier" => {
                if let (Some(name), Some(_)) =
                    (node.child_by_field_name("name"), node.child_by_field_name("body"))
                {
                    self.declare(self.text(name), node, true);
                }
                false
            }
            "type_definition" | "alias_declaration" => {
                let name =
                    node.child_by_field_name("declarator").or_else(|| node.child_by_field_name("name"));
                let aliased = node.child_by_field_name("type");
                if let (Some(name), Some(aliased)) = (name, aliased)
                    && name.kind() == "type_identifier"
                {
                    // `typedef struct { … } Name;`
                    let is_struct = aliased.child_by_field_name("body").is_some();
                    self.declare(self.text(name), aliased, is_struct);
                }
                false
            }
            "function_definition" | "template_declaration" | "namespace_definition" => false,
            _ => true,
        }
    }

    /// Records a type, or that its name has two meanings: the file's `#if`s then decide which one a compiler sees.
    fn declare(&mut self, name: &str, node: Node<'a>, is_struct: bool) {
        let known = self.structs.get(name).or_else(|| self.aliases.get(name));
        if known.is_some_and(|known| self.text(*known) != self.text(node)) {
            self.ambiguous.insert(name.to_owned(), node);
        }
        if is_struct { &mut self.structs } else { &mut self.aliases }.insert(name.to_owned(), node);
    }

    /// Returns the type of memory that a kernel reads or writes.
    pub(super) fn resolve_element(&mut self, node: Node<'a>, name: &str) -> Result<ValueType, Diagnostic> {
        if self.text(node) == "void" {
            return Err(self.source.diagnostic(
                node.byte_range(),
                format!("`{name}` points to void"),
                format!("say what it points to; for bytes `unsigned char* {name}`"),
            ));
        }
        match self.resolve(node)? {
            ValueType::Scalar(Scalar::Bool) => Err(self.source.diagnostic(
                node.byte_range(),
                "memory of bools could hold values that are neither true nor false",
                format!("write `unsigned char* {name}`"),
            )),
            element => Ok(element),
        }
    }

    /// Has a template's parameters stand for these types from here on.
    pub(super) fn substitute(&mut self, template: &[Template], arguments: &[Argument]) {
        let known = template.iter().zip(arguments).filter_map(|(parameter, argument)| match argument {
            Argument::Type { ty: Some(ty), .. } => Some((parameter.name.clone(), ty.clone())),
            _ => None,
        });
        self.substituted = known.collect();
    }

    /// Returns the type of this name, if it is one that a kernel can take.
    pub(super) fn named(&mut self, text: &str) -> Option<ValueType> {
        let name = canonical(text);
        if let Some(scalar) = Scalar::from_cpp(&name) {
            self.note_half(scalar, text);
            return Some(ValueType::Scalar(scalar));
        }
        let node = self.aliases.get(&name).or_else(|| self.structs.get(&name)).copied();
        if let Some(vector) = vector_from_cpp(&name) {
            return Some(vector);
        }
        let resolved = if self.aliases.contains_key(&name) {
            self.resolve(node?)
        } else {
            self.resolve_struct(name, node?)
        };
        resolved.ok()
    }

    /// Keeps the name of a 16-bit floating-point type, with its namespace, as the compilers' checks spell it.
    fn note_half(&mut self, scalar: Scalar, text: &str) {
        let spelled = (scalar, text.split_whitespace().collect::<String>());
        if matches!(scalar, Scalar::F16 | Scalar::Bf16) && !self.halves.contains(&spelled) {
            self.halves.push(spelled);
        }
    }

    /// Returns the type that a type node stands for.
    pub(super) fn resolve(&mut self, node: Node<'a>) -> Result<ValueType, Diagnostic> {
        let refuse = |message: String, help: &str| {
            Err(self.source.diagnostic(node.byte_range(), message, help.to_owned()))
        };
        let text = self.text(node);
        match node.kind() {
            "primitive_type" | "sized_type_specifier" | "type_identifier" | "qualified_identifier" => {}
            "struct_specifier" | "class_specifier" => {
                if let Some(name) = node.child_by_field_name("name") {
                    return self.resolve(name);
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
        if let Some(known) = self.substituted.get(&name) {
            return Ok(known.clone());
        }
        if let Some(second) = self.ambiguous.get(&name) {
            let (line, _) = self.source.position(second.start_byte());
            return refuse(
                format!("`{name}` is declared more than once, the last time on line {line}"),
                "declare it once: launchers have one type for all backends",
            );
        }
        if let Some(scalar) = Scalar::from_cpp(&name) {
            self.note_half(scalar, text);
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
}

/// Returns the scalar of this name.
pub(super) fn scalar(text: &str) -> Option<Scalar> {
    Scalar::from_cpp(&canonical(text))
}

/// Returns the name without `std::` and `gs::`, its integer words in one order: `long unsigned int` is `unsigned long`.
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
        let sign = ["unsigned ", "signed "].into_iter().find(|sign| has(sign.trim_end()));
        return format!("{}char", sign.unwrap_or_default());
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
