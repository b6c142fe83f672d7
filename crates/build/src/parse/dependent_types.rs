//! Types that depend on a template's arguments.
//!
//! Host code often passes a kernel what a small function returns, and the type of that follows from others:
//!
//! ```cpp
//! template <class T> struct DeviceType { using type = T; };
//! template <> struct DeviceType<half_float::half> { using type = __half; };
//! template <class T> using device_type = typename DeviceType<T>::type;
//! template <class T> device_type<T>* device_cast(T* x);
//! ```
//!
//! Like everything about launches we follow that as text. A name with several meanings stands for nothing.

use std::collections::HashMap;

use tree_sitter::Node;

use super::kernel_templates::split;
use super::launches::{Signature, deduced, signature, stars, template_names};
use super::{child_of_kind, children, declared, function_name, named, visit};
use crate::diagnostic::SourceFile;
use crate::names::{is_word, last_name, places_of, with_words};

/// How often one name may lead to another.
const MAX_STEPS: usize = 8;

/// The aliases and functions of a file whose types follow from arguments.
#[derive(Default)]
pub(super) struct DependentTypes {
    /// What `alias<…>` and `Struct<…>::member` stand for.
    aliases: HashMap<String, Vec<Alias>>,
    /// What names stand for that have no arguments.
    plain: HashMap<String, String>,
    functions: HashMap<String, Vec<Function>>,
}

struct Alias {
    parameters: Vec<String>,
    /// The arguments, if it is the alias of a specialisation.
    special: Option<Vec<String>>,
    ty: String,
}

struct Function {
    parameters: Vec<String>,
    signature: Signature,
    /// The type of its result, without `const`.
    result: String,
}

impl DependentTypes {
    pub(super) fn read(source: &SourceFile, root: Node<'_>) -> Self {
        let mut all = Self::default();
        let text = |node: Node<'_>| &source.text[node.byte_range()];
        visit(root, &mut |node| {
            let template = node.parent().filter(|parent| parent.kind() == "template_declaration");
            let parameters = || template.map(|template| template_names(source, template)).unwrap_or_default();
            match node.kind() {
                "alias_declaration" if template.is_some() => {
                    all.alias(source, node, "", (parameters(), None));
                }
                "alias_declaration" => {
                    if let (Some(name), Some(ty)) =
                        (node.child_by_field_name("name"), node.child_by_field_name("type"))
                    {
                        all.plain.insert(text(name).to_owned(), text(ty).to_owned());
                    }
                }
                "struct_specifier" | "class_specifier" if template.is_some() => {
                    let (Some(name), Some(body)) =
                        (node.child_by_field_name("name"), node.child_by_field_name("body"))
                    else {
                        return false;
                    };
                    let name = text(name);
                    let special = name.strip_suffix('>').and_then(|name| name.split_once('<'));
                    let special = special.map(|(_, list)| split(list).map(str::to_owned).collect::<Vec<_>>());
                    let name = format!("{}::", name.split('<').next().unwrap_or_default().trim());
                    for member in children(body) {
                        all.alias(source, member, &name, (parameters(), special.clone()));
                    }
                }
                "function_definition" | "declaration" | "field_declaration" => {
                    let declarator = node.child_by_field_name("declarator");
                    let (Some(name), Some(ty), Some(outer)) =
                        (function_name(node), node.child_by_field_name("type"), declarator)
                    else {
                        return true;
                    };
                    let mut inner = outer;
                    while inner.kind() != "function_declarator" {
                        let next =
                            named(inner).into_iter().find(|child| child.kind().ends_with("declarator"));
                        let Some(next) = next else { return true };
                        inner = next;
                    }
                    let pointers = stars(outer) - stars(inner);
                    let function = Function {
                        parameters: parameters(),
                        signature: signature(source, inner),
                        result: format!("{}{}", text(ty), "*".repeat(pointers)),
                    };
                    all.functions.entry(last_name(text(name)).to_owned()).or_default().push(function);
                    return false;
                }
                _ => {}
            }
            true
        });
        all
    }

    /// Notes an alias, which is one of the struct `of`.
    fn alias(
        &mut self,
        source: &SourceFile,
        node: Node<'_>,
        of: &str,
        (parameters, special): (Vec<String>, Option<Vec<String>>),
    ) {
        let field = |name| node.child_by_field_name(name);
        let name = match node.kind() {
            "alias_declaration" => field("name"),
            "type_definition" => field("declarator").map(declared),
            _ => None,
        };
        let ty = field("type").map(|ty| child_of_kind(ty, "dependent_type").unwrap_or(ty));
        if let (Some(name), Some(ty)) = (name, ty) {
            let name = format!("{of}{}", &source.text[name.byte_range()]);
            let ty = source.text[ty.byte_range()].to_owned();
            self.aliases.entry(name).or_default().push(Alias { parameters, special, ty });
        }
    }

    /// Returns true if the file declares a function of this name.
    pub(super) fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// Returns the type that a call returns, if all functions agree that it may mean.
    pub(super) fn result(&self, name: &str, given: &[String], values: &[Option<String>]) -> Option<String> {
        let fits = |function: &&Function| {
            function.parameters.len() >= given.len() && function.signature.len() >= values.len()
        };
        let mut results = self.functions.get(name)?.iter().filter(fits).map(|function| {
            let argument = |word: &str| {
                let at = function.parameters.iter().position(|parameter| parameter == word)?;
                given.get(at).cloned().or_else(|| deduced(word, &function.signature, values))
            };
            with_words(&function.result, argument)
        });
        let first = results.next()?;
        results.all(|other| other == first).then_some(first)
    }

    /// Returns the name behind an alias, without its namespaces.
    fn behind_aliases<'t>(&'t self, text: &'t str) -> &'t str {
        let plain = |text: &&'t str| self.plain.get(last_name(text)).map(|ty| &**ty);
        let last = std::iter::successors(Some(text), plain).take(MAX_STEPS).last();
        last_name(last.unwrap_or(text)).trim()
    }

    /// Returns a type with all aliases replaced.
    pub(super) fn resolve(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for _ in 0..MAX_STEPS {
            match self.step(&text) {
                Some(next) => text = next,
                None => break,
            }
        }
        text
    }

    /// Replaces one alias.
    fn step(&self, text: &str) -> Option<String> {
        self.aliases.iter().find_map(|(key, aliases)| {
            let (name, member) = key.split_once("::").map_or((&**key, ""), |(name, member)| (name, member));
            places_of(text, name).find_map(|at| {
                let list = text[at + name.len()..].trim_start().strip_prefix('<')?;
                let mut depth = 1;
                let end = list.find(|c| {
                    depth += i32::from(c == '<') - i32::from(c == '>');
                    depth == 0
                })?;
                let arguments: Vec<&str> = split(&list[..end]).collect();
                let mut rest = &list[end + 1..];
                if !member.is_empty() {
                    rest = rest.trim_start().strip_prefix("::")?.trim_start().strip_prefix(member)?;
                    if rest.starts_with(is_word) {
                        return None;
                    }
                }
                let same = |(a, b): (&String, &&str)| self.behind_aliases(a) == self.behind_aliases(b);
                let is = |alias: &&Alias| {
                    let special = alias.special.as_ref().filter(|special| special.len() == arguments.len());
                    special.is_some_and(|special| special.iter().zip(&arguments).all(same))
                };
                let general = |alias: &&Alias| alias.special.is_none();
                let alias = aliases.iter().find(is).or_else(|| aliases.iter().find(general))?;
                let argument = |word: &str| {
                    let at = alias.parameters.iter().position(|parameter| parameter == word)?;
                    arguments.get(at).map(|&argument| argument.to_owned())
                };
                // The alias may be named with its namespaces.
                let before = text[..at].trim_end_matches(|c| is_word(c) || c == ':');
                let before = before.trim_end().strip_suffix("typename").unwrap_or(before);
                Some(format!("{before}{}{rest}", with_words(&alias.ty, argument)))
            })
        })
    }
}
