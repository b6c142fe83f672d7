//! The structs and enums of a kernel file, as C++ and Rust both have them.

use crate::types::{Hazard, Scalar, ValueType};

/// A type of the file or its headers that kernels take by value or by pointer.
#[derive(Clone, Debug, PartialEq)]
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    /// The C++ name with its namespaces.
    pub(crate) cpp: String,
    pub(crate) docs: Vec<String>,
    pub(crate) fields: Vec<Field>,
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) hazard: Option<Hazard>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enum {
    pub(crate) name: String,
    /// The C++ name with its namespaces.
    pub(crate) cpp: String,
    pub(crate) docs: Vec<String>,
    pub(crate) repr: Scalar,
    pub(crate) values: Vec<(String, i128)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) docs: Vec<String>,
    pub(crate) ty: ValueType,
    /// Array extents, outermost first. Empty for a plain member.
    pub(crate) extents: Vec<usize>,
    pub(crate) offset: usize,
    /// True if C++ has a member of this name and type.
    pub(crate) in_cpp: bool,
    /// Qualifiers in C++. They mean nothing in Rust.
    pub(crate) constant: bool,
    pub(crate) volatile: bool,
}

impl Field {
    pub(crate) fn layout(&self) -> (usize, usize) {
        (self.size().unwrap_or(usize::MAX), self.ty.layout().1)
    }

    /// Returns the size in bytes, or `None` if it overflows.
    pub(crate) fn size(&self) -> Option<usize> {
        self.extents.iter().try_fold(self.ty.layout().0, |size, extent| size.checked_mul(*extent))
    }
}
