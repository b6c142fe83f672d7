//! Kernel templates: their parameters, and the arguments that we compile them for.
//!
//! You can ask for an instance in four places: in a `types:` line above the template, with an explicit
//! instantiation in the file, with a launch in the file's host code that spells out all arguments, or in the
//! build script.

use std::collections::HashSet;
use std::ops::Range;

use tree_sitter::Node;

use super::launches::{self, Signature, deduced};
use super::types::{self, Shape, Types};
use super::{File, child_of_kind, declared, descendants, doc, named};
use crate::contract::LineKind;
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::signature::{Argument, Function, Template};
use crate::types::Scalar;

/// The help for an argument that is neither a type nor a number.
const NO_ARGUMENT: &str = "write a type, or a number as a literal";

/// An instance that was asked for: name and arguments.
pub(super) struct Wanted<'a> {
    /// The name with its namespaces, as far as they were written.
    path: String,
    arguments: Vec<String>,
    place: Place<'a>,
    /// The types of the values in a launch, from which the other arguments follow.
    values: Vec<Option<String>>,
}

enum Place<'a> {
    /// An explicit instantiation in the file.
    Written(Range<usize>),
    /// A launch in the file's host code. Names in it mean what they mean there.
    Launched(Node<'a>),
    /// The build script.
    Script,
}

/// One template's instances that we compile.
pub(super) struct Instances {
    pub(super) template: Vec<Template>,
    /// Each instance's arguments, and whether the file instantiates it itself.
    pub(super) arguments: Vec<(Vec<Argument>, bool)>,
}

/// Returns what the file's own text asks for, followed by what the build script asks for.
pub(super) fn wanted<'a>(source: &'a SourceFile, root: Node<'a>, script: &[String]) -> Vec<Wanted<'a>> {
    let mut all = Vec::new();
    for node in descendants(root) {
        if node.kind() == "template_instantiation" && child_of_kind(node, "__global__").is_some() {
            let place = Place::Written(node.byte_range());
            all.extend(node.child_by_field_name("declarator").and_then(|d| instance(source, d, place)));
        }
    }
    let launches = launches::launches(source, root, |call| launched(source, call));
    all.extend(launches.into_iter().map(|launch| Wanted {
        path: launch.path,
        arguments: launch.given,
        place: Place::Launched(launch.node),
        values: launch.values,
    }));
    all.extend(script.iter().filter_map(|text| by_text(text, Place::Script)));
    all
}

/// Returns the kernel that a call launches and the values for it: `f<float><<<…>>>(…)`, `hipLaunchKernelGGL(f<float>, …)`.
fn launched<'a>(source: &SourceFile, call: Node<'a>) -> Option<(Node<'a>, Vec<Node<'a>>)> {
    let function = call.child_by_field_name("function")?;
    let mut values = call.child_by_field_name("arguments").map(named).unwrap_or_default();
    values.retain(|value| value.kind() != "comment");
    if child_of_kind(call, "kernel_call_syntax").is_some() {
        return Some((function, values));
    }
    match &source.text[function.byte_range()] {
        // The last one may wrap the kernel's name inside the others. Before the values come the launch's shape, its shared
        // memory and its stream.
        "hipLaunchKernelGGL" | "hipLaunchKernel" | "HIP_KERNEL_NAME" => {
            Some((*values.first()?, values.split_off(values.len().min(5))))
        }
        _ => None,
    }
}

/// Returns the instance that a declarator, or the function in a call, names.
fn instance<'a>(source: &SourceFile, mut node: Node<'_>, place: Place<'a>) -> Option<Wanted<'a>> {
    while node.kind() == "function_declarator" {
        node = node.child_by_field_name("declarator")?;
    }
    matches!(node.kind(), "template_function" | "qualified_identifier")
        .then(|| by_text(&source.text[node.byte_range()], place))
        .flatten()
}

/// Reads `path<arguments>`.
fn by_text<'a>(text: &str, place: Place<'a>) -> Option<Wanted<'a>> {
    let (path, arguments) = text.trim().strip_suffix('>')?.split_once('<')?;
    let arguments = split(arguments).map(str::to_owned).collect();
    Some(Wanted { path: path.trim().to_owned(), arguments, place, values: Vec::new() })
}

/// Splits a text at the commas outside brackets.
pub(crate) fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

/// A template parameter, with its default if it has one.
pub(super) struct Parameter {
    pub(super) template: Template,
    pub(super) default: Option<String>,
}

/// What `types:` lines list for a parameter, or for several that are chosen together.
struct List {
    /// The parameters' indices in the template.
    parameters: Vec<usize>,
    /// Each choice has a value for every one of `parameters`.
    choices: Vec<Vec<Argument>>,
}

impl<'a> File<'a> {
    /// Returns the functions that a kernel is compiled to, each with the template's arguments. If there are
    /// none, returns nothing and has already reported why.
    pub(super) fn instances(
        &mut self,
        kernel: Node<'a>,
        name: Node<'a>,
        function: &Function,
        lines: &[doc::DocLine],
    ) -> Option<Instances> {
        let parts = doc::contract(lines).into_iter();
        let listed: Vec<_> =
            parts.filter(|(kind, _)| *kind == LineKind::Types).map(|(_, range)| range).collect();
        let plain = &self.source.text[name.byte_range()];
        let Some(declaration) = kernel.parent().filter(|parent| parent.kind() == "template_declaration")
        else {
            self.diagnostics.extend(listed.into_iter().map(|range| {
                self.source.diagnostic(
                    range,
                    format!("kernel `{plain}` is not a template"),
                    "leave `types:` out",
                )
            }));
            return Some(Instances { template: Vec::new(), arguments: vec![(Vec::new(), false)] });
        };
        let found =
            self.of_template(declaration, kernel.child_by_field_name("declarator"), function, &listed)?;
        if !found.arguments.is_empty() {
            return Some(found);
        }
        let first = found.template.first().map_or("T", |first| &first.name);
        self.unused.push(self.source.diagnostic(
            name.byte_range(),
            format!("kernel `{plain}` is a template that nothing instantiates, so it has no launcher"),
            format!(
                "write `/// types: {first} = …` above it, `template __global__ void {plain}<…>(…);` below it, or \
                 `.instantiate(\"{plain}<…>\")` in build.rs"
            ),
        ));
        None
    }

    /// Returns the instances of a template, or nothing if one was refused. `listed` is the text from the
    /// `types:` lines.
    fn of_template(
        &mut self,
        declaration: Node<'a>,
        kernel: Option<Node<'a>>,
        function: &Function,
        listed: &[Range<usize>],
    ) -> Option<Instances> {
        let source = self.source;
        let mut failed = Vec::new();
        let node = declaration.child_by_field_name("parameters")?;
        let read = parameters(&mut self.types, types::Place { source, node });
        let mut parameters = Vec::new();
        for parameter in read {
            match parameter {
                Ok(parameter) => parameters.push(parameter),
                Err(diagnostic) => failed.push(diagnostic),
            }
        }
        let mut lists = Vec::new();
        for range in listed {
            let text = &self.docs.blanked;
            failed.extend(list(source, text, range.clone(), (&mut self.types, &parameters), &mut lists));
        }
        let mut instances: Vec<(Vec<Argument>, bool)> = Vec::new();
        if let Some(range) = listed.first()
            && failed.is_empty()
        {
            match products(&mut self.types, &parameters, lists) {
                Ok(products) => {
                    for arguments in products {
                        add(&mut instances, arguments, false);
                    }
                }
                Err((message, help)) => failed.push(source.diagnostic(range.clone(), message, help)),
            }
        }
        let signature = kernel.map(|kernel| launches::signature(source, kernel)).unwrap_or_default();
        for wanted in self.wanted.iter().filter(|wanted| function.is_called(&wanted.path)) {
            let (written, range) = match &wanted.place {
                Place::Written(range) => (true, range.clone()),
                Place::Launched(_) | Place::Script => (false, node.byte_range()),
            };
            match requested(&mut self.types, &parameters, wanted, (source, &signature, &self.functions)) {
                Ok(Some(arguments)) => add(&mut instances, arguments, written),
                Ok(None) => {}
                Err((message, help)) => failed.push(source.diagnostic(range, message, help)),
            }
        }
        if failed.is_empty() {
            let template = parameters.into_iter().map(|parameter| parameter.template).collect();
            return Some(Instances { template, arguments: instances });
        }
        if self.by_name {
            // Like a template without instances: nobody wants a launcher, and other kernels of the file may do.
            self.unused.extend(failed);
        } else {
            self.diagnostics.extend(failed);
        }
        None
    }
}

/// Adds an instance, unless one with the same arguments in Rust is known.
fn add(instances: &mut Vec<(Vec<Argument>, bool)>, arguments: Vec<Argument>, written: bool) {
    match instances.iter_mut().find(|(known, _)| in_rust(known).eq(in_rust(&arguments))) {
        Some((known, is_written)) => *is_written |= written && *known == arguments,
        None => instances.push((arguments, written)),
    }
}

/// Reads the arguments of an instance that was asked for. Those that a launch does not write follow from its values.
/// Host code may use names that mean nothing to us, so a launch that we cannot read asks for nothing.
fn requested<'a>(
    types: &mut Types<'a>,
    parameters: &[Parameter],
    Wanted { path, arguments: given, place, values }: &Wanted<'a>,
    (source, signature, functions): (&'a SourceFile, &Signature, &HashSet<String>),
) -> Result<Option<Vec<Argument>>, (String, &'static str)> {
    let rest = parameters.iter().skip(given.len()).map_while(|Parameter { template, default }| {
        deduced(&template.name, signature, values).or_else(|| default.clone())
    });
    let texts: Vec<_> = given.iter().cloned().chain(rest).collect();
    let end = types.end;
    let read = if texts.len() == parameters.len() {
        arguments(types, parameters, &texts, end).map_err(|message| (message, NO_ARGUMENT))
    } else {
        let (written, wanted) = (texts.join(", "), parameters.len());
        Err((format!("`{path}<{written}>` does not give all {wanted} arguments"), "write them all"))
    };
    let Place::Launched(node) = place else { return read.map(Some) };
    // A name that is neither a type nor a function here may be a parameter of the host code's own template.
    let is_known = |types: &Types<'a>, argument: &Argument| match argument {
        Argument::Type { cpp, ty: None } => {
            let name = cpp.split('<').next().unwrap_or_default().trim();
            types.declares(name) || functions.contains(name)
        }
        _ => true,
    };
    let known = |types: &Types<'a>, read: Option<Vec<Argument>>| {
        read.filter(|arguments| arguments.iter().all(|argument| is_known(types, argument)))
    };
    let found = known(types, read.ok());
    // Kernels that share a name mostly differ by a number, and we could not tell their instances apart.
    let has_numbers = parameters.iter().any(|parameter| parameter.template.constant.is_some());
    if found.is_some() || has_numbers || texts.len() != parameters.len() {
        return Ok(found);
    }
    let there = arguments(types, parameters, &texts, types::Place { source, node: *node }).ok();
    Ok(known(types, there))
}

/// Reads the parameters of a template.
pub(super) fn parameters<'a>(
    types: &mut Types<'a>,
    list: types::Place<'a>,
) -> Vec<Result<Parameter, Diagnostic>> {
    let nodes = named(list.node).into_iter().filter(|node| node.kind() != "comment");
    nodes.map(|node| parameter(types, list.at(node))).collect()
}

fn parameter<'a>(types: &mut Types<'a>, place: types::Place<'a>) -> Result<Parameter, Diagnostic> {
    let node = place.node;
    let text = |node: Node<'a>| place.at(node).text().to_owned();
    let field = |name| node.child_by_field_name(name);
    let refuse = |message: &str, help: &str| Err(place.refuse(message, help));
    let name_of = |name: Option<Node<'a>>| match name {
        Some(name) => Ok(text(name)),
        None => Err(place.refuse("a template parameter without a name", "give it a name")),
    };
    let of_type = |name| Template { name, constant: None, of_enum: None };
    let (template, default) = match node.kind() {
        "type_parameter_declaration" => (of_type(name_of(child_of_kind(node, "type_identifier"))?), None),
        "optional_type_parameter_declaration" => {
            (of_type(name_of(field("name"))?), field("default_type").map(text))
        }
        "parameter_declaration" | "optional_parameter_declaration" => {
            let declarator = field("declarator");
            let name = name_of(declarator.map(declared).filter(|name| name.kind() == "identifier"))?;
            if let Ok(ty) = types.declaration(place, declarator)
                && let Shape::Pointer(to) = &ty.shape
                && matches!(to.shape, Shape::Function)
            {
                // Like a type, a function has no value in Rust. Its name stands for it.
                return Ok(Parameter { template: of_type(name), default: field("default_value").map(text) });
            }
            let is_plain = declarator.is_some_and(|declarator| declarator.kind() == "identifier");
            let number = field("type").filter(|_| is_plain).and_then(|ty| types.number(place.at(ty)));
            let Some((constant, of_enum)) = number else {
                return refuse(
                    &format!("`{name}` is not an integer, bool, enum or type"),
                    "such a parameter has no counterpart in Rust: choose by an integer",
                );
            };
            let template = Template { name, constant: Some(constant), of_enum };
            (template, field("default_value").map(text))
        }
        "template_template_parameter_declaration" => {
            // Like a function, a template has no value in Rust. Its name stands for it.
            return match launches::inner_parameter(node) {
                Some(inner) => parameter(types, place.at(inner)),
                None => refuse("a template parameter without a name", "give it a name"),
            };
        }
        _ => {
            return refuse(
                "this template parameter cannot be read",
                "write `class T` or `int N`, one by one",
            );
        }
    };
    Ok(Parameter { template, default })
}

/// Reads one `types:` line, such as `T = float, double, tile = 16, 32` or
/// `(T, Sum) = (float, double), (int, int64_t)`.
fn list(
    source: &SourceFile,
    text: &str,
    range: Range<usize>,
    (types, parameters): (&mut Types<'_>, &[Parameter]),
    lists: &mut Vec<List>,
) -> Option<Diagnostic> {
    // Both are slices of one text, so their difference is an offset in it.
    let place = |part: &str| {
        let start = part.as_ptr() as usize - text.as_ptr() as usize;
        start..start + part.len()
    };
    let refuse = |range: Range<usize>, message: String| {
        let help = "write `types: T = float, double` for a template over `class T`, `tile = 16, 32` for an `int tile`, and \
                    `(T, Sum) = (float, double), (int, int64_t)` for two that are chosen together";
        Some(source.diagnostic(range, message, help))
    };
    let mut current = None;
    for part in split(&text[range.clone()]) {
        let (names, value) = match part.split_once('=') {
            Some((names, value)) => (Some(names.trim()), value.trim()),
            None => (None, part),
        };
        if let Some(names) = names {
            let mut chosen = Vec::new();
            for name in tuple(names) {
                match parameters.iter().position(|parameter| parameter.template.name == name) {
                    Some(at) if chosen.contains(&at) => {
                        return refuse(place(names), format!("`{names}` names `{name}` twice"));
                    }
                    Some(at) => chosen.push(at),
                    None => return refuse(place(part), format!("the template has no parameter `{name}`")),
                }
            }
            let known = lists.iter().position(|list| list.parameters == chosen);
            let at = known.unwrap_or(lists.len());
            if known.is_none() {
                let listed = |at: &usize| lists.iter().any(|list| list.parameters.contains(at));
                if let Some(twice) = chosen.iter().copied().find(listed) {
                    let name = &parameters[twice].template.name;
                    return refuse(
                        place(part),
                        format!("`{name}` is listed both alone and together with others"),
                    );
                }
                lists.push(List { parameters: chosen, choices: Vec::new() });
            }
            current = Some((at, names));
        }
        let Some((at, names)) = current.filter(|_| !value.is_empty()) else {
            return refuse(place(part), "a `types:` line without the parameter's name".to_owned());
        };
        let List { parameters: chosen, choices } = &mut lists[at];
        let values = if names.starts_with('(') { tuple(value) } else { vec![value] };
        if values.len() != chosen.len() {
            let wanted = chosen.len();
            return refuse(place(value), format!("`{value}` is not a choice of {wanted} for `{names}`"));
        }
        let mut choice = Vec::new();
        for (at, value) in chosen.iter().zip(values) {
            match argument(types, &parameters[*at].template, value, types.end) {
                Ok(argument) => choice.push(argument),
                Err(message) => return Some(source.diagnostic(place(value), message, NO_ARGUMENT)),
            }
        }
        choices.push(choice);
    }
    match current {
        Some(_) => None,
        None => refuse(range, "an empty `types:` line".to_owned()),
    }
}

/// Returns the parts of `(a, b)`, or the text itself if it is not in parentheses.
fn tuple(text: &str) -> Vec<&str> {
    match text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        Some(inner) => split(inner).collect(),
        None => vec![text],
    }
}

/// Returns every combination of values for the parameters. If a parameter has no values, returns a message
/// and help.
fn products(
    types: &mut Types<'_>,
    parameters: &[Parameter],
    mut lists: Vec<List>,
) -> Result<Vec<Vec<Argument>>, (String, String)> {
    for (at, Parameter { template, default }) in parameters.iter().enumerate() {
        if !lists.iter().any(|list| list.parameters.contains(&at)) {
            let name = &template.name;
            let missing = || {
                let help = format!("add `{name} = …`: the types or numbers to compile the kernel for");
                (format!("`types:` lists nothing for `{name}`"), help)
            };
            let default = argument(types, template, default.as_ref().ok_or_else(missing)?, types.end);
            let default = default.map_err(|message| (message, NO_ARGUMENT.to_owned()))?;
            lists.push(List { parameters: vec![at], choices: vec![vec![default]] });
        }
    }
    // The last parameter's values change fastest.
    lists.sort_by_key(|list| list.parameters.iter().min().copied());
    let mut products = vec![Vec::new()];
    for List { parameters, choices } in &lists {
        let with = |product: &Vec<(usize, Argument)>, choice: &Vec<Argument>| {
            let chosen = parameters.iter().copied().zip(choice.iter().cloned());
            product.iter().cloned().chain(chosen).collect::<Vec<_>>()
        };
        products =
            products.iter().flat_map(|product| choices.iter().map(|choice| with(product, choice))).collect();
    }
    let ordered = products.into_iter().map(|mut product| {
        product.sort_by_key(|(at, _)| *at);
        product.into_iter().map(|(_, argument)| argument).collect()
    });
    Ok(ordered.collect())
}

/// Reads the arguments for all parameters of a template.
fn arguments<'a>(
    types: &mut Types<'a>,
    parameters: &[Parameter],
    texts: &[String],
    place: types::Place<'a>,
) -> Result<Vec<Argument>, String> {
    let pairs = parameters.iter().zip(texts);
    pairs.map(|(parameter, text)| argument(types, &parameter.template, text, place)).collect()
}

/// Returns the arguments as launchers distinguish them, so `long` and `long long` are one type.
fn in_rust(arguments: &[Argument]) -> impl Iterator<Item = String> {
    arguments.iter().map(|argument| match argument {
        Argument::Type { ty: Some(ty), .. } => ty.rust(),
        other => other.cpp(),
    })
}

/// Reads an argument for a template parameter. `place` is the node to blame in an error.
pub(super) fn argument<'a>(
    types: &mut Types<'a>,
    template: &Template,
    text: &str,
    place: types::Place<'a>,
) -> Result<Argument, String> {
    match template.constant {
        None => match types.named(text, place) {
            (cpp, ty) if is_type(text) => Ok(Argument::Type { cpp, ty }),
            _ => Err(format!("`{text}` for `{}` is not a type", template.name)),
        },
        Some(scalar) => match types.evaluate(text, &types::scope(place)) {
            Some(value) => {
                let value = if scalar == Scalar::Bool { i128::from(value != 0) } else { value };
                Ok(Argument::Constant { value, scalar, of_enum: template.of_enum.clone() })
            }
            None => Err(format!("`{text}` for `{}` is not a number", template.name)),
        },
    }
}

fn is_type(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | ':'))
}
