//! Element types, and what DLPack calls them.

use dlpack_rs::ffi::{DLDataType, DLDataTypeCode as Code};
use gpustream::half::{bf16, f16};
use gpustream::{Bool, Error, ErrorKind, Plain, Result};

/// An element type that DLPack knows: numbers of 8 to 64 bits, `f16` and `bf16` from [`half`](gpustream::half), and [`Bool`].
/// With this crate's feature `num-complex`, also that crate's `Complex<f32>` and `Complex<f64>`.
pub trait Element: Plain + Send + Sync + sealed::Code {}

mod sealed {
    pub trait Code {
        /// DLPack's code for the kind of number.
        const CODE: u32;
    }
}

macro_rules! elements {
    ($($type:ty: $code:ident,)*) => {
        $(
            impl sealed::Code for $type {
                const CODE: u32 = Code::$code;
            }
            impl Element for $type {}
        )*
    };
}

elements! {
    i8: kDLInt, i16: kDLInt, i32: kDLInt, i64: kDLInt,
    u8: kDLUInt, u16: kDLUInt, u32: kDLUInt, u64: kDLUInt,
    f16: kDLFloat, f32: kDLFloat, f64: kDLFloat,
    bf16: kDLBfloat,
    Bool: kDLBool,
}

#[cfg(feature = "num-complex")]
elements! {
    num_complex::Complex<f32>: kDLComplex, num_complex::Complex<f64>: kDLComplex,
}

/// Returns DLPack's name for a type.
pub(crate) fn data_type<T: Element>() -> DLDataType {
    DLDataType { code: T::CODE as u8, bits: size_of::<T>() as u8 * 8, lanes: 1 }
}

/// Checks that a tensor's elements have type `T`.
pub(crate) fn check<T: Element>(theirs: DLDataType) -> Result<()> {
    let ours = data_type::<T>();
    if (theirs.code, theirs.bits, theirs.lanes) == (ours.code, ours.bits, ours.lanes) {
        return Ok(());
    }
    let (theirs_name, name) = (name(theirs), name(ours));
    let what = match theirs.lanes {
        1 if u32::from(theirs.code) == Code::kDLComplex => ", or import a view of its real numbers",
        1 => "",
        _ => ", or import a view with one number for each lane",
    };
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "the tensor's elements are {theirs_name}, but you asked for {name}: convert it to {name} first{what}"
        ),
    ))
}

/// Returns the name that Python libraries use for a type.
fn name(of: DLDataType) -> String {
    let kind = match u32::from(of.code) {
        Code::kDLInt => "int",
        Code::kDLUInt => "uint",
        Code::kDLFloat => "float",
        Code::kDLBfloat => "bfloat",
        Code::kDLComplex => "complex",
        Code::kDLBool => "bool",
        code => return format!("DLPack code {code} ({} bits)", of.bits),
    };
    let bits = if kind == "bool" && of.bits == 8 { String::new() } else { of.bits.to_string() };
    match of.lanes {
        1 => format!("{kind}{bits}"),
        lanes => format!("vectors of {lanes} {kind}{bits}"),
    }
}
