//! The parameters of kernels and their types, as C++ and Rust both have them.

use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Param {
    /// The name in the source; `arg0` and so on where it has none.
    pub(crate) name: String,
    pub(crate) range: Range<usize>,
    pub(crate) ty: ParamType,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ParamType {
    Value(ValueType),
    Pointer { element: ValueType, mutable: bool, volatile: bool },
}

impl ParamType {
    /// Returns a stand-in for a parameter that was refused, so that a contract may still name it.
    pub(crate) fn refused() -> Self {
        Self::Value(ValueType::Struct { name: String::new(), size: 1, align: 1 })
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Value(ValueType::Struct { name, .. }) if name.is_empty())
    }

    /// Returns size and alignment in bytes, as a kernel parameter.
    pub(crate) fn layout(&self) -> (usize, usize) {
        match self {
            Self::Value(value) => value.layout(),
            Self::Pointer { .. } => (8, 8),
        }
    }
}

/// A type that can be passed by value or stored in device memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueType {
    Scalar(Scalar),
    /// `float4` and its kin.
    Vector {
        lane: Scalar,
        lanes: usize,
        align: usize,
    },
    /// A struct of the file: name, size and alignment.
    Struct {
        name: String,
        size: usize,
        align: usize,
    },
}

impl ValueType {
    pub(crate) fn layout(&self) -> (usize, usize) {
        match self {
            Self::Scalar(scalar) => (scalar.size(), scalar.size()),
            Self::Vector { lane, lanes, align } => (lane.size() * lanes, *align),
            Self::Struct { size, align, .. } => (*size, *align),
        }
    }

    /// Returns the Rust type in generated code.
    pub(crate) fn rust(&self) -> String {
        match self {
            Self::Scalar(scalar) => scalar.rust().to_owned(),
            Self::Vector { lane, lanes, .. } => format!("[{}; {lanes}]", lane.rust()),
            Self::Struct { name, .. } => name.clone(),
        }
    }
}

/// A scalar that C++ and Rust lay out alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    Isize,
    Usize,
    F16,
    Bf16,
    F32,
    F64,
}

impl Scalar {
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            // Every GPU in use and both CPU targets are 64-bit.
            Self::I64 | Self::U64 | Self::Isize | Self::Usize | Self::F64 => 8,
        }
    }

    pub(crate) const fn rust(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::Isize => "isize",
            Self::Usize => "usize",
            Self::F16 => "::gpustream::half::f16",
            Self::Bf16 => "::gpustream::half::bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Returns whether contracts may compute with the scalar.
    pub(crate) const fn is_integer(self) -> bool {
        !matches!(self, Self::Bool | Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Returns the scalar that a C++ type name stands for, words in any order, `std::` and `gs::` already removed.
    pub(crate) fn from_cpp(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "int8_t" | "signed char" | "i8" => Self::I8,
            "uint8_t" | "unsigned char" | "uchar" | "u8" => Self::U8,
            "int16_t" | "short" | "i16" => Self::I16,
            "uint16_t" | "unsigned short" | "ushort" | "u16" => Self::U16,
            "int32_t" | "int" | "i32" => Self::I32,
            "uint32_t" | "unsigned" | "uint" | "u32" => Self::U32,
            // `long` is 64 bits wide on every system that the compilers here serve; the check of the compiled
            // table catches a system where it is not.
            "int64_t" | "long" | "long long" | "i64" => Self::I64,
            "uint64_t" | "unsigned long" | "unsigned long long" | "ulong" | "u64" => Self::U64,
            "ptrdiff_t" | "ssize_t" | "intptr_t" => Self::Isize,
            "size_t" | "uintptr_t" => Self::Usize,
            "float" => Self::F32,
            "double" => Self::F64,
            "half" | "__half" => Self::F16,
            "bfloat16" | "__nv_bfloat16" | "nv_bfloat16" | "__hip_bfloat16" | "hip_bfloat16" => Self::Bf16,
            _ => return None,
        })
    }
}

/// The lane types of `float4` and its kin.
const LANES: [(&str, Scalar); 10] = [
    ("char", Scalar::I8),
    ("uchar", Scalar::U8),
    ("short", Scalar::I16),
    ("ushort", Scalar::U16),
    ("int", Scalar::I32),
    ("uint", Scalar::U32),
    ("longlong", Scalar::I64),
    ("ulonglong", Scalar::U64),
    ("float", Scalar::F32),
    ("double", Scalar::F64),
];

/// Returns the C++ name of a short vector.
pub(crate) fn vector_name(lane: Scalar, lanes: usize) -> String {
    let base = LANES.iter().find(|(_, scalar)| *scalar == lane).map_or("", |(name, _)| name);
    format!("{base}{lanes}")
}

/// Returns the type of `float4` and its kin: lane type, lanes, alignment.
pub(crate) fn vector_from_cpp(name: &str) -> Option<ValueType> {
    let split = name.len().checked_sub(1)?;
    if !name.is_char_boundary(split) {
        return None;
    }
    let (base, lanes) = name.split_at(split);
    let lanes = match lanes {
        "1" => 1,
        "2" => 2,
        "3" => 3,
        "4" => 4,
        _ => return None,
    };
    let lane = LANES.iter().find(|(name, _)| *name == base)?.1;
    // Two and four lanes are aligned as a whole, up to 16 bytes; three are an ordinary struct.
    let align = if lanes == 3 { lane.size() } else { (lane.size() * lanes).min(16) };
    Some(ValueType::Vector { lane, lanes, align })
}
