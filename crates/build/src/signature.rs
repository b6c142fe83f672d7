//! What a kernel file declares: kernels, their parameters, and variables.

use std::ops::Range;

use gpustream_hal::variables;

use crate::contract::Contract;
use crate::definition::Definition;
use crate::diagnostic::{Error, Result};
use crate::names::{last_name, with_words};
use crate::types::{Param, ParamType, Scalar, ValueType};

/// Everything the bindings need to know about one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Module {
    /// The file's stem, `saxpy` for `saxpy.cu`. Characters that mean something in paths and strings become
    /// `_`.
    pub(crate) name: String,
    /// The structs and enums that kernels use. Each comes after the ones it contains.
    pub(crate) definitions: Vec<Definition>,
    /// What the file calls the 16-bit floating-point types.
    pub(crate) halves: Vec<(Scalar, String)>,
    /// Two names of one type: its name in C++, and the tag that compilers print.
    pub(crate) tags: Vec<(String, String)>,
    /// Macros that an `#if` asks about and that we took to be undefined, if defining them would change the
    /// result.
    pub(crate) assumed: Vec<String>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) globals: Vec<Global>,
    /// The paths of variables that kernels only read: `const`, `constexpr` and `__constant__`.
    pub(crate) read_only: Vec<String>,
    /// Names of `extern __shared__` arrays. The translation unit for the CPU must define them.
    pub(crate) dynamic_shared: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// True if the file has templates that nothing instantiates.
    pub(crate) uninstantiated: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kernel {
    /// The launcher's name. If several functions share a name, we make one up for each.
    pub(crate) name: String,
    pub(crate) function: Function,
    pub(crate) name_range: Range<usize>,
    /// The file and line, for documentation.
    pub(crate) place: String,
    /// The doc comment without its contract, dedented.
    pub(crate) docs: Vec<String>,
    /// The launcher's parameters. For a template, those of its first instance.
    pub(crate) params: Vec<Param>,
    /// The template's parameters. Empty for an ordinary function.
    pub(crate) template: Vec<Template>,
    /// For each of `params`, the template parameter that is its type or element type.
    pub(crate) generics: Vec<Option<usize>>,
    /// The functions to compile: one, or the instances of a template.
    pub(crate) instances: Vec<Instance>,
    pub(crate) contract: Contract,
    /// True if the kernel loops with `GS_FOR_EACH*`, so it is correct for any grid.
    pub(crate) strided: bool,
    /// True if the kernel declares shared memory.
    pub(crate) shares: bool,
    /// True if we could not read the parameters, which is fine for a kernel without a launcher.
    pub(crate) is_opaque: bool,
    /// The targets that have the kernel; `None` if all have it.
    pub(crate) targets: Option<Vec<String>>,
}

impl Module {
    /// Returns the module with everything that one of several versions of a file has.
    ///
    /// # Errors
    /// A kernel that has other parameters in another version, because it can only have one launcher.
    pub(crate) fn merged<'a>(mut versions: impl Iterator<Item = &'a Self>) -> Result<Self> {
        let Some(mut merged) = versions.next().cloned() else { return Ok(Self::default()) };
        let mut failed = Error::none();
        for version in versions {
            for kernel in &version.kernels {
                match merged.kernels.iter_mut().find(|known| known.name == kernel.name) {
                    None => merged.kernels.push(kernel.clone()),
                    Some(known) if known.launches_like(kernel) => {}
                    Some(known) => failed.join(Error::message(format!(
                        "kernel `{}` ({}) has other parameters, instances or conditions for some targets than for others, and \
                         it can only have one launcher: move the difference into its body",
                        known.name, known.place
                    ))),
                }
            }
            add_new(&mut merged.definitions, &version.definitions);
            add_new(&mut merged.halves, &version.halves);
            add_new(&mut merged.tags, &version.tags);
            add_new(&mut merged.globals, &version.globals);
            add_new(&mut merged.read_only, &version.read_only);
            add_new(&mut merged.dynamic_shared, &version.dynamic_shared);
            add_new(&mut merged.warnings, &version.warnings);
        }
        failed.or(merged)
    }

    /// Returns true if a template of the file is compiled for `instance`, which reads `path<arguments>`.
    pub(crate) fn instantiates(&self, instance: &str) -> bool {
        let Some((asked, _)) = instance.split_once('<').filter(|_| instance.trim_end().ends_with('>')) else {
            return false;
        };
        self.kernels.iter().any(|kernel| !kernel.template.is_empty() && kernel.function.is_called(asked))
    }

    /// Returns the writable variables of an image that the parser has not seen. Empty if the file already has
    /// a `__device__` variable that we know, because then its launches never overlap anyway.
    pub(crate) fn unlisted(&self, mut writable: Vec<String>) -> Vec<String> {
        if self.globals.iter().any(|global| !global.constant) {
            return Vec::new();
        }
        writable.retain(|path| !self.read_only.contains(&variables::declared(path)));
        writable
    }

    /// Returns every function to compile, with its kernel.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (&Kernel, &Instance)> {
        self.kernels.iter().flat_map(|kernel| kernel.instances.iter().map(move |instance| (kernel, instance)))
    }
}

/// Adds what is not there yet.
fn add_new<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

/// A non-`const` `__constant__` or `__device__` variable of the file or its headers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Global {
    /// The method's name: the variable's own, or one made from its path if several variables share a name.
    pub(crate) name: String,
    /// The name with its namespaces, which is how a program finds the variable. Anonymous namespaces are left
    /// out.
    pub(crate) path: String,
    /// True for `__constant__`, which kernels can only read.
    pub(crate) constant: bool,
    /// True if only the compiler knows its symbol, because it is `static` or in an anonymous namespace.
    pub(crate) internal: bool,
    /// `None` if the host has no safe way to write such a value.
    pub(crate) ty: Option<GlobalType>,
    pub(crate) docs: Vec<String>,
    /// The file and line, for documentation.
    pub(crate) place: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GlobalType {
    pub(crate) element: ValueType,
    /// The number of elements; `None` if the variable is not an array.
    pub(crate) len: Option<usize>,
}

impl GlobalType {
    /// Returns the type of the whole variable.
    pub(crate) fn whole(&self) -> ValueType {
        match self.len {
            Some(len) => ValueType::Array { element: Box::new(self.element.clone()), len },
            None => self.element.clone(),
        }
    }
}

/// A function, as C++ names it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Function {
    /// The name with its namespaces: `solver::step`. Anonymous namespaces are left out.
    pub(crate) path: String,
    /// True if the function's symbol is its name.
    pub(crate) extern_c: bool,
    /// The parameter types as written: `const float*, size_t`.
    pub(crate) types: String,
    /// True if the file has another kernel with this path.
    pub(crate) overloaded: bool,
    /// True if a function that is not a kernel has this name too.
    pub(crate) shares_name: bool,
}

impl Function {
    /// Returns the name without namespaces.
    pub(crate) fn name(&self) -> &str {
        last_name(&self.path)
    }

    /// Returns true if `path`, which may lack outer namespaces, means this function.
    pub(crate) fn is_called(&self, path: &str) -> bool {
        let path: String = path.split_whitespace().collect();
        ends_in(&self.path, path.trim_start_matches("::"))
    }
}

/// Returns true if a path is `end`, or `end` within some namespaces.
pub(crate) fn ends_in(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template {
    pub(crate) name: String,
    /// The type of a number; `None` if the parameter is a type.
    pub(crate) constant: Option<Scalar>,
    /// The C++ enum that the number belongs to.
    pub(crate) of_enum: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Argument {
    /// A type as written, and the Rust type if we know it. A kernel cannot take an unknown type as a
    /// parameter.
    Type { cpp: String, ty: Option<ValueType> },
    /// A number, and the C++ enum that it belongs to.
    Constant { value: i128, scalar: Scalar, of_enum: Option<String> },
}

impl Argument {
    pub(crate) fn cpp(&self) -> String {
        match self {
            Self::Type { cpp, .. } => cpp.clone(),
            Self::Constant { value, of_enum: Some(of_enum), .. } => format!("({of_enum}){value}"),
            Self::Constant { value, scalar: Scalar::Bool, .. } => (*value != 0).to_string(),
            Self::Constant { value, .. } => value.to_string(),
        }
    }
}

/// A function to compile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instance {
    /// The template's arguments. Empty for an ordinary function.
    pub(crate) arguments: Vec<Argument>,
    pub(crate) params: Vec<ParamType>,
    /// The bound in `__launch_bounds__`, which may depend on the template's arguments.
    pub(crate) max_threads: Option<u32>,
    /// True if the file itself instantiates the template with these arguments.
    pub(crate) written: bool,
}

impl Instance {
    /// Returns the offset and size in bytes of each parameter, laid out as C does.
    pub(crate) fn param_table(&self) -> Vec<(usize, usize)> {
        let mut end = 0_usize;
        self.params
            .iter()
            .map(|param| {
                let (size, align) = param.layout();
                let offset = end.next_multiple_of(align);
                end = offset + size;
                (offset, size)
            })
            .collect()
    }
}

impl Kernel {
    /// Returns true if one launcher serves both kernels. Places in the text make no difference.
    fn launches_like(&self, other: &Self) -> bool {
        let params = |kernel: &Self| -> Vec<_> {
            kernel.params.iter().map(|param| (param.name.clone(), param.ty.clone())).collect()
        };
        let instances = |kernel: &Self| -> Vec<_> {
            kernel.instances.iter().map(|one| (one.arguments.clone(), one.params.clone())).collect()
        };
        params(self) == params(other)
            && instances(self) == instances(other)
            && self.function == other.function
            && self.template == other.template
            && self.contract == other.contract
            && self.strided == other.strided
    }

    /// Returns the name that finds an instance in its module: `solver::step`, `axpy<float>`.
    pub(crate) fn key(&self, instance: &Instance) -> String {
        let Function { path, types, overloaded, .. } = &self.function;
        if self.function.extern_c {
            self.function.name().to_owned()
        } else if *overloaded {
            format!("{path}({types})")
        } else {
            self.instantiated(instance)
        }
    }

    /// Returns the kernel's namespace if [`Kernel::address`] names types there as the file does.
    pub(crate) fn cast_in(&self) -> Option<&str> {
        let (namespace, _) = self.function.path.rsplit_once("::")?;
        self.needs_cast().then_some(namespace)
    }

    /// Returns true if only the types of its parameters tell the kernel from another function.
    fn needs_cast(&self) -> bool {
        self.function.overloaded || self.function.shares_name
    }

    /// Returns a C++ expression for an instance's address. `root` is `::` if the expression will be inside a
    /// namespace.
    pub(crate) fn address(&self, instance: &Instance, root: &str) -> String {
        let function = self.instantiated(instance);
        if self.needs_cast() {
            format!("static_cast<void (*)({})>(&{root}{function})", self.types(instance))
        } else {
            format!("&{root}{function}")
        }
    }

    /// Returns the C++ line that instantiates a template.
    pub(crate) fn instantiation(&self, instance: &Instance) -> String {
        let function = self.instantiated(instance);
        if self.function.shares_name {
            format!("template __global__ void {function}({});", self.types(instance))
        } else {
            format!("template __global__ decltype({function}) {function};")
        }
    }

    /// Returns an instance's parameter types: as you wrote them, with the template's arguments filled in.
    fn types(&self, instance: &Instance) -> String {
        let names = || self.template.iter().map(|parameter| &parameter.name).zip(&instance.arguments);
        with_words(&self.function.types, |word| Some(names().find(|(name, _)| *name == word)?.1.cpp()))
    }

    /// Returns the path with the template's arguments.
    pub(crate) fn instantiated(&self, instance: &Instance) -> String {
        let arguments: Vec<_> = instance.arguments.iter().map(Argument::cpp).collect();
        match &*arguments {
            [] => self.function.path.clone(),
            arguments => format!("{}<{}>", self.function.path, arguments.join(", ")),
        }
    }

    /// Returns how many threads a block of this instance usually has.
    pub(crate) fn usual_block(&self, instance: &Instance) -> u32 {
        let covered = self.contract.covers.as_ref().and_then(|c| c.block.as_ref());
        match (covered, instance.max_threads) {
            (Some(block), _) => block.iter().product(),
            (None, Some(bound)) => bound.clamp(1, 256),
            (None, None) => 256,
        }
    }
}
