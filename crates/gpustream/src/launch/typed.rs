//! Launches of kernels whose parameters' types are named in Rust.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use gpustream_hal::{ParamInfo, Result};

use super::{Arg, Launch};
use crate::module::Kernel;
use crate::plain::Plain;
use crate::stream::Stream;
use crate::surface::Surface;
use crate::texture::Texture;
use crate::view::{AsView, AsViewMut, View, ViewMut};
use crate::volatile::{AsVolatile, AsVolatileMut, Volatile, VolatileMut};

/// A kernel whose parameters have the types of the tuple `P`. You find one by
/// [`Module::typed_kernel`](crate::Module::typed_kernel).
///
/// A `TypedKernel` is `Send` and `Sync`. It keeps its module loaded, and dropping it returns at once, like a [`Kernel`].
pub struct TypedKernel<P> {
    kernel: Kernel,
    parameters: PhantomData<fn(P)>,
}

impl<P: Parameters> TypedKernel<P> {
    /// Makes a typed kernel of one whose parameters have been compared with `P`.
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self { kernel, parameters: PhantomData }
    }

    /// Enqueues the kernel on `stream`, after all work that it must wait for because of its memory arguments. Memory that you
    /// pass for a [`View`] counts as read, and memory for a [`ViewMut`] as read and written, whatever the kernel does.
    ///
    /// # Errors
    /// As for [`Kernel::launch`].
    ///
    /// # Safety
    /// As for [`Kernel::launch`]: the kernel must be sound with these arguments in this shape. The types are your claim.
    /// Drivers only tell how many bytes a parameter has, and HIP does not even tell that.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "around a driver's call: see `Lowered`")]
    #[track_caller]
    pub unsafe fn launch(&self, stream: &Stream, launch: &Launch, args: P::Arguments<'_>) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { P::launch(&self.kernel, stream, launch, args) }
    }

    /// Returns the kernel without its types, to ask for its limits or its occupancy.
    pub fn untyped(&self) -> &Kernel {
        &self.kernel
    }
}

impl<P> Clone for TypedKernel<P> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), parameters: PhantomData }
    }
}

impl<P> fmt::Debug for TypedKernel<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernel.fmt(f)
    }
}

/// The type of one parameter of a [`TypedKernel`]. You cannot implement this trait.
///
/// | C++ | parameter | argument |
/// |---|---|---|
/// | `float`, a struct | `f32`, a [`Plain`] struct | the value |
/// | `const T*` | [`View<T>`](View) | `&` of a buffer, of pinned memory or of a view |
/// | `T*` | [`ViewMut<T>`](ViewMut) | `&mut` of one |
/// | `const volatile T*`, `volatile T*` | [`Volatile<T>`](Volatile), [`VolatileMut<T>`](VolatileMut) | the same, or of a flag |
/// | `cudaTextureObject_t`, `cudaSurfaceObject_t` | [`Texture`], [`Surface`] | `&` of a texture, `&mut` of a surface |
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the type of a kernel's parameter",
    note = "write `View<T>` for memory that the kernel reads, `ViewMut<T>` for memory that it writes, or plain data"
)]
pub trait Parameter: sealed::Parameter {
    /// What a launch takes for it.
    type Argument<'a>;

    /// Its size and its alignment in bytes.
    #[doc(hidden)]
    const LAYOUT: [usize; 2] = [size_of::<usize>(); 2];

    #[doc(hidden)]
    fn arg<'a>(argument: &'a mut Self::Argument<'_>) -> Arg<'a>;
}

/// The types of a kernel's parameters: a tuple of up to 16. You cannot implement this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tuple of the types of a kernel's parameters",
    note = "a kernel with one parameter has a tuple with a comma: `(f32,)`; for more than 16, use `Module::kernel`"
)]
pub trait Parameters: sealed::Parameters {
    /// The tuple that a launch takes.
    type Arguments<'a>;

    /// For each parameter its name, and its size and alignment in bytes.
    #[doc(hidden)]
    fn layouts() -> Vec<(&'static str, [usize; 2])>;

    #[doc(hidden)]
    unsafe fn launch(
        kernel: &Kernel,
        stream: &Stream,
        launch: &Launch,
        args: Self::Arguments<'_>,
    ) -> Result<()>;
}

mod sealed {
    pub trait Parameter {}
    pub trait Parameters {}
}

/// Returns where C++ puts parameters of these layouts.
pub(crate) fn placed(layouts: &[(&'static str, [usize; 2])]) -> Vec<ParamInfo> {
    let mut end = 0_usize;
    let place = |&(_, [size, align]): &(_, [usize; 2])| {
        let offset = end.next_multiple_of(align);
        end = offset + size;
        ParamInfo { offset, size }
    };
    layouts.iter().map(place).collect()
}

macro_rules! parameter {
    ([$($generics:tt)*] $type:ty: $argument:ty, |$given:ident| $arg:expr) => {
        impl<$($generics)*> sealed::Parameter for $type {}

        impl<$($generics)*> Parameter for $type {
            type Argument<'a> = $argument;

            #[inline]
            fn arg<'a>($given: &'a mut Self::Argument<'_>) -> Arg<'a> {
                $arg
            }
        }
    };
}
parameter!([T: Plain] View<'_, T>: &'a dyn AsView<T>, |memory| Arg::read(&**memory));
parameter!([T: Plain] ViewMut<'_, T>: &'a mut dyn AsViewMut<T>, |memory| Arg::write(&mut **memory));
parameter!([T: Plain] Volatile<'_, T>: &'a dyn AsVolatile<T>, |memory| Arg::volatile(memory.volatile()));
parameter!([T: Plain] VolatileMut<'_, T>: &'a mut dyn AsVolatileMut<T>, |memory| Arg::volatile_mut(memory.volatile_mut()));
parameter!([] Texture: &'a Texture, |texture| Arg::texture(texture));
parameter!([] Surface: &'a mut Surface, |surface| Arg::surface(surface));

impl<T: Plain> sealed::Parameter for T {}

impl<T: Plain> Parameter for T {
    type Argument<'a> = T;
    const LAYOUT: [usize; 2] = [size_of::<T>(), align_of::<T>()];

    #[inline]
    fn arg(value: &mut T) -> Arg<'_> {
        Arg::value(value)
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name: Parameter),*> sealed::Parameters for ($($name,)*) {}

        impl<$($name: Parameter),*> Parameters for ($($name,)*) {
            type Arguments<'a> = ($($name::Argument<'a>,)*);

            fn layouts() -> Vec<(&'static str, [usize; 2])> {
                vec![$((type_name::<$name>(), $name::LAYOUT)),*]
            }

            #[inline(always)]
            #[allow(clippy::inline_always, reason = "around a driver's call: see `Lowered`")]
            #[allow(non_snake_case, unused_mut, unused_variables, reason = "the tuple may be empty")]
            #[track_caller]
            unsafe fn launch(
                kernel: &Kernel,
                stream: &Stream,
                launch: &Launch,
                ($(mut $name,)*): Self::Arguments<'_>,
            ) -> Result<()> {
                // SAFETY: passed on to the caller.
                unsafe { kernel.launch(stream, launch, &[$($name::arg(&mut $name)),*]) }
            }
        }
    };
}
tuples!();
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);
tuples!(A B C D E F G H I);
tuples!(A B C D E F G H I J);
tuples!(A B C D E F G H I J K);
tuples!(A B C D E F G H I J K L);
tuples!(A B C D E F G H I J K L M);
tuples!(A B C D E F G H I J K L M N);
tuples!(A B C D E F G H I J K L M N O);
tuples!(A B C D E F G H I J K L M N O Q);
