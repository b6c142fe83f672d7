//! The memory of an external operation, and its addresses for the other library.

use gpustream_hal::RawBuffer;

use crate::buffer::Buffer;
use crate::launch::Arg;
use crate::pinned::Pinned;
use crate::plain::Plain;
use crate::view::{View, ViewMut};

mod sealed {
    pub trait Sealed {}
}

/// One piece of memory that another library's work touches, for [`Operands`]. You cannot implement this trait.
///
/// `&Buffer<T>`, `&Pinned<T>` and `View<T>` are read, and their address is a `*const T`. `&mut Buffer<T>`, `&mut Pinned<T>` and
/// `ViewMut<T>` are written (and may also be read), and their address is a `*mut T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not memory that another library's work can touch",
    label = "expected a `&Buffer`, a `&mut Buffer`, the same of `Pinned`, or a view"
)]
pub trait Operand<'a>: sealed::Sealed {
    /// The address of the first element, as the device sees it.
    type Address: Copy + 'static;

    /// Returns the memory as an argument, and its address.
    fn split(self) -> (Arg<'a>, Self::Address);
}

/// The memory that an external operation touches. You cannot implement this trait.
///
/// | you pass | your closure gets |
/// |---|---|
/// | a tuple of up to eight [`Operand`]s: `(&a, &b, &mut c)` | a tuple of addresses: `(*const A, *const B, *mut C)` |
/// | one operand: `&mut c` | its address: `*mut C` |
/// | `()`, if the work touches no memory of this library | `()` |
/// | an array: `&[Arg::read(&a), Arg::write(&mut c)]` | `[RawBuffer; 2]`, with the address 0 for a value |
/// | a slice, if you only know at run time how many there are: `&list[..]` | `()` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name the memory of an external operation",
    label = "expected memory such as `&mut a`, a tuple such as `(&a, &mut b)`, or a list of `Arg`s"
)]
pub trait Operands<'a>: sealed::Sealed {
    /// The memory as arguments.
    type Args: AsRef<[Arg<'a>]>;
    /// What your closure gets.
    type Addresses: Copy + 'static;

    /// Returns the memory as arguments, and its addresses.
    fn split(self) -> (Self::Args, Self::Addresses);
}

macro_rules! operand {
    ($($memory:ty => $address:ty, $way:ident;)*) => { $(
        impl<'a, T: Plain> sealed::Sealed for $memory {}

        impl<'a, T: Plain> Operand<'a> for $memory {
            type Address = $address;

            #[inline]
            fn split(self) -> (Arg<'a>, $address) {
                let arg = Arg::$way::<T>(self.into());
                let address = arg.address().0 as $address;
                (arg, address)
            }
        }

        impl<'a, T: Plain> Operands<'a> for $memory {
            type Args = [Arg<'a>; 1];
            type Addresses = $address;

            #[inline]
            fn split(self) -> (Self::Args, $address) {
                let (arg, address) = Operand::split(self);
                ([arg], address)
            }
        }
    )* };
}

operand! {
    &'a Buffer<T> => *const T, of_view;
    &'a Pinned<T> => *const T, of_view;
    View<'a, T> => *const T, of_view;
    &'a mut Buffer<T> => *mut T, of_view_mut;
    &'a mut Pinned<T> => *mut T, of_view_mut;
    ViewMut<'a, T> => *mut T, of_view_mut;
}

macro_rules! operands {
    ($($count:literal: $($operand:ident)+;)*) => { $(
        impl<$($operand: sealed::Sealed),+> sealed::Sealed for ($($operand,)+) {}

        impl<'a, $($operand: Operand<'a>),+> Operands<'a> for ($($operand,)+) {
            type Args = [Arg<'a>; $count];
            type Addresses = ($($operand::Address,)+);

            #[inline]
            #[allow(non_snake_case, reason = "each value has the name of its type")]
            fn split(self) -> (Self::Args, Self::Addresses) {
                let ($($operand,)+) = self;
                $(let $operand = $operand.split();)+
                let addresses = ($($operand.1,)+);
                ([$($operand.0),+], addresses)
            }
        }
    )* };
}

operands! {
    1: A;
    2: A B;
    3: A B C;
    4: A B C D;
    5: A B C D E;
    6: A B C D E F;
    7: A B C D E F G;
    8: A B C D E F G H;
}

impl sealed::Sealed for () {}

impl<'a> Operands<'a> for () {
    type Args = [Arg<'a>; 0];
    type Addresses = ();

    #[inline]
    fn split(self) -> ([Arg<'a>; 0], ()) {
        ([], ())
    }
}

impl<const N: usize> sealed::Sealed for &[Arg<'_>; N] {}

impl<'a, 'b, const N: usize> Operands<'a> for &'b [Arg<'a>; N] {
    type Args = &'b [Arg<'a>];
    type Addresses = [RawBuffer; N];

    #[inline]
    fn split(self) -> (&'b [Arg<'a>], [RawBuffer; N]) {
        (self, self.each_ref().map(Arg::address))
    }
}

impl sealed::Sealed for &[Arg<'_>] {}

impl<'a, 'b> Operands<'a> for &'b [Arg<'a>] {
    type Args = &'b [Arg<'a>];
    type Addresses = ();

    #[inline]
    fn split(self) -> (&'b [Arg<'a>], ()) {
        (self, ())
    }
}
