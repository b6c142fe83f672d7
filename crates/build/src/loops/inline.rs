//! Inlines functions that have meetings, because we can only cut a kernel at meetings that we see in its own text.
//!
//! We only inline plain calls. It must be clear which function of the file, its headers or ours is meant, and the
//! function's only `return` must be its last statement, unless the kernel ends after the call. And every thread that
//! reaches the calling statement must execute all of it. For example, `v = warp_sum(v) + 1;` becomes:
//!
//! ```cpp
//! float gs_0_result; { /* parameters */ /* body */ gs_0_result = x; } v = gs_0_result + 1;
//! ```

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::edits::{self, Edit, line_breaks};
use super::meetings::{self, conditional};
use super::waits::{Waits, callee};
use super::writes::changes;
use crate::names::with_words;
use crate::parse::{child_of_kind, declarators, declared, descendants, has_word, identifiers, named, visit};

/// A function and its template parameters.
#[derive(Clone)]
struct Function<'t> {
    /// The text of the function's file.
    text: &'t str,
    definition: Node<'t>,
    parameters: Vec<Node<'t>>,
    template: Vec<Node<'t>>,
}

/// A variable or parameter of the kernel.
struct Variable {
    /// Its type without stars and brackets. `None` if the type is `auto`.
    ty: Option<String>,
    /// How many stars and brackets belong to the type.
    depth: usize,
    /// True if other threads could change it.
    is_shared: bool,
}

/// The variables of a kernel, by name.
type ByName<'a> = HashMap<&'a str, Vec<Variable>>;

/// One call that we inline, and the names that it gets for its variables and types.
struct Call<'a> {
    text: &'a str,
    number: usize,
    /// The kernel's variables by name.
    variables: &'a ByName<'a>,
    /// What replaces each name in the function.
    names: HashMap<String, String>,
    /// The types that the function's template parameters stand for.
    types: String,
    /// Declarations for the parameters, which go before the body.
    before: String,
}

/// Returns the text with the kernel's first call inlined that leads to a meeting. Every line stays in its place.
/// Returns `None` if there is no such call, or if we cannot inline it. `file` has the functions.
pub(super) fn first_call(
    text: &str,
    file: (&str, Node<'_>),
    kernel: Node<'_>,
    waits: &Waits,
    number: usize,
) -> Option<String> {
    let body = kernel.child_by_field_name("body")?;
    // Looking for functions takes long in a large file, and most kernels have no meeting.
    waits.first(text, body)?;
    let variables = variables(text, kernel);
    let find = |node: Node<'_>| {
        let name = callee(text, node).filter(|_| node.kind() == "call_expression")?;
        // A call of a method means no function of its name.
        let function = node.child_by_field_name("function")?;
        if function.kind() == "field_expression" {
            return None;
        }
        let functions = named_so(file, waits, name);
        let call = Call::new(text, number, &variables);
        call.meant(functions, node)
    };
    let known = |node: Node<'_>| {
        let name = callee(text, node).filter(|_| node.kind() == "call_expression");
        name.is_some_and(|name| meetings::meeting(name).is_some() || find(node).is_none())
    };
    let node = waits.first_beside(text, body, known).filter(|node| node.kind() == "call_expression")?;
    let function = find(node)?;
    let mut statement = node;
    while !matches!(statement.kind(), "expression_statement" | "declaration") {
        statement = statement.parent().filter(|parent| parent.start_byte() >= body.start_byte())?;
    }
    let listed = statement.parent().is_some_and(|parent| parent.kind() == "compound_statement");
    let declares = statement.kind() == "declaration";
    let single = declarators(statement).len() <= 1;
    if conditional(node, statement).is_some() || declares && !(listed && single) {
        return None;
    }
    let mut call = Call::new(text, number, &variables);
    call.template(&function, node)?;
    call.parameters(&function, node, waits)?;
    let (body, has_result) = call.body(&function, waits, is_last(statement, body))?;
    let ty = call.renamed(function.text, function.definition.child_by_field_name("type")?, &[]);
    let (declaration, result) =
        if has_result { (format!("{ty} {};", call.result()), call.result()) } else { Default::default() };
    let scope = scope(&function).map_or(String::new(), |scope| format!("using namespace {scope}; "));
    let before = format!("{}{declaration} {{ {scope}{} {body} }}", call.types, call.before);
    let (open, close) = if declares { ("", "") } else { ("{ ", " }") };
    let edits = vec![
        (statement.start_byte()..statement.start_byte(), format!("{open}{before} ")),
        (node.byte_range(), result + &line_breaks(&text[node.byte_range()])),
        (statement.end_byte()..statement.end_byte(), close.to_owned()),
    ];
    Some(edits::in_file(text, kernel, edits))
}

/// Returns true if a kernel ends after this statement. Then a `return` in a function that the statement calls can stay.
fn is_last(statement: Node<'_>, body: Node<'_>) -> bool {
    let ends = |around: Node<'_>| {
        let last = named(around).into_iter().rfind(|node| node.kind() != "comment");
        last == Some(statement) && is_last(around, body)
    };
    let around = statement.parent().filter(|around| around.kind() == "compound_statement");
    statement == body || around.is_some_and(ends)
}

/// Returns a text with the names that you gave, instead of ours: `sum` for `gs_0_sum`.
pub(super) fn in_users_words(text: &str) -> String {
    with_words(text, |word| {
        let number = word.strip_prefix("gs_")?;
        let name = number.trim_start_matches(|c: char| c.is_ascii_digit());
        name.strip_prefix('_').filter(|_| name.len() < number.len()).map(str::to_owned)
    })
}

/// Returns the variables and parameters of a kernel.
fn variables<'a>(text: &'a str, kernel: Node<'a>) -> HashMap<&'a str, Vec<Variable>> {
    let mut found: HashMap<&str, Vec<Variable>> = HashMap::new();
    let declares = |node: &Node<'_>| matches!(node.kind(), "declaration" | "parameter_declaration");
    for node in descendants(kernel).filter(declares) {
        let shared = has_word(text, node, "__shared__");
        let ty = node.child_by_field_name("type").map(|ty| text[ty.byte_range()].to_owned());
        for declarator in declarators(node) {
            let name = declared(declarator);
            let inwards = |node: &Node<'a>| node.child_by_field_name("declarator");
            let around = std::iter::successors(Some(declarator), inwards).filter(|node| *node != name);
            let kinds: Vec<_> =
                around.map(|node| node.kind()).filter(|kind| *kind != "init_declarator").collect();
            let is_array = declarator.kind() == "array_declarator";
            let known = kinds.iter().all(|kind| matches!(*kind, "array_declarator" | "pointer_declarator"));
            let ty = ty.clone().filter(|ty| known && ty != "auto");
            let variable = Variable { ty, depth: kinds.len(), is_shared: shared && !is_array };
            found.entry(&text[name.byte_range()]).or_default().push(variable);
        }
    }
    found
}

/// Returns the functions with this name, in the file and its headers. Returns none if we could not inline one of them,
/// because a call could mean that one.
fn named_so<'t>((text, root): (&'t str, Node<'t>), waits: &'t Waits, name: &str) -> Vec<Function<'t>> {
    let own = definitions(text, root, name, false);
    let others = waits.others().iter();
    let others = others.flat_map(|(text, tree)| definitions(text, tree.root_node(), name, true));
    own.into_iter().chain(others).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Returns the definitions of a name in one text; `None` for one that we could not inline. If `always` is set, such is one
/// that an `#if` could leave out.
fn definitions<'t>(text: &'t str, root: Node<'t>, name: &str, always: bool) -> Vec<Option<Function<'t>>> {
    let mut found = Vec::new();
    if !text.contains(name) {
        return found;
    }
    visit(root, &mut |node| {
        let declarator =
            node.child_by_field_name("declarator").filter(|_| node.kind() == "function_definition");
        if let Some(declarator) = declarator {
            let written = &text[declared(declarator).byte_range()];
            let is_conditional = || always && within(node, &["preproc_if", "preproc_else", "preproc_elif"]);
            if written == name {
                found.push(function(text, node).filter(|_| !is_conditional()));
            } else if written.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('<')) {
                // A specialisation has a body of its own.
                found.push(None);
            }
        }
        node.kind() != "function_definition"
    });
    found
}

/// Returns true if a node of one of these kinds is around this one.
fn within(node: Node<'_>, kinds: &[&str]) -> bool {
    let mut around = std::iter::successors(node.parent(), Node::parent);
    around.any(|around| kinds.contains(&around.kind()))
}

fn function<'t>(text: &'t str, definition: Node<'t>) -> Option<Function<'t>> {
    let declarator = definition.child_by_field_name("declarator")?;
    // If the function returns a pointer or a reference, another declarator is around the function's. We leave those
    // out.
    let list =
        child_of_kind(declarator, "parameter_list").filter(|_| declarator.kind() == "function_declarator")?;
    if definition.has_error() || within(definition, &["field_declaration_list"]) {
        return None;
    }
    let listed = |list: Node<'t>| named(list).into_iter().filter(|node| node.kind() != "comment").collect();
    let template = definition.parent().filter(|parent| parent.kind() == "template_declaration");
    let template = template.and_then(|template| template.child_by_field_name("parameters"));
    let template = template.map(listed).unwrap_or_default();
    Some(Function { text, definition, parameters: listed(list), template })
}

/// Returns the namespace around a function, if there is one. Names in its body may mean what is there.
fn scope(function: &Function<'_>) -> Option<String> {
    let mut names = Vec::new();
    let mut node = function.definition;
    while let Some(parent) = node.parent() {
        if parent.kind() == "namespace_definition" {
            names.extend(parent.child_by_field_name("name").map(|name| &function.text[name.byte_range()]));
        }
        node = parent;
    }
    names.reverse();
    (!names.is_empty()).then(|| format!("::{}", names.join("::")))
}

impl<'t> Function<'t> {
    fn str(&self, node: Node<'_>) -> &'t str {
        &self.text[node.byte_range()]
    }

    /// Returns a parameter's type, if neither a star nor a bracket is part of it.
    fn plain_type(&self, parameter: Node<'_>) -> Option<&'t str> {
        let by_value = parameter.child_by_field_name("declarator")?.kind() == "identifier";
        parameter.child_by_field_name("type").filter(|_| by_value).map(|ty| self.str(ty))
    }

    /// Returns the number of arguments that a call may leave out.
    fn defaults(&self) -> usize {
        self.parameters
            .iter()
            .filter(|parameter| parameter.kind() == "optional_parameter_declaration")
            .count()
    }
}

impl<'a> Call<'a> {
    fn new(text: &'a str, number: usize, variables: &'a ByName<'a>) -> Self {
        Self { text, number, variables, names: HashMap::new(), types: String::new(), before: String::new() }
    }

    fn str(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }

    /// Gives a name from the function a new one that only this call uses.
    fn own(&mut self, name: &str) -> String {
        let own = format!("gs_{}_{name}", self.number);
        self.names.insert(name.to_owned(), own.clone());
        own
    }

    /// Returns the one of several functions that a call means. If they differ by the types of their parameters, we must
    /// know the types of the values exactly.
    fn meant<'t>(&self, functions: Vec<Function<'t>>, node: Node<'_>) -> Option<Function<'t>> {
        let values = node.child_by_field_name("arguments").map(named)?;
        let takes = |function: &Function<'_>| {
            let most = function.parameters.len();
            (most - function.defaults()..=most).contains(&values.len())
        };
        let functions: Vec<_> = functions.into_iter().filter(takes).collect();
        if let [one] = &functions[..] {
            return Some(one.clone());
        }
        let is_exact = |function: &&Function<'_>| {
            let mut pairs = function.parameters.iter().zip(&values);
            function.template.is_empty()
                && pairs.all(|(parameter, value)| {
                    let ty = function.plain_type(*parameter);
                    ty.is_some() && self.type_of(*value).as_deref() == ty
                })
        };
        match functions.iter().filter(is_exact).collect::<Vec<_>>()[..] {
            [one] => Some(one.clone()),
            _ => None,
        }
    }

    /// Finds the template's arguments, from the call or from the values.
    fn template(&mut self, function: &Function<'_>, node: Node<'_>) -> Option<()> {
        let given = descendants(node.child_by_field_name("function")?)
            .find(|node| node.kind() == "template_argument_list" && node.named_child_count() > 0);
        let given = given.map(named).unwrap_or_default();
        let values = node.child_by_field_name("arguments").map(named).unwrap_or_default();
        for (at, parameter) in function.template.iter().enumerate() {
            let is_type = parameter.kind().ends_with("type_parameter_declaration");
            let name = if is_type {
                let name = parameter.child_by_field_name("name").or_else(|| parameter.named_child(0))?;
                function.str(name).to_owned()
            } else {
                function.str(declared(parameter.child_by_field_name("declarator")?)).to_owned()
            };
            let default = || {
                let default =
                    ["default_type", "default_value"].map(|field| parameter.child_by_field_name(field));
                default.into_iter().flatten().next().map(|default| self.renamed(function.text, default, &[]))
            };
            let given = match given.get(at) {
                Some(given) => self.str(*given).to_owned(),
                None if is_type => self.deduced(function, &name, &values).or_else(default)?,
                None => default()?,
            };
            let is_word = given.chars().all(|c| c.is_alphanumeric() || c == '_');
            if is_type && !is_word {
                let own = self.own(&name);
                self.types += &format!("using {own} = {given}; ");
            } else {
                self.names.insert(name, if is_type || is_word { given } else { format!("({given})") });
            }
        }
        Some(())
    }

    /// Returns the type that a template parameter stands for, from the first value whose parameter has this type, or
    /// points to it.
    fn deduced(&self, function: &Function<'_>, name: &str, values: &[Node<'_>]) -> Option<String> {
        let mut pairs = function.parameters.iter().zip(values);
        pairs.find_map(|(parameter, value)| {
            parameter.child_by_field_name("type").filter(|ty| function.str(*ty) == name)?;
            let declarator = parameter.child_by_field_name("declarator")?;
            let written = self.str(*value).replace('\n', " ");
            match declarator.kind() {
                "identifier" | "reference_declarator" => {
                    let known = self.type_of(*value);
                    Some(known.unwrap_or_else(|| format!("gs_cpu_value_type<decltype({written})>")))
                }
                "pointer_declarator"
                    if declarator.child_by_field_name("declarator")?.kind() == "identifier" =>
                {
                    Some(format!("gs_cpu_element_type<decltype({written})>"))
                }
                _ => None,
            }
        })
    }

    /// Returns the type of a variable or of an array's element.
    fn type_of(&self, value: Node<'_>) -> Option<String> {
        let (mut name, mut depth) = (value, 0);
        while name.kind() == "subscript_expression" {
            name = name.child_by_field_name("argument")?;
            depth += 1;
        }
        match &self.variables.get(self.str(name)).filter(|_| name.kind() == "identifier")?[..] {
            [variable] => variable.ty.clone().filter(|_| variable.depth == depth),
            _ => None,
        }
    }

    /// Returns true if a value is just a variable that no other thread can change, or an array.
    fn keeps(&self, value: Node<'_>) -> bool {
        let variable = self.variables.get(self.str(value)).map(|found| &found[..]);
        value.kind() == "identifier" && matches!(variable, Some([variable]) if !variable.is_shared)
    }

    /// Declares a copy for each parameter. If the function does not change a parameter and the value is a variable, we
    /// use the variable itself.
    fn parameters(&mut self, function: &Function<'_>, node: Node<'_>, waits: &Waits) -> Option<()> {
        let values = named(node.child_by_field_name("arguments")?);
        let body = function.definition.child_by_field_name("body")?;
        for (at, parameter) in function.parameters.iter().enumerate() {
            let declarator = parameter.child_by_field_name("declarator")?;
            let name = function.str(declared(declarator)).to_owned();
            let Some(value) = values.get(at) else {
                let default = parameter.child_by_field_name("default_value")?;
                let ty = self.renamed(function.text, parameter.child_by_field_name("type")?, &[]);
                if declarator.kind() != "identifier" {
                    return None;
                }
                let value = self.renamed(function.text, default, &[]);
                let own = self.own(&name);
                self.before += &format!("{ty} {own} = {value}; ");
                continue;
            };
            // A cooperative group is the same for all who name it, and it is removed later.
            let ty = parameter.child_by_field_name("type").map_or("", |ty| function.str(ty));
            if ty.contains("thread_block") && value.kind() == "identifier" {
                self.names.insert(name, self.str(*value).to_owned());
                continue;
            }
            let by_reference = declarator.kind() == "reference_declarator";
            // If two parameters mean the same variable, a change by one of them would show in the other.
            let shared = values.iter().filter(|other| self.mentions(**other, self.str(*value))).count() > 1;
            if by_reference && shared {
                return None;
            }
            // We must assume that any call could take a reference.
            let changed = || changes(function.text, waits, &|_| false, body, &name) > 0;
            let unchanged = by_reference || !changed() && !shared;
            if self.keeps(*value) && unchanged && self.is_of_type(function, *parameter, *value) {
                self.names.insert(name, self.str(*value).to_owned());
                continue;
            }
            if by_reference
                || declarator.kind() == "array_declarator"
                || !parameter.kind().ends_with("parameter_declaration")
            {
                return None;
            }
            let value = self.str(*value).replace('\n', " ");
            let own = format!("gs_{}_{name}", self.number);
            let mut instead = vec![(declared(declarator), own.clone())];
            // A default value ends the declaration, and this one has another value.
            if let Some(default) = parameter.child_by_field_name("default_value") {
                instead.push((default, String::new()));
            }
            let declaration = self.renamed(function.text, *parameter, &instead);
            let declaration = declaration.trim_end().trim_end_matches('=');
            self.before += &format!("{declaration} = {value}; ");
            self.names.insert(name, own);
        }
        Some(())
    }

    /// Returns true if a variable can replace a parameter without a conversion.
    fn is_of_type(&self, function: &Function<'_>, parameter: Node<'_>, value: Node<'_>) -> bool {
        let ty = parameter.child_by_field_name("type");
        let Some(ty) = ty.map(|ty| self.renamed(function.text, ty, &[])) else {
            return false;
        };
        match parameter.child_by_field_name("declarator").map(|declarator| declarator.kind()) {
            Some("pointer_declarator" | "array_declarator") => {
                ty != "void" && !function.str(parameter).contains("volatile")
            }
            _ => self.type_of(value) == Some(ty),
        }
    }

    fn mentions(&self, node: Node<'_>, name: &str) -> bool {
        let mut words = HashSet::new();
        identifiers(self.text, node, &mut words);
        words.contains(name)
    }

    /// Returns the name of the variable for the result.
    fn result(&self) -> String {
        format!("gs_{}_result", self.number)
    }

    /// Returns the function's body on one line, and true if it returns a value. Its last `return` becomes an
    /// assignment. If `ends` is set, the kernel ends after the call.
    fn body(&mut self, function: &Function<'_>, waits: &Waits, ends: bool) -> Option<(String, bool)> {
        let body = function.definition.child_by_field_name("body")?;
        let (mut own, mut plain, mut returns) = (HashSet::new(), true, Vec::new());
        visit(body, &mut |node| {
            match node.kind() {
                // Shared memory whose size the launch gives has the same name in all functions, so we must keep it.
                "declaration" if !has_word(function.text, node, "extern") => {
                    let names = declarators(node).into_iter().map(declared);
                    own.extend(names.map(|name| function.str(name).to_owned()));
                }
                "return_statement" => returns.push(node),
                "lambda_expression" | "goto_statement" | "labeled_statement" | "for_range_loop"
                | "struct_specifier" => {
                    plain = false;
                }
                "preproc_call" => {
                    plain &= function.str(node).starts_with("#pragma");
                    return false;
                }
                kind => plain &= !kind.starts_with("preproc"),
            }
            true
        });
        // If a macro mentions a name that we change, it would mean the wrong variable. And a variable of the kernel
        // could hide one that the function means at file level.
        let in_macros = waits.in_macros(function.text, body);
        for name in &own {
            let keeps = in_macros.contains_key(name) && !self.variables.contains_key(&**name);
            if !keeps {
                self.own(name);
            }
        }
        let hidden = in_macros.keys().any(|word| self.names.contains_key(word));
        let variable = |word: &str| !self.names.contains_key(word) && self.variables.contains_key(word);
        let mut names = descendants(body).filter(|node| node.kind() == "identifier");
        let taken =
            in_macros.keys().any(|word| variable(word)) || names.any(|name| variable(function.str(name)));
        let last = named(body).into_iter().rfind(|node| node.kind() != "comment");
        let last = last.filter(|last| last.kind() == "return_statement");
        let stay = ends && returns.iter().all(|node| node.named_child_count() == 0);
        let only_last = returns.len() <= 1 && returns.first() == last.as_ref();
        if !plain || hidden || taken || !(stay || only_last) {
            return None;
        }
        if stay {
            return Some((self.renamed(function.text, body, &[]), false));
        }
        let value =
            last.and_then(|last| last.named_child(0)).map(|value| self.renamed(function.text, value, &[]));
        let result = value.map(|value| format!("{} = {value};", self.result()));
        let instead = last.map(|last| (last, result.clone().unwrap_or_default()));
        Some((self.renamed(function.text, body, instead.as_slice()), result.is_some()))
    }

    /// Returns a part of the function on one line, with this call's names.
    fn renamed(&self, text: &str, node: Node<'_>, instead: &[(Node<'_>, String)]) -> String {
        let mut edits: Vec<Edit> = Vec::new();
        visit(node, &mut |inner| {
            if let Some((_, new)) = instead.iter().find(|(old, _)| *old == inner) {
                edits.push((inner.byte_range(), new.clone()));
                return false;
            }
            let qualified = inner.parent().is_some_and(|parent| parent.kind() == "qualified_identifier");
            match inner.kind() {
                "comment" => edits.push((inner.byte_range(), " ".to_owned())),
                // A pragma needs its own line, and it is only advice, so it goes.
                "preproc_call" => {
                    edits.push((inner.byte_range(), " ".to_owned()));
                    return false;
                }
                "identifier" | "type_identifier" if !qualified => {
                    if let Some(own) = self.names.get(&text[inner.byte_range()]) {
                        edits.push((inner.byte_range(), own.clone()));
                    }
                }
                _ => {}
            }
            true
        });
        edits::apply(text, node, edits).replace('\n', " ")
    }
}

#[cfg(test)]
mod tests {
    use super::in_users_words;

    #[test]
    fn reasons_have_the_names_that_the_user_gave() {
        let reason = "its threads meet in `warp.shfl_xor(gs_0_sum, gs_12_at) + flags_0_x + gs_turn`";
        let wanted = "its threads meet in `warp.shfl_xor(sum, at) + flags_0_x + gs_turn`";
        assert_eq!(in_users_words(reason), wanted);
    }
}
