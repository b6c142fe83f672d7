//! The declarations of a kernel file: kernels, their parameters, the structs that they pass by value.

use std::ops::Range;

use gpustream_hal::variables;

use crate::contract::Contract;
use crate::names::{last_name, with_words};
use crate::types::{Hazard, Param, ParamType, Scalar, ValueType};

/// The declarations of one file, as the bindings need them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Module {
    /// The file's stem, `saxpy` for `saxpy.cu`, with `_` for characters that mean something in paths and strings.
    pub(crate) name: String,
    /// The structs and enums that kernels use, each behind those that it contains.
    pub(crate) definitions: Vec<Definition>,
    /// The names by which the file calls the 16-bit floating-point types.
    pub(crate) halves: Vec<(Scalar, String)>,
    /// The names that compilers have for some of these: names in C++, and tags.
    pub(crate) tags: Vec<(String, String)>,
    /// Macros that were taken for undefined where an `#if` asks for them, and that would change what was read.
    pub(crate) assumed: Vec<String>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) globals: Vec<Global>,
    /// The paths of variables that kernels only read: `const`, `constexpr` and `__constant__`.
    pub(crate) read_only: Vec<String>,
    /// Names of `extern __shared__` arrays, which the CPU's translation unit has to define.
    pub(crate) dynamic_shared: Vec<String>,
    /// Warnings for the author.
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Kernel {
    /// The launcher's name: the function's own, or one made of it where several functions have it.
    pub(crate) name: String,
    pub(crate) function: Function,
    pub(crate) name_range: Range<usize>,
    /// Doc comment without its contract lines, dedented.
    pub(crate) docs: Vec<String>,
    /// The launchers' parameters; those of a template's first instance.
    pub(crate) params: Vec<Param>,
    /// The template's parameters; none of an ordinary function.
    pub(crate) template: Vec<Template>,
    /// The template's parameter that is the type of the value or element, for each of `params`.
    pub(crate) generics: Vec<Option<usize>>,
    /// The functions that are compiled: one, or the instances of a template.
    pub(crate) instances: Vec<Instance>,
    pub(crate) contract: Contract,
    /// Whether the kernel loops with `GS_FOR_EACH*`, and so is right for any grid.
    pub(crate) strided: bool,
    /// Whether the kernel declares shared memory, which its blocks set up or hand in.
    pub(crate) shares: bool,
}

impl Module {
    /// Returns whether a template of the file is compiled for `instance`, `path<arguments>`.
    pub(crate) fn instantiates(&self, instance: &str) -> bool {
        let Some((asked, _)) = instance.split_once('<').filter(|_| instance.trim_end().ends_with('>')) else {
            return false;
        };
        self.kernels.iter().any(|kernel| !kernel.template.is_empty() && kernel.function.is_called(asked))
    }

    /// Returns the variables among those of an image that kernels may write, if the file's launches are not ordered in any
    /// case: by a variable that is listed.
    pub(crate) fn unlisted(&self, mut writable: Vec<String>) -> Vec<String> {
        if self.globals.iter().any(|global| !global.constant) {
            return Vec::new();
        }
        writable.retain(|path| !self.read_only.contains(&variables::declared(path)));
        writable
    }

    /// Returns every function that is compiled, with its kernel.
    pub(crate) fn functions(&self) -> impl Iterator<Item = (&Kernel, &Instance)> {
        self.kernels.iter().flat_map(|kernel| kernel.instances.iter().map(move |instance| (kernel, instance)))
    }
}

/// A `__constant__` or `__device__` variable of the file or its headers that is not `const`.
#[derive(Debug, PartialEq)]
pub(crate) struct Global {
    /// The launchers' name for it: its own, or one made of its path where several variables have that.
    pub(crate) name: String,
    /// The name with its namespaces, by which a program finds the variable. Namespaces without a name are left out.
    pub(crate) path: String,
    /// Whether kernels only read it.
    pub(crate) constant: bool,
    /// Whether its symbol is known to the compiler alone: it is `static`, or in a namespace without a name.
    pub(crate) internal: bool,
    /// `None` where the host cannot write good values by their type.
    pub(crate) ty: Option<GlobalType>,
    pub(crate) docs: Vec<String>,
    /// The file and line, for documentation.
    pub(crate) place: String,
}

/// The type of a variable.
#[derive(Debug, PartialEq)]
pub(crate) struct GlobalType {
    pub(crate) element: ValueType,
    /// The number of elements; `None` for one that is no array.
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

/// A function as C++ names it.
#[derive(Debug, PartialEq)]
pub(crate) struct Function {
    /// The name with its namespaces: `solver::step`. Namespaces without a name are left out.
    pub(crate) path: String,
    /// Whether the function's symbol is its name.
    pub(crate) extern_c: bool,
    /// The types of the parameters as written: `const float*, size_t`.
    pub(crate) types: String,
    /// Whether the file has another kernel of this path.
    pub(crate) overloaded: bool,
    /// Whether a function that is no kernel has this name, too.
    pub(crate) shares_name: bool,
}

impl Function {
    /// Returns the name without namespaces.
    pub(crate) fn name(&self) -> &str {
        last_name(&self.path)
    }

    /// Returns whether a path, as far as it is written, is this function's.
    pub(crate) fn is_called(&self, path: &str) -> bool {
        let path: String = path.split_whitespace().collect();
        ends_in(&self.path, path.trim_start_matches("::"))
    }
}

/// Returns whether a path is `end`, or `end` within namespaces.
pub(crate) fn ends_in(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

/// A parameter of a template.
#[derive(Debug, PartialEq)]
pub(crate) struct Template {
    pub(crate) name: String,
    /// The type of a number; `None` for a type.
    pub(crate) constant: Option<Scalar>,
    /// The enum in C++ that the number is of.
    pub(crate) of_enum: Option<String>,
}

/// An argument for a parameter of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Argument {
    /// A type as it is written, and as it is known: no kernel takes one that is unknown as a parameter.
    Type { cpp: String, ty: Option<ValueType> },
    /// A number, and the enum in C++ that it is of.
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

/// A function that is compiled.
#[derive(Debug, PartialEq)]
pub(crate) struct Instance {
    /// The template's arguments; none of an ordinary function.
    pub(crate) arguments: Vec<Argument>,
    /// The types of the parameters.
    pub(crate) params: Vec<ParamType>,
    /// The bound of `__launch_bounds__`, which may depend on the template's arguments.
    pub(crate) max_threads: Option<u32>,
    /// Whether the file instantiates the template with these arguments itself.
    pub(crate) written: bool,
}

impl Instance {
    /// Returns the parameter block as C lays it out: offset and size of each parameter, in bytes.
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
    /// Returns the name by which a program finds an instance in its module: `solver::step`, `axpy<float>`.
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

    /// Returns the C++ expression of an instance's address. `root` is `::` where namespaces stand around the expression.
    pub(crate) fn address(&self, instance: &Instance, root: &str) -> String {
        let function = self.instantiated(instance);
        if self.function.overloaded || self.function.shares_name {
            format!("static_cast<void (*)({})>(&{root}{function})", self.types(instance))
        } else {
            format!("&{root}{function}")
        }
    }

    /// Returns the instantiation of a template.
    pub(crate) fn instantiation(&self, instance: &Instance) -> String {
        let function = self.instantiated(instance);
        if self.function.shares_name {
            format!("template __global__ void {function}({});", self.types(instance))
        } else {
            format!("template __global__ decltype({function}) {function};")
        }
    }

    /// Returns the types of an instance's parameters: those of the function as written, with the template's arguments.
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

    /// Returns the number of threads of the block with which an instance is usually launched.
    pub(crate) fn usual_block(&self, instance: &Instance) -> u32 {
        let covered = self.contract.covers.as_ref().and_then(|c| c.block.as_ref());
        match (covered, instance.max_threads) {
            (Some(block), _) => block.iter().product(),
            (None, Some(bound)) => bound.clamp(1, 256),
            (None, None) => 256,
        }
    }
}

/// A type of the file or its headers that kernels take by value or by pointer.
#[derive(Debug, PartialEq)]
pub(crate) enum Definition {
    Struct(Struct),
    Enum(Enum),
}

impl Definition {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Struct(Struct { name, .. }) | Self::Enum(Enum { name, .. }) => name,
        }
    }

    pub(crate) fn cpp(&self) -> &str {
        match self {
            Self::Struct(Struct { cpp, .. }) | Self::Enum(Enum { cpp, .. }) => cpp,
        }
    }

    /// Returns the type of its values.
    pub(crate) fn value(&self) -> ValueType {
        match self {
            Self::Struct(Struct { name, cpp, size, align, hazard, .. }) => {
                let (name, cpp) = (name.clone(), cpp.clone());
                ValueType::Struct { name, cpp, size: *size, align: *align, hazard: *hazard }
            }
            Self::Enum(Enum { name, cpp, repr, .. }) => {
                ValueType::Enum { name: name.clone(), cpp: cpp.clone(), repr: *repr }
            }
        }
    }
}

/// A struct or a union.
#[derive(Debug, PartialEq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    /// The name in C++, with its namespaces.
    pub(crate) cpp: String,
    pub(crate) docs: Vec<String>,
    pub(crate) fields: Vec<Field>,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) hazard: Option<Hazard>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Enum {
    pub(crate) name: String,
    /// The name in C++, with its namespaces.
    pub(crate) cpp: String,
    pub(crate) docs: Vec<String>,
    pub(crate) repr: Scalar,
    pub(crate) values: Vec<(String, i128)>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) docs: Vec<String>,
    pub(crate) ty: ValueType,
    /// Array extents, outermost first; empty for a plain member.
    pub(crate) extents: Vec<usize>,
    pub(crate) offset: usize,
    /// Whether C++ has a member of this name and type.
    pub(crate) in_cpp: bool,
    /// The qualifiers in C++, which mean nothing in Rust.
    pub(crate) constant: bool,
    pub(crate) volatile: bool,
}

impl Field {
    pub(crate) fn layout(&self) -> (usize, usize) {
        (self.size().unwrap_or(usize::MAX), self.ty.layout().1)
    }

    /// Returns the size in bytes, or `None` where it overflows.
    pub(crate) fn size(&self) -> Option<usize> {
        self.extents.iter().try_fold(self.ty.layout().0, |size, extent| size.checked_mul(*extent))
    }
}
