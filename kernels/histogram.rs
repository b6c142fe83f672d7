//! Histograms of bytes and of `f32`, counted in shared memory. With the feature `histogram` there is also [`Histogram`], with more
//! kinds of bins, weights, and all types.

#[cfg(feature = "histogram")]
mod bins;

#[cfg(feature = "histogram")]
pub use bins::{Binned, Bins, Countable, Histogram, Weight};

gpustream::include_kernels!("histogram");
