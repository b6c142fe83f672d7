//! gpustream's own kernels, with their bindings.
//!
//! Each module holds the bindings of one `.cu` file: load its `Kernels` once per device, then call them. A launcher is
//! generic over the element type; its trait ([`HasAxpy`](elementwise::HasAxpy) for `axpy`) is a bound for generic code.
//! [`Reduce`](reduce::Reduce) and [`Scan`](scan::Scan) are algorithms of several launches, and
//! [`Convert`](convert::Convert) copies between element types.
//!
//! ```
//! use gpustream::Device;
//! use gpustream_kernels::elementwise;
//! use gpustream_kernels::reduce::Reduce;
//!
//! let device = Device::open("cpu")?;
//! let (kernels, reduce) = (elementwise::Kernels::load(&device)?, Reduce::load(&device)?);
//! let stream = device.stream()?;
//! let x = stream.upload(&[1.0f32; 1000])?;
//! let mut y = stream.full(1000, 2.0f32)?;
//! kernels.axpy(&stream, 3.0, &x, &mut y, 1000)?;
//! let sum = reduce.sum(&stream, &y)?;
//! assert_eq!(stream.download(&sum)?, [5000.0]);
//! # Ok::<(), gpustream::Error>(())
//! ```
//!
//! All kernels take any length, also beyond 2³¹ elements, and views at any offset. Results are the same in every run
//! with the same device, lengths and offsets. No function here blocks.
#![warn(clippy::missing_errors_doc)]

mod call;
pub mod convert;
pub mod reduce;
pub mod scan;

/// Several arrays of equal length become their sum, product, smallest, largest or average, element by element: for `f16`,
/// `bf16`, `f32`, `f64` and the integers of 8 to 64 bits.
pub mod combine {
    gpustream::include_kernels!("combine");
}

/// Fill, scale, axpy and add, for `f32`, `f64`, `f16` and `bf16`. The 16-bit types are computed in `f32` and rounded
/// once.
pub mod elementwise {
    gpustream::include_kernels!("elementwise");
}

/// Histograms of bytes and of `f32`, counted in shared memory.
pub mod histogram {
    gpustream::include_kernels!("histogram");
}

/// Transpose and tiled matrix product, for `f32` and `f64`. Matrices are stored row after row without gaps.
pub mod matrix {
    gpustream::include_kernels!("matrix");
}

/// One explicit step of the two-dimensional heat equation, for `f32` and `f64`.
pub mod stencil {
    gpustream::include_kernels!("stencil");
}
