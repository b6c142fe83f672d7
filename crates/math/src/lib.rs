//! Matrix products and Fourier transforms on [`gpustream`]'s streams: the same calls on CUDA (cuBLAS, cuFFT), HIP (hipBLAS, hipFFT)
//! and the CPU device.
//!
//! The routines are methods of a stream. Bring them into scope with the [prelude]:
//!
//! ```
//! use gpustream::Device;
//! use gpustream_math::prelude::*;
//!
//! let stream = Device::open("cpu")?.stream()?;
//! let a = stream.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let mut c = stream.alloc::<f32>(4)?;
//! let a = MatrixView::new(&a, 2, 3)?;                  // two rows, three columns, row after row
//! stream.gemm(&a, a.t(), &mut MatrixViewMut::new(&mut c, 2, 2)?)?;
//! assert_eq!(stream.download(&c)?, [14.0, 32.0, 32.0, 77.0]);
//! # Ok::<(), gpustream::Error>(())
//! ```
//!
//! You set nothing up. A call enqueues its work like a launch and returns: in the stream's order, after all work that its
//! memory needs, in captures and replayed steps too. The vendor's library is opened when a device first needs it, and we keep one
//! handle for each device. Opening takes a moment and cannot be captured, so call [`prepare`](prepare()) before your first capture.
//!
//! **First calls may wait.** On CUDA, a library loads its kernels when it first needs them, and the driver may let that wait for
//! all kernels that run on the device. If such a kernel in turn waits for your thread, both wait forever. So make one call of each
//! kind before you start such kernels, or set `CUDA_MODULE_LOADING=EAGER`.
//!
//! Workspace comes from the device's pool, and the vendor's library allocates nothing. Two streams never share it. We keep it for
//! the last four streams that made calls: 32 MiB each for BLAS (4 MiB on NVIDIA GPUs before Hopper) and 1 MiB each for transforms.
//!
//! | device | [`Blas`](blas::Blas) | [`Fft`](fft::Fft) |
//! |---|---|---|
//! | CUDA | cuBLAS 11 or later, with cuBLASLt | cuFFT 10 or later |
//! | HIP | hipBLAS 2 (ROCm 6.0) or later, with hipBLASLt 1 or later | hipFFT |
//! | CPU | the crate `gemm`, in tiles on the device's workers | the crates `rustfft` and `realfft`, in lines on the device's workers |
//!
//! We look for the libraries where the dynamic linker does, then in the toolkits' usual folders, and in the active Python
//! environment, whose packages (`nvidia-cublas`, `nvidia-cufft`) have them too. The variables `GPUSTREAM_CUBLAS_LIBRARY`,
//! `GPUSTREAM_CUBLASLT_LIBRARY`, `GPUSTREAM_HIPBLAS_LIBRARY`, `GPUSTREAM_HIPBLASLT_LIBRARY`, `GPUSTREAM_CUFFT_LIBRARY` and
//! `GPUSTREAM_HIPFFT_LIBRARY` name a file instead. If there is none, a call fails with [`DriverMissing`](gpustream::ErrorKind::DriverMissing) and says what to install.
//!
//! # Features
//!
//! `blas` is the matrix routines, `fft` the transforms, and `kernels` what we compute by kernels of our own, which a C++ compiler
//! builds: convolutions, and epilogues of products on GPUs. All are on by default. `ndarray`, `nalgebra` and `faer` bring matrices
//! of those crates to a device and back (module `host`).
#![warn(clippy::missing_errors_doc)]
// Each family uses a part of what they share.
#![cfg_attr(
    not(all(feature = "blas", feature = "fft")),
    allow(dead_code, unreachable_pub, unused_imports, unused_macros)
)]

#[cfg(feature = "blas")]
pub mod blas;
mod call;
#[cfg(all(feature = "fft", feature = "kernels"))]
pub mod convolve;
#[cfg(feature = "fft")]
pub mod fft;
#[cfg(test)]
mod hip_bindings;
#[cfg(any(feature = "faer", feature = "nalgebra", feature = "ndarray"))]
pub mod host;
#[cfg(feature = "kernels")]
mod kernels;
mod keys;
mod library;
mod matrix;
mod number;
mod prepare;
mod recent;
mod table;
mod vector;
mod workspace;

pub use library::{LibraryInfo, libraries};
pub use matrix::{Layout, Matrix, MatrixView, MatrixViewMut, Order};
pub use num_complex::Complex;
pub use number::{Number, Scalar};
pub use prepare::prepare;
pub use vector::{VectorView, VectorViewMut};

/// Everything that you need to call the routines on a stream.
pub mod prelude {
    #[cfg(feature = "blas")]
    pub use crate::blas::{Activation, Blas, Compute, Diagonal, Gemm, Rotation, Triangle};
    #[cfg(all(feature = "fft", feature = "kernels"))]
    pub use crate::convolve::{ConvolutionMode, Convolve};
    #[cfg(feature = "fft")]
    pub use crate::fft::{Direction, Fft, FftShape, Spacing};
    #[cfg(any(feature = "faer", feature = "nalgebra", feature = "ndarray"))]
    pub use crate::host::HostMatrices;
    pub use crate::matrix::{Layout, Matrix, MatrixView, MatrixViewMut, Order};
    pub use crate::number::Scalar;
    pub use crate::vector::{VectorView, VectorViewMut};
}
