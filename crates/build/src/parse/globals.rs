//! Variables that kernels access by name: `__constant__` and `__device__` memory.

use std::collections::HashMap;

use super::declared::declarator_name;
use super::kernel::is_plain_name;
use super::preprocess::Parts;
use super::types::{Place, Shape, Type, scope};
use super::{Context, File, children, declarators, is_constant, is_include_guard};
use crate::names::last_name;
use crate::signature::{Global, GlobalType};
use crate::types::Hazard;

impl<'a> File<'a> {
    /// Reads the variables of the file and its headers. Call it after the kernels have been read.
    pub(super) fn globals(&mut self, parts: &'a Parts<'a>) -> Vec<Global> {
        let mut globals: Vec<(Global, Place<'a>)> = Vec::new();
        for part in &parts.files {
            let root = Place { source: part.source, node: part.tree.root_node() };
            self.gather_globals(root, Context::default(), &mut globals);
        }
        for i in 0..globals.len() {
            let name = globals[i].0.name.clone();
            if globals.iter().enumerate().any(|(j, (other, _))| i != j && last_name(&other.path) == name) {
                globals[i].0.name = globals[i].0.path.replace("::", "_");
            }
        }
        self.check_global_names(&globals);
        globals.into_iter().map(|(global, _)| global).collect()
    }

    fn gather_globals(
        &mut self,
        place: Place<'a>,
        mut context: Context,
        globals: &mut Vec<(Global, Place<'a>)>,
    ) {
        match place.node.kind() {
            "declaration" => return self.global(place, context, globals),
            // The host cannot ask for the address of a variable in here.
            "function_definition"
            | "template_declaration"
            | "struct_specifier"
            | "class_specifier"
            | "union_specifier"
            | "ERROR" => return,
            // Without braces, this declares a variable of another file.
            "linkage_specification" if body_kind(place.node) == Some("declaration") => return,
            "preproc_if" | "preproc_ifdef" | "preproc_else" | "preproc_elif" => {
                context.conditional |= !is_include_guard(place.source, place.node);
            }
            _ => {}
        }
        for child in children(place.node) {
            self.gather_globals(place.at(child), context, globals);
        }
    }

    /// Reads the variables in one declaration.
    fn global(&mut self, place: Place<'a>, context: Context, globals: &mut Vec<(Global, Place<'a>)>) {
        let node = place.node;
        let words: Vec<&str> = children(node).into_iter().map(|child| place.at(child).text()).collect();
        let has = |word: &str| words.contains(&word);
        let constant = has("__constant__");
        if !(constant || has("__device__")) || ["extern", "constexpr", "__managed__"].into_iter().any(has) {
            return;
        }
        for declarator in declarators(node) {
            let at = place.at(declarator);
            // A static member of a class has a path and may be private.
            let Some(name) = declarator_name(at).filter(|name| is_plain_name(name)) else {
                continue;
            };
            let ty = self.types.declaration(place, Some(declarator));
            let read = match &ty {
                Ok(Type { shape: Shape::Function | Shape::Reference, .. }) => continue,
                Ok(ty) if ty.qualifiers().0 => continue,
                Err(_) if is_constant(&place.source.text, node) => continue,
                _ if context.conditional => Err("it is inside an `#if`".to_owned()),
                Ok(ty) => global_type(ty),
                Err(why) => Err(why.message.clone()),
            };
            if let (Err(why), true) = (&read, constant && declarator.kind() != "init_declarator") {
                let warning = format!(
                    "constant memory `{name}` has no values and no setter, since {why}; write its values here, or pass them \
                     to the kernel as a struct or a pointer"
                );
                self.warn_in(place.source, declarator.start_byte(), &warning);
            }
            let path = scope(place) + name;
            // Some compilers may not see what is inside an `#if`.
            if context.conditional || globals.iter().any(|(known, _)| known.path == path) {
                continue;
            }
            let global = Global {
                name: name.to_owned(),
                path,
                constant,
                internal: has("static") || is_in_anonymous_namespace(place),
                ty: read.ok(),
                docs: self.types.docs(place),
                place: place.source.named(node.start_byte()),
            };
            globals.push((global, at));
        }
    }

    /// Refuses names that would collide in the generated code.
    fn check_global_names(&mut self, globals: &[(Global, Place<'a>)]) {
        let mut methods: HashMap<String, String> = HashMap::new();
        for name in super::kernel::RESERVED {
            methods.insert(name.to_owned(), format!("the generated `Kernels` has its own `{name}`"));
        }
        for kernel in &self.kernels {
            methods
                .insert(kernel.name.clone(), format!("kernel `{}` has a launcher of this name", kernel.name));
            if kernel.contract.covers.is_some() {
                let with = format!("{}_with", kernel.name);
                methods.insert(with, format!("kernel `{}` has a launcher of this name", kernel.name));
            }
        }
        for (global, place) in globals.iter().filter(|(global, _)| global.ty.is_some()) {
            for method in methods_of(global) {
                let taken = format!("variable `{}` has a method of this name", global.path);
                if let Some(other) = methods.insert(method.clone(), taken) {
                    self.diagnostics.push(place.refuse(
                        format!(
                            "the method `{method}` of variable `{}` has no name of its own: {other}",
                            global.path
                        ),
                        "rename the variable or the other one",
                    ));
                }
            }
        }
    }
}

/// Returns the method names for a variable.
fn methods_of(global: &Global) -> Vec<String> {
    let setter = global.constant.then(|| format!("set_{}", global.name));
    std::iter::once(global.name.clone()).chain(setter).collect()
}

/// Returns the type of a variable, or why the host has no safe way to write it.
fn global_type(ty: &Type) -> Result<GlobalType, String> {
    if ty.qualifiers().1 {
        return Err("it is volatile".to_owned());
    }
    let (element, len) = match &ty.shape {
        Shape::Value(value) => (value.clone().stored(), None),
        Shape::Array(_, None) => return Err("its declaration does not say how long it is".to_owned()),
        Shape::Array(element, Some(len)) => match &element.shape {
            Shape::Refused(why) => return Err(why.message.clone()),
            _ => ((**element).clone().element(), Some(*len)),
        },
        Shape::Refused(why) => return Err(why.message.clone()),
        Shape::Pointer(_) | Shape::Function | Shape::Reference => {
            return Err("it holds an address".to_owned());
        }
        Shape::Void => return Err("it is void".to_owned()),
    };
    match element.hazard() {
        None if element.layout().0.checked_mul(len.unwrap_or(1)).is_some() => Ok(GlobalType { element, len }),
        None => Err("it is larger than the address space".to_owned()),
        Some(Hazard::Address) => Err("it holds addresses or handles".to_owned()),
        Some(Hazard::Bool) => Err("it holds bools, and a byte may be neither true nor false".to_owned()),
        Some(Hazard::Bytes) => Err("its type has no name in Rust".to_owned()),
    }
}

fn body_kind(node: tree_sitter::Node<'_>) -> Option<&str> {
    Some(node.child_by_field_name("body")?.kind())
}

fn is_in_anonymous_namespace(place: Place<'_>) -> bool {
    let outer = std::iter::successors(place.node.parent(), tree_sitter::Node::parent);
    outer
        .into_iter()
        .any(|node| node.kind() == "namespace_definition" && node.child_by_field_name("name").is_none())
}
