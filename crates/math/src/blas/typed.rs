//! The functions that BLAS libraries have four times: for `f32`, `f64` and their complex numbers.

use std::ffi::{c_int, c_void};

use gpustream::hal::library::{Library, symbol};
use gpustream::{Error, Result};

use super::library::{Handle, failure};
use crate::table::Vendor;

/// Memory that a function reads, and memory that it writes, of elements of its type.
type In = *const c_void;
type Out = *mut c_void;

macro_rules! typed_functions {
    ($( $name:ident: [$($cuda:ident)*] [$($hip:ident)*] ($($arg:ident: $ty:ty),* $(,)?); )*) => {
        /// The functions for one type of elements. One that the library lacks is an error when it is called.
        pub(super) struct Typed {
            vendor: Vendor,
            /// The place of the type: `f32`, `f64`, `Complex<f32>`, `Complex<f64>`.
            at: usize,
            $( $name: Option<unsafe extern "C" fn(Handle, $($ty),*) -> u32>, )*
        }

        impl Typed {
            /// Looks up the functions of all types.
            ///
            /// # Safety
            /// `library` is the vendor's library, and is never closed.
            pub(super) unsafe fn load(library: &Library, vendor: Vendor) -> [Self; 4] {
                // SAFETY: the types are the functions' prototypes; we pass a C enum as the integer that it is.
                [0, 1, 2, 3].map(|at| unsafe {
                    Self { vendor, at, $( $name: symbol(library, names::$name(vendor)[at]), )* }
                })
            }

            $(
                /// Calls the vendor's function.
                ///
                /// # Safety
                /// The arguments are as the vendor's manual requires.
                pub(super) unsafe fn $name(&self, handle: Handle, $($arg: $ty),*) -> Result<()> {
                    // SAFETY: the library has this function with this prototype; the arguments are right by this function's
                    // contract.
                    let status = self.$name.map(|function| unsafe { function(handle, $($arg),*) });
                    if status == Some(0) { Ok(()) } else { Err(self.failure(names::$name(self.vendor)[self.at], status)) }
                }
            )*

            #[cold]
            fn failure(&self, function: &'static str, status: Option<u32>) -> Error {
                failure(self.vendor, function, status, None)
            }
        }

        mod names {
            use super::Vendor;

            $(
                pub(super) fn $name(vendor: Vendor) -> [&'static str; 4] {
                    match vendor {
                        Vendor::Nvidia => [$(stringify!($cuda)),*],
                        Vendor::Amd => [$(stringify!($hip)),*],
                    }
                }
            )*
        }

        /// Compares CUDA's prototypes with cudarc's.
        #[cfg(test)]
        mod prototypes {
            use super::{Handle, In, Out, c_int};
            use crate::table::proof::pass;
            use cudarc::cublas::sys as bindings;
            $( prove! { [$($cuda)*] ($($arg: $ty),*) } )*
        }

        /// Compares HIP's prototypes with AMD's.
        #[cfg(test)]
        mod hip_prototypes {
            use super::{Handle, In, Out, c_int};
            use crate::hip_bindings as bindings;
            use crate::table::proof::pass;
            $( prove! { [$($hip)*] ($($arg: $ty),*) } )*
        }
    };
}

#[cfg(test)]
macro_rules! prove {
    ([] $args:tt) => {};
    ([$function:ident $($more:ident)*] ($($arg:ident: $ty:ty),*)) => {
        const _: unsafe fn(Handle, $($ty),*) -> u32 =
            // SAFETY: never called.
            |handle, $($arg),*| unsafe { bindings::$function(pass(handle), $(pass($arg)),*) as u32 };
        prove! { [$($more)*] ($($arg: $ty),*) }
    };
}

typed_functions! {
    gemv: [cublasSgemv_v2 cublasDgemv_v2 cublasCgemv_v2 cublasZgemv_v2]
        [hipblasSgemv hipblasDgemv hipblasCgemv hipblasZgemv](
        op: u32, m: c_int, n: c_int, alpha: In, a: In, a_leading: c_int, x: In, x_step: c_int, beta: In, y: Out, y_step: c_int,
    );
    ger: [cublasSger_v2 cublasDger_v2 cublasCgeru_v2 cublasZgeru_v2]
        [hipblasSger hipblasDger hipblasCgeru hipblasZgeru](
        m: c_int, n: c_int, alpha: In, x: In, x_step: c_int, y: In, y_step: c_int, a: Out, a_leading: c_int,
    );
    gerc: [cublasSger_v2 cublasDger_v2 cublasCgerc_v2 cublasZgerc_v2]
        [hipblasSger hipblasDger hipblasCgerc hipblasZgerc](
        m: c_int, n: c_int, alpha: In, x: In, x_step: c_int, y: In, y_step: c_int, a: Out, a_leading: c_int,
    );
    geam: [cublasSgeam cublasDgeam cublasCgeam cublasZgeam]
        [hipblasSgeam hipblasDgeam hipblasCgeam hipblasZgeam](
        op_a: u32, op_b: u32, m: c_int, n: c_int, alpha: In, a: In, a_leading: c_int, beta: In, b: In, b_leading: c_int,
        c: Out, c_leading: c_int,
    );
    syrk: [cublasSsyrk_v2 cublasDsyrk_v2 cublasCsyrk_v2 cublasZsyrk_v2]
        [hipblasSsyrk hipblasDsyrk hipblasCsyrk hipblasZsyrk](
        triangle: u32, op: u32, n: c_int, k: c_int, alpha: In, a: In, a_leading: c_int, beta: In, c: Out, c_leading: c_int,
    );
    herk: [cublasSsyrk_v2 cublasDsyrk_v2 cublasCherk_v2 cublasZherk_v2]
        [hipblasSsyrk hipblasDsyrk hipblasCherk hipblasZherk](
        triangle: u32, op: u32, n: c_int, k: c_int, alpha: In, a: In, a_leading: c_int, beta: In, c: Out, c_leading: c_int,
    );
    trsm: [cublasStrsm_v2 cublasDtrsm_v2 cublasCtrsm_v2 cublasZtrsm_v2]
        [hipblasStrsm hipblasDtrsm hipblasCtrsm hipblasZtrsm](
        side: u32, triangle: u32, op: u32, diagonal: u32, m: c_int, n: c_int, alpha: In, a: In, a_leading: c_int, b: Out,
        b_leading: c_int,
    );
    trmm: [cublasStrmm_v2 cublasDtrmm_v2 cublasCtrmm_v2 cublasZtrmm_v2]
        [hipblasStrmm hipblasDtrmm hipblasCtrmm hipblasZtrmm](
        side: u32, triangle: u32, op: u32, diagonal: u32, m: c_int, n: c_int, alpha: In, a: In, a_leading: c_int, b: In,
        b_leading: c_int, c: Out, c_leading: c_int,
    );
    dot: [cublasSdot_v2 cublasDdot_v2 cublasCdotu_v2 cublasZdotu_v2]
        [hipblasSdot hipblasDdot hipblasCdotu hipblasZdotu](
        n: c_int, x: In, x_step: c_int, y: In, y_step: c_int, result: Out,
    );
    dotc: [cublasSdot_v2 cublasDdot_v2 cublasCdotc_v2 cublasZdotc_v2]
        [hipblasSdot hipblasDdot hipblasCdotc hipblasZdotc](
        n: c_int, x: In, x_step: c_int, y: In, y_step: c_int, result: Out,
    );
    nrm2: [cublasSnrm2_v2 cublasDnrm2_v2 cublasScnrm2_v2 cublasDznrm2_v2]
        [hipblasSnrm2 hipblasDnrm2 hipblasScnrm2 hipblasDznrm2](n: c_int, x: In, x_step: c_int, result: Out);
    asum: [cublasSasum_v2 cublasDasum_v2 cublasScasum_v2 cublasDzasum_v2]
        [hipblasSasum hipblasDasum hipblasScasum hipblasDzasum](n: c_int, x: In, x_step: c_int, result: Out);
    iamax: [cublasIsamax_v2 cublasIdamax_v2 cublasIcamax_v2 cublasIzamax_v2]
        [hipblasIsamax hipblasIdamax hipblasIcamax hipblasIzamax](n: c_int, x: In, x_step: c_int, result: Out);
    axpy: [cublasSaxpy_v2 cublasDaxpy_v2 cublasCaxpy_v2 cublasZaxpy_v2]
        [hipblasSaxpy hipblasDaxpy hipblasCaxpy hipblasZaxpy](
        n: c_int, alpha: In, x: In, x_step: c_int, y: Out, y_step: c_int,
    );
    rot: [cublasSrot_v2 cublasDrot_v2 cublasCrot_v2 cublasZrot_v2]
        [hipblasSrot hipblasDrot hipblasCrot hipblasZrot](
        n: c_int, x: Out, x_step: c_int, y: Out, y_step: c_int, cosine: In, sine: In,
    );
    rotg: [cublasSrotg_v2 cublasDrotg_v2 cublasCrotg_v2 cublasZrotg_v2]
        [hipblasSrotg hipblasDrotg hipblasCrotg hipblasZrotg](a: Out, b: Out, cosine: Out, sine: Out);
    scal: [cublasSscal_v2 cublasDscal_v2 cublasCscal_v2 cublasZscal_v2]
        [hipblasSscal hipblasDscal hipblasCscal hipblasZscal](n: c_int, alpha: In, x: Out, x_step: c_int);
}
