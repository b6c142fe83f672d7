//! The types of elements that all engines know.

use std::fmt;

use gpustream::Plain;
use gpustream::half::{bf16, f16};

/// An element that can be combined and sent: integers of 8 to 64 bits, `f32`, `f64`, and `f16` and `bf16`
/// from [`half`](gpustream::half).
pub trait Element: Plain + Send + Sync + sealed::Typed {}

pub(crate) mod sealed {
    use super::ElementType;

    pub trait Typed {
        #[doc(hidden)]
        const TYPE: ElementType;
    }
}

macro_rules! elements {
    ($($variant:ident: $type:ty,)*) => {
        /// An element type as a value. The ranks of a call must agree on it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[doc(hidden)]
        pub enum ElementType {
            $(
                #[doc(hidden)]
                $variant,
            )*
        }

        impl ElementType {
            pub(crate) fn size(self) -> usize {
                match self {
                    $(Self::$variant => size_of::<$type>(),)*
                }
            }
        }

        impl fmt::Display for ElementType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => stringify!($type),)*
                })
            }
        }

        $(
            impl sealed::Typed for $type {
                const TYPE: ElementType = ElementType::$variant;
            }
            impl Element for $type {}
        )*

        /// Evaluates an expression. In it, a name stands for the Rust type of an [`ElementType`].
        macro_rules! with_element {
            ($element:expr, $name:ident => $body:expr) => {
                match $element {
                    $(
                        $crate::element::ElementType::$variant => {
                            #[allow(unused_imports, reason = "for two of the types")]
                            use gpustream::half::{bf16, f16};
                            type $name = $type;
                            $body
                        }
                    )*
                }
            };
        }
        pub(crate) use with_element;
    };
}

elements! {
    F16: f16, Bf16: bf16, F32: f32, F64: f64,
    I8: i8, I16: i16, I32: i32, I64: i64,
    U8: u8, U16: u16, U32: u32, U64: u64,
}
