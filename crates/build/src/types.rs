//! The types of kernel parameters, as C++ and Rust both have them.

use std::ops::Range;

use crate::diagnostic::Diagnostic;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Param {
    /// The name in the source, or `arg0` and so on if it has none.
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
    /// Returns a stand-in for a parameter that we refused, so that a contract may still name it.
    pub(crate) fn refused() -> Self {
        Self::Value(ValueType::Bytes { unknown: None })
    }

    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Value(ValueType::Bytes { .. }))
    }

    /// Returns why no condition could make a launcher with such a parameter safe.
    pub(crate) fn hazard(&self) -> Option<Hazard> {
        match self {
            Self::Value(_) if self.object().is_some() => None,
            Self::Value(value) => value.hazard(),
            Self::Pointer { element, .. } => element.hazard(),
        }
    }

    /// If the parameter is a handle, and launchers take the object behind it, returns that object.
    pub(crate) fn object(&self) -> Option<Object> {
        let Self::Value(ValueType::Handle { cpp }) = self else { return None };
        OBJECTS.iter().find(|(name, _)| name == cpp).map(|(_, object)| *object)
    }

    /// Returns size and alignment in bytes, as a kernel parameter.
    pub(crate) fn layout(&self) -> (usize, usize) {
        match self {
            Self::Value(value) => value.layout(),
            Self::Pointer { .. } => (8, 8),
        }
    }
}

/// An object that a kernel knows by a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Texture,
    Surface,
}

impl Object {
    /// Returns the argument type for a launcher.
    pub(crate) const fn argument(self) -> &'static str {
        match self {
            Self::Texture => "&__gpustream::Texture",
            Self::Surface => "&mut __gpustream::Surface",
        }
    }
}

/// Why we cannot tell from a Rust value that its contents are safe for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hazard {
    /// It holds addresses, which may lead anywhere.
    Address,
    /// It holds a bool, and the byte may be neither true nor false.
    Bool,
    /// Its type has no name in Rust, so it is just bytes.
    Bytes,
}

/// A type that can be passed by value or stored in device memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueType {
    Scalar(Scalar),
    /// `float4` and similar types, with the file's name for it.
    Vector {
        cpp: String,
        lane: Scalar,
        lanes: usize,
        align: usize,
    },
    /// A struct or union of the file or its headers: its names in Rust and C++, size and alignment.
    Struct {
        name: String,
        cpp: String,
        size: usize,
        align: usize,
        hazard: Option<Hazard>,
    },
    /// An enum. In Rust it is a struct around an integer.
    Enum {
        name: String,
        cpp: String,
        repr: Scalar,
    },
    /// An array in memory.
    Array {
        element: Box<ValueType>,
        len: usize,
    },
    /// A pointer in memory, of any type.
    Address,
    /// A vendor's object, such as a texture, by its 64-bit handle.
    Handle {
        cpp: String,
    },
    /// Memory of `void` or of a type that has no name in Rust, with the reason for that.
    Bytes {
        unknown: Option<Box<Diagnostic>>,
    },
}

impl ValueType {
    pub(crate) fn layout(&self) -> (usize, usize) {
        match self {
            Self::Scalar(scalar) | Self::Enum { repr: scalar, .. } => (scalar.size(), scalar.size()),
            Self::Vector { lane, lanes, align, .. } => (lane.size() * lanes, *align),
            Self::Struct { size, align, .. } => (*size, *align),
            Self::Array { element, len } => {
                let (size, align) = element.layout();
                (size.saturating_mul(*len), align)
            }
            Self::Address | Self::Handle { .. } => (8, 8),
            Self::Bytes { .. } => (1, 1),
        }
    }

    pub(crate) fn rust_align(&self) -> usize {
        match self {
            Self::Vector { lane, .. } => lane.size(),
            Self::Array { element, .. } => element.rust_align(),
            _ => self.layout().1,
        }
    }

    /// Returns the Rust type that generated code uses.
    pub(crate) fn rust(&self) -> String {
        match self {
            Self::Scalar(scalar) => scalar.rust().to_owned(),
            Self::Vector { lane, lanes, .. } => format!("[{}; {lanes}]", lane.rust()),
            Self::Struct { name, .. } | Self::Enum { name, .. } => name.clone(),
            Self::Array { element, len } => format!("[{}; {len}]", element.rust()),
            Self::Address => "usize".to_owned(),
            Self::Handle { .. } => "u64".to_owned(),
            Self::Bytes { .. } => "u8".to_owned(),
        }
    }

    /// Returns the type as it is in memory. There a bool is a byte that may hold anything.
    pub(crate) fn stored(self) -> Self {
        if self == Self::Scalar(Scalar::Bool) { Self::Scalar(Scalar::StoredBool) } else { self }
    }

    /// Returns why no condition can vouch for such a value.
    pub(crate) fn hazard(&self) -> Option<Hazard> {
        match self {
            Self::Scalar(Scalar::StoredBool) => Some(Hazard::Bool),
            Self::Struct { hazard, .. } => *hazard,
            Self::Array { element, .. } => element.hazard(),
            Self::Address | Self::Handle { .. } => Some(Hazard::Address),
            Self::Bytes { .. } => Some(Hazard::Bytes),
            Self::Scalar(_) | Self::Vector { .. } | Self::Enum { .. } => None,
        }
    }
}

/// A scalar with the same layout in C++ and Rust.
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
    /// `char`. Compilers disagree on whether it is signed.
    Char,
    /// A bool in memory.
    StoredBool,
}

impl Scalar {
    /// Returns the size in bytes, which is also the alignment.
    pub(crate) const fn size(self) -> usize {
        SCALARS[self as usize].1
    }

    pub(crate) const fn rust(self) -> &'static str {
        SCALARS[self as usize].2
    }

    /// Returns the C++ types that the scalar may be. Empty if each file has its own name for it.
    pub(crate) const fn cpp(self) -> &'static [&'static str] {
        SCALARS[self as usize].3
    }

    /// Returns true if contracts may compute with the scalar.
    pub(crate) const fn is_integer(self) -> bool {
        use Scalar::{Bf16, Bool, Char, F16, F32, F64, StoredBool};
        !matches!(self, Bool | F16 | Bf16 | F32 | F64 | Char | StoredBool)
    }

    /// Returns the scalar for a C++ type name. Its words may be in any order, and `std::` or `gs::` is
    /// already removed.
    pub(crate) fn from_cpp(name: &str) -> Option<Self> {
        SCALARS.iter().find(|row| row.4.contains(&name)).map(|row| row.0)
    }
}

/// A scalar, its size in bytes, its Rust name, the C++ types it may be, and what a file may call it.
type Row = (Scalar, usize, &'static str, &'static [&'static str], &'static [&'static str]);

/// The scalars, in the order of the `enum`. We assume 64-bit systems, as all GPUs in use and both CPU targets
/// are. If `long` is not 64 bits, the checks of the compiled table catch that.
const SCALARS: [Row; 17] = [
    (Scalar::Bool, 1, "bool", &["bool"], &["bool"]),
    (Scalar::I8, 1, "i8", &["signed char"], &["int8_t", "signed char", "i8"]),
    (Scalar::U8, 1, "u8", &["unsigned char"], &["uint8_t", "unsigned char", "uchar", "u8"]),
    (Scalar::I16, 2, "i16", &["short"], &["int16_t", "short", "i16"]),
    (Scalar::U16, 2, "u16", &["unsigned short"], &["uint16_t", "unsigned short", "ushort", "u16"]),
    (Scalar::I32, 4, "i32", &["int"], &["int32_t", "int", "i32"]),
    (Scalar::U32, 4, "u32", &["unsigned int"], &["uint32_t", "unsigned", "uint", "u32"]),
    (
        Scalar::I64,
        8,
        "i64",
        &["long", "long long"],
        &["int64_t", "long", "long long", "i64", "clock_t", "time_t"],
    ),
    (
        Scalar::U64,
        8,
        "u64",
        &["unsigned long", "unsigned long long"],
        &["uint64_t", "unsigned long", "unsigned long long", "ulong", "u64"],
    ),
    (Scalar::Isize, 8, "isize", &["long", "long long"], &["ptrdiff_t", "ssize_t", "intptr_t"]),
    (Scalar::Usize, 8, "usize", &["unsigned long", "unsigned long long"], &["size_t", "uintptr_t"]),
    (Scalar::F16, 2, "__gpustream::half::f16", &[], &["half", "__half"]),
    (
        Scalar::Bf16,
        2,
        "__gpustream::half::bf16",
        &[],
        &["bfloat16", "__nv_bfloat16", "nv_bfloat16", "__hip_bfloat16", "hip_bfloat16"],
    ),
    (Scalar::F32, 4, "f32", &["float"], &["float"]),
    (Scalar::F64, 8, "f64", &["double"], &["double"]),
    (Scalar::Char, 1, "i8", &["char"], &["char"]),
    (Scalar::StoredBool, 1, "__gpustream::Bool", &["bool"], &[]),
];

/// The lane types of `float4` and similar types.
const LANES: [(&str, Scalar); 12] = [
    ("char", Scalar::I8),
    ("uchar", Scalar::U8),
    ("short", Scalar::I16),
    ("ushort", Scalar::U16),
    ("int", Scalar::I32),
    ("uint", Scalar::U32),
    ("long", Scalar::I64),
    ("ulong", Scalar::U64),
    ("longlong", Scalar::I64),
    ("ulonglong", Scalar::U64),
    ("float", Scalar::F32),
    ("double", Scalar::F64),
];

/// Vectors whose names follow no pattern: name, lane type, lanes, alignment.
///
/// Rust has no 8-bit floating-point numbers, so the launcher takes their bits.
const VECTORS: [(&str, Scalar, usize, usize); 15] = [
    ("__nv_fp8_e4m3", Scalar::U8, 1, 1),
    ("__nv_fp8_e5m2", Scalar::U8, 1, 1),
    ("dim3", Scalar::U32, 3, 4),
    ("half2", Scalar::F16, 2, 4),
    ("__half2", Scalar::F16, 2, 4),
    ("bfloat162", Scalar::Bf16, 2, 4),
    ("nv_bfloat162", Scalar::Bf16, 2, 4),
    ("__nv_bfloat162", Scalar::Bf16, 2, 4),
    ("__hip_bfloat162", Scalar::Bf16, 2, 4),
    ("cuComplex", Scalar::F32, 2, 8),
    ("cuFloatComplex", Scalar::F32, 2, 8),
    ("cuDoubleComplex", Scalar::F64, 2, 16),
    ("cufftComplex", Scalar::F32, 2, 8),
    ("cufftDoubleComplex", Scalar::F64, 2, 16),
    ("hipFloatComplex", Scalar::F32, 2, 8),
];

/// Vendors' 64-bit handles to objects that launchers take.
const OBJECTS: [(&str, Object); 6] = [
    ("cudaTextureObject_t", Object::Texture),
    ("cudaSurfaceObject_t", Object::Surface),
    ("CUtexObject", Object::Texture),
    ("CUsurfObject", Object::Surface),
    ("hipTextureObject_t", Object::Texture),
    ("hipSurfaceObject_t", Object::Surface),
];

/// Vendors' other 64-bit handles.
const HANDLES: [&str; 1] = ["cudaGraphConditionalHandle"];

pub(crate) fn handle_from_cpp(name: &str) -> Option<ValueType> {
    let known = HANDLES.contains(&name) || OBJECTS.iter().any(|(object, _)| *object == name);
    known.then(|| ValueType::Handle { cpp: name.to_owned() })
}

/// Returns the type of `float4` and the like.
pub(crate) fn vector_from_cpp(name: &str) -> Option<ValueType> {
    let cpp = name.to_owned();
    if let Some(&(_, lane, lanes, align)) = VECTORS.iter().find(|row| row.0 == name) {
        return Some(ValueType::Vector { cpp, lane, lanes, align });
    }
    let (base, lanes) = name.split_at_checked(name.len().checked_sub(1)?)?;
    let lanes = lanes.parse::<usize>().ok().filter(|lanes| (1..=4).contains(lanes))?;
    let lane = LANES.iter().find(|(name, _)| *name == base)?.1;
    // Two and four lanes are aligned as a whole, up to 16 bytes. Three lanes are an ordinary struct.
    let align = if lanes == 3 { lane.size() } else { (lane.size() * lanes).min(16) };
    Some(ValueType::Vector { cpp, lane, lanes, align })
}
