//! C++ types that Rust can name: scalars, short vectors, enums, structs, and aliases of these, from the file
//! and your headers.

use std::collections::HashMap;

use tree_sitter::Node;

use super::constants::{self, Name};
use super::declared::{Constant, Declared};
use super::preprocess::{Macros, Part, Parts};
use super::struct_templates::StructTemplate;
use super::{children, doc, function_name};
use crate::definition::Definition;
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::names::{has_a_meaning, identifier};
use crate::signature::{Argument, Template};
use crate::types::{Scalar, ValueType, handle_from_cpp, vector_from_cpp};

/// A node and the file that it is in.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) source: &'a SourceFile,
    pub(super) node: Node<'a>,
}

impl<'a> Place<'a> {
    pub(super) fn text(self) -> &'a str {
        &self.source.text[self.node.byte_range()]
    }

    pub(super) fn at(self, node: Node<'a>) -> Self {
        Self { source: self.source, node }
    }

    pub(super) fn refuse(self, message: impl Into<String>, help: impl Into<String>) -> Diagnostic {
        self.source.diagnostic(self.node.byte_range(), message, help)
    }
}

/// A type as C++ declares it, with its own qualifiers.
#[derive(Clone, Debug)]
pub(super) struct Type {
    pub(super) shape: Shape,
    pub(super) constant: bool,
    pub(super) volatile: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Shape {
    Value(ValueType),
    Void,
    Pointer(Box<Type>),
    /// The element type, and the length. A parameter may leave the length out.
    Array(Box<Type>, Option<usize>),
    Function,
    Reference,
    /// A type without a name in Rust, and the reason.
    Refused(Box<Diagnostic>),
}

impl Type {
    pub(super) fn of(shape: Shape) -> Self {
        Self { shape, constant: false, volatile: false }
    }

    /// Returns whether such memory is constant and whether it is volatile. An array has its elements' qualifiers.
    pub(super) fn qualifiers(&self) -> (bool, bool) {
        let (constant, volatile) = match &self.shape {
            Shape::Array(element, _) => element.qualifiers(),
            _ => (false, false),
        };
        (constant || self.constant, volatile || self.volatile)
    }

    /// Returns the type of memory that holds such values. If the type has no name in Rust, it is bytes.
    pub(super) fn element(self) -> ValueType {
        match self.shape {
            Shape::Value(value) => value.stored(),
            Shape::Void => ValueType::Bytes { unknown: None },
            Shape::Refused(why) => ValueType::Bytes { unknown: Some(why) },
            Shape::Pointer(_) | Shape::Function | Shape::Reference => ValueType::Address,
            Shape::Array(element, Some(len)) => match element.element() {
                bytes @ ValueType::Bytes { .. } => bytes,
                element => ValueType::Array { element: Box::new(element), len },
            },
            Shape::Array(element, None) => element.element(),
        }
    }
}

/// The types that a file and its headers declare. We resolve them when they are needed.
pub(super) struct Types<'a> {
    pub(super) declared: HashMap<String, Declared<'a>>,
    /// Names with a second, different definition.
    pub(super) ambiguous: HashMap<String, Place<'a>>,
    macros: &'a Macros,
    /// The values of constants and enumerators as written, and the namespaces around them.
    pub(super) constants: HashMap<String, Constant>,
    /// Namespaces that a `using` opens.
    pub(super) opened: Vec<String>,
    /// What compilers call types that have another name here: the tag of a struct with a typedef.
    pub(super) tags: Vec<(String, String)>,
    /// The headers that we read, and the quoted ones that we did not find.
    headers: (Vec<String>, Vec<String>),
    docs: Vec<doc::Docs<'a>>,
    /// The structs and enums that kernels refer to. Each comes after the ones it contains.
    pub(super) used: Vec<Definition>,
    /// The names of the 16-bit floating-point types that kernels refer to.
    pub(super) halves: Vec<(Scalar, String)>,
    /// The names that we are resolving right now. If one comes up again, the definition is circular, and we
    /// must stop.
    open: Vec<String>,
    /// Struct templates by name; `None` if there is a specialisation or a second definition.
    pub(super) templates: HashMap<String, Option<StructTemplate<'a>>>,
    /// What names stand for while we read the declaration of an instance: the template's arguments, and the
    /// types that a struct template defines for itself.
    pub(super) substituted: HashMap<String, Argument>,
    /// The file's own scope.
    pub(super) end: Place<'a>,
}

/// How deeply constants may stand for constants before we give up on an expression.
const MAX_DEPTH: usize = 32;

impl<'a> Types<'a> {
    pub(super) fn collect(source: &'a SourceFile, parts: &'a Parts<'a>) -> Self {
        let names = |part: &Part<'_>| part.source.path.display().to_string();
        let read = parts.files.len().saturating_sub(1);
        let mut types = Self {
            declared: HashMap::new(),
            ambiguous: HashMap::new(),
            macros: &parts.macros,
            constants: HashMap::new(),
            opened: Vec::new(),
            tags: Vec::new(),
            headers: (parts.files[..read].iter().map(names).collect(), parts.missing.clone()),
            docs: Vec::new(),
            used: Vec::new(),
            halves: Vec::new(),
            open: Vec::new(),
            templates: HashMap::new(),
            substituted: HashMap::new(),
            end: Place { source, node: parts.root() },
        };
        for part in &parts.files {
            let root = Place { source: part.source, node: part.tree.root_node() };
            types.docs.push(doc::Docs::collect(part.source, root.node));
            types.gather(root, "");
        }
        types
    }

    /// Returns the documentation above a declaration.
    pub(super) fn docs(&mut self, place: Place<'a>) -> Vec<String> {
        let Some(docs) = self.docs.iter_mut().find(|docs| std::ptr::eq(docs.source, place.source)) else {
            return Vec::new();
        };
        let outer = parent(place.node);
        let node = if outer.kind() == "type_definition" { outer } else { place.node };
        let lines = docs.above(node.start_byte());
        doc::text_lines(&place.source.text, &lines)
    }

    /// Returns the value of a constant expression inside `scope`.
    pub(super) fn evaluate(&mut self, text: &str, scope: &str) -> Option<i128> {
        self.evaluate_to(text, scope, 0)
    }

    fn evaluate_to(&mut self, text: &str, scope: &str, depth: usize) -> Option<i128> {
        if depth > MAX_DEPTH {
            return None;
        }
        constants::evaluate(text, &mut |name| match name {
            Name::Value(name) => {
                if let Some(Argument::Constant { value, .. }) = self.substituted.get(name) {
                    return Some(*value);
                }
                if let Some(text) = self.macros.text(name) {
                    return self.evaluate_to(text, scope, depth + 1);
                }
                let constant =
                    self.in_scope(name, scope, |types, name| types.constants.get(name).cloned())?.1;
                match constant {
                    Constant::Value(value) => Some(value),
                    Constant::Text(text, scope) => self.evaluate_to(&text, &scope, depth + 1),
                    Constant::Ambiguous => None,
                }
            }
            Name::Size(name) => size_of(name),
            Name::Defined(_) => None,
        })
    }

    /// Looks a name up in `scope`, in the scopes around it, and in those that a `using` opens. Also returns
    /// its full name.
    pub(super) fn in_scope<T>(
        &self,
        name: &str,
        scope: &str,
        look: impl Fn(&Self, &str) -> Option<T>,
    ) -> Option<(String, T)> {
        let name = name.trim_start_matches("::");
        let mut scope = scope;
        loop {
            let full = format!("{scope}{name}");
            if let Some(found) = look(self, &full) {
                return Some((full, found));
            }
            if scope.is_empty() {
                break;
            }
            let outer = scope.trim_end_matches(':');
            scope = outer.rfind("::").map_or("", |at| &outer[..at + 2]);
        }
        self.opened
            .iter()
            .map(|opened| format!("{opened}{name}"))
            .find_map(|full| Some((full.clone(), look(self, &full)?)))
    }

    /// Returns the type of a declaration, from its type node, its qualifiers and its declarator.
    pub(super) fn declaration(
        &mut self,
        place: Place<'a>,
        declarator: Option<Node<'a>>,
    ) -> Result<Type, Diagnostic> {
        let Some(base) = place.node.child_by_field_name("type") else {
            return Err(place.refuse("a declaration without a type", "write `type name`"));
        };
        let mut ty = self.base(place.at(base));
        // Qualifiers next to the type belong to it. A pointer's qualifiers are inside its declarator.
        qualify(&mut ty, place);
        self.declarator(ty, place, declarator)
    }

    /// Returns the type at the root of a declaration, `Refused` if it has no name in Rust.
    fn base(&mut self, place: Place<'a>) -> Type {
        self.resolve_type(place).unwrap_or_else(|why| Type::of(Shape::Refused(Box::new(why))))
    }

    /// Applies pointers, arrays and so on to a type, from the outside in.
    fn declarator(
        &mut self,
        mut ty: Type,
        place: Place<'a>,
        declarator: Option<Node<'a>>,
    ) -> Result<Type, Diagnostic> {
        let mut next = declarator;
        while let Some(node) = next {
            match node.kind() {
                "pointer_declarator" | "abstract_pointer_declarator" => {
                    ty = Type::of(Shape::Pointer(Box::new(ty)));
                    qualify(&mut ty, place.at(node));
                }
                "array_declarator" | "abstract_array_declarator" => {
                    let len = match node.child_by_field_name("size") {
                        Some(size) => Some(self.extent(place.at(size))?),
                        None => None,
                    };
                    ty = Type::of(Shape::Array(Box::new(ty), len));
                }
                "function_declarator" | "abstract_function_declarator" => ty = Type::of(Shape::Function),
                "reference_declarator" | "abstract_reference_declarator" => ty = Type::of(Shape::Reference),
                _ => {}
            }
            next = node
                .child_by_field_name("declarator")
                .or_else(|| node.named_children(&mut node.walk()).find(|c| c.kind().ends_with("declarator")));
        }
        Ok(ty)
    }

    /// Returns the length of an array.
    fn extent(&mut self, place: Place<'a>) -> Result<usize, Diagnostic> {
        let value = self.evaluate(place.text(), &scope(place));
        value.and_then(|value| usize::try_from(value).ok()).filter(|len| (1..=MAX_LENGTH).contains(len)).ok_or_else(|| {
            place.refuse(
                format!("the array's length `{}` is unknown", place.text()),
                "write a number, or an expression of constants and macros that this file or its headers define",
            )
        })
    }

    /// Makes a template's parameters stand for these arguments from now on.
    pub(super) fn substitute(&mut self, template: &[Template], arguments: &[Argument]) {
        let names = template.iter().map(|parameter| parameter.name.clone());
        self.substituted = names.zip(arguments.iter().cloned()).collect();
    }

    /// Returns true if the file or one of your headers declares a type or a struct template of this name.
    pub(super) fn declares(&self, name: &str) -> bool {
        self.declared.contains_key(name) || self.templates.contains_key(name)
    }

    /// Returns the name that means the same type at the end of the file as `text` does at `place`. Also returns
    /// the type itself if a kernel can take it.
    pub(super) fn named(&mut self, text: &str, place: Place<'a>) -> (String, Option<ValueType>) {
        let ty = match self.resolve_name(text, place).map(|ty| ty.shape) {
            Ok(Shape::Value(value)) => Some(value.stored()),
            _ => None,
        };
        let scope = scope(place);
        let text = self.behind_macros(text);
        let cpp = match &ty {
            Some(ValueType::Struct { cpp, .. }) if text.contains('<') => cpp.clone(),
            _ if scope.is_empty() => text.to_owned(),
            _ => {
                let declared = |types: &Self, name: &str| types.declares(name).then_some(());
                let (name, arguments) = text.split_at(text.find('<').unwrap_or(text.len()));
                let found = self.in_scope(name.trim_end(), &scope, declared);
                found.map_or_else(|| text.to_owned(), |(full, ())| full + arguments)
            }
        };
        (cpp, ty)
    }

    /// Returns what a name stands for after following macros.
    fn behind_macros<'t>(&'t self, mut name: &'t str) -> &'t str {
        for _ in 0..MAX_DEPTH {
            match self.macros.text(name) {
                Some(text) if !self.declared.contains_key(name) => name = text.trim(),
                _ => break,
            }
        }
        name
    }

    /// Returns the integer type, bool or enum that a type node stands for: its scalar, and the enum's C++
    /// name.
    pub(super) fn number(&mut self, place: Place<'a>) -> Option<(Scalar, Option<String>)> {
        match self.resolve_type(place).ok()?.shape {
            Shape::Value(ValueType::Scalar(scalar)) if scalar.is_integer() || scalar == Scalar::Bool => {
                Some((scalar, None))
            }
            Shape::Value(ValueType::Enum { cpp, repr, .. }) => Some((repr, Some(cpp))),
            _ => None,
        }
    }

    /// Returns the type that a type node stands for.
    pub(super) fn resolve_type(&mut self, place: Place<'a>) -> Result<Type, Diagnostic> {
        let node = place.node;
        let text = place.text();
        match node.kind() {
            "primitive_type" | "sized_type_specifier" | "type_identifier" | "qualified_identifier" => {
                self.resolve_name(text, place)
            }
            "struct_specifier" | "class_specifier" | "union_specifier" | "enum_specifier" => {
                match node.child_by_field_name("name") {
                    Some(name) => self.resolve_name(place.at(name).text(), place.at(name)),
                    None => Err(place.refuse("a type without a name", "give it one, above the kernel")),
                }
            }
            "type_descriptor" => {
                let mut ty = match node.child_by_field_name("type") {
                    Some(inner) => self.resolve_type(place.at(inner))?,
                    None => {
                        return Err(place.refuse(format!("`{text}` cannot be read"), "write a type's name"));
                    }
                };
                qualify(&mut ty, place);
                self.declarator(ty, place, node.child_by_field_name("declarator"))
            }
            "template_type" => self.resolve_name(text, place),
            "placeholder_type_specifier" | "auto" | "decltype" => {
                Err(place.refuse("a deduced type cannot be bound", "write the type"))
            }
            _ => Err(place.refuse(
                format!("`{text}` cannot be a kernel parameter"),
                "use a scalar, a pointer to scalars, or a struct by value",
            )),
        }
    }

    /// Returns the type that a name stands for at `place`.
    fn resolve_name(&mut self, text: &str, place: Place<'a>) -> Result<Type, Diagnostic> {
        let name = canonical(text);
        let value = |value| Ok(Type::of(Shape::Value(value)));
        if let Some(Argument::Type { ty: Some(known), .. }) = self.substituted.get(&name) {
            return value(known.clone());
        }
        let ambiguous = self.in_scope(&name, &scope(place), |types, name| types.ambiguous.get(name).copied());
        if let Some((_, second)) = ambiguous {
            let (line, _) = second.source.position(second.node.start_byte());
            return Err(place.refuse(
                format!("`{name}` is declared more than once, the last time on line {line}"),
                "declare it once: launchers have one type for all backends",
            ));
        }
        let scope = scope(place);
        let declared = self.in_scope(&name, &scope, |types, name| types.declared.get(name).copied());
        // In `typedef struct Tag { … } Name;`, `Tag` means the same as `Name`, so we continue with `Name`.
        let tagged = |types: &Self, name: &str| {
            let (typedef, _) = types.tags.iter().find(|(_, tag)| tag == name)?;
            Some((typedef.clone(), *types.declared.get(typedef)?))
        };
        let declared = declared.or_else(|| Some(self.in_scope(&name, &scope, tagged)?.1));
        let builtin = Scalar::from_cpp(&name).filter(|scalar| {
            // A file may declare such a name itself, even in terms of itself: `using size_t = std::size_t`.
            matches!(scalar, Scalar::F16 | Scalar::Bf16)
                || declared.as_ref().is_none_or(|(full, _)| self.open.contains(full))
        });
        if let Some(scalar) = builtin {
            if matches!(scalar, Scalar::F16 | Scalar::Bf16) {
                // We keep the namespace, because the assertions must spell it.
                let spelled = (scalar, text.split_whitespace().collect::<String>());
                if !self.halves.contains(&spelled) {
                    self.halves.push(spelled);
                }
            }
            return value(ValueType::Scalar(scalar));
        }
        match name.as_str() {
            "void" => return Ok(Type::of(Shape::Void)),
            "long double" => return Err(place.refuse("GPUs have no `long double`", "write `double`")),
            _ if name.contains('<') => return self.instance_of(&name, place),
            _ => {}
        }
        if let Some((full, declared)) = declared {
            if let Some(known) = self.known(&full) {
                return Ok(known);
            }
            return self.resolving(&full, place, |types| types.resolve_declared(&full, declared));
        }
        if let Some(known) = vector_from_cpp(&name).or_else(|| handle_from_cpp(&name)) {
            return value(known);
        }
        if let Some(text) = self.macros.text(&name) {
            return self.resolve_macro(&name, text, place);
        }
        Err(self.unknown(&name, place))
    }

    fn resolve_declared(&mut self, name: &str, declared: Declared<'a>) -> Result<Type, Diagnostic> {
        let definition = match declared {
            Declared::Alias(aliased, declarator) => {
                let ty = match declarator {
                    // The qualifiers of a typedef are next to its type.
                    Some(_) => self.declaration(aliased.at(parent(aliased.node)), declarator)?,
                    None => self.resolve_type(aliased)?,
                };
                return match ty.shape {
                    Shape::Refused(why) => Err(*why),
                    _ => Ok(ty),
                };
            }
            Declared::Own(place) if place.node.kind() == "enum_specifier" => {
                Definition::Enum(self.define_enum(name, place)?)
            }
            Declared::Own(place) => Definition::Struct(self.define(name, place)?),
        };
        Ok(self.note(definition))
    }

    /// Returns a struct or enum that was already resolved.
    pub(super) fn known(&self, full: &str) -> Option<Type> {
        let known = self.used.iter().find(|known| known.cpp() == full)?;
        Some(Type::of(Shape::Value(known.value())))
    }

    /// Records a struct or enum that a kernel refers to.
    pub(super) fn note(&mut self, definition: Definition) -> Type {
        let ty = Type::of(Shape::Value(definition.value()));
        self.used.push(definition);
        ty
    }

    /// Resolves a name, unless we are already resolving it.
    pub(super) fn resolving<T>(
        &mut self,
        name: &str,
        place: Place<'a>,
        resolve: impl FnOnce(&mut Self) -> Result<T, Diagnostic>,
    ) -> Result<T, Diagnostic> {
        if self.open.iter().any(|open| open == name) || self.open.len() > MAX_DEPTH {
            return Err(place.refuse(format!("`{name}` refers to itself"), "spell the type out"));
        }
        self.open.push(name.to_owned());
        let resolved = resolve(self);
        self.open.pop();
        resolved
    }

    /// Returns the type that a macro stands for. It may consist of names, qualifiers and stars.
    fn resolve_macro(&mut self, name: &str, text: &str, place: Place<'a>) -> Result<Type, Diagnostic> {
        let spaced = text.replace('*', " * ");
        let (mut words, mut stars, mut constant, mut volatile) = (Vec::new(), 0, false, false);
        for word in spaced.split_whitespace() {
            match word {
                "*" => stars += 1,
                "const" if stars == 0 => constant = true,
                "volatile" if stars == 0 => volatile = true,
                "const" | "struct" | "class" | "enum" | "union" => {}
                word => words.push(word),
            }
        }
        let inner = words.join(" ");
        let named = inner.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && inner.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | ' '));
        if !named {
            return Err(place.refuse(
                format!("the macro `{name}` stands for `{text}`, which is not the name of a type"),
                "write the type, or a typedef of it",
            ));
        }
        let mut ty = self.resolving(name, place, |types| types.resolve_name(&inner, place))?;
        ty.constant |= constant;
        ty.volatile |= volatile;
        for _ in 0..stars {
            ty = Type::of(Shape::Pointer(Box::new(ty)));
        }
        Ok(ty)
    }

    /// Returns a Rust name for a type that no other type in use has.
    pub(super) fn rust_name(&self, cpp: &str, place: Place<'a>) -> Result<String, Diagnostic> {
        // The arguments of a template become parts of the name.
        let cpp = if cpp.contains('<') { &super::struct_templates::rust_name(cpp) } else { cpp };
        let last = cpp.rsplit("::").next().unwrap_or(cpp);
        let taken = |name: &str| self.used.iter().any(|used| used.name() == name);
        let name =
            identifier(&if taken(&identifier(last)) { cpp.replace("::", "_") } else { last.to_owned() });
        if taken(&name) || has_a_meaning(&name) {
            return Err(place.refuse(
                format!("`{name}` has a meaning of its own in the generated Rust"),
                "rename the type",
            ));
        }
        Ok(name)
    }

    /// Returns the error for a type that nothing declares.
    fn unknown(&self, name: &str, place: Place<'a>) -> Diagnostic {
        let (read, missing) = &self.headers;
        let list = |names: &[String]| match names {
            names if names.len() > 4 => format!("{} and {} more", names[..4].join(", "), names.len() - 4),
            names => names.join(", "),
        };
        let mut help = "use a scalar (float, half, int, size_t, …), a vector such as float4, or a struct, an enum, an alias or \
                        a macro that this file or a header of yours declares outside of templates and functions"
            .to_owned();
        if !read.is_empty() {
            help += &format!("; these headers were read: {}", list(read));
        }
        if !missing.is_empty() {
            help += &format!(
                "; these were not found: {}; name their folder with `Kernels::include` in the build script",
                list(missing)
            );
        }
        place.refuse(format!("unknown type `{name}`"), help)
    }
}

/// The longest array that we can accept.
const MAX_LENGTH: usize = 1 << 32;

/// Returns the size of a type that needs no declaration.
fn size_of(name: &str) -> Option<i128> {
    let name = canonical(name);
    let value = Scalar::from_cpp(&name).map(ValueType::Scalar).or_else(|| vector_from_cpp(&name))?;
    Some(value.layout().0 as i128)
}

fn parent(node: Node<'_>) -> Node<'_> {
    node.parent().unwrap_or(node)
}

/// Adds the qualifiers among a node's children.
fn qualify(ty: &mut Type, place: Place<'_>) {
    for child in children(place.node).into_iter().filter(|child| child.kind() == "type_qualifier") {
        match place.at(child).text() {
            "const" => ty.constant = true,
            "volatile" => ty.volatile = true,
            _ => {}
        }
    }
}

/// Returns the namespaces and structs around a node, each followed by `::`.
pub(super) fn scope(place: Place<'_>) -> String {
    let mut scope = String::new();
    let mut node = place.node;
    while let Some(outer) = node.parent() {
        let named = matches!(
            outer.kind(),
            "namespace_definition" | "struct_specifier" | "class_specifier" | "union_specifier"
        ) && outer.child_by_field_name("body") == Some(node);
        if named && let Some(name) = outer.child_by_field_name("name") {
            scope = format!("{}::{scope}", place.at(name).text());
        }
        // A function may be defined outside its namespace, by its path.
        if outer.kind() == "function_definition"
            && let Some(name) = function_name(outer)
            && let Some((path, _)) = place.at(name).text().rsplit_once("::")
        {
            scope = format!("{path}::{scope}");
        }
        node = outer;
    }
    scope
}

/// Returns the name without `std::` and `gs::`, with its integer words in a fixed order: `long unsigned int`
/// becomes `unsigned long`.
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
