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
    /// Returns the size in bytes, which is the alignment too.
    pub(crate) const fn size(self) -> usize {
        SCALARS[self as usize].1
    }

    /// Returns the Rust type in generated code.
    pub(crate) const fn rust(self) -> &'static str {
        SCALARS[self as usize].2
    }

    /// Returns the types of C++ that the scalar may be; none for those that each file names as it likes.
    pub(crate) const fn cpp(self) -> &'static [&'static str] {
        SCALARS[self as usize].3
    }

    /// Returns whether contracts may compute with the scalar.
    pub(crate) const fn is_integer(self) -> bool {
        !matches!(self, Self::Bool | Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Returns the scalar that a C++ type name stands for, words in any order, `std::` and `gs::` already removed.
    pub(crate) fn from_cpp(name: &str) -> Option<Self> {
        SCALARS.iter().find(|row| row.4.contains(&name)).map(|row| row.0)
    }
}

/// A scalar: its size in bytes, its name in Rust, the types of C++ that it may be, and the names by which a file may call
/// it.
type Row = (Scalar, usize, &'static str, &'static [&'static str], &'static [&'static str]);

/// The scalars, in the order of the `enum`. Every GPU in use and both CPU targets are 64-bit; the checks of the compiled
/// table catch a system on which `long` is not.
const SCALARS: [Row; 15] = [
    (Scalar::Bool, 1, "bool", &["bool"], &["bool"]),
    (Scalar::I8, 1, "i8", &["signed char"], &["int8_t", "signed char", "i8"]),
    (Scalar::U8, 1, "u8", &["unsigned char"], &["uint8_t", "unsigned char", "uchar", "u8"]),
    (Scalar::I16, 2, "i16", &["short"], &["int16_t", "short", "i16"]),
    (Scalar::U16, 2, "u16", &["unsigned short"], &["uint16_t", "unsigned short", "ushort", "u16"]),
    (Scalar::I32, 4, "i32", &["int"], &["int32_t", "int", "i32"]),
    (Scalar::U32, 4, "u32", &["unsigned int"], &["uint32_t", "unsigned", "uint", "u32"]),
    (Scalar::I64, 8, "i64", &["long", "long long"], &["int64_t", "long", "long long", "i64"]),
    (
        Scalar::U64,
        8,
        "u64",
        &["unsigned long", "unsigned long long"],
        &["uint64_t", "unsigned long", "unsigned long long", "ulong", "u64"],
    ),
    (Scalar::Isize, 8, "isize", &["long", "long long"], &["ptrdiff_t", "ssize_t", "intptr_t"]),
    (Scalar::Usize, 8, "usize", &["unsigned long", "unsigned long long"], &["size_t", "uintptr_t"]),
    (Scalar::F16, 2, "::gpustream::half::f16", &[], &["half", "__half"]),
    (
        Scalar::Bf16,
        2,
        "::gpustream::half::bf16",
        &[],
        &["bfloat16", "__nv_bfloat16", "nv_bfloat16", "__hip_bfloat16", "hip_bfloat16"],
    ),
    (Scalar::F32, 4, "f32", &["float"], &["float"]),
    (Scalar::F64, 8, "f64", &["double"], &["double"]),
];

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
    let (base, lanes) = name.split_at_checked(name.len().checked_sub(1)?)?;
    let lanes = lanes.parse::<usize>().ok().filter(|lanes| (1..=4).contains(lanes))?;
    let lane = LANES.iter().find(|(name, _)| *name == base)?.1;
    // Two and four lanes are aligned as a whole, up to 16 bytes; three are an ordinary struct.
    let align = if lanes == 3 { lane.size() } else { (lane.size() * lanes).min(16) };
    Some(ValueType::Vector { lane, lanes, align })
}
