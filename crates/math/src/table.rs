//! Tables of a vendor library's functions. NVIDIA's and AMD's libraries have the same functions with the same prototypes, under
//! different names and with different numbers for their settings.

use gpustream::BackendName;

/// GPU vendors whose libraries we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Nvidia,
    Amd,
}

impl Vendor {
    /// Returns the vendor that makes the devices of a backend, or `None` for the CPU.
    pub(crate) fn of(backend: BackendName) -> Option<Self> {
        match backend {
            BackendName::CUDA => Some(Self::Nvidia),
            BackendName::HIP => Some(Self::Amd),
            _ => None,
        }
    }
}

/// Which of AMD's names a table looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Those of today.
    Current,
    /// Those that functions had before, if they had others.
    Former,
}

/// Defines a table of functions that return a status: a struct with a pointer and a method for each. A method returns the
/// status as a `Result`, by the table's own `failure`.
///
/// The function after `text` returns the library's words for a status; its name is empty if there is none.
///
/// Each function has CUDA's name and HIP's. If AMD has renamed a function, its older name follows after `formerly`. A library
/// must have what is `required`; the rest is `None` if it is missing.
///
/// If the handle's type differs between the vendors, the table is generic over it, and `=` tells CUDA's and HIP's.
///
/// In test builds, CUDA's prototypes are compared with cudarc's, and HIP's with AMD's. What those bindings do not have is
/// `unproved`, and optional.
macro_rules! vendor_functions {
    (
        $(#[$meta:meta])*
        $table:ident $(<$generic:ident = $cuda_type:ty | $hip_type:ty>)?, cudarc: [$($bindings:tt)*];
        text $text:literal | $hip_text:literal;
        required { $($name:ident: $cuda:ident | $hip:ident $(formerly $former:ident)? ($($arg:ident: $ty:ty),* $(,)?);)* }
        optional { $($more:ident: $more_cuda:ident | $more_hip:ident $(formerly $more_former:ident)? ($($more_arg:ident: $more_ty:ty),* $(,)?);)* }
        $(unproved { $($rare:ident: $rare_cuda:ident | $rare_hip:ident ($($rare_arg:ident: $rare_ty:ty),* $(,)?);)* })?
    ) => {
        $(#[$meta])*
        pub(crate) struct $table $(<$generic>)? {
            pub(crate) vendor: $crate::table::Vendor,
            /// Returns the library's words for a status.
            text: Option<unsafe extern "C" fn(u32) -> *const std::ffi::c_char>,
            $( pub(crate) $name: Option<unsafe extern "C" fn($($ty),*) -> u32>, )*
            $( pub(crate) $more: Option<unsafe extern "C" fn($($more_ty),*) -> u32>, )*
            $($( pub(crate) $rare: Option<unsafe extern "C" fn($($rare_ty),*) -> u32>, )*)?
        }

        impl $(<$generic: Copy>)? $table $(<$generic>)? {
            /// Looks up every function. Also returns the names of the required ones that are missing.
            ///
            /// # Safety
            /// `library` is the vendor's library, and is never closed.
            #[allow(unused_variables, reason = "most tables have one spelling for all names")]
            pub(crate) unsafe fn load(
                library: &gpustream::hal::library::Library,
                vendor: $crate::table::Vendor,
                names: $crate::table::Names,
            ) -> (Self, Vec<&'static str>) {
                use $crate::table::Vendor::{Amd, Nvidia};
                use gpustream::hal::library::symbol;
                // SAFETY: the types are the functions' prototypes; we pass a C enum as the integer that it is.
                let table = unsafe {
                    Self {
                        vendor,
                        text: symbol(library, match vendor { Nvidia => $text, Amd => $hip_text }),
                        $( $name: match vendor {
                            Nvidia => symbol(library, stringify!($cuda)),
                            $( Amd if names == $crate::table::Names::Former => symbol(library, stringify!($former)), )?
                            Amd => symbol(library, stringify!($hip)),
                        }, )*
                        $( $more: match vendor {
                            Nvidia => symbol(library, stringify!($more_cuda)),
                            $( Amd if names == $crate::table::Names::Former => symbol(library, stringify!($more_former)), )?
                            Amd => symbol(library, stringify!($more_hip)),
                        }, )*
                        $($( $rare: match vendor {
                            Nvidia => symbol(library, stringify!($rare_cuda)),
                            Amd => symbol(library, stringify!($rare_hip)),
                        }, )*)?
                    }
                };
                let mut missing = Vec::new();
                $(
                    if table.$name.is_none() {
                        missing.push(match vendor { Nvidia => stringify!($cuda), Amd => stringify!($hip) });
                    }
                )*
                (table, missing)
            }

            /// Returns the library's words for a status, if it has any.
            fn words(&self, status: u32) -> Option<String> {
                // SAFETY: the function takes any number and returns a static string.
                self.text.and_then(|words| unsafe { gpustream::hal::driver::text(words(status)) })
            }

            $( $crate::table::vendor_functions! { @method $name: $cuda | $hip ($($arg: $ty),*) } )*
            $( $crate::table::vendor_functions! { @method $more: $more_cuda | $more_hip ($($more_arg: $more_ty),*) } )*
            $($( $crate::table::vendor_functions! { @method $rare: $rare_cuda | $rare_hip ($($rare_arg: $rare_ty),*) } )*)?
        }

        #[cfg(test)]
        #[allow(clippy::wildcard_imports, unused_imports)]
        mod prototypes {
            use std::ffi::{c_char, c_int, c_longlong, c_void};
            use super::*;
            use $crate::table::proof::pass;
            $( type $generic = $cuda_type; )?
            use $($bindings)* as bindings;
            // SAFETY: never called.
            $( const _: unsafe fn($($ty),*) -> u32 = |$($arg),*| unsafe { bindings::$cuda($(pass($arg)),*) as u32 }; )*
            // SAFETY: never called.
            $( const _: unsafe fn($($more_ty),*) -> u32 = |$($more_arg),*| unsafe { bindings::$more_cuda($(pass($more_arg)),*) as u32 }; )*
        }

        #[cfg(test)]
        #[allow(clippy::wildcard_imports, unused_imports)]
        mod hip_prototypes {
            use std::ffi::{c_char, c_int, c_longlong, c_void};
            use super::*;
            use $crate::table::proof::pass;
            $( type $generic = $hip_type; )?
            use $crate::hip_bindings as bindings;
            // SAFETY: never called.
            $( const _: unsafe fn($($ty),*) -> u32 = |$($arg),*| unsafe { bindings::$hip($(pass($arg)),*) as u32 }; )*
            // SAFETY: never called.
            $( const _: unsafe fn($($more_ty),*) -> u32 = |$($more_arg),*| unsafe { bindings::$more_hip($(pass($more_arg)),*) as u32 }; )*
        }
    };
    (@method $name:ident: $cuda:ident | $hip:ident ($($arg:ident: $ty:ty),*)) => {
        /// Calls the vendor's function.
        ///
        /// # Safety
        /// The arguments are as the vendor's manual requires.
        #[inline]
        pub(crate) unsafe fn $name(&self $(, $arg: $ty)*) -> gpustream::Result<()> {
            // SAFETY: the library has this function with this prototype; the arguments are right by this function's contract.
            let status = self.$name.map(|function| unsafe { function($($arg),*) });
            if status == Some(0) {
                return Ok(());
            }
            let name = match self.vendor {
                $crate::table::Vendor::Nvidia => stringify!($cuda),
                $crate::table::Vendor::Amd => stringify!($hip),
            };
            Err(self.failure(name, status))
        }
    };
}
pub(crate) use vendor_functions;

/// Compares our prototypes with those of other bindings, while test builds compile.
#[cfg(test)]
pub(crate) mod proof {
    use std::ffi::c_void;

    /// Our type for something that other bindings call `T`: the same integer or float; a pointer to anything, of the same
    /// mutability; an integer for an enum.
    pub(crate) trait Same<T> {}

    macro_rules! same {
        ($($number:ty),*) => {$(
            impl Same<$number> for $number {}
        )*};
    }
    same!(i32, i64, u64, usize, f32, f64);
    // An enum.
    impl<T> Same<T> for u32 {}
    impl<T> Same<*const T> for *const c_void {}
    impl<T> Same<*mut T> for *mut c_void {}
    impl<T> Same<*mut *mut T> for *mut *mut c_void {}
    impl<T> Same<*const *const T> for *const *const c_void {}
    impl<T> Same<*const *mut T> for *const *mut c_void {}
    // AMD's headers do not say that an array of addresses is only read.
    impl<T> Same<*mut *const T> for *const *const c_void {}
    impl<T> Same<*mut *mut T> for *const *mut c_void {}
    impl Same<Self> for *mut i32 {}
    impl Same<Self> for *mut i64 {}
    impl Same<Self> for *mut usize {}

    /// Stands for handing an argument over. Never called.
    pub(crate) fn pass<A: Same<B>, B>(_: A) -> B {
        const { assert!(size_of::<A>() == size_of::<B>()) }
        unreachable!()
    }
}
