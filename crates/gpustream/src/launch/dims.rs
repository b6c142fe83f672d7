//! Sizes in up to three dimensions, in the forms that C++ accepts for a `dim3`.

/// A size in x, y and z, as you write it for a [`Launch`](crate::Launch). What you leave out is 1, as in a `dim3`.
///
/// | you write | it means |
/// |---|---|
/// | `64` or `[64]` | 64 × 1 × 1 |
/// | `(64, 8)` or `[64, 8]` | 64 × 8 × 1 |
/// | `(64, 8, 4)` or `[64, 8, 4]` | 64 × 8 × 4 |
///
/// The numbers are `u32` for grids, blocks and clusters, and `usize` for elements. You cannot implement this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a size in one, two or three dimensions of type `{T}`",
    label = "expected `x`, `(x, y)`, `(x, y, z)`, or an array of one to three numbers, each a `{T}`"
)]
pub trait Dims<T>: sealed::Xyz<T> {}

pub(super) mod sealed {
    pub trait Xyz<T> {
        /// Returns the size in all three dimensions.
        fn xyz(self) -> [T; 3];
    }
}

macro_rules! dims {
    ($number:ty) => {
        dims!($number: $number, x => x, 1, 1);
        dims!($number: ($number, $number), (x, y) => x, y, 1);
        dims!($number: ($number, $number, $number), (x, y, z) => x, y, z);
        dims!($number: [$number; 1], [x] => x, 1, 1);
        dims!($number: [$number; 2], [x, y] => x, y, 1);
        dims!($number: [$number; 3], [x, y, z] => x, y, z);
    };
    ($number:ty: $written:ty, $pattern:pat => $x:expr, $y:expr, $z:expr) => {
        impl Dims<$number> for $written {}

        impl sealed::Xyz<$number> for $written {
            #[inline]
            fn xyz(self) -> [$number; 3] {
                let $pattern = self;
                [$x, $y, $z]
            }
        }
    };
}

dims!(u32);
dims!(usize);
