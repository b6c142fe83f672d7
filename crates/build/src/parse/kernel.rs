//! Reads one kernel: its name, instances and parameters.

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::kernel_templates::Instances;
use super::preprocess::Parts;
use super::types::{Place, Shape, scope};
use super::{Context, File, child_of_kind, children, declared, doc, function_name, named, shared, visit};
use crate::contract::Contract;
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::names::last_name;
use crate::signature::{Argument, Function, Instance, Kernel, Template};
use crate::types::{Param, ParamType, ValueType};

/// How many parameters fit into the launcher's argument array on the stack.
const MAX_PARAMS: usize = 64;

/// How many bytes the parameters may have. This is CUDA's limit, from 12.1 on.
const MAX_PARAM_BYTES: usize = 32_764;

/// The methods that every generated `Kernels` has.
pub(super) const RESERVED: [&str; 2] = ["load", "module"];

impl<'a> File<'a> {
    /// Reads a definition or declaration of a `__global__` function.
    pub(super) fn kernel(&mut self, node: Node<'a>, keyword: Node<'a>, context: Context) {
        let source = self.source;
        let Some((function, name_node)) = function_and_name(node) else {
            return self.unreadable(keyword);
        };
        let Some(body) = node.child_by_field_name("body") else {
            return self.check_declaration(node);
        };
        let path = source.text[name_node.byte_range()].split_whitespace().collect::<String>();
        let names = self.names(node, function, &path, context);
        let name = names.name().to_owned();
        self.check_place(keyword, name_node, &name, context);
        let doc_lines = self.docs.above(outermost(node).start_byte());
        if context.class {
            return;
        }
        self.check_result(node, keyword, &name);
        let Some(Instances { template, arguments }) = self.instances(node, name_node, &names, &doc_lines)
        else {
            return;
        };
        let refused = self.diagnostics.len();
        let (mut params, mut instances) = self.instantiated((node, function), &name, &template, arguments);
        self.check_size(&name, name_node, &instances);
        let generics: Vec<_> =
            params.iter().map(|param| generic(source, function, param, &template, &instances)).collect();
        self.check_instances(&mut params, &generics, &mut instances);
        let mut kernel = Kernel {
            name_range: name_node.byte_range(),
            place: source.named(name_node.start_byte()),
            docs: doc::text_lines(&source.text, &doc_lines),
            params,
            template,
            generics,
            instances,
            contract: Contract::default(),
            strided: self.uses.loops(&source.text, body),
            shares: shared::is_in(&source.text[body.byte_range()]),
            targets: None,
            is_opaque: false,
            function: names,
            name,
        };
        kernel.contract = self.contract(node, &kernel, &doc_lines);
        if self.by_name && self.diagnostics.len() > refused {
            // We know too little of the parameters to make a launcher, but nobody wants one.
            self.diagnostics.truncate(refused);
            kernel.is_opaque = true;
        }
        self.kernels.push(kernel);
    }

    /// Refuses a contract above a forward declaration, because the definition counts.
    fn check_declaration(&mut self, node: Node<'a>) {
        let lines = self.docs.above(outermost(node).start_byte());
        if let Some((_, range)) = doc::contract(&lines).first() {
            self.diagnostics.push(self.source.diagnostic(
                range.clone(),
                "this contract is above a declaration",
                "put it above the kernel's definition, which is what launchers are made from",
            ));
        }
    }

    /// Refuses a kernel that returns something.
    fn check_result(&mut self, node: Node<'a>, keyword: Node<'a>, name: &str) {
        let ty = node.child_by_field_name("type");
        let void = ty.is_some_and(|ty| &self.source.text[ty.byte_range()] == "void");
        // In `__global__ void* f()` the type is `void` too, but the declarator is a pointer.
        let plain = node
            .child_by_field_name("declarator")
            .is_some_and(|declarator| declarator.kind() == "function_declarator");
        if !void || !plain {
            self.diagnostics.push(self.source.diagnostic(
                ty.unwrap_or(keyword).byte_range(),
                format!("kernel `{name}` does not return void"),
                "write `void`; results go through a pointer",
            ));
        }
    }

    /// Reads the parameters for each instance. Returns those of the first instance, and all instances.
    fn instantiated(
        &mut self,
        (node, function): (Node<'a>, Node<'a>),
        name: &str,
        template: &[Template],
        arguments: Vec<(Vec<Argument>, bool)>,
    ) -> (Vec<Param>, Vec<Instance>) {
        // We read the first instance last, because its parameters are the ones to keep.
        let (mut params, mut instances) = (Vec::new(), Vec::new());
        for (arguments, written) in arguments.into_iter().rev() {
            self.types.substitute(template, &arguments);
            params = self.params(function, name);
            let types = params.iter().map(|param| param.ty.clone()).collect();
            let max_threads = self.launch_bound(node);
            instances.insert(0, Instance { arguments, params: types, max_threads, written });
        }
        self.types.substitute(&[], &[]);
        (params, instances)
    }

    /// Returns the largest block that the first argument of `__launch_bounds__` allows, in threads. Returns
    /// `None` if there is no bound or only a compiler knows its value. Then we refuse nothing here, because
    /// the GPU's driver knows the bound of what it loaded.
    fn launch_bound(&mut self, node: Node<'a>) -> Option<u32> {
        let bounds = child_of_kind(node, "launch_bounds")?;
        let first = named(bounds).into_iter().find(|argument| argument.kind() != "comment")?;
        let place = Place { source: self.source, node: first };
        let value = self.types.evaluate(place.text(), &scope(place))?;
        u32::try_from(value).ok().filter(|threads| *threads > 0)
    }

    /// Looks for parameters whose type differs between a template's instances, although no template parameter
    /// names it. One launcher cannot take such a value for all instances, so we refuse it. If the parameter is
    /// memory, the launcher takes bytes instead.
    fn check_instances(
        &mut self,
        params: &mut [Param],
        generics: &[Option<usize>],
        instances: &mut [Instance],
    ) {
        for (number, (param, generic)) in params.iter_mut().zip(generics).enumerate() {
            let differs = |instance: &Instance| instance.params.get(number) != Some(&param.ty);
            if generic.is_some() || !instances.iter().any(differs) {
                continue;
            }
            let why = format!("`{}` has another type in each instance of the template", param.name);
            let ParamType::Pointer { mutable, volatile, .. } = param.ty else {
                self.diagnostics.push(self.source.diagnostic(
                    param.range.clone(),
                    why,
                    "name its type by a parameter of the template, or instantiate the template once",
                ));
                continue;
            };
            self.warn(param.range.start, &format!("the launcher takes plain bytes: {why}"));
            let element = ValueType::Bytes { unknown: None };
            param.ty = ParamType::Pointer { element, mutable, volatile };
            for instance in instances.iter_mut() {
                instance.params[number] = param.ty.clone();
            }
        }
    }

    /// Refuses a kernel whose parameters have more bytes than some backend takes.
    fn check_size(&mut self, kernel: &str, name_node: Node<'a>, instances: &[Instance]) {
        let ends = instances.iter().filter_map(|instance| {
            let (offset, size) = *instance.param_table().last()?;
            Some(offset.saturating_add(size))
        });
        let bytes = ends.max().unwrap_or(0);
        if bytes > MAX_PARAM_BYTES {
            self.diagnostics.push(self.source.diagnostic(
                name_node.byte_range(),
                format!(
                    "the parameters of kernel `{kernel}` have {bytes} bytes; at most {MAX_PARAM_BYTES} are allowed"
                ),
                "pass a pointer, or set a `__constant__` variable",
            ));
        }
    }

    /// Returns the function as C++ names it.
    fn names(&self, node: Node<'a>, declarator: Node<'a>, written: &str, context: Context) -> Function {
        let path = scope(Place { source: self.source, node }) + written.trim_start_matches("::");
        let name = last_name(&path);
        let params = declarator.child_by_field_name("parameters").map(children).unwrap_or_default();
        let params = params.into_iter().filter(|param| param.kind().ends_with("parameter_declaration"));
        let types: Vec<String> = params.map(|param| written_type(self.source, param)).collect();
        let (extern_c, shares_name) = (context.extern_c, self.functions.contains(name));
        Function { path, extern_c, types: types.join(", "), overloaded: false, shares_name }
    }

    fn unreadable(&mut self, keyword: Node<'a>) {
        self.diagnostics.push(self.source.diagnostic(
            keyword.byte_range(),
            "this kernel's declaration cannot be read",
            "write `__global__ void name(parameters) { … }`",
        ));
    }

    /// Refuses a kernel in a place where a program could not find it.
    fn check_place(&mut self, keyword: Node<'a>, name_node: Node<'a>, name: &str, context: Context) {
        let source = self.source;
        let mut refuse = |node: Node<'a>, message: String, help: String| {
            self.diagnostics.push(source.diagnostic(node.byte_range(), message, help));
        };
        if context.class {
            return refuse(
                name_node,
                format!("kernel `{name}` is a member of a class"),
                "move it out of the class".to_owned(),
            );
        }
        if context.broken {
            return refuse(
                keyword,
                format!("the text around kernel `{name}` cannot be read"),
                "look for an unbalanced brace or a macro that stands for part of a declaration".to_owned(),
            );
        }
        if context.conditional {
            refuse(
                name_node,
                format!("kernel `{name}` is inside an #if, so it may be missing on some backends"),
                "move the #if into the kernel's body".to_owned(),
            );
        }
        if !is_plain_name(name) {
            refuse(
                name_node,
                format!("`{name}` is not a plain name"),
                "name the kernel by one identifier".to_owned(),
            );
        }
        if RESERVED.contains(&name) {
            refuse(
                name_node,
                format!("the generated `Kernels` has its own `{name}`"),
                "rename the kernel".to_owned(),
            );
        }
    }

    fn params(&mut self, function: Node<'a>, kernel: &str) -> Vec<Param> {
        let source = self.source;
        let Some(list) = function.child_by_field_name("parameters") else { return Vec::new() };
        let mut params: Vec<Param> = Vec::new();
        for node in children(list) {
            let refused = match node.kind() {
                "parameter_declaration" | "optional_parameter_declaration" => None,
                "comment" | "(" | ")" | "," => continue,
                "variadic_parameter" | "variadic_parameter_declaration" | "..." => {
                    Some(("a kernel cannot take a variable number of arguments", "list the parameters"))
                }
                _ => Some(("this parameter cannot be read", "write `type name`, without macros")),
            };
            if let Some((message, help)) = refused {
                self.diagnostics.push(source.diagnostic(node.byte_range(), message, help));
                continue;
            }
            if &source.text[node.byte_range()] == "void" {
                continue;
            }
            match self.param(node, params.len()) {
                Ok(param) => params.push(param),
                Err(diagnostic) => {
                    self.diagnostics.push(diagnostic);
                    let name = param_name(node).map(|name| source.text[name.byte_range()].to_owned());
                    let (name, range) = (name.unwrap_or_default(), node.byte_range());
                    params.push(Param { name, range, ty: ParamType::refused() });
                }
            }
        }
        if params.len() > MAX_PARAMS {
            self.diagnostics.push(source.diagnostic(
                params[MAX_PARAMS].range.clone(),
                format!(
                    "kernel `{kernel}` has {} parameters; at most {MAX_PARAMS} are allowed",
                    params.len()
                ),
                "pass a struct by value",
            ));
        }
        params
    }

    fn param(&mut self, node: Node<'a>, index: usize) -> Result<Param, Diagnostic> {
        let source = self.source;
        let text = &source.text;
        let name = param_name(node).map(|name| text[name.byte_range()].to_owned());
        let name = name.unwrap_or_else(|| format!("arg{index}"));
        let refuse = |message: &str, help: &str| Err(source.diagnostic(node.byte_range(), message, help));
        let Some(type_node) = node.child_by_field_name("type") else {
            return refuse("a parameter without a type", "write `type name`");
        };
        let base = &text[type_node.byte_range()];
        let place = Place { source, node };
        let declared = self.types.declaration(place, node.child_by_field_name("declarator"))?;
        let ty = match declared.shape {
            Shape::Value(value) => ParamType::Value(value),
            Shape::Refused(why) => return Err(*why),
            Shape::Void => return refuse("a parameter of type void", "give it a type"),
            Shape::Reference => {
                return refuse(
                    &format!("`{name}` is a reference, which the host cannot pass"),
                    &format!("write `{base}* {name}` for device memory, or `{base} {name}` for a value"),
                );
            }
            Shape::Function => {
                return refuse(
                    &format!("`{name}` is a function"),
                    "a kernel cannot take functions; choose by an integer parameter",
                );
            }
            Shape::Pointer(to) if matches!(to.shape, Shape::Function) => {
                return refuse(
                    &format!("`{name}` is a function"),
                    "a kernel cannot take functions; choose by an integer parameter",
                );
            }
            // An array parameter is a pointer to its elements.
            Shape::Pointer(element) | Shape::Array(element, _) => {
                let (constant, volatile) = element.qualifiers();
                ParamType::Pointer { element: element.element(), mutable: !constant, volatile }
            }
        };
        if let ParamType::Pointer { element: ValueType::Bytes { unknown: Some(why) }, .. } = &ty {
            let warning =
                format!("the launcher takes plain bytes for `{name}`: {} ({})", why.message, why.help);
            self.warn(node.start_byte(), &warning);
        }
        Ok(Param { name, range: node.byte_range(), ty })
    }
}

/// Returns the function's declarator, and the name inside it.
fn function_and_name(node: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let mut function = node.child_by_field_name("declarator")?;
    // In `__global__ float* f()` the function's declarator is nested inside the pointer's.
    while function.kind() != "function_declarator" {
        function = function.child_by_field_name("declarator")?;
    }
    Some((function, function.child_by_field_name("declarator")?))
}

/// Returns a parameter's declaration without its name and default value.
fn written_type(source: &SourceFile, param: Node<'_>) -> String {
    let end = param.child_by_field_name("default_value").map_or(param.end_byte(), |value| value.start_byte());
    let text = match param_name(param) {
        Some(name) => {
            [&source.text[param.start_byte()..name.start_byte()], &source.text[name.end_byte()..end]].concat()
        }
        None => source.text[param.start_byte()..end].to_owned(),
    };
    text.trim_end().trim_end_matches('=').split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the index of the template parameter that `param` has as its type, or that its memory holds.
fn generic(
    source: &SourceFile,
    function: Node<'_>,
    param: &Param,
    template: &[Template],
    instances: &[Instance],
) -> Option<usize> {
    // The launcher then takes arrays, and `T` alone would not say that.
    if matches!(param.ty, ParamType::Pointer { element: ValueType::Array { .. }, .. }) {
        return None;
    }
    let list = function.child_by_field_name("parameters")?;
    let node = children(list).into_iter().find(|node| node.byte_range() == param.range)?;
    let ty = &source.text[node.child_by_field_name("type")?.byte_range()];
    let number = template.iter().position(|parameter| parameter.name == ty)?;
    // If Rust has no name for the type, the launcher takes bytes.
    let known =
        |instance: &Instance| matches!(instance.arguments[number], Argument::Type { ty: Some(_), .. });
    instances.iter().all(known).then_some(number)
}

/// Returns the identifier that a parameter declares.
fn param_name(param: Node<'_>) -> Option<Node<'_>> {
    param.child_by_field_name("declarator").map(declared).filter(|name| name.kind() == "identifier")
}

/// Returns the linkage specification or template declaration around a kernel, because its doc comment is
/// above that.
pub(super) fn outermost(node: Node<'_>) -> Node<'_> {
    match node.parent() {
        Some(parent)
            if matches!(parent.kind(), "linkage_specification" | "template_declaration")
                && parent.child_by_field_name("body").is_none_or(|body| body == node) =>
        {
            outermost(parent)
        }
        _ => node,
    }
}

pub(super) fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Gives launchers that would share a name distinct ones: we put the namespaces in front, and number
/// overloads after the first.
pub(super) fn tell_apart(kernels: &mut [Kernel]) {
    for i in 0..kernels.len() {
        let others = || kernels.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| other);
        let (name, function) = (&kernels[i].name, &kernels[i].function);
        let elsewhere =
            |other: &Kernel| other.function.path != function.path && other.function.name() == function.name();
        let overload =
            |other: &&Kernel| other.function.path == function.path && other.function.types != function.types;
        let mut launcher =
            if others().any(elsewhere) { function.path.replace("::", "_") } else { name.clone() };
        let overloaded = !function.extern_c && others().any(|other| overload(&other));
        let earlier = kernels[..i].iter().filter(overload).count();
        if overloaded && earlier > 0 {
            launcher += &format!("_{}", earlier + 1);
        }
        kernels[i].name = launcher;
        kernels[i].function.overloaded = overloaded;
    }
}

/// Returns the names of all functions that are neither kernels nor methods, without namespaces.
pub(super) fn functions(parts: &Parts<'_>) -> HashSet<String> {
    let mut names = HashSet::new();
    for part in &parts.files {
        visit(part.tree.root_node(), &mut |node| {
            if matches!(node.kind(), "function_definition" | "declaration")
                && child_of_kind(node, "__global__").is_none()
                && let Some(name) = function_name(node)
            {
                names.insert(last_name(&part.source.text[name.byte_range()]).trim().to_owned());
            }
            // Inside a body, a kernel's name cannot mean another function.
            !matches!(node.kind(), "compound_statement" | "field_declaration_list")
        });
    }
    names
}

/// Refuses names that would collide in the generated code.
pub(super) fn check_names(source: &SourceFile, kernels: &[Kernel], diagnostics: &mut Vec<Diagnostic>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for kernel in kernels {
        if let Some(&first) = seen.get(kernel.name.as_str()) {
            let (line, _) = source.position(first);
            diagnostics.push(source.diagnostic(
                kernel.name_range.clone(),
                format!("kernel `{}` is already defined on line {line}", kernel.name),
                "give each kernel its own name",
            ));
        }
        seen.entry(&kernel.name).or_insert(kernel.name_range.start);
        let mut names = HashSet::new();
        for param in &kernel.params {
            if !param.name.is_empty() && !names.insert(param.name.as_str()) {
                diagnostics.push(source.diagnostic(
                    param.range.clone(),
                    format!("kernel `{}` has two parameters `{}`", kernel.name, param.name),
                    "give each its own name",
                ));
            }
        }
    }
    for kernel in kernels {
        if let Some(base) = kernel.name.strip_suffix("_with")
            && kernels.iter().any(|k| k.name == base && k.contract.covers.is_some())
        {
            diagnostics.push(source.diagnostic(
                kernel.name_range.clone(),
                format!("`{}` is also the generated launcher of `{base}` with a launch shape", kernel.name),
                "rename one of the two kernels",
            ));
        }
    }
}
