//! Algorithms on the device, and the kernels that come with gpustream.
//!
//! The algorithms are methods of a stream: bring them into scope with the [prelude]. [`Sort`](sort::Sort), [`Scan`](scan::Scan),
//! [`Select`](select::Select), [`ByKey`](by_key::ByKey), [`GroupBy`](group_by::GroupBy), [`TopK`](top_k::TopK),
//! [`Search`](search::Search), [`Quantiles`](quantiles::Quantiles), [`Histogram`](histogram::Histogram),
//! [`Transform`](transform::Transform), [`MultiplyMatrices`](gemm::MultiplyMatrices) and [`Reduce`](reduce::Reduce) say what each does. Their kernels are loaded once for each device, when you first need them.
//! Results whose length only the device knows are [`Counted`]. Each family is a feature of this crate, so that you compile only what you
//! use; by default you get all.
//!
//! The other modules have the bindings for a `.cu` file each: load its `Kernels` once per device, then you can call them. A
//! launcher is generic over the element type. If your code is generic too, use its trait as a bound
//! ([`HasAxpy`](elementwise::HasAxpy) for `axpy`). [`Convert`](convert::Convert) copies between element types.
//!
//! ```
//! use gpustream::Device;
//! use gpustream_kernels::elementwise;
//! use gpustream_kernels::prelude::*;
//!
//! let device = Device::open("cpu")?;
//! let kernels = elementwise::Kernels::load(&device)?;
//! let stream = device.stream()?;
//! let x = stream.upload(&[1.0f32; 1000])?;
//! let mut y = stream.full(1000, 2.0f32)?;
//! kernels.axpy(&stream, 3.0, &x, &mut y, 1000)?;
//! let sum = stream.sum(&y)?;
//! assert_eq!(stream.download(&sum)?, [5000.0]);
//! # Ok::<(), gpustream::Error>(())
//! ```
//!
//! You can pass any length, also above 2³¹ elements, and views at any offset. You get the same result in every run with the same
//! device, lengths and offsets. No function here blocks, except the downloads of [`Counted`] and [`Convert`](convert::Convert).
#![warn(clippy::missing_errors_doc)]
// Families share modules, and a build with few families does not use all of them.
#![cfg_attr(
    not(all(
        feature = "bins",
        feature = "search",
        feature = "select",
        feature = "top-k",
        feature = "transform"
    )),
    allow(dead_code, unreachable_pub)
)]

#[cfg(feature = "select")]
pub mod by_key;
mod call;
#[cfg(feature = "convert")]
pub mod convert;
mod counted;
#[cfg(feature = "gemm")]
pub mod gemm;
#[cfg(all(feature = "select", feature = "sort"))]
pub mod group_by;
#[cfg(feature = "histogram")]
pub mod histogram;
#[cfg(any(feature = "select", feature = "sort", feature = "transform"))]
mod index;
mod number;
mod order;
#[cfg(feature = "search")]
pub mod quantiles;
mod rank;
#[cfg(feature = "reduce")]
pub mod reduce;
#[cfg(feature = "reduce-parts")]
pub mod reduce_parts;
#[cfg(feature = "scan")]
pub mod scan;
#[cfg(feature = "search")]
pub mod search;
#[cfg(feature = "select")]
pub mod select;
#[cfg(feature = "sort")]
pub mod sort;
#[cfg(feature = "scan")]
mod tiles;
#[cfg(feature = "top-k")]
pub mod top_k;
#[cfg(feature = "transform")]
pub mod transform;

pub use counted::{Counted, CountedView, Input, InputMut};
#[cfg(any(feature = "select", feature = "sort", feature = "transform"))]
pub use index::Index;
pub use number::Number;
pub use order::{Key, Order};

/// Everything that you need to call the algorithms on a stream.
///
/// ```
/// use gpustream_kernels::prelude::*;
/// ```
pub mod prelude {
    #[cfg(feature = "gemm")]
    pub use crate::gemm::MultiplyMatrices;
    #[cfg(all(feature = "select", feature = "sort"))]
    pub use crate::group_by::GroupBy;
    #[cfg(feature = "bins")]
    pub use crate::histogram::{Bins, Histogram};
    #[cfg(feature = "reduce")]
    pub use crate::reduce::Reduce;
    #[cfg(feature = "reduce-parts")]
    pub use crate::reduce_parts::ReduceParts;
    #[cfg(feature = "scan")]
    pub use crate::scan::Scan;
    #[cfg(feature = "sort")]
    pub use crate::sort::{Sort, SortOptions};
    #[cfg(feature = "top-k")]
    pub use crate::top_k::TopK;
    #[cfg(feature = "transform")]
    pub use crate::transform::Transform;
    pub use crate::{Counted, Input, InputMut, Key, Number, Order};
    #[cfg(feature = "select")]
    pub use crate::{by_key::ByKey, select::Select};
    #[cfg(feature = "search")]
    pub use crate::{quantiles::Quantiles, search::Search};
}

/// Combines several arrays with the same length into their sum, product, smallest, largest or average, element by element: for
/// `f16`, `bf16`, `f32`, `f64` and the integers with 8 to 64 bits.
#[cfg(feature = "combine")]
pub mod combine {
    gpustream::include_kernels!("combine");
}

/// Fill, scale, axpy and add, for `f32`, `f64`, `f16` and `bf16`. We compute the 16-bit types in `f32` and round once.
#[cfg(feature = "elementwise")]
pub mod elementwise {
    gpustream::include_kernels!("elementwise");
}

/// Transpose and tiled matrix product, for `f32` and `f64`. You store matrices row after row without gaps.
#[cfg(feature = "matrix")]
pub mod matrix {
    gpustream::include_kernels!("matrix");
}

/// One explicit step of the two-dimensional heat equation, for `f32` and `f64`.
#[cfg(feature = "stencil")]
pub mod stencil {
    gpustream::include_kernels!("stencil");
}
