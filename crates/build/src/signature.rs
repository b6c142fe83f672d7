//! The declarations of a kernel file: kernels, their parameters, the structs that they pass by value.

use std::ops::Range;

use crate::contract::Contract;
use crate::types::{Hazard, Param, Scalar, ValueType};

/// The declarations of one file, as the bindings need them.
#[derive(Debug)]
pub(crate) struct Module {
    /// The file's stem, `saxpy` for `saxpy.cu`, with `_` for characters that mean something in paths and strings.
    pub(crate) name: String,
    /// The structs and enums that kernels use, each behind those that it contains.
    pub(crate) definitions: Vec<Definition>,
    /// The names by which the file calls the 16-bit floating-point types.
    pub(crate) halves: Vec<(Scalar, String)>,
    /// Macros that were taken for undefined where an `#if` asks for them.
    pub(crate) assumed: Vec<String>,
    pub(crate) kernels: Vec<Kernel>,
    /// Names of `extern __shared__` arrays, which the CPU's translation unit has to define.
    pub(crate) dynamic_shared: Vec<String>,
    /// Warnings for the author.
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Kernel {
    /// The launcher's name: the function's own, or one made of it where several functions have it.
    pub(crate) name: String,
    pub(crate) function: Function,
    pub(crate) name_range: Range<usize>,
    /// Doc comment without its contract lines, dedented.
    pub(crate) docs: Vec<String>,
    pub(crate) params: Vec<Param>,
    pub(crate) contract: Contract,
    /// Whether the kernel loops with `GS_FOR_EACH*`, and so is right for any grid.
    pub(crate) strided: bool,
    /// Whether the kernel declares shared memory, which its blocks set up or hand in.
    pub(crate) shares: bool,
    /// The bound of `__launch_bounds__`.
    pub(crate) max_threads: Option<u32>,
}

/// A function as C++ names it.
#[derive(Debug)]
pub(crate) struct Function {
    /// The name with its namespaces: `solver::step`. Namespaces without a name are left out.
    pub(crate) path: String,
    /// Whether the function's symbol is its name.
    pub(crate) extern_c: bool,
    /// The types of the parameters as written: `const float*, size_t`.
    pub(crate) types: String,
    /// Whether the file has another function of this path.
    pub(crate) overloaded: bool,
}

impl Function {
    /// Returns the name by which a program finds the kernel in its module.
    pub(crate) fn key(&self) -> String {
        if self.extern_c {
            self.path.rsplit("::").next().unwrap_or_default().to_owned()
        } else if self.overloaded {
            format!("{}({})", self.path, self.types)
        } else {
            self.path.clone()
        }
    }

    /// Returns the C++ expression of the function's address.
    pub(crate) fn address(&self) -> String {
        if self.overloaded {
            format!("static_cast<void (*)({})>(&::{})", self.types, self.path)
        } else {
            format!("&::{}", self.path)
        }
    }
}

impl Kernel {
    /// Returns the number of threads of the block with which the kernel is usually launched.
    pub(crate) fn usual_block(&self) -> u32 {
        let covered = self.contract.covers.as_ref().and_then(|c| c.block.as_ref());
        match (covered, self.max_threads) {
            (Some(block), _) => block.iter().product(),
            (None, Some(bound)) => bound.clamp(1, 256),
            (None, None) => 256,
        }
    }

    /// Returns the parameter block as C lays it out: offset and size of each parameter, in bytes.
    pub(crate) fn param_table(&self) -> Vec<(usize, usize)> {
        let mut end = 0_usize;
        self.params
            .iter()
            .map(|p| {
                let (size, align) = p.ty.layout();
                let offset = end.next_multiple_of(align);
                end = offset + size;
                (offset, size)
            })
            .collect()
    }
}

/// A type of the file or its headers that kernels take by value or by pointer.
#[derive(Debug)]
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
#[derive(Debug)]
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

#[derive(Debug)]
pub(crate) struct Enum {
    pub(crate) name: String,
    /// The name in C++, with its namespaces.
    pub(crate) cpp: String,
    pub(crate) docs: Vec<String>,
    pub(crate) repr: Scalar,
    pub(crate) values: Vec<(String, i128)>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) docs: Vec<String>,
    pub(crate) ty: ValueType,
    /// Array extents, outermost first; empty for a plain member.
    pub(crate) extents: Vec<usize>,
    pub(crate) offset: usize,
    /// Whether C++ has a member of this name and type.
    pub(crate) in_cpp: bool,
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
