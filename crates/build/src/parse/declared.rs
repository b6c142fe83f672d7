//! The types and constants that a file and its headers declare, with their namespaces.

use tree_sitter::Node;

use super::types::{Place, Types};
use super::{children, declarators, initialised, is_constant};

/// What a name of the file or its headers means.
#[derive(Clone, Copy)]
pub(super) enum Declared<'a> {
    /// A struct, a union or an enum.
    Own(Place<'a>),
    /// The type and the declarator of a `typedef` or a `using`.
    Alias(Place<'a>, Option<Node<'a>>),
}

impl<'a> Declared<'a> {
    pub(super) fn place(self) -> Place<'a> {
        match self {
            Self::Own(place) | Self::Alias(place, _) => place,
        }
    }
}

/// The value of a constant or enumerator.
#[derive(Clone, PartialEq)]
pub(super) enum Constant {
    /// An expression, and the namespaces and structs around it.
    Text(String, String),
    Value(i128),
    /// The name has two definitions with different values. A compiler sees one of them, depending on the
    /// file's `#if`s, so we cannot tell which.
    Ambiguous,
}

impl<'a> Types<'a> {
    /// Records the types and constants that a node declares. `scope` holds the namespaces and structs around
    /// it and ends with `::`.
    pub(super) fn gather(&mut self, place: Place<'a>, scope: &str) {
        let node = place.node;
        match node.kind() {
            "struct_specifier" | "class_specifier" | "union_specifier" | "enum_specifier" => {
                let Some(body) = node.child_by_field_name("body") else { return };
                let name = node.child_by_field_name("name").map(|name| place.at(name).text());
                if let Some(name) = name {
                    self.declare(&format!("{scope}{name}"), Declared::Own(place));
                }
                self.gather_body(place.at(body), name, scope);
            }
            "type_definition" | "alias_declaration" => self.gather_alias(place, scope),
            "declaration" | "field_declaration" => {
                if let Some(ty) = node.child_by_field_name("type") {
                    self.gather(place.at(ty), scope);
                }
                self.gather_constants(place, scope);
            }
            "using_declaration" => {
                let mut words = place.text().trim_end_matches(';').split_whitespace();
                if let (Some("using"), Some("namespace"), Some(name)) =
                    (words.next(), words.next(), words.next())
                {
                    self.opened.push(format!("{name}::"));
                }
            }
            "namespace_definition" => {
                let name = node.child_by_field_name("name").map(|name| place.at(name).text());
                let inner = name.map_or_else(|| scope.to_owned(), |name| format!("{scope}{name}::"));
                if let Some(body) = node.child_by_field_name("body") {
                    self.gather_children(place.at(body), &inner);
                }
            }
            // Types inside a function or a template mean nothing outside. We read broken text like any other.
            "function_definition" if !node.has_error() => {}
            "template_declaration" => self.gather_template(place, scope),
            _ => self.gather_children(place, scope),
        }
    }

    fn gather_children(&mut self, place: Place<'a>, scope: &str) {
        for child in children(place.node) {
            self.gather(place.at(child), scope);
        }
    }

    /// Gathers what is inside a struct, or the enumerators of an enum.
    fn gather_body(&mut self, body: Place<'a>, name: Option<&str>, scope: &str) {
        if body.node.kind() != "enumerator_list" {
            let inner = name.map_or_else(|| scope.to_owned(), |name| format!("{scope}{name}::"));
            return self.gather_children(body, &inner);
        }
        // They are already known without the enum's name.
        for (enumerator, value) in self.enumerators(body, scope) {
            if let (Some(name), Some(value)) = (name, value) {
                self.constants.insert(format!("{scope}{name}::{enumerator}"), Constant::Value(value));
            }
        }
    }

    fn gather_alias(&mut self, place: Place<'a>, scope: &str) {
        let node = place.node;
        let Some(aliased) = node.child_by_field_name("type").map(|ty| place.at(ty)) else { return };
        let body = aliased.node.child_by_field_name("body");
        let tag = aliased.node.child_by_field_name("name").map(|name| aliased.at(name).text());
        if let Some(body) = body {
            self.gather_body(aliased.at(body), tag, scope);
        }
        if node.kind() == "alias_declaration" {
            if let Some(name) = node.child_by_field_name("name") {
                let name = place.at(name).text();
                self.declare(&format!("{scope}{name}"), Declared::Alias(aliased, None));
            }
            return;
        }
        // In `typedef struct Tag { … } Name;`, kernels usually say `Name`.
        let mut own_name = tag;
        for declarator in declarators(node) {
            let Some(name) = declarator_name(place.at(declarator)) else { continue };
            let qualified = format!("{scope}{name}");
            if declarator.kind() == "type_identifier" && body.is_some() {
                self.declare(&qualified, Declared::Own(aliased));
                if own_name == tag {
                    own_name = Some(name);
                    self.tags.extend(tag.map(|tag| (qualified, format!("{scope}{tag}"))));
                }
            } else if Some(name) != tag {
                self.declare(&qualified, Declared::Alias(aliased, Some(declarator)));
            }
        }
        if let (Some(_), Some(tag)) = (body, tag)
            && own_name == Some(tag)
        {
            self.declare(&format!("{scope}{tag}"), Declared::Own(aliased));
        }
    }

    /// Records constants whose value is in their declaration.
    fn gather_constants(&mut self, place: Place<'a>, scope: &str) {
        let node = place.node;
        if !is_constant(&place.source.text, node) {
            return;
        }
        let mut note = |name: Node<'a>, value: Node<'a>| {
            let (name, value) = (place.at(name).text(), place.at(value).text());
            let value = Constant::Text(value.trim_matches(['{', '}', '=', ' ']).to_owned(), scope.to_owned());
            let known = self.constants.entry(format!("{scope}{name}")).or_insert_with(|| value.clone());
            if *known != value {
                *known = Constant::Ambiguous;
            }
        };
        // A member's value is next to its declarator.
        if let (Some(name), Some(value)) =
            (node.child_by_field_name("declarator"), node.child_by_field_name("default_value"))
        {
            note(name, value);
        }
        initialised(node).for_each(|(name, value)| note(name, value));
    }

    /// Records a type. If its name already has another meaning, records that too: which one a compiler sees
    /// then depends on the file's `#if`s.
    fn declare(&mut self, name: &str, declared: Declared<'a>) {
        let known = self.declared.get(name);
        if known.is_some_and(|known| known.place().text() != declared.place().text()) {
            self.ambiguous.insert(name.to_owned(), declared.place());
        }
        self.declared.insert(name.to_owned(), declared);
    }
}

/// Returns the name that a declarator declares.
pub(super) fn declarator_name(place: Place<'_>) -> Option<&str> {
    let name = place.at(super::declared(place.node));
    name.node.kind().ends_with("identifier").then(|| name.text())
}
