//! Struct templates and their instances: `Vec<float, 3>`.

use std::collections::HashMap;

use tree_sitter::Node;

use super::kernel_templates::{Parameter, argument, parameters, split};
use super::types::{Place, Shape, Type, Types, scope};
use super::{child_of_kind, children};
use crate::definition::Definition;
use crate::diagnostic::Diagnostic;
use crate::signature::Argument;
use crate::types::ValueType;

/// A struct template in the file or its headers.
#[derive(Clone, Copy)]
pub(super) struct StructTemplate<'a> {
    /// The declaration of the struct itself.
    declaration: Place<'a>,
    /// The list of template parameters.
    parameters: Node<'a>,
}

impl<'a> Types<'a> {
    /// Records a struct template.
    pub(super) fn gather_template(&mut self, place: Place<'a>, scope: &str) {
        let declared = children(place.node)
            .into_iter()
            .find(|child| matches!(child.kind(), "struct_specifier" | "class_specifier" | "union_specifier"));
        let (Some(node), Some(parameters)) = (declared, place.node.child_by_field_name("parameters")) else {
            return;
        };
        let Some(name) = node.child_by_field_name("name") else { return };
        // A specialisation may have other members, so we could not tell which struct a kernel means.
        let is_special = name.kind() == "template_type";
        if node.child_by_field_name("body").is_none() && !is_special {
            return;
        }
        let declaration = place.at(node);
        let path = place.at(name).text().split('<').next().unwrap_or_default().trim();
        let path = format!("{scope}{path}");
        let same = |known: &Option<StructTemplate<'_>>| {
            known.is_some_and(|known| known.declaration.text() == declaration.text())
        };
        let only = !is_special && self.templates.get(&path).is_none_or(same);
        self.templates.insert(path, only.then_some(StructTemplate { declaration, parameters }));
    }

    /// Returns the struct that a template makes for these arguments.
    pub(super) fn instance_of(&mut self, text: &str, place: Place<'a>) -> Result<Type, Diagnostic> {
        let refuse = |why: &str| {
            place.refuse(
                format!("`{text}` is a template{why}"),
                "write a struct of this file with the members it needs",
            )
        };
        let written = text.strip_suffix('>').and_then(|text| text.split_once('<'));
        let Some((path, arguments)) = written else { return Err(refuse("")) };
        let found =
            self.in_scope(path.trim(), &scope(place), |types, name| types.templates.get(name).copied());
        let Some((path, template)) = found else { return Err(refuse("")) };
        let Some(template) = template else {
            return Err(refuse(" with a specialisation or more than one definition"));
        };
        let parameters = parameters(self, template.declaration.at(template.parameters));
        let parameters: Option<Vec<_>> = parameters.into_iter().map(Result::ok).collect();
        let parameters = parameters.ok_or_else(|| refuse(" whose parameters cannot be read"))?;
        let arguments = self.arguments(&parameters, arguments, place).map_err(|why| refuse(&why))?;
        let list: Vec<_> = arguments.iter().map(Argument::cpp).collect();
        let full = format!("{path}<{}>", list.join(", "));
        if let Some(known) = self.known(&full) {
            return Ok(known);
        }
        // Inside the struct only its own names count. It cannot see the parameters of a kernel template.
        let names = parameters.into_iter().map(|parameter| parameter.template.name);
        let own: HashMap<_, _> = names.zip(arguments).collect();
        let outer = std::mem::replace(&mut self.substituted, own);
        let defined = self.resolving(&full, place, |types| {
            types.own_types(template.declaration);
            types.define(&full, template.declaration)
        });
        self.substituted = outer;
        Ok(self.note(Definition::Struct(defined?)))
    }

    /// Reads the arguments written at `place`, and fills in defaults for the rest.
    fn arguments(
        &mut self,
        parameters: &[Parameter],
        written: &str,
        place: Place<'a>,
    ) -> Result<Vec<Argument>, String> {
        let mut texts: Vec<_> = split(written).map(str::to_owned).collect();
        texts.extend(parameters.iter().skip(texts.len()).map_while(|parameter| parameter.default.clone()));
        if texts.len() != parameters.len() {
            return Err(format!(" with {} parameters", parameters.len()));
        }
        let pairs = parameters.iter().zip(&texts);
        pairs
            .map(|(parameter, text)| {
                let pointee = text.trim_end_matches(['*', ' ']);
                let read = match self.substituted.get(pointee) {
                    Some(known @ Argument::Type { .. }) => Ok(known.clone()),
                    _ => argument(self, &parameter.template, pointee, place),
                };
                match read.map_err(|why| format!(", and {why}"))? {
                    Argument::Type { cpp, .. } if pointee.len() < text.len() => {
                        let cpp = cpp + &text[pointee.len()..];
                        Ok(Argument::Type { cpp, ty: Some(ValueType::Address) })
                    }
                    read => Ok(read),
                }
            })
            .collect()
    }

    /// Records the types that the struct template defines for itself, if we know them.
    fn own_types(&mut self, template: Place<'a>) {
        let body = template.node.child_by_field_name("body").map(children).unwrap_or_default();
        for alias in
            body.into_iter().filter(|node| matches!(node.kind(), "alias_declaration" | "type_definition"))
        {
            let Some(aliased) = alias.child_by_field_name("type") else { continue };
            let declarator =
                alias.child_by_field_name("declarator").filter(|it| it.kind() == "type_identifier");
            let name = alias.child_by_field_name("name").or(declarator);
            let plain = child_of_kind(alias, "type_qualifier").is_none();
            let Some(name) = name.filter(|_| plain).map(|name| template.at(name).text().to_owned()) else {
                continue;
            };
            if let Ok(Type { shape: Shape::Value(ty), constant: false, volatile: false }) =
                self.resolve_type(template.at(aliased))
            {
                let cpp = template.at(aliased).text().to_owned();
                self.substituted.insert(name, Argument::Type { cpp, ty: Some(ty) });
            }
        }
    }
}

/// Makes a name for an instance that includes its arguments: `ns::Vec_float_3` for `ns::Vec<float, 3>`.
pub(super) fn rust_name(cpp: &str) -> String {
    let (path, arguments) = cpp.split_once('<').unwrap_or((cpp, ""));
    let words = arguments.replace('-', "minus ");
    let words = words.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.fold(path.to_owned(), |name, word| name + "_" + word)
}
