//! Finds the instances of kernel templates that a file's host code launches.
//!
//! Host code seldom writes an instance out as `scale<float, 4><<<…>>>`. It leaves types to deduction, uses constants,
//! passes the instance to a function that launches it, and often launches in a template of its own:
//!
//! ```cpp
//! template <class T, int D> void run(const T* in, T* out) {
//!     constexpr int block = D / 2;
//!     scale<T, block><<<1, 32>>>(in, out);
//! }
//! void both(float* a, double* b) { run<float, 64>(a, a); run<double, 32>(b, b); }
//! ```
//!
//! We follow that as text: constants and type aliases of the function are put in, deduced types come from the declarations
//! of the values, and for a template of the host we look at all of its calls. What we cannot follow asks for nothing.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::rc::Rc;

use tree_sitter::Node;

use super::dependent_types::DependentTypes;
use super::kernel_templates::split;
use super::{
    child_of_kind, declarators, declared, descendants, function_name, initialised, named, visit,
    without_comments,
};
use crate::diagnostic::SourceFile;
use crate::names::{last_name, with_words};

/// How deep templates of the host may call each other, and how many instances a launch may have.
const MAX_DEPTH: usize = 6;
const MAX_INSTANCES: usize = 256;

/// A launch of a kernel, or a call of a host function.
#[derive(Clone, Debug)]
pub(super) struct Launch<'a> {
    /// Where it is written.
    pub(super) node: Node<'a>,
    /// The name with its namespaces, as far as they were written.
    pub(super) path: String,
    /// The template's arguments, as far as they were written.
    pub(super) given: Vec<String>,
    /// The types of the values, as far as we know them, with a star for each pointer.
    pub(super) values: Vec<Option<String>>,
}

/// The type of each parameter, and how many pointers lead to it. The type may be a parameter of the template.
pub(super) type Signature = Vec<(String, usize)>;

/// Returns what is known of the host code's launches. `calls` are the nodes that launch, each with its function and values.
pub(super) fn launches<'a>(
    source: &'a SourceFile,
    root: Node<'a>,
    launched: impl Fn(Node<'a>) -> Option<(Node<'a>, Vec<Node<'a>>)>,
) -> Vec<Launch<'a>> {
    let mut found = Vec::new();
    let mut calls = Vec::new();
    let kernels = templates(source, root);
    for node in descendants(root).filter(|_| !kernels.is_empty()) {
        match node.kind() {
            "call_expression" => {
                calls.extend(launched(node).map(|(function, values)| (node, function, values)));
            }
            // Host code may pass a kernel on, with the values behind it, to a function that launches it.
            "template_function" | "identifier" if kernels.contains(plain_name(source, node)) => {
                let Some(parent) = node.parent().filter(|parent| parent.kind() != "template_function") else {
                    continue;
                };
                let mut values = if parent.kind() == "argument_list" { named(parent) } else { Vec::new() };
                values.retain(|value| value.start_byte() > node.start_byte() && value.kind() != "comment");
                if parent.kind() != "call_expression" {
                    calls.push((node, node, values));
                }
            }
            _ => {}
        }
    }
    if calls.is_empty() {
        return found;
    }
    let host = Host::read(source, root);
    for (node, function, values) in calls {
        let Some((path, given)) = host.template(function) else { continue };
        let within = host.around(node);
        let values: Vec<_> = values.into_iter().map(|value| host.type_of(value, within)).collect();
        let mut instances = Vec::new();
        host.ground(&Launch { node, path, given, values }, within, 0, &mut instances);
        found.extend(instances.into_iter().map(|launch| Launch {
            given: launch.given.iter().map(|text| host.dependent.resolve(text)).collect(),
            values: launch.values.into_iter().map(|value| Some(host.dependent.resolve(&value?))).collect(),
            ..launch
        }));
    }
    found
}

/// Returns the names of all kernel templates in the file.
fn templates<'a>(source: &'a SourceFile, root: Node<'_>) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    visit(root, &mut |node| {
        if node.kind() == "function_definition"
            && child_of_kind(node, "__global__").is_some()
            && node.parent().is_some_and(|parent| parent.kind() == "template_declaration")
        {
            names.extend(function_name(node).map(|name| last_name(&source.text[name.byte_range()]).trim()));
        }
        node.kind() != "function_definition"
    });
    names
}

/// Returns the name in a call, without its template's arguments.
fn plain_name<'a>(source: &'a SourceFile, node: Node<'_>) -> &'a str {
    source.text[node.byte_range()].split('<').next().unwrap_or_default().trim()
}

/// Returns what a declarator says about its parameters.
pub(super) fn signature(source: &SourceFile, declarator: Node<'_>) -> Signature {
    let Some(list) = declarator.child_by_field_name("parameters") else { return Vec::new() };
    let parameters = named(list).into_iter().filter(|node| node.kind().ends_with("parameter_declaration"));
    parameters
        .map(|parameter| {
            let ty = parameter.child_by_field_name("type");
            let ty = ty.map(|ty| source.text[ty.byte_range()].to_owned()).unwrap_or_default();
            (ty, parameter.child_by_field_name("declarator").map_or(0, stars))
        })
        .collect()
}

/// Returns the type that a template parameter stands for, from the types of the values, which may begin with others.
pub(super) fn deduced(name: &str, signature: &Signature, values: &[Option<String>]) -> Option<String> {
    // What comes before the values is for the function that launches the kernel.
    let values = &values[values.len().saturating_sub(signature.len())..];
    signature.iter().zip(values).find_map(|((ty, stars), value)| {
        let mut value = value.as_deref().filter(|_| ty == name)?.trim();
        for _ in 0..*stars {
            value = value.strip_suffix('*')?.trim_end();
        }
        let qualifier = |word: &&str| !matches!(*word, "const" | "volatile" | "__restrict__" | "struct");
        Some(value.split_whitespace().filter(qualifier).collect::<Vec<_>>().join(" "))
    })
}

/// Returns how many values a call of a function may pass.
fn values(declarator: Node<'_>) -> Option<RangeInclusive<usize>> {
    let list = declarator.child_by_field_name("parameters")?;
    let kinds: Vec<_> = named(list).into_iter().map(|parameter| parameter.kind()).collect();
    let required = kinds.iter().filter(|kind| **kind == "parameter_declaration").count();
    let optional = kinds.iter().filter(|kind| **kind == "optional_parameter_declaration").count();
    let is_open = kinds.iter().any(|kind| kind.starts_with("variadic"));
    Some(required..=if is_open { usize::MAX } else { required + optional })
}

/// Returns true if a node takes a value, for which a function's name stands for its address.
fn takes_a_value(node: &Node<'_>) -> bool {
    matches!(
        node.kind(),
        "return_statement"
            | "argument_list"
            | "initializer_list"
            | "init_declarator"
            | "assignment_expression"
            | "conditional_expression"
            | "pointer_expression"
            | "field_initializer"
    )
}

/// Returns how many pointers a declarator makes.
pub(super) fn stars(declarator: Node<'_>) -> usize {
    let own = usize::from(matches!(
        declarator.kind(),
        "pointer_declarator"
            | "array_declarator"
            | "abstract_pointer_declarator"
            | "abstract_array_declarator"
    ));
    declarator.child_by_field_name("declarator").map_or(own, |inner| own + stars(inner))
}

/// Returns the part of `template <class> class T` that has the name.
pub(super) fn inner_parameter(parameter: Node<'_>) -> Option<Node<'_>> {
    let is_template = parameter.kind() == "template_template_parameter_declaration";
    let mut parts = if is_template { named(parameter) } else { Vec::new() }.into_iter();
    parts.find(|part| part.kind().ends_with("type_parameter_declaration"))
}

/// Returns the parameter names of a template. One without a name has an empty one.
pub(super) fn template_names(source: &SourceFile, template: Node<'_>) -> Vec<String> {
    let list = template.child_by_field_name("parameters").map(named).unwrap_or_default();
    let names = list.into_iter().map(|parameter| {
        let parameter = inner_parameter(parameter).unwrap_or(parameter);
        let name = parameter.child_by_field_name("name").or_else(|| match parameter.kind() {
            "type_parameter_declaration" => child_of_kind(parameter, "type_identifier"),
            _ => parameter.child_by_field_name("declarator").map(declared),
        });
        name.map_or(String::new(), |name| source.text[name.byte_range()].to_owned())
    });
    names.collect()
}

/// A function of the host.
#[derive(Default)]
struct Function<'a> {
    name: String,
    /// The names of the parameters, if it is a template.
    template: Vec<String>,
    /// The arguments of the template, if it is a specialisation.
    specialises: Vec<String>,
    signature: Signature,
    /// How many values a call may pass, if we know it.
    values: Option<RangeInclusive<usize>>,
    /// What its constants and type aliases stand for; `None` if a name stands for several things.
    names: HashMap<String, Option<String>>,
    /// The types of its variables; `None` if a name has several types.
    types: HashMap<String, Option<String>>,
    /// The values of its variables that are `auto`.
    deduced: HashMap<String, Node<'a>>,
}

/// A call or an explicit instantiation of a host template, or a place that takes its address.
struct Call<'a> {
    node: Node<'a>,
    path: String,
    given: Vec<String>,
    values: Vec<Node<'a>>,
    /// The function around it.
    within: Option<usize>,
}

/// The host's functions and their calls.
struct Host<'a> {
    source: &'a SourceFile,
    functions: Vec<Function<'a>>,
    /// Where each function is.
    places: Vec<std::ops::Range<usize>>,
    /// What is outside of functions.
    outside: Function<'a>,
    /// For each template's name, its calls and its explicit instantiations.
    calls: HashMap<String, Vec<Call<'a>>>,
    /// What the types of functions' results depend on.
    dependent: DependentTypes,
    /// The instances that we found, for a function's index and the depth at which we looked.
    known: RefCell<HashMap<(usize, usize), Rc<Instances>>>,
}

/// What each parameter of a template stands for, as far as we know, in each of its instances.
type Instances = Vec<Vec<Option<String>>>;

impl<'a> Host<'a> {
    fn read(source: &'a SourceFile, root: Node<'a>) -> Self {
        let (functions, places, outside, calls, known) = Default::default();
        let dependent = DependentTypes::read(source, root);
        let mut host = Self { source, functions, places, outside, calls, dependent, known };
        visit(root, &mut |node| {
            match node.kind() {
                "function_definition" => {
                    let function = host.function(node);
                    host.functions.push(function);
                    host.places.push(node.byte_range());
                    return false;
                }
                // What belongs to a template or a struct has another meaning outside.
                "declaration" | "alias_declaration" | "type_definition"
                    if node.parent().is_none_or(|parent| {
                        !matches!(parent.kind(), "template_declaration" | "field_declaration_list")
                    }) =>
                {
                    let mut outside = std::mem::take(&mut host.outside);
                    host.note(node, &mut outside);
                    host.outside = outside;
                }
                _ => {}
            }
            true
        });
        let templates: HashSet<_> =
            host.functions.iter().filter(|f| !f.template.is_empty()).map(|f| f.name.clone()).collect();
        for node in descendants(root) {
            let name = match node.kind() {
                "call_expression" => node.child_by_field_name("function"),
                "template_instantiation" => function_name(node),
                "template_function" => node.parent().filter(takes_a_value).map(|_| node),
                _ => None,
            };
            if let Some((path, given)) = name.and_then(|name| host.template(name))
                && templates.contains(last_name(&path))
            {
                let values = node.child_by_field_name("arguments").map(named).unwrap_or_default();
                let name = last_name(&path).to_owned();
                let call = Call { node, path, given, values, within: host.around(node) };
                host.calls.entry(name).or_default().push(call);
            }
        }
        host
    }

    fn str(&self, node: Node<'_>) -> &'a str {
        &self.source.text[node.byte_range()]
    }

    fn function(&self, node: Node<'a>) -> Function<'a> {
        let mut function = Function::default();
        if let Some(name) = function_name(node) {
            let (path, given) =
                self.template(name).unwrap_or_else(|| (self.str(name).to_owned(), Vec::new()));
            last_name(&path).trim().clone_into(&mut function.name);
            function.specialises = given;
        }
        let template = node.parent().filter(|parent| parent.kind() == "template_declaration");
        function.template =
            template.map(|template| template_names(self.source, template)).unwrap_or_default();
        let mut declarator = node.child_by_field_name("declarator");
        while let Some(outer) = declarator.filter(|declarator| declarator.kind() != "function_declarator") {
            declarator = outer.child_by_field_name("declarator");
        }
        if let Some(declarator) = declarator {
            function.signature = signature(self.source, declarator);
            function.values = values(declarator);
        }
        for inner in descendants(node) {
            if inner.kind().ends_with("declaration") || inner.kind() == "type_definition" {
                self.note(inner, &mut function);
            }
        }
        function
    }

    /// Notes what a declaration says about names.
    fn note(&self, node: Node<'a>, function: &mut Function<'a>) {
        let mut names = Vec::new();
        if node.kind() == "alias_declaration" {
            let fields = (node.child_by_field_name("name"), node.child_by_field_name("type"));
            if let (Some(name), Some(ty)) = fields {
                names.push((self.str(name).to_owned(), self.str(ty).to_owned()));
            }
        } else if let Some(ty) = node.child_by_field_name("type") {
            let ty = self.str(ty);
            for declarator in declarators(node) {
                let name = self.str(declared(declarator)).to_owned();
                let full = format!("{ty}{}", "*".repeat(stars(declarator)));
                if node.kind() == "type_definition" {
                    names.push((name, full));
                } else {
                    let known = function.types.entry(name).or_insert_with(|| Some(full.clone()));
                    *known = known.take().filter(|known| *known == full && ty != "auto");
                }
            }
        }
        if node.child_by_field_name("type").is_some_and(|ty| self.str(ty) == "auto") {
            let values = initialised(node);
            function.deduced.extend(values.map(|(name, value)| (self.str(declared(name)).to_owned(), value)));
        } else if super::is_constant(&self.source.text, node) {
            let values = initialised(node);
            names.extend(values.map(|(name, value)| (self.str(name).to_owned(), self.str(value).to_owned())));
        }
        for (name, value) in names {
            let known = function.names.entry(name).or_insert_with(|| Some(value.clone()));
            *known = known.take().filter(|known| *known == value);
        }
    }

    /// Returns the index of the function around a node.
    fn around(&self, node: Node<'_>) -> Option<usize> {
        self.places.iter().position(|place| place.contains(&node.start_byte()))
    }

    /// Returns the name in a call, and the template's arguments.
    fn template(&self, node: Node<'_>) -> Option<(String, Vec<String>)> {
        match node.kind() {
            "identifier"
            | "template_function"
            | "qualified_identifier"
            | "template_method"
            | "field_identifier" => {}
            _ => return None,
        }
        let text = without_comments(self.str(node));
        let text = text.trim();
        match text.strip_suffix('>').and_then(|text| text.split_once('<')) {
            Some((path, given)) => Some((path.trim().to_owned(), split(given).map(str::to_owned).collect())),
            None => Some((text.to_owned(), Vec::new())),
        }
    }

    /// Returns the type of a value, with a star for each pointer.
    fn type_of(&self, value: Node<'_>, within: Option<usize>) -> Option<String> {
        let field = |name| value.child_by_field_name(name);
        let pointee = |ty: String| ty.trim().strip_suffix('*').map(str::to_owned);
        match value.kind() {
            "identifier" => {
                let name = self.str(value);
                let own = within.map(|within| &self.functions[within]);
                if let Some(value) = own.and_then(|own| own.deduced.get(name))
                    && !self.str(*value).contains(name)
                {
                    return self.type_of(*value, within);
                }
                own.and_then(|own| own.types.get(name)).or_else(|| self.outside.types.get(name))?.clone()
            }
            "cast_expression" => Some(self.str(field("type")?).replace(['\n', '\t'], " ")),
            "parenthesized_expression" => self.type_of(value.named_child(0)?, within),
            "call_expression" => {
                let called = field("function")?;
                // Of `x.data<T>`, the function's name.
                let called = called.child_by_field_name("field").unwrap_or(called);
                let (path, given) = self.template(called)?;
                if path.ends_with("_cast") && !path.contains("::") && !given.is_empty() {
                    return given.first().cloned();
                }
                let values = field("arguments").map(named).unwrap_or_default();
                let values: Vec<_> = values.into_iter().map(|value| self.type_of(value, within)).collect();
                let name = last_name(&path);
                // If there is no such function, it is a type, and the call makes a value of it.
                let is_type = !self.dependent.has_function(name) && field("function") == Some(called);
                let ty =
                    || if given.is_empty() { path.clone() } else { format!("{path}<{}>", given.join(", ")) };
                self.dependent.result(name, &given, &values).or_else(|| is_type.then(ty))
            }
            "conditional_expression" => {
                let part = |name| self.type_of(field(name)?, within);
                part("consequence").or_else(|| part("alternative"))
            }
            "pointer_expression" => {
                let inner = self.type_of(field("argument")?, within)?;
                let is_address = field("operator").is_some_and(|operator| self.str(operator) == "&");
                if is_address { Some(inner + "*") } else { pointee(inner) }
            }
            "subscript_expression" => pointee(self.type_of(field("argument")?, within)?),
            "binary_expression" => {
                let left = self.type_of(field("left")?, within)?;
                left.ends_with('*').then_some(left)
            }
            "number_literal" => {
                let text = self.str(value);
                let float = text.contains('.') && !text.starts_with("0x");
                let ty = match (float, text.ends_with(['f', 'F'])) {
                    (true, true) => "float",
                    (true, false) => "double",
                    _ => "int",
                };
                Some(ty.to_owned())
            }
            "true" | "false" => Some("bool".to_owned()),
            _ => None,
        }
    }

    /// Puts in what the names in a launch stand for. If it is in a template, does so for each call of the template.
    fn ground(&self, launch: &Launch<'a>, within: Option<usize>, depth: usize, all: &mut Vec<Launch<'a>>) {
        if depth > MAX_DEPTH || all.len() >= MAX_INSTANCES {
            return;
        }
        let own = within.map(|within| &self.functions[within]);
        let mut launch = launch.clone();
        // A constant may stand for another.
        for _ in 0..3 {
            launch = launch.with(|word| {
                let own = own.and_then(|function| {
                    (!function.template.iter().any(|name| name == word)).then(|| function.names.get(word))?
                });
                own.or_else(|| self.outside.names.get(word))?.clone()
            });
        }
        let depends = |function: &&Function<'a>| function.template.iter().any(|name| launch.mentions(name));
        let (Some(index), Some(function)) = (within, own.filter(depends)) else {
            all.push(launch);
            return;
        };
        for known in &*self.instances(index, depth) {
            let word = |word: &str| known[function.template.iter().position(|name| name == word)?].clone();
            if all.len() < MAX_INSTANCES {
                all.push(launch.with(word));
            }
        }
    }

    /// Returns false if a call passes more or fewer values than this overload takes, and another overload takes as many.
    fn may_mean(&self, call: &Call<'a>, function: &Function<'a>) -> bool {
        let fits = |function: &Function<'a>| {
            let takes = function.values.as_ref().is_none_or(|values| values.contains(&call.values.len()));
            takes || call.node.kind() != "call_expression"
        };
        let mut others = self.functions.iter().filter(|other| other.name == function.name);
        fits(function) || !others.any(fits)
    }

    /// Returns the instances of the host template with an index.
    fn instances(&self, index: usize, depth: usize) -> Rc<Instances> {
        // Templates of one name may call each other in many ways, so we must not follow each way on its own.
        if let Some(known) = self.known.borrow().get(&(index, depth)) {
            return known.clone();
        }
        let function = &self.functions[index];
        let mut all = Instances::new();
        let calls = self.calls.get(&function.name).into_iter().flatten();
        for call in calls.filter(|call| self.may_mean(call, function)) {
            let values = call.values.iter().map(|value| self.type_of(*value, call.within)).collect();
            let (path, given) = (call.path.clone(), call.given.clone());
            let mut grounded = Vec::new();
            self.ground(
                &Launch { node: call.node, path, given, values },
                call.within,
                depth + 1,
                &mut grounded,
            );
            for call in grounded {
                let argument = |(at, name): (usize, &String)| {
                    call.given.get(at).cloned().or_else(|| deduced(name, &function.signature, &call.values))
                };
                let instance: Vec<_> = function.template.iter().enumerate().map(argument).collect();
                let is_special = self.functions.iter().any(|other| {
                    other.name == function.name
                        && instance.iter().flatten().eq(&other.specialises)
                        && !other.specialises.is_empty()
                });
                if all.len() < MAX_INSTANCES && !is_special && !all.contains(&instance) {
                    all.push(instance);
                }
            }
        }
        let all = Rc::new(all);
        self.known.borrow_mut().insert((index, depth), all.clone());
        all
    }
}

impl Launch<'_> {
    /// Returns the launch with words replaced.
    fn with(&self, new: impl Fn(&str) -> Option<String>) -> Self {
        let put = |text: &String| with_words(text, &new);
        Self {
            node: self.node,
            path: self.path.clone(),
            given: self.given.iter().map(put).collect(),
            values: self.values.iter().map(|value| value.as_ref().map(put)).collect(),
        }
    }

    fn mentions(&self, name: &str) -> bool {
        let texts = self.given.iter().chain(self.values.iter().flatten());
        let mut words = texts.flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words.any(|word| word == name)
    }
}
